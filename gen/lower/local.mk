# gen/lower: sends, receives and collectives
libgen_a_SOURCES += \
  %reldir%/generate_profiles.c \
  %reldir%/generate_profiles.h \
  %reldir%/lower.c \
  %reldir%/lower.h
