# gen/emit: writes the plan as C
libgen_a_SOURCES += \
  %reldir%/columns.c \
  %reldir%/columns.h \
  %reldir%/digest.c \
  %reldir%/emit.h \
  %reldir%/internal.h \
  %reldir%/plan_c.c \
  %reldir%/tables_c.c \
  %reldir%/writer.c
