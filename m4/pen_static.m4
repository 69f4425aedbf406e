# PEN_STATIC: whether the generator can be linked without shared libraries, which to load and bind takes a tenth of the time of a small
# plan; it stays position-independent. Sets STATIC_LDFLAGS, empty where archives are missing or sanitizers want their own libraries.
AC_DEFUN([PEN_STATIC], [
  STATIC_LDFLAGS=
  AC_MSG_CHECKING([whether the generator can be linked statically])
  pen_save_libs=$LIBS pen_save_ldflags=$LDFLAGS pen_save_cflags=$CFLAGS
  LIBS="$LIBCONFIG_LIBS $JANSSON_LIBS $NETTLE_LIBS -lm $LIBS" LDFLAGS="$HARDENING_LDFLAGS $LDFLAGS -static-pie"
  CFLAGS="$HARDENING_CFLAGS $CFLAGS $LIBCONFIG_CFLAGS $JANSSON_CFLAGS $NETTLE_CFLAGS"
  AS_CASE([$pen_save_cflags$pen_save_ldflags],
    [*-fsanitize*], [],
    [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <libconfig.h>
#include <jansson.h>
#include <nettle/sha2.h>]], [[config_t config; struct sha256_ctx hash;
config_init(&config); json_decref(json_object()); sha256_init(&hash);]])], [STATIC_LDFLAGS=-static-pie])])
  LIBS=$pen_save_libs LDFLAGS=$pen_save_ldflags CFLAGS=$pen_save_cflags
  AS_IF([test -n "$STATIC_LDFLAGS"], [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
  AC_SUBST([STATIC_LDFLAGS])
])
