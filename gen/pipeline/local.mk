# gen/pipeline: from the command line to the plans and what is written of them
libgen_a_SOURCES += \
  %reldir%/generate.c \
  %reldir%/generate.h \
  %reldir%/given_actions.c \
  %reldir%/given_actions.h \
  %reldir%/measure_plans.c \
  %reldir%/measure_plans.h \
  %reldir%/options.c \
  %reldir%/options.def \
  %reldir%/options.h \
  %reldir%/output.c \
  %reldir%/output.h \
  %reldir%/partition_hint.c \
  %reldir%/partition_hint.h \
  %reldir%/pipeline.c \
  %reldir%/pipeline.h
