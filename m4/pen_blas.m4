# PEN_BLAS: matrix products on the CPU. Sets BLAS_CFLAGS and BLAS_LIBS.
# The serial OpenBLAS is asked for first: it starts no threads of its own.
AC_DEFUN([PEN_BLAS], [
  AC_ARG_VAR([BLAS_CFLAGS], [C compiler flags for cblas.h])
  AC_ARG_VAR([BLAS_LIBS], [linker flags for a BLAS with the CBLAS interface])
  AS_IF([test -z "$BLAS_LIBS"], [
    multiarch=`$CC -print-multiarch 2>/dev/null`
    for libdir in /usr/lib/$multiarch /usr/lib64 /usr/lib; do
      AS_IF([test -z "$BLAS_LIBS" && test -e "$libdir/openblas-serial/libopenblas.so"], [
        BLAS_LIBS="-L$libdir/openblas-serial -Wl,-rpath,$libdir/openblas-serial -lopenblas"
        BLAS_CFLAGS="-I/usr/include/$multiarch/openblas-serial"])
    done
  ])
  AS_IF([test -z "$BLAS_LIBS"], [PKG_CHECK_MODULES([BLAS], [openblas])])
  pen_save_libs=$LIBS pen_save_cppflags=$CPPFLAGS
  LIBS="$BLAS_LIBS $LIBS" CPPFLAGS="$BLAS_CFLAGS $CPPFLAGS"
  AC_MSG_CHECKING([for cblas_sgemm])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]],
      [[cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1);]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([OpenBLAS is missing: run ./bootstrap --install, or set BLAS_CFLAGS and BLAS_LIBS])])
  LIBS=$pen_save_libs CPPFLAGS=$pen_save_cppflags
])
