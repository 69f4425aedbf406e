# PEN_OPENMP: --disable-openmp. Several threads of a rank on the CPU (cluster.threads_per_rank). Sets OPENMP_CFLAGS; adds it to BLAS_LIBS for
# the linker. Without it a plan of several threads does not start.
AC_DEFUN([PEN_OPENMP], [
  AC_OPENMP
  AS_IF([test -z "$OPENMP_CFLAGS" && test "x$enable_openmp" != xno],
    [AC_MSG_WARN([$CC has no OpenMP: cluster.threads_per_rank above 1 will be refused at the start])])
  BLAS_LIBS="$BLAS_LIBS $OPENMP_CFLAGS"
])
