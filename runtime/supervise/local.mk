# runtime/supervise: starts and watches ranks
libruntime_a_SOURCES += \
  %reldir%/binding.c \
  %reldir%/binding.h \
  %reldir%/dashboard.c \
  %reldir%/dashboard.h \
  %reldir%/drift.c \
  %reldir%/drift.h \
  %reldir%/early_exit.c \
  %reldir%/early_exit.h \
  %reldir%/host_memory.c \
  %reldir%/host_memory.h \
  %reldir%/internal.h \
  %reldir%/launch.c \
  %reldir%/link_watch.c \
  %reldir%/link_watch.h \
  %reldir%/monitor.c \
  %reldir%/monitor.h \
  %reldir%/processes.c \
  %reldir%/restart.c \
  %reldir%/restart.h \
  %reldir%/signals.c \
  %reldir%/signals.h \
  %reldir%/slow.c \
  %reldir%/slow.h \
  %reldir%/stall.c \
  %reldir%/supervise.h \
  %reldir%/watchdog.c
