# gen/topology: reads the topology file into settings
libgen_a_SOURCES += \
  %reldir%/built.c \
  %reldir%/canonical.c \
  %reldir%/literal.c \
  %reldir%/read.c \
  %reldir%/schedule_file.c \
  %reldir%/schedules.def \
  %reldir%/settings.c \
  %reldir%/settings.def \
  %reldir%/settings.h \
  %reldir%/source.c \
  %reldir%/source.h \
  %reldir%/topology.h \
  %reldir%/validate.c \
  %reldir%/validate.h \
  %reldir%/value.c \
  %reldir%/value.h \
  %reldir%/weight_decay.c
