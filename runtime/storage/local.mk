# runtime/storage: checkpoints and weights
libruntime_a_SOURCES += \
  %reldir%/bf16_weights.c \
  %reldir%/bf16_weights.h \
  %reldir%/checkpoint.h \
  %reldir%/checkpoint_load.c \
  %reldir%/checkpoint_save.c \
  %reldir%/checkpoint_tensors.c \
  %reldir%/checkpoint_tensors.h \
  %reldir%/initial_weights.c \
  %reldir%/initial_weights.h \
  %reldir%/manifest.c \
  %reldir%/manifest.h \
  %reldir%/model_files.c \
  %reldir%/model_files.h \
  %reldir%/safetensors.c \
  %reldir%/safetensors.h
