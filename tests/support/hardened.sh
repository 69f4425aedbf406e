# hardened.sh: what readelf says of the hardening of programs; sourced after lib.sh.

# is_hardened FILE: it is position-independent, its relocations are read-only once it runs, its stack is not executable, and, where it names
# functions, it checks its stack and the buffers of the C library.
is_hardened() {
  hardened_missing=
  needs() { printf '%s\n' "$hardened_text" | grep -Eq "$2" || hardened_missing="$hardened_missing $1"; }
  hardened_text=$(readelf -hW "$1") && needs position-independent 'Type: *DYN'
  hardened_text=$(readelf -lW "$1") && needs relro 'GNU_RELRO' && needs stack 'GNU_STACK .* RW  *0x'
  hardened_text=$(readelf -dW "$1") && needs bind-now '\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW' && needs pie '\(FLAGS_1\).*PIE'
  hardened_text=$(readelf -sW "$1")
  if printf '%s\n' "$hardened_text" | grep -q ' FUNC '; then
    needs stack-protector '__stack_chk_fail'
    needs fortify '__(memcpy|snprintf|vsnprintf|fprintf|printf|strcpy|read)_chk'
  fi
  test -z "$hardened_missing" || echo "# $1:$hardened_missing"
  test -z "$hardened_missing"
}

# Why there is nothing to look at; empty: there is.
no_hardening() {
  case " ${PEN_LDFLAGS-} $CFLAGS " in
    *-fsanitize*) echo "a build with sanitizers" ;;
    *-z,now*) command -v readelf >/dev/null || echo "no readelf here" ;;
    *) echo "the compiler has none" ;;
  esac
}
