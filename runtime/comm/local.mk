# runtime/comm: shared memory, control channel, transports
libruntime_a_SOURCES += \
  %reldir%/action_text.c \
  %reldir%/action_text.h \
  %reldir%/arena.c \
  %reldir%/arena.h \
  %reldir%/bootstrap.def \
  %reldir%/control.def \
  %reldir%/control_sync.c \
  %reldir%/control_sync.h \
  %reldir%/control_tcp.c \
  %reldir%/control_tcp.h \
  %reldir%/failure_text.c \
  %reldir%/failure_text.h \
  %reldir%/local_ranks.c \
  %reldir%/local_ranks.h \
  %reldir%/shared_control.c \
  %reldir%/shared_control.h \
  %reldir%/shm.c \
  %reldir%/step_stats.c \
  %reldir%/step_stats.h \
  %reldir%/transport.h
