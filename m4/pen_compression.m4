# PEN_COMPRESSION: --with-zlib, --with-zstd [=yes|no|check]. Finds what penstock-tokens reads compressed text by. Sets COMPRESSION_CFLAGS,
# COMPRESSION_LIBS; defines PEN_ZLIB and PEN_ZSTD where they are found.
AC_DEFUN([PEN_COMPRESSION], [
  COMPRESSION_CFLAGS= COMPRESSION_LIBS=
  PEN_COMPRESSION_LIBRARY([zlib], [ZLIB], [zlib], [gzip])
  PEN_COMPRESSION_LIBRARY([zstd], [ZSTD], [libzstd >= 1.4], [zstd])
  AC_SUBST([COMPRESSION_CFLAGS])
  AC_SUBST([COMPRESSION_LIBS])
])

# PEN_COMPRESSION_LIBRARY(OPTION, NAME, MODULE, FORMAT)
AC_DEFUN([PEN_COMPRESSION_LIBRARY], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1], [penstock-tokens reads text compressed by $4 @<:@check: if $3 is found@:>@])],
    [], [with_$1=check])
  have_$1=no
  AS_IF([test "x$with_$1" != xno], [PKG_CHECK_MODULES([$2], [$3], [have_$1=yes], [have_$1=no])])
  AS_IF([test "$have_$1" = no && test "x$with_$1" = xyes], [AC_MSG_ERROR([--with-$1: $3 is missing])])
  AS_IF([test "$have_$1" = yes],
    [AC_DEFINE([PEN_$2], [1], [penstock-tokens reads $4])
     COMPRESSION_CFLAGS="$COMPRESSION_CFLAGS $$2_CFLAGS" COMPRESSION_LIBS="$COMPRESSION_LIBS $$2_LIBS"])
])
