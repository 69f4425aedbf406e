# gen/base: memory, errors and sorting
libgen_a_SOURCES += \
  %reldir%/arena.c \
  %reldir%/arena.h \
  %reldir%/base.h \
  %reldir%/error.c \
  %reldir%/error.h \
  %reldir%/escape.c \
  %reldir%/escape.h \
  %reldir%/heap.c \
  %reldir%/heap.h \
  %reldir%/json_file.c \
  %reldir%/json_file.h \
  %reldir%/pass_times.c \
  %reldir%/pass_times.h \
  %reldir%/sort.c \
  %reldir%/sort.h \
  %reldir%/version.h
