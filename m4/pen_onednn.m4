# PEN_ONEDNN: --with-onednn[=yes|no|check]. Looks for the header of oneDNN 2; the binary loads the library itself, on a CPU with AMX, if it
# is installed (kernels/cpu/onednn.h). Defines PEN_HAS_ONEDNN in config.h.
AC_DEFUN([PEN_ONEDNN], [
  AC_ARG_WITH([onednn], [AS_HELP_STRING([--with-onednn],
    [multiply bf16 by oneDNN 2 where a CPU has AMX @<:@check: if its header is found@:>@])], [], [with_onednn=check])
  have_onednn=no
  AS_IF([test "x$with_onednn" != xno], [
    AC_MSG_CHECKING([for the header of oneDNN 2])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR != 2
#error another interface
#endif]], [])], [have_onednn=yes])
    AC_MSG_RESULT([$have_onednn])
    AS_IF([test "$have_onednn" = no && test "x$with_onednn" = xyes], [AC_MSG_ERROR([--with-onednn: no oneapi/dnnl/dnnl.h of version 2])])
  ])
  AS_IF([test "$have_onednn" = yes], [pen_has_onednn=1], [pen_has_onednn=0])
  AC_DEFINE_UNQUOTED([PEN_HAS_ONEDNN], [$pen_has_onednn], [Whether the header of oneDNN 2 was found.])
])
