# runtime/base: checks, files, options
libruntime_a_SOURCES += \
  %reldir%/base.h \
  %reldir%/check.c \
  %reldir%/check.h \
  %reldir%/child.c \
  %reldir%/child.h \
  %reldir%/crc32.c \
  %reldir%/crc32.h \
  %reldir%/environment.c \
  %reldir%/environment.def \
  %reldir%/environment.h \
  %reldir%/files.c \
  %reldir%/files.h \
  %reldir%/futex_counter.c \
  %reldir%/futex_counter.h \
  %reldir%/key.c \
  %reldir%/key.h \
  %reldir%/learning_rate.c \
  %reldir%/learning_rate.h \
  %reldir%/options.c \
  %reldir%/options.def \
  %reldir%/options.h \
  %reldir%/output.c \
  %reldir%/output.h \
  %reldir%/patterns.c \
  %reldir%/patterns.h \
  %reldir%/safetensors_header.c \
  %reldir%/safetensors_header.h \
  %reldir%/seal.c \
  %reldir%/seal.h \
  %reldir%/stop_signals.c \
  %reldir%/stop_signals.h \
  %reldir%/text_writer.c \
  %reldir%/text_writer.h \
  %reldir%/thread.c \
  %reldir%/thread.h
