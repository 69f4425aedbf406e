# PEN_NCCL: --with-nccl[=DIR|check|no], after PEN_CUDA. Finds NVIDIA's NCCL, 2.19 or later: in DIR, else in the toolkit's folder or where the
# compiler looks. Sets NCCL_CPPFLAGS, NCCL_LIBS; conditional NCCL.
AC_DEFUN([PEN_NCCL], [
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl@<:@=DIR@:>@],
    [build the transport nccl with the library in DIR @<:@where the CUDA toolkit is@:>@])], [], [with_nccl=check])
  AS_CASE([$with_nccl], [yes|check|no], [nccl_dir=$cuda_dir], [nccl_dir=$with_nccl])
  have_nccl=no
  AS_IF([test "x$with_nccl" != xno && test "$have_cuda" = yes], [
    nccl_lib=$nccl_dir/lib
    AS_IF([test -d "$nccl_dir/lib64"], [nccl_lib=$nccl_dir/lib64])
    NCCL_CPPFLAGS="-isystem $nccl_dir/include"
    NCCL_LIBS="-L$nccl_lib -Wl,-rpath,$nccl_lib -l:libnccl.so.2"
    AC_MSG_CHECKING([for NCCL in $nccl_dir])
    pen_save_cppflags=$CPPFLAGS pen_save_libs=$LIBS
    CPPFLAGS="$NCCL_CPPFLAGS $CUDA_CPPFLAGS $CPPFLAGS" LIBS="$NCCL_LIBS $CUDA_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>
#if NCCL_VERSION_CODE < 21900
#error "older than 2.19"
#endif]], [[void *made; return ncclMemAlloc(&made, 1)]])],
      [have_nccl=yes], [have_nccl='no: nccl.h or libnccl.so.2 is missing, or older than 2.19'])
    CPPFLAGS=$pen_save_cppflags LIBS=$pen_save_libs
    AC_MSG_RESULT([$have_nccl])
  ])
  AS_IF([test "$have_nccl" != yes && test "x$with_nccl" != xcheck && test "x$with_nccl" != xno],
    [AC_MSG_ERROR([--with-nccl: $have_nccl; see config.log])])
  AC_SUBST([NCCL_CPPFLAGS])
  AC_SUBST([NCCL_LIBS])
  AM_CONDITIONAL([NCCL], [test "$have_nccl" = yes])
])
