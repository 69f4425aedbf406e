# tests/kernels: the CPU's kernels
KERNEL_TESTS = \
  %reldir%/affine \
  %reldir%/attention \
  %reldir%/attention_cached \
  %reldir%/contract \
  %reldir%/elementwise \
  %reldir%/embedding \
  %reldir%/experts \
  %reldir%/fused \
  %reldir%/layernorm \
  %reldir%/loss \
  %reldir%/matmul \
  %reldir%/narrow \
  %reldir%/norm \
  %reldir%/normal \
  %reldir%/onednn \
  %reldir%/open \
  %reldir%/optimizer \
  %reldir%/splits \
  %reldir%/pointwise \
  %reldir%/product_bf16 \
  %reldir%/rope \
  %reldir%/rows \
  %reldir%/threads
check_PROGRAMS += $(KERNEL_TESTS)
KERNEL_TEST_LIBS = libtestsupport.a $(KERNEL_ARCHIVES) $(BLAS_LIBS) $(CMOCKA_LIBS) -lm
%canon_reldir%_affine_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_attention_SOURCES = %reldir%/attention.c %reldir%/attention_wide_bf16.c %reldir%/attention_dx_wide_bf16.c
%canon_reldir%_attention_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_attention_cached_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_contract_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_elementwise_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_embedding_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_experts_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_fused_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_layernorm_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_loss_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_matmul_SOURCES = %reldir%/matmul.c %reldir%/product_wide.c
%canon_reldir%_matmul_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_narrow_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_norm_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_normal_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_onednn_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_open_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_optimizer_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_splits_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_pointwise_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_product_bf16_SOURCES = %reldir%/product_bf16.c %reldir%/product_wide_bf16.c
%canon_reldir%_product_bf16_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_rope_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_rows_SOURCES = %reldir%/rows.c %reldir%/product_wide.c %reldir%/product_wide_bf16.c
%canon_reldir%_rows_LDADD = $(KERNEL_TEST_LIBS)
%canon_reldir%_threads_LDADD = $(KERNEL_TEST_LIBS) -lpthread
