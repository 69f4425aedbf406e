# PEN_HARDENING: programs whose addresses change from start to start, whose relocations are read-only once they run, and which end when a
# stack or a buffer of known size is overrun. Sets HARDENING_CFLAGS, HARDENING_LDFLAGS and, for code that is optimised, FORTIFY_CFLAGS:
# what the compiler has of them. All are empty with sanitizers, which have checks of their own. CFLAGS and LDFLAGS come later on each
# command line, so what they say counts.
AC_DEFUN([PEN_HARDENING_TRY], [
  pen_save_cflags=$CFLAGS pen_save_ldflags=$LDFLAGS
  CFLAGS="$HARDENING_CFLAGS $2 $CFLAGS -Werror" LDFLAGS="$HARDENING_LDFLAGS $3 $LDFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>
#include <string.h>]], [[char text[64]; return fgets(text, sizeof text, stdin) && strlen(text) > 1;]])],
    [pen_takes=yes], [pen_takes=no])
  CFLAGS=$pen_save_cflags LDFLAGS=$pen_save_ldflags
  AS_IF([test $pen_takes = yes], [$1="$$1 $2" HARDENING_LDFLAGS="$HARDENING_LDFLAGS $3"
    pen_hardened="$pen_hardened $2$3"])
])

AC_DEFUN([PEN_HARDENING], [
  HARDENING_CFLAGS= HARDENING_LDFLAGS= FORTIFY_CFLAGS= pen_hardened=
  AC_MSG_CHECKING([how programs are hardened])
  AS_CASE(["$CFLAGS $LDFLAGS $CC"], [*-fsanitize*], [], [
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#ifndef __PIE__
#error not by itself
#endif]], [])], [pen_hardened=' PIE'], [PEN_HARDENING_TRY([HARDENING_CFLAGS], [-fPIE], [-pie])])
    PEN_HARDENING_TRY([HARDENING_CFLAGS], [-fstack-protector-strong], [])
    PEN_HARDENING_TRY([HARDENING_CFLAGS], [], [-Wl,-z,relro,-z,now])
    PEN_HARDENING_TRY([FORTIFY_CFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3], [])
    AS_IF([test -z "$FORTIFY_CFLAGS"],
      [PEN_HARDENING_TRY([FORTIFY_CFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2], [])])
  ])
  AC_MSG_RESULT([${pen_hardened:- not}])
  AC_SUBST([HARDENING_CFLAGS])
  AC_SUBST([HARDENING_LDFLAGS])
  AC_SUBST([FORTIFY_CFLAGS])
])
