# PEN_OFI: --with-ofi[=yes|no|check]. Finds libfabric, for CPU ranks on several hosts. Sets OFI_CFLAGS, OFI_LIBS; conditional OFI.
AC_DEFUN([PEN_OFI], [
  AC_ARG_WITH([ofi], [AS_HELP_STRING([--with-ofi],
    [build the transport ofi with libfabric @<:@check: if it is found@:>@])], [], [with_ofi=check])
  have_ofi=no
  AS_IF([test "x$with_ofi" != xno], [PKG_CHECK_MODULES([OFI], [libfabric >= 1.11], [have_ofi=yes], [have_ofi=no])])
  AS_IF([test "$have_ofi" = no && test "x$with_ofi" = xyes], [AC_MSG_ERROR([--with-ofi: libfabric 1.11 or later is missing])])
  AM_CONDITIONAL([OFI], [test "$have_ofi" = yes])
])
