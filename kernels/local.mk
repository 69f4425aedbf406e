# kernels: the functions of the ops, for the CPU and for NVIDIA's GPUs
libkernels_a_SOURCES = \
  %reldir%/adamw_correction.h \
  %reldir%/device.h \
  %reldir%/head_loss.c \
  %reldir%/head_loss.h \
  %reldir%/kernels.h \
  %reldir%/ops.def \
  %reldir%/ops.h \
  %reldir%/rope_frequency.h \
  %reldir%/steps.def \
  %reldir%/workspace.c

include %D%/cpu/local.mk
include %D%/cuda/local.mk
