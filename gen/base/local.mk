# gen/base: memory, errors and sorting
libgen_a_SOURCES += \
  %reldir%/arena.c \
  %reldir%/sort.c
