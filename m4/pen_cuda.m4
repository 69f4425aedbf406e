# PEN_CUDA: --with-cuda[=DIR|check|no]. Finds nvcc, the CUDA runtime and cuBLASLt, and tries them. Sets NVCC, NVCCFLAGS, CUDA_CPPFLAGS,
# CUDA_LIBS, CUDA_NEWER_TARGETS; defines PEN_CONFIGURED_DEVICE in config.h; conditionals CUDA (all were found) and CUDA_WANTED (--with-cuda
# was given: a plain make builds the backend; else only make check does). The kernels are compiled for sm_80 and sm_90a, and as PTX for later
# devices; with --with-cuda also for sm_100 and sm_120, where nvcc has them (from 12.8 on). The result names the driver that programs of this
# toolkit need (NVIDIA, CUDA Compatibility, "Minor Version Compatibility"). The runtime is linked statically.
AC_DEFUN([PEN_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
    [build the CUDA backend with the toolkit in DIR @<:@/usr/local/cuda@:>@; its programs need the driver R580 with CUDA 13, R525 with CUDA 12;
     check: compile it in `make check` where it is found @<:@check@:>@])],
    [], [with_cuda=check])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags @<:@-O3@:>@])
  AS_CASE([$with_cuda], [yes|check|no], [cuda_dir=/usr/local/cuda], [cuda_dir=$with_cuda])
  have_cuda=no
  CUDA_NEWER_TARGETS=
  AS_IF([test "x$with_cuda" != xno], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_dir/bin:$PATH])
    CUDA_CPPFLAGS="-isystem $cuda_dir/include"
    CUDA_LIBS="-L$cuda_dir/lib64 -Wl,-rpath,$cuda_dir/lib64 -lcublasLt -lcudart_static -ldl -lrt -lpthread"
    AC_MSG_CHECKING([for the CUDA toolkit in $cuda_dir])
    pen_save_cppflags=$CPPFLAGS pen_save_libs=$LIBS
    CPPFLAGS="$CUDA_CPPFLAGS $CPPFLAGS" LIBS="$CUDA_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
#include <cublasLt.h>]], [[void *found; cublasLtHandle_t handle;
        return cudaGetDriverEntryPointByVersion("", &found, 12000, 0, 0) || cublasLtCreate(&handle)]])],
      [have_cuda=yes], [have_cuda='no: the runtime (libcudart_static), of CUDA 12.5 or later, or cuBLASLt is missing'])
    CPPFLAGS=$pen_save_cppflags LIBS=$pen_save_libs
    AS_IF([test -z "$NVCC"], [have_cuda='no: nvcc is missing'])
    AS_IF([test "$have_cuda" = yes], [
      echo '__global__ void nothing() {}' >conftest.cu
      for pen_arch in 90a 100 120; do
        pen_target="-gencode arch=compute_$pen_arch,code=sm_$pen_arch"
        AS_IF([$NVCC -std=c++17 $pen_target -c -o conftest.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
          [AS_CASE([$pen_arch:$with_cuda], [90a:*|*:check], [], [CUDA_NEWER_TARGETS="$CUDA_NEWER_TARGETS $pen_target"])],
          [test $pen_arch = 90a], [have_cuda="no: $NVCC does not compile for sm_90a"])
      done
      rm -f conftest.cu conftest.o])
    AS_CASE([$have_cuda:`$NVCC --version 2>/dev/null`],
      [yes:*'release 12.'*], [pen_driver='; its programs need the driver R525 or later'],
      [yes:*'release 13.'*], [pen_driver='; its programs need the driver R580 or later'],
      [pen_driver=])
    AC_MSG_RESULT([$have_cuda$pen_driver])
    AS_IF([test "$have_cuda" != yes && test "x$with_cuda" != xcheck], [AC_MSG_ERROR([--with-cuda: $have_cuda; see config.log])])
  ])
  : "${NVCCFLAGS=-O3}"
  AS_IF([test "$have_cuda" = yes && test "x$with_cuda" != xcheck], [pen_device=CUDA], [pen_device=CPU])
  AC_DEFINE_UNQUOTED([PEN_CONFIGURED_DEVICE], [PEN_DEVICE_$pen_device], [The device of a topology that says device = "auto".])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([CUDA_NEWER_TARGETS])
  AM_CONDITIONAL([CUDA], [test "$have_cuda" = yes])
  AM_CONDITIONAL([CUDA_WANTED], [test $pen_device = CUDA])
])
