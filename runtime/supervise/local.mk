# runtime/supervise: starts and watches ranks
libruntime_a_SOURCES += \
  %reldir%/dashboard.c \
  %reldir%/dashboard.h \
  %reldir%/internal.h \
  %reldir%/launch.c \
  %reldir%/processes.c \
  %reldir%/signals.c \
  %reldir%/signals.h \
  %reldir%/stall.c \
  %reldir%/supervise.h \
  %reldir%/watchdog.c
