# runtime/observe: log, trace
libruntime_a_SOURCES += \
  %reldir%/log_tail.c \
  %reldir%/log_tail.h \
  %reldir%/microbatch_losses.c \
  %reldir%/microbatch_losses.h \
  %reldir%/observe.h \
  %reldir%/plan_summary.c \
  %reldir%/plan_summary.h \
  %reldir%/restart_event.c \
  %reldir%/restart_event.h \
  %reldir%/step_log.c \
  %reldir%/step_log.h \
  %reldir%/other_layers.c \
  %reldir%/other_layers.h \
  %reldir%/trace.c \
  %reldir%/trace.h
