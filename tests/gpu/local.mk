# tests/gpu: what runs on a GPU, and is skipped without one; the same programs over the emulation
if CUDA
GPU_TESTS = \
  %reldir%/cudnn_engines \
  %reldir%/device_ops \
  %reldir%/device_ops_emulated \
  %reldir%/kernels \
  %reldir%/kernels_emulated
check_PROGRAMS += $(GPU_TESTS) %reldir%/bench %reldir%/bench_emulated %reldir%/describe %reldir%/hop %reldir%/hop_emulated
GPU_TEST_ARCHIVES = libkernels_cuda.a $(KERNEL_TEST_LIBS)
GPU_TEST_LIBS = $(GPU_TEST_ARCHIVES) $(CUDA_LIBS)
if CUDNN
CUDNN_TEST_CPPFLAGS = -DPEN_HAS_CUDNN -DPEN_CUDA_STUBS='"$(CUDA_STUBS)"'
CUDNN_TEST_LIBS = $(CUDNN_OBJECT) $(GPU_TEST_ARCHIVES) $(CUDNN_LIBS)
else
CUDNN_TEST_LIBS = $(GPU_TEST_LIBS)
endif
BENCH_SOURCES = \
  %reldir%/bench.c \
  %reldir%/bench_products.c \
  %reldir%/bench_products.h \
  %reldir%/bench_time.c \
  %reldir%/bench_time.h \
  %reldir%/device.h
%canon_reldir%_bench_SOURCES = $(BENCH_SOURCES)
%canon_reldir%_bench_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS)
%canon_reldir%_bench_LDADD = $(GPU_TEST_LIBS)
%canon_reldir%_bench_emulated_SOURCES = $(BENCH_SOURCES)
%canon_reldir%_bench_emulated_CFLAGS = $(EMULATED_TEST_CFLAGS)
%canon_reldir%_bench_emulated_LDADD = $(EMULATED_TEST_LIBS)
%canon_reldir%_cudnn_engines_SOURCES = %reldir%/cudnn_engines.c
%canon_reldir%_cudnn_engines_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS) $(CUDNN_TEST_CPPFLAGS)
%canon_reldir%_cudnn_engines_LDADD = $(CUDNN_TEST_LIBS)
%canon_reldir%_describe_SOURCES = %reldir%/describe.c
%canon_reldir%_describe_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS) $(CUDNN_TEST_CPPFLAGS)
%canon_reldir%_describe_LDADD = $(CUDNN_TEST_LIBS)
%canon_reldir%_device_ops_SOURCES = %reldir%/device_ops.c %reldir%/device.h %reldir%/two_ranks.c %reldir%/two_ranks.h
%canon_reldir%_device_ops_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS)
%canon_reldir%_device_ops_LDADD = $(GPU_TEST_LIBS)
%canon_reldir%_device_ops_emulated_SOURCES = %reldir%/device_ops.c %reldir%/device.h %reldir%/two_ranks.c %reldir%/two_ranks.h
%canon_reldir%_device_ops_emulated_CFLAGS = $(EMULATED_TEST_CFLAGS)
%canon_reldir%_device_ops_emulated_LDADD = $(EMULATED_TEST_LIBS)
%canon_reldir%_hop_SOURCES = %reldir%/hop.c %reldir%/device.h
%canon_reldir%_hop_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS)
%canon_reldir%_hop_LDADD = $(GPU_TEST_LIBS)
%canon_reldir%_hop_emulated_SOURCES = %reldir%/hop.c %reldir%/device.h
%canon_reldir%_hop_emulated_CFLAGS = $(EMULATED_TEST_CFLAGS)
%canon_reldir%_hop_emulated_LDADD = $(EMULATED_TEST_LIBS)
%canon_reldir%_kernels_SOURCES = %reldir%/kernels.c %reldir%/device.h
%canon_reldir%_kernels_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS)
%canon_reldir%_kernels_LDADD = $(GPU_TEST_LIBS)
%canon_reldir%_kernels_emulated_SOURCES = %reldir%/kernels.c %reldir%/device.h
%canon_reldir%_kernels_emulated_CFLAGS = $(EMULATED_TEST_CFLAGS)
%canon_reldir%_kernels_emulated_LDADD = $(EMULATED_TEST_LIBS)
endif

# What tests/gpu/run-all needs on a machine where nothing can be installed: the programs, and their libraries but for those of glibc, of the
# compiler, and of CUDA with NCCL, which run-all looks for there; and all of it in one file that can be carried.
# train.cfg as cpu, cuda: one rank; ipc_N and nccl_N: N ranks by that transport; zbv_N and pairs_N: by ipc, in zero_bubble_v and in dual_pipe_v;
# bf16_N: by ipc, in bf16; splits_N: by ipc, with weights in two splits; tensor_N and nccl_tensor_N: one rank of N tensor ranks, by ipc and by nccl,
# tensor_all_N: each with all tokens;
# ipc_rN_S and nccl_rN_S: N replicas of two ranks that share out S. And models of their own.
GPU_TRAINED = cpu cuda ipc_2 ipc_4 ipc_8 zbv_4 pairs_4 bf16_1 bf16_4 splits_1 splits_2 tensor_2 tensor_all_2 $(GPU_REPLICAS) $(GPU_MODELS)
GPU_REPLICAS = ipc_r2_none ipc_r2_optimizer ipc_r2_weights
GPU_MODELS = gpt2_124m llama_1b
GPU_TOPOLOGIES = tests/gpu/train.cfg tests/gpu/gpt2_124m.cfg tests/gpu/llama_1b.cfg
if NCCL
GPU_TRAINED += nccl_2 nccl_4 nccl_8 nccl_tensor_2
GPU_REPLICAS += nccl_r2_weights
endif
gpu_settings_cpu = -s cluster.device=cpu -s cluster.threads_per_rank=4
gpu_settings_cuda = -s cluster.device=cuda
gpu_settings_ipc = $(gpu_settings_cuda) -s pipeline.ranks=$(2) -s cluster.transport=ipc
gpu_settings_nccl = $(gpu_settings_cuda) -s pipeline.ranks=$(2) -s cluster.transport=nccl
gpu_settings_zbv = $(gpu_settings_ipc) -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
gpu_settings_pairs = $(gpu_settings_ipc) -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
gpu_settings_bf16 = $(gpu_settings_ipc) -s model.dtype=bf16
gpu_settings_splits = $(gpu_settings_ipc) -s tensor_parallel.splits=2
gpu_settings_tensor = $(gpu_settings_cuda) -s cluster.transport=$(if $(filter nccl_%,$(1)),nccl,ipc) -s tensor_parallel.ranks=$(lastword $(gpu_words)) \
  $(if $(filter all,$(gpu_words)),-s tensor_parallel.sequence=false)
gpu_settings_replicas = $(call gpu_settings_$(word 1,$(1)),,2) -s data_parallel.replicas=$(patsubst r%,%,$(word 2,$(1))) \
  -s pipeline.microbatches=4 -s data_parallel.shard=$(word 3,$(1))
gpu_words = $(subst _, ,$(1))
gpu_settings = $(if $(filter $(1),$(GPU_MODELS)),$(gpu_settings_cuda),$(if $(filter $(1),$(GPU_REPLICAS)),$(call gpu_settings_replicas,$(gpu_words)),$(if \
  $(filter tensor_% nccl_tensor_%,$(1)),$(call gpu_settings_tensor,$(1)),$(call gpu_settings_$(firstword $(gpu_words)),,$(lastword $(gpu_words))))))
gpu_topology = $(srcdir)/tests/gpu/$(if $(filter $(1),$(GPU_MODELS)),$(1),train).cfg
gpu_archives = $(if $(filter nccl_%,$(1)),$(NCCL_LINK) libnccl_calls.a $(NCCL_LIBS)) \
  $(if $(filter-out cpu,$(1)),$(CUDA_LINK) libkernels_cuda.a $(CUDA_LIBS))
GPU_BUNDLED = tests/gpu/bench$(EXEEXT) tests/gpu/describe$(EXEEXT) tests/gpu/hop$(EXEEXT) tests/gpu/kernels$(EXEEXT) tests/gpu/device_ops$(EXEEXT) $(GPU_TRAINED:%=gpu-bundle/train_%)
gpu-bundle/train_%: $(GPU_TOPOLOGIES) penstock-gen$(EXEEXT) libruntime.a $(KERNEL_ARCHIVES) libkernels_cuda.a
	$(if $(filter nccl_%,$*),@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory libnccl_calls.a)
	$(AM_V_GEN)$(MKDIR_P) gpu-bundle && ./penstock-gen$(EXEEXT) -o $@.c $(call gpu_settings,$*) $(call gpu_topology,$*)
	$(AM_V_CC)$(COMPILE_PLAIN) -O0 -g0 -c -o $@.o $@.c
	$(AM_V_CCLD)$(PLAN_LINK) -o $@ $@.o libruntime.a $(call gpu_archives,$*) $(KERNEL_ARCHIVES) $(RUNTIME_LIBS)
gpu-bundle: $(GPU_BUNDLED) penstock-tokens$(EXEEXT)
	rm -rf gpu-bundle/lib && $(MKDIR_P) gpu-bundle/lib && cp $(filter-out gpu-bundle/%,$(GPU_BUNDLED)) gpu-bundle && rm -f gpu-bundle/*.c gpu-bundle/*.o
	cat $(srcdir)/gen/*/*.c >gpu-bundle/train.text && ./penstock-tokens$(EXEEXT) --bytes -o gpu-bundle/train.bin gpu-bundle/train.text
	ldd $(GPU_BUNDLED) | awk '$$2 == "=>" && $$1 !~ /^lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cublasLt|nccl)\.so/ { print $$3 }' | sort -u | \
	  xargs -I FILE cp -L FILE gpu-bundle/lib
	strip gpu-bundle/train_* $(patsubst tests/gpu/%,gpu-bundle/%,$(filter tests/gpu/%,$(GPU_BUNDLED)))
	tar -cf - gpu-bundle | xz --lzma2=preset=3,dict=32MiB >gpu-bundle.tar.xz
.PHONY: gpu-bundle
EXTRA_DIST += $(GPU_TOPOLOGIES) %reldir%/h100.json %reldir%/RESULTS.md %reldir%/peer.py %reldir%/peer_train.py %reldir%/run-all %reldir%/run-all-parts.sh \
  %reldir%/run-all-results.sh
