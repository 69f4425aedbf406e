# gen/lower: sends, receives and collectives
libgen_a_SOURCES += \
  %reldir%/lower.c \
  %reldir%/lower.h \
  %reldir%/messages.c \
  %reldir%/messages.h \
  %reldir%/profiles.c \
  %reldir%/profiles.h
