# runtime/commands: train, eval, score, generate, info
libruntime_a_SOURCES += \
  %reldir%/generate.c \
  %reldir%/generate.h \
  %reldir%/info.c \
  %reldir%/info.h \
  %reldir%/sample.c \
  %reldir%/score.c \
  %reldir%/score.h \
  %reldir%/train.c
