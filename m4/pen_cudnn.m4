# PEN_CUDNN: --with-cudnn[=DIR|check|no], after PEN_CUDA. Finds the headers of NVIDIA's cuDNN, 9.8 or later, and of cudnn-frontend, 1.26 or
# later: in DIR, which may be where pip installed nvidia-cudnn-cu13 and nvidia-cudnn-frontend, else in the toolkit's folder. Programs open
# the library at run time. Sets CUDNN_CPPFLAGS, CUDNN_LIBS (CUDA_LIBS with what such programs need), CUDA_STUBS; conditionals CUDNN (the headers were found: make check asks the
# library for engines) and CUDNN_WANTED (--with-cudnn was given: the CUDA backend runs attention by it).
AC_DEFUN([PEN_CUDNN], [
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn@<:@=DIR@:>@],
    [run attention in bf16 by cuDNN where a GPU has engines for it; headers in DIR @<:@where the CUDA toolkit is@:>@])], [], [with_cudnn=check])
  AS_CASE([$with_cudnn], [yes|check|no], [cudnn_dir=$cuda_dir], [cudnn_dir=$with_cudnn])
  have_cudnn=no
  AS_IF([test "x$with_cudnn" != xno && test "$have_cuda" = yes], [
    cudnn_package=$cudnn_dir
    AS_IF([test -d "$cudnn_dir/nvidia/cudnn"], [cudnn_package=$cudnn_dir/nvidia/cudnn])
    cudnn_lib=$cudnn_package/lib
    AS_IF([test -d "$cudnn_package/lib64"], [cudnn_lib=$cudnn_package/lib64])
    CUDNN_CPPFLAGS="-isystem $cudnn_dir/include -isystem $cudnn_package/include"
    CUDNN_LIBS="-Wl,-rpath,$cudnn_lib $CUDA_LIBS -lstdc++ -ldl"
    AC_MSG_CHECKING([for cuDNN in $cudnn_dir])
    pen_save_cppflags=$CPPFLAGS
    CPPFLAGS="$CUDNN_CPPFLAGS $CUDA_CPPFLAGS $CPPFLAGS"
    AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <cudnn_version.h>
#include <cudnn_frontend_version.h>
#if CUDNN_VERSION < 90800 || CUDNN_FRONTEND_VERSION < 12600
#error "older than 9.8 or 1.26"
#endif]])], [have_cudnn=yes], [have_cudnn='no: headers of cuDNN 9.8 or of cudnn-frontend 1.26, or of later ones, are missing'])
    CPPFLAGS=$pen_save_cppflags
    AC_MSG_RESULT([$have_cudnn])
  ])
  AS_IF([test "$have_cudnn" != yes && test "x$with_cudnn" != xcheck && test "x$with_cudnn" != xno],
    [AC_MSG_ERROR([--with-cudnn: $have_cudnn; see config.log])])
  AS_IF([test "$have_cudnn" = yes && test "x$with_cudnn" != xcheck], [CUDA_LIBS=$CUDNN_LIBS])
  CUDA_STUBS=$cuda_dir/lib64/stubs
  AC_SUBST([CUDNN_CPPFLAGS])
  AC_SUBST([CUDNN_LIBS])
  AC_SUBST([CUDA_STUBS])
  AM_CONDITIONAL([CUDNN], [test "$have_cudnn" = yes])
  AM_CONDITIONAL([CUDNN_WANTED], [test "$have_cudnn" = yes && test "x$with_cudnn" != xcheck])
])
