# gen/verify: checks the finished plan
libgen_a_SOURCES += \
  %reldir%/action_index.c \
  %reldir%/action_index.h \
  %reldir%/actions.c \
  %reldir%/address_map.c \
  %reldir%/address_map.h \
  %reldir%/arrivals.c \
  %reldir%/cache.c \
  %reldir%/checks.c \
  %reldir%/deadlock.c \
  %reldir%/device_state.c \
  %reldir%/internal.h \
  %reldir%/memory.c \
  %reldir%/memory_actions.c \
  %reldir%/memory_actions.h \
  %reldir%/memory_state.h \
  %reldir%/messages.c \
  %reldir%/op_trace.c \
  %reldir%/op_trace.h \
  %reldir%/persistent.c \
  %reldir%/problem.c \
  %reldir%/problem.h \
  %reldir%/profiles.c \
  %reldir%/program_collectives.c \
  %reldir%/program_collectives.h \
  %reldir%/promela.c \
  %reldir%/promela.h \
  %reldir%/rank_context.h \
  %reldir%/relocated_trace.c \
  %reldir%/relocated_trace.h \
  %reldir%/replicas.c \
  %reldir%/tables.c \
  %reldir%/tied_weight.c \
  %reldir%/verify.c \
  %reldir%/verify.h
