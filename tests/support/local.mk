# tests/support: what tests share. A program gets the objects of the archive that it refers to, so each .c may need other libraries.
check_LIBRARIES += libtestsupport.a
libtestsupport_a_SOURCES = \
  %reldir%/action_rows.c \
  %reldir%/action_rows.h \
  %reldir%/broken.c \
  %reldir%/broken.h \
  %reldir%/checkpoint_model.c \
  %reldir%/checkpoint_model.h \
  %reldir%/collective_plans.c \
  %reldir%/collective_plans.h \
  %reldir%/fused_ops.c \
  %reldir%/fused_ops.h \
  %reldir%/kernels_product.c \
  %reldir%/kernels_product.h \
  %reldir%/kernels_signature.c \
  %reldir%/kernels_signature.h \
  %reldir%/kernels_support.c \
  %reldir%/kernels_support.h \
  %reldir%/op_cases.c \
  %reldir%/op_cases.h \
  %reldir%/op_changes.c \
  %reldir%/op_changes.h \
  %reldir%/plan_fixture.c \
  %reldir%/plan_fixture.h \
  %reldir%/plans.c \
  %reldir%/plans.h \
  %reldir%/search_cases.c \
  %reldir%/search_cases.h \
  %reldir%/symbolic.c \
  %reldir%/symbolic.h \
  %reldir%/symbolic_machine.c \
  %reldir%/symbolic_machine.h \
  %reldir%/token_file.c \
  %reldir%/token_file.h
EXTRA_DIST += \
  %reldir%/close_order.c \
  %reldir%/costs.sh \
  %reldir%/cuts.sh \
  %reldir%/damage_routes.c \
  %reldir%/end_at.c \
  %reldir%/end_rank.c \
  %reldir%/flip_bits.c \
  %reldir%/flips.sh \
  %reldir%/fault_run.sh \
  %reldir%/library.sh \
  %reldir%/library_calls.c \
  %reldir%/library_loop.c \
  %reldir%/lossy_link.c \
  %reldir%/hardened.sh \
  %reldir%/hosts.sh \
  %reldir%/lose_hosts.sh \
  %reldir%/slurm.sh \
  %reldir%/rounded.py \
  %reldir%/spoil_weights.py \
  %reldir%/samples.py \
  %reldir%/tensors.py \
  %reldir%/updates.py \
  %reldir%/kernels.sh \
  %reldir%/layers.awk \
  %reldir%/lib.sh \
  %reldir%/routers.sh \
  %reldir%/splits.sh \
  %reldir%/train.sh
