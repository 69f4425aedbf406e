# runtime/observe: log, trace, measured costs
libruntime_a_SOURCES += \
  %reldir%/measure.c \
  %reldir%/measure.h \
  %reldir%/observe.h \
  %reldir%/step_log.c \
  %reldir%/step_log.h \
  %reldir%/trace.c \
  %reldir%/trace.h
