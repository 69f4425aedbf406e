# gen/joint: chooses cut, recomputation and order together
libgen_a_SOURCES += \
  %reldir%/exhaust.c \
  %reldir%/improve.c \
  %reldir%/internal.h \
  %reldir%/joint.c \
  %reldir%/joint.h \
  %reldir%/judge.c \
  %reldir%/level.c \
  %reldir%/order.c \
  %reldir%/stage_cache.c
