# library.sh: what tests of libraries share. A test sources this after lib.sh.

# has_strace: whether programs can be traced here.
has_strace() { command -v strace >/dev/null && strace -o trace true 2>/dev/null; }

# no_memory NAME TRACE LINES: of a program that prints so many lines, one a step, strace -f -o TRACE saw none that allocates, maps, opens or starts
# anything from the first on, in the program and its ranks.
no_memory() {
  awk -v lines="$3" '/ write\(1, "/ { seen++ } seen > 0 && seen < lines' "$2" >steps
  is "$1: strace saw the steps" "$(grep -c ' write(1, "' steps)" "$(($3 - 1))"
  is "$1: no forbidden system call" \
    "$(grep -E ' (brk|mmap|munmap|mremap|clone|clone3|fork|vfork|open|openat|openat2|creat|mprotect|madvise|memfd_create)\(' steps)" ""
}

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
