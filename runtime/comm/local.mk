# runtime/comm: shared memory, transports
libruntime_a_SOURCES += \
  %reldir%/action_text.c \
  %reldir%/action_text.h \
  %reldir%/arena.c \
  %reldir%/arena.h \
  %reldir%/awaited_collectives.c \
  %reldir%/awaited_collectives.h \
  %reldir%/bootstrap.def \
  %reldir%/bulk_copy.c \
  %reldir%/bulk_copy.h \
  %reldir%/comm.h \
  %reldir%/endpoint.c \
  %reldir%/endpoint.h \
  %reldir%/failure_text.c \
  %reldir%/failure_text.h \
  %reldir%/ipc.c \
  %reldir%/ipc.h \
  %reldir%/links.c \
  %reldir%/links.h \
  %reldir%/nccl.c \
  %reldir%/nccl.h \
  %reldir%/nccl_connect.c \
  %reldir%/nccl_connect.h \
  %reldir%/nccl_rounds.c \
  %reldir%/nccl_rounds.h \
  %reldir%/ofi.h \
  %reldir%/shared_control.c \
  %reldir%/shared_control.def \
  %reldir%/shared_control.h \
  %reldir%/shm.c \
  %reldir%/shm.h \
  %reldir%/step_stats.c \
  %reldir%/step_stats.h \
  %reldir%/step_timing.h \
  %reldir%/transport.c \
  %reldir%/transport.h \
  %reldir%/transport_base.c \
  %reldir%/transport_base.h

# libfabric: linked where the plan's transport is ofi, or auto between hosts.
if OFI
noinst_LIBRARIES += libofi.a
libofi_a_SOURCES = %reldir%/fabric.c %reldir%/fabric.h %reldir%/ofi.c %reldir%/ofi_counters.h %reldir%/probe_kinds.h
libofi_a_CFLAGS = $(AM_CFLAGS) $(OFI_CFLAGS)
endif

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
