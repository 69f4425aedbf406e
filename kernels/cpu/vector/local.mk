# kernels/cpu/vector: compiled once for each instruction set, see isa.h
KERNEL_FLAGS = $(AM_CFLAGS) $(VECTOR_CFLAGS) -fno-math-errno -ffp-contract=off
BF16_SOURCES = \
  %reldir%/attention.c \
  %reldir%/attention_dx.c \
  %reldir%/copy_blocks.c \
  %reldir%/dispatch.c \
  %reldir%/elementwise.c \
  %reldir%/embedding.c \
  %reldir%/experts.c \
  %reldir%/functions.h \
  %reldir%/isa.h \
  %reldir%/layernorm.c \
  %reldir%/loss.c \
  %reldir%/loss_splits.c \
  %reldir%/multiply.h \
  %reldir%/norm.c \
  %reldir%/pointwise.c \
  %reldir%/rope.c \
  %reldir%/row_sum.c \
  %reldir%/logp.c \
  %reldir%/router.c \
  %reldir%/routes.h \
  %reldir%/softmax.h \
  %reldir%/step_functions.h \
  %reldir%/tile.h \
  %reldir%/visible_keys.h \
  %reldir%/vector.h
F32_SOURCES = \
  %reldir%/few_rows.h \
  %reldir%/normal.c \
  %reldir%/optimizer.c \
  %reldir%/product.c \
  %reldir%/product.h \
  %reldir%/to_bf16.c
VECTOR_SOURCES = $(BF16_SOURCES) $(F32_SOURCES)

noinst_LIBRARIES += libkernels-baseline.a libkernels-baseline-bf16.a
libkernels_baseline_a_SOURCES = $(VECTOR_SOURCES)
libkernels_baseline_a_CFLAGS = $(KERNEL_FLAGS) -DPEN_ISA=baseline
libkernels_baseline_bf16_a_SOURCES = $(BF16_SOURCES)
libkernels_baseline_bf16_a_CFLAGS = $(libkernels_baseline_a_CFLAGS) -DPEN_STORED_BF16
# libkernels.a and the others use each other: it is in front of them and behind.
VECTOR_ARCHIVES = libkernels-baseline.a libkernels-baseline-bf16.a
KERNEL_ARCHIVES = libkernels.a $(VECTOR_ARCHIVES) libkernels.a
if X86_64
noinst_LIBRARIES += libkernels-avx2.a libkernels-avx2-bf16.a libkernels-avx512.a libkernels-avx512-bf16.a libkernels-avx512bf16.a
VECTOR_ARCHIVES += libkernels-avx2.a libkernels-avx2-bf16.a libkernels-avx512.a libkernels-avx512-bf16.a libkernels-avx512bf16.a
libkernels_avx2_a_SOURCES = $(VECTOR_SOURCES)
libkernels_avx2_a_CFLAGS = $(KERNEL_FLAGS) -DPEN_ISA=avx2 -mavx2 -mfma
libkernels_avx2_bf16_a_SOURCES = $(BF16_SOURCES)
libkernels_avx2_bf16_a_CFLAGS = $(libkernels_avx2_a_CFLAGS) -DPEN_STORED_BF16
libkernels_avx512_a_SOURCES = $(VECTOR_SOURCES)
libkernels_avx512_a_CFLAGS = $(KERNEL_FLAGS) -DPEN_ISA=avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma
libkernels_avx512_bf16_a_SOURCES = $(BF16_SOURCES)
libkernels_avx512_bf16_a_CFLAGS = $(libkernels_avx512_a_CFLAGS) -DPEN_STORED_BF16
libkernels_avx512bf16_a_SOURCES = $(BF16_SOURCES) %reldir%/few_rows.h %reldir%/product.h %reldir%/product_pairs.c
libkernels_avx512bf16_a_CFLAGS = $(KERNEL_FLAGS) -DPEN_ISA=avx512bf16 -mavx512bf16 -mavx512dq -mavx512vl -mavx2 -mfma -DPEN_STORED_BF16 -DPEN_PAIRS
endif
