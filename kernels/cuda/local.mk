# kernels/cuda: for NVIDIA's GPUs; part of a plain make with --with-cuda, else compiled by make check where the toolkit is installed
SUFFIXES = .cu
CUDA_KERNELS = \
  %reldir%/accumulate.cu \
  %reldir%/adamw.cu \
  %reldir%/add.cu \
  %reldir%/attention.cu \
  %reldir%/attention_bf16.cu \
  %reldir%/attention_dx.cu \
  %reldir%/attention_dx_bf16.cu \
  %reldir%/balance.cu \
  %reldir%/bias_dw.cu \
  %reldir%/check_routes.cu \
  %reldir%/clip_scale.cu \
  %reldir%/copy_blocks.cu \
  %reldir%/cross_entropy.cu \
  %reldir%/cross_entropy_columns.cu \
  %reldir%/dispatch.cu \
  %reldir%/embedding.cu \
  %reldir%/embedding_dw.cu \
  %reldir%/experts.cu \
  %reldir%/gelu.cu \
  %reldir%/gelu_tanh.cu \
  %reldir%/gradient_norms.cu \
  %reldir%/layernorm.cu \
  %reldir%/layernorm_dx.cu \
  %reldir%/logits.cu \
  %reldir%/muon.cu \
  %reldir%/newton_schulz.cu \
  %reldir%/normal.cu \
  %reldir%/slice_sequence.cu \
  %reldir%/pointwise.cu \
  %reldir%/position.cu \
  %reldir%/position_dw.cu \
  %reldir%/rmsnorm.cu \
  %reldir%/rmsnorm_dx.cu \
  %reldir%/rope.cu \
  %reldir%/rope_table.cu \
  %reldir%/route.cu \
  %reldir%/router.cu \
  %reldir%/row_sum.cu \
  %reldir%/logp.cu \
  %reldir%/scale.cu \
  %reldir%/sgd.cu \
  %reldir%/split.cu \
  %reldir%/sum_arrays.cu \
  %reldir%/sum_loss.cu \
  %reldir%/sum_partials.cu \
  %reldir%/sum_tokens.cu \
  %reldir%/swiglu.cu \
  %reldir%/to_bf16.cu
CUDA_INCLUDED = \
  %reldir%/attention.cuh \
  %reldir%/attention_dx.cuh \
  %reldir%/column_sums.cuh \
  %reldir%/cuda.h \
  %reldir%/device.cuh \
  %reldir%/exponential.cuh \
  %reldir%/gated.cuh \
  %reldir%/grouped_product.cuh \
  %reldir%/logit_rows.cuh \
  %reldir%/mma.cuh \
  %reldir%/norm_dx.cuh \
  %reldir%/ops.def \
  %reldir%/pairwise_sum.cuh \
  %reldir%/plain_product.cuh \
  %reldir%/product.h \
  %reldir%/serial_sum.cuh \
  %reldir%/slots.cuh \
  %reldir%/tensor_list.cuh \
  %reldir%/tile_product.cuh \
  %reldir%/to_bf16.cuh \
  %reldir%/update.cuh

CUDA_C_SOURCES = \
  %reldir%/chip.c \
  %reldir%/error.c \
  %reldir%/library.c \
  %reldir%/open.c \
  %reldir%/product.c \
  %reldir%/streams.c
CUDA_TARGETS = -gencode 'arch=compute_80,code=[sm_80,compute_80]' -gencode arch=compute_90a,code=sm_90a $(CUDA_NEWER_TARGETS)
PEN_NVCCFLAGS = -std=c++17 $(CUDA_TARGETS) $(NVCC_WERROR) -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-threadsafe-statics
.cu.$(OBJEXT):
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(NVCC) $(AM_CPPFLAGS) $(PEN_NVCCFLAGS) $(NVCCFLAGS) -MMD -MF $@.d -c -o $@ $<
CLEANFILES += $(CUDA_KERNELS:.cu=.$(OBJEXT).d)
if CUDA
-include $(CUDA_KERNELS:.cu=.$(OBJEXT).d)
libkernels_cuda_a_SOURCES = $(CUDA_KERNELS) $(CUDA_INCLUDED) $(CUDA_C_SOURCES)
libkernels_cuda_a_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS)
if CUDNN_WANTED
libkernels_cuda_a_LIBADD = $(CUDNN_OBJECT)
EXTRA_libkernels_cuda_a_DEPENDENCIES = $(CUDNN_OBJECT)
endif
if CUDA_WANTED
noinst_LIBRARIES += libkernels_cuda.a
else
check_LIBRARIES += libkernels_cuda.a
endif
endif

# Attention by cuDNN: part of the backend with --with-cudnn, else compiled by make check where the headers are installed; without -O2 and -g,
# which make its compilation several times as long: it only enqueues
CUDNN_OBJECT = %reldir%/attention_cudnn.$(OBJEXT)
EXTRA_DIST += %reldir%/attention_cudnn.cc %reldir%/attention_cudnn.h
CLEANFILES += $(CUDNN_OBJECT) $(CUDNN_OBJECT).d
$(CUDNN_OBJECT): %reldir%/attention_cudnn.cc
	$(AM_V_CXX)$(MKDIR_P) $(@D) && $(CXX) $(AM_CPPFLAGS) $(CUDNN_CPPFLAGS) $(CUDA_CPPFLAGS) $(CPPFLAGS) -std=gnu++17 -Wall -Wextra $(WERROR) \
	  $(CXXFLAGS) -O1 -g0 -MMD -MF $@.d -c -o $@ $(srcdir)/%reldir%/attention_cudnn.cc
if CUDNN
-include $(CUDNN_OBJECT).d
endif
