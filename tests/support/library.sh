# library.sh: what tests of libraries share. A test sources this after lib.sh.

# library NAME [PROGRAM [SECOND]]: the library of the binary NAME, as `make lib` links it, and with PROGRAM.c of tests/support the program
# NAME.PROGRAM, which has the library of SECOND, too.
library() {
  ln -sf "$1" "penstock-$1"
  printf '#include "runtime/library/penstock.h"\nextern PEN_API const struct pen_library pen_library_%s;\nconst struct pen_library pen_library_%s = {"%s"};\n' \
    "$1" "$1" "$1" >"$1.library.c"
  $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" -fPIC -fvisibility=hidden -shared -Wl,-Bsymbolic -Wl,-z,defs -o "libpenstock-$1.so" "$1.library.c" \
    -Wl,--whole-archive "$top_builddir/libclient.a" -Wl,--no-whole-archive -ldl || return 1
  test -z "${2-}" ||
    $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir/runtime/library" -DLIBRARY="$1" -DSECOND="${3-$1}" -o "$1.$2" "$top_srcdir/tests/support/library_$2.c" \
      "./libpenstock-$1.so" "./libpenstock-${3-$1}.so" '-Wl,-rpath,$ORIGIN' -pthread
}
