# gen/layout: places tensors and writes the tables
libgen_a_SOURCES += \
  %reldir%/activations.c \
  %reldir%/checkpoint_files.c \
  %reldir%/device_state.c \
  %reldir%/interval_tree.c \
  %reldir%/interval_tree.h \
  %reldir%/layout.c \
  %reldir%/layout.h \
  %reldir%/pack.c \
  %reldir%/pack_first_fit.c \
  %reldir%/pack_internal.h \
  %reldir%/receive_slots.c \
  %reldir%/split_buffers.c \
  %reldir%/stage_buffers.c \
  %reldir%/state.h \
  %reldir%/tables.c
