# runtime/storage: checkpoints and weights
libruntime_a_SOURCES += \
  %reldir%/checkpoint_load.c \
  %reldir%/checkpoint_load.h \
  %reldir%/checkpoint_prune.c \
  %reldir%/checkpoint_prune.h \
  %reldir%/checkpoint_save.c \
  %reldir%/checkpoint_save.h \
  %reldir%/checkpoint_tensors.c \
  %reldir%/checkpoint_state.h \
  %reldir%/checkpoint_tensors.h \
  %reldir%/config_check.c \
  %reldir%/config_check.h \
  %reldir%/folder_mark.c \
  %reldir%/folder_mark.h \
  %reldir%/initial_weights.c \
  %reldir%/initial_weights.h \
  %reldir%/kept_files.c \
  %reldir%/kept_files.h \
  %reldir%/loading.c \
  %reldir%/loading.h \
  %reldir%/manifest.c \
  %reldir%/manifest.h \
  %reldir%/memory_checkpoint.c \
  %reldir%/memory_checkpoint.h \
  %reldir%/memory_convert.c \
  %reldir%/memory_convert.h \
  %reldir%/model_files.c \
  %reldir%/model_files.h \
  %reldir%/safetensors.c \
  %reldir%/safetensors.h \
  %reldir%/storage.h \
  %reldir%/tensor_splits.c \
  %reldir%/tensor_splits.h
