# PEN_CUDA: --with-cuda[=DIR]. Finds nvcc, cuBLASLt and NCCL; off unless asked for. Sets NVCC, CUDA_CPPFLAGS, CUDA_LIBS, HAVE_CUDA.
AC_DEFUN([PEN_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [look for the CUDA toolkit (in DIR) @<:@no@:>@])], [], [with_cuda=no])
  AS_IF([test "x$with_cuda" != xno], [
    AS_IF([test "x$with_cuda" = xyes], [cuda_dir=/usr/local/cuda], [cuda_dir=$with_cuda])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_dir/bin:$PATH])
    AS_IF([test -z "$NVCC"], [AC_MSG_ERROR([--with-cuda: no nvcc in $cuda_dir/bin or on PATH])])
    CUDA_CPPFLAGS="-I$cuda_dir/include"
    CUDA_LIBS="-L$cuda_dir/lib64 -lcublasLt -lnccl -lcudart"
    pen_save_cppflags=$CPPFLAGS
    CPPFLAGS="$CUDA_CPPFLAGS $CPPFLAGS"
    AC_CHECK_HEADERS([cuda_runtime.h cublasLt.h nccl.h], [], [AC_MSG_ERROR([--with-cuda: a header is missing in $cuda_dir/include])])
    CPPFLAGS=$pen_save_cppflags
    AC_MSG_NOTICE([CUDA toolkit found; this version has no kernels for it yet: the plans run on the CPU])
  ])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([CUDA], [test "x$with_cuda" != xno])
])
