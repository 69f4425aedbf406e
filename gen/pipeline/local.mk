# gen/pipeline: from the command line to the plans and what is written of them
libgen_a_SOURCES += \
  %reldir%/choose_recompute.c \
  %reldir%/choose_recompute.h \
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
  %reldir%/pipeline.c \
  %reldir%/pipeline.h \
  %reldir%/plan_jointly.c \
  %reldir%/plan_jointly.h \
  %reldir%/search_effort.c \
  %reldir%/search_effort.h
