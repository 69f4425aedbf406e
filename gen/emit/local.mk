# gen/emit: writes the plan as C
libgen_a_SOURCES += \
  %reldir%/columns.c \
  %reldir%/columns.h \
  %reldir%/digest.c \
  %reldir%/plan_c.c \
  %reldir%/plan_c.h \
  %reldir%/tables_c.c
