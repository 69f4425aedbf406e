# PEN_BLAS: matrix products on the CPU by OpenBLAS, which the binary loads itself where it needs it, if it is installed (kernels/cpu/matmul.c).
# Defines PEN_OPENBLAS in config.h, the file to load; sets BLAS_LIBS, what the kernels are linked with: what dlopen needs. The serial OpenBLAS
# is asked for first: it starts no threads of its own. Sets CBLAS_CFLAGS and CBLAS_LIBS, with which tests emulate cuBLASLt.
AC_DEFUN([PEN_BLAS], [
  AC_ARG_VAR([CBLAS_CFLAGS], [C compiler flags for cblas.h, for tests])
  AC_ARG_VAR([CBLAS_LIBS], [linker flags for a BLAS with the CBLAS interface, for tests])
  AC_ARG_VAR([OPENBLAS], [the file of OpenBLAS that binaries load, where they need it])
  BLAS_LIBS=-ldl
  multiarch=`$CC -print-multiarch 2>/dev/null`
  for libdir in /usr/lib/$multiarch /usr/lib64 /usr/lib; do
    AS_IF([test -z "$OPENBLAS" && test -e "$libdir/openblas-serial/libopenblas.so.0"],
      [OPENBLAS=$libdir/openblas-serial/libopenblas.so.0])
    AS_IF([test -z "$CBLAS_LIBS" && test -e "$libdir/openblas-serial/libopenblas.so"], [
      CBLAS_LIBS="-L$libdir/openblas-serial -Wl,-rpath,$libdir/openblas-serial -lopenblas"
      CBLAS_CFLAGS="-I/usr/include/$multiarch/openblas-serial"])
  done
  AS_IF([test -z "$CBLAS_LIBS"], [PKG_CHECK_MODULES([CBLAS], [openblas],
    [], [AC_MSG_WARN([OpenBLAS is missing: tests that emulate a GPU will not build; run ./bootstrap --install])])])
  AC_DEFINE_UNQUOTED([PEN_OPENBLAS], ["${OPENBLAS:-libopenblas.so.0}"], [The file of OpenBLAS.])
  AC_SUBST([BLAS_LIBS])
])
