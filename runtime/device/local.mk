# runtime/device: streams, IPC and NCCL
libruntime_a_SOURCES += \
  %reldir%/input_staging.c \
  %reldir%/ipc.c \
  %reldir%/link.c \
  %reldir%/link.h \
  %reldir%/nccl.c \
  %reldir%/nccl_connect.c \
  %reldir%/nccl_internal.h \
  %reldir%/nccl_rounds.c \
  %reldir%/nccl_rounds.h \
  %reldir%/progress.c \
  %reldir%/send_hazards.c \
  %reldir%/send_hazards.h \
  %reldir%/stream_executor.c \
  %reldir%/stream_executor.h \
  %reldir%/stream_replicas.c \
  %reldir%/stream_rows.c

# NVIDIA's NCCL behind nccl_api.h: with --with-cuda part of a plain make, else compiled by make check where NCCL is installed.
if NCCL
libnccl_calls_a_SOURCES = %reldir%/nccl_api.c %reldir%/nccl_api.h
libnccl_calls_a_CFLAGS = $(AM_CFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
if CUDA_WANTED
noinst_LIBRARIES += libnccl_calls.a
else
check_LIBRARIES += libnccl_calls.a
endif
endif
