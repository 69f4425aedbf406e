# kernels/cpu: for the CPU
libkernels_a_SOURCES += \
  %reldir%/arrays.c \
  %reldir%/cpu.h \
  %reldir%/device.c \
  %reldir%/embedding_split.c \
  %reldir%/fused.c \
  %reldir%/instruction_set.c \
  %reldir%/matmul.c \
  %reldir%/muon.c \
  %reldir%/onednn.c \
  %reldir%/onednn.h \
  %reldir%/open.c \
  %reldir%/ops.def \
  %reldir%/splits.c \
  %reldir%/product_bf16.c \
  %reldir%/rope_table.c \
  %reldir%/row_ops.c \
  %reldir%/row_ops.h \
  %reldir%/threads.c \
  %reldir%/threads.h
libkernels_a_CFLAGS = $(KERNEL_FLAGS) $(OPENMP_CFLAGS)

include %D%/vector/local.mk
