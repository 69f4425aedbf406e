# runtime/data: token files and the inputs of a step
libruntime_a_SOURCES += \
  %reldir%/blend.c \
  %reldir%/blend.h \
  %reldir%/bucket.c \
  %reldir%/bucket.h \
  %reldir%/data.h \
  %reldir%/data_place.c \
  %reldir%/data_place.h \
  %reldir%/indexed_file.c \
  %reldir%/indexed_file.h \
  %reldir%/mapped_file.c \
  %reldir%/mapped_file.h \
  %reldir%/named_inputs.c \
  %reldir%/named_inputs.h \
  %reldir%/npy_file.c \
  %reldir%/npy_file.h \
  %reldir%/packed_file.c \
  %reldir%/packed_file.h \
  %reldir%/step_inputs.c \
  %reldir%/step_inputs.h \
  %reldir%/target_mask.c \
  %reldir%/target_mask.h \
  %reldir%/token_file.c \
  %reldir%/token_file.h \
  %reldir%/window_order.c \
  %reldir%/window_order.h \
  %reldir%/windows.c \
  %reldir%/windows.h
