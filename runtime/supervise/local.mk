# runtime/supervise: starts and watches ranks
libruntime_a_SOURCES += \
  %reldir%/dashboard.c \
  %reldir%/dashboard.h \
  %reldir%/launch.c \
  %reldir%/watchdog.c
