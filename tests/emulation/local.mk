# tests/emulation: the CUDA code without a GPU: kernels compiled for the host (emulate.h), a recording mock device (mock_device.h)
EMULATED_KERNELS = $(CUDA_KERNELS:kernels/cuda/%.cu=tests/emulation/kernels/%.o)
EMULATED_FLAGS = -DPEN_EMULATED $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) -std=gnu++17 -Wall -Wextra $(WERROR) -Wno-unknown-pragmas -O1 -g1 \
  -ffp-contract=off -fsanitize=alignment -fno-sanitize-recover=all
tests/emulation/kernels/%.o: kernels/cuda/%.cu
	$(AM_V_CXX)$(MKDIR_P) $(@D) && $(CXX) -x c++ -include tests/emulation/emulate.h $(EMULATED_FLAGS) -MMD -MF $@.d -c -o $@ $<
-include $(EMULATED_KERNELS:.o=.o.d)

EMULATED_TESTS = \
  %reldir%/cached_emulated.t \
  %reldir%/commands_emulated.t \
  %reldir%/hosts_emulated.t \
  %reldir%/splits_emulated.t \
  %reldir%/ranks_emulated.t \
  %reldir%/replicas_emulated.t \
  %reldir%/tensor_emulated.t \
  %reldir%/train_emulated.t
EMULATION_TESTS = %reldir%/measurements_emulated.t %reldir%/run_all_emulated.t %reldir%/run_all_order.t %reldir%/nccl_newest.t
MOCK_DEVICE_TESTS = %reldir%/mock_device.t
EXTRA_DIST += $(EMULATED_TESTS) $(EMULATION_TESTS) $(MOCK_DEVICE_TESTS) %reldir%/emulated.sh

check_LIBRARIES += libmock_device.a
libmock_device_a_SOURCES = \
  %reldir%/mock_device.c \
  %reldir%/mock_device.h \
  %reldir%/mock_device_bytes.c \
  %reldir%/mock_device_copies.c \
  %reldir%/mock_device_nccl.c \
  %reldir%/mock_device_play.c \
  %reldir%/mock_device_record.c \
  %reldir%/mock_device_recording.h \
  %reldir%/mock_device_slots.c \
  %reldir%/mock_device_stall.c

if CUDA
check_LIBRARIES += libemulated.a
libemulated_a_SOURCES = \
  $(CUDA_C_SOURCES) \
  %reldir%/emulate.cc \
  %reldir%/emulate.h \
  %reldir%/emulate_products.c \
  %reldir%/emulate_streams.cc \
  %reldir%/emulate_words.cc
libemulated_a_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS) $(CBLAS_CFLAGS) -UPEN_CUDNN
libemulated_a_CXXFLAGS = $(EMULATED_FLAGS)
libemulated_a_LIBADD = $(EMULATED_KERNELS)
EXTRA_libemulated_a_DEPENDENCIES = $(EMULATED_KERNELS)
if NCCL
check_LIBRARIES += libemulated_nccl.a
libemulated_nccl_a_SOURCES = runtime/comm/nccl_api.c %reldir%/emulate_nccl.cc %reldir%/nccl_one_sided.h
libemulated_nccl_a_CFLAGS = $(AM_CFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS) -include %reldir%/nccl_one_sided.h
libemulated_nccl_a_CXXFLAGS = $(NCCL_CPPFLAGS) $(EMULATED_FLAGS)
endif
EMULATED_TEST_CFLAGS = $(AM_CFLAGS) $(CUDA_CPPFLAGS) -DPEN_EMULATED -UPEN_CUDNN
EMULATED_TEST_LIBS = libemulated.a $(KERNEL_TEST_LIBS) -lstdc++ -lubsan $(CBLAS_LIBS)
endif
