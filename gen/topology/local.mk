# gen/topology: reads the topology file into settings
libgen_a_SOURCES += \
  %reldir%/canonical.c \
  %reldir%/source_value.c \
  %reldir%/source_value.h \
  %reldir%/data_parallel.c \
  %reldir%/data_parallel.h \
  %reldir%/defaults.c \
  %reldir%/defaults.h \
  %reldir%/fallback.c \
  %reldir%/fallback.h \
  %reldir%/families.def \
  %reldir%/family_table.c \
  %reldir%/family_table.h \
  %reldir%/literal.c \
  %reldir%/literal.h \
  %reldir%/message.c \
  %reldir%/message.h \
  %reldir%/read.c \
  %reldir%/schedule_table.c \
  %reldir%/schedule_table.h \
  %reldir%/schedules.def \
  %reldir%/settings.c \
  %reldir%/settings.def \
  %reldir%/settings.h \
  %reldir%/shapes.c \
  %reldir%/shapes.h \
  %reldir%/source.c \
  %reldir%/source.h \
  %reldir%/tensor_parallel.c \
  %reldir%/tensor_parallel.h \
  %reldir%/topology.h \
  %reldir%/validate.c \
  %reldir%/validate.h \
  %reldir%/value.c \
  %reldir%/value.h \
  %reldir%/weight_optimizer.c \
  %reldir%/weight_optimizer.h
