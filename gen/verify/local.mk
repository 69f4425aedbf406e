# gen/verify: proves the finished plan
libgen_a_SOURCES += \
  %reldir%/arrivals.c \
  %reldir%/deadlock.c \
  %reldir%/device_state.c \
  %reldir%/internal.h \
  %reldir%/memory.c \
  %reldir%/op_trace.c \
  %reldir%/persistent.c \
  %reldir%/profiles.c \
  %reldir%/promela.c \
  %reldir%/promela.h \
  %reldir%/replicas.c \
  %reldir%/rows.c \
  %reldir%/tables.c \
  %reldir%/tied_weight.c \
  %reldir%/verify.c \
  %reldir%/verify.h
