# lib.sh: what the shell tests share. A test sources this, calls `ok CONDITION... -- NAME` or `is`, and ends with `finish`.
#
# top_srcdir, top_builddir, CC, CFLAGS, RUNTIME_LIBS and KERNEL_ARCHIVES come from make check.
set -u
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}"
: "${top_builddir:=$top_srcdir}"
gen=$top_builddir/penstock-gen
tokens=$top_builddir/penstock-tokens
topologies=$top_srcdir/topologies
scratch=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
tests_run=0

# result STATUS NAME: prints one TAP line.
result() {
  tests_run=$((tests_run + 1))
  if test "$1" -eq 0; then echo "ok $tests_run - $2"; else echo "not ok $tests_run - $2"; fi
}

# ok NAME COMMAND...: passes when the command does.
ok() {
  ok_name=$1
  shift
  if "$@"; then result 0 "$ok_name"; else result 1 "$ok_name"; fi
}

# is NAME GOT WANTED: passes when both texts are equal.
is() {
  if test "x$2" = "x$3"; then
    result 0 "$1"
  else
    result 1 "$1"
    printf '#      got: %s\n#   wanted: %s\n' "$2" "$3" | sed '2,$ { /^#/! s/^/# / }'
  fi
}

# matches NAME GOT PATTERN: passes when the text matches the shell pattern.
matches() {
  case "$2" in
    $3) result 0 "$1" ;;
    *) result 1 "$1"; printf '#      got: %s\n#  pattern: %s\n' "$2" "$3" ;;
  esac
}

# skip NAME REASON
skip() {
  tests_run=$((tests_run + 1))
  echo "ok $tests_run - $1 # SKIP $2"
}

# skip_all REASON: ends the test before any was run.
skip_all() {
  echo "1..0 # SKIP $1"
  exit 0
}

finish() {
  echo "1..$tests_run"
  exit 0
}

# build NAME TOPOLOGY [GEN OPTION...]: makes $scratch/NAME, the binary of a plan.
build() {
  build_name=$1 build_topology=$2
  shift 2
  "$gen" --name="$build_name" -o "$scratch/$build_name.c" "$@" "$build_topology" &&
    link_plan "$build_name"
}

# link_plan NAME: makes $scratch/NAME from $scratch/NAME.c.
link_plan() {
  (cd "$top_builddir" &&
    $CC $CFLAGS -O0 -std=gnu17 -Wall -Wextra -Werror -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    $CC $CFLAGS -o "$scratch/$1" "$scratch/$1.o" libruntime.a $KERNEL_ARCHIVES $RUNTIME_LIBS)
}

# make_tokens FILE BYTES [SEED]: a token file of that many byte tokens, from a fixed pseudo-random walk that can be learnt.
make_tokens() {
  awk -v n="$2" -v seed="${3:-1}" 'BEGIN {
    state = seed; previous = 65
    for (i = 0; i < n; i++) {
      state = (state * 16807) % 2147483647
      previous = state % 8 == 0 ? 32 + int(state / 8) % 64 : 32 + (previous * 5 + 17) % 64
      printf "%c", previous
    }
  }' >"$1.text"
  "$tokens" --bytes -o "$1" "$1.text" 2>/dev/null
}

# log_field LOG FIELD: that field of every line of a train log, one a line.
log_field() {
  sed -n "s/.*\"$2\":\\([^,}]*\\).*/\\1/p" "$1"
}

# train_bits NAME TRAIN OPTION...: trains $scratch/NAME with seed 7; leaves NAME.bits (losses, then norms) and NAME.sums (of the
# checkpoint's files).
train_bits() {
  bits_name=$1
  shift
  "$scratch/$bits_name" train --seed 7 --quiet --log "$scratch/$bits_name.log" --checkpoint "$scratch/$bits_name.ckpt" "$@" || return 1
  log_field "$scratch/$bits_name.log" loss >"$scratch/$bits_name.bits"
  log_field "$scratch/$bits_name.log" grad_norm >>"$scratch/$bits_name.bits"
  (cd "$scratch/$bits_name.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$bits_name.sums"
}

# same_bits STEPS NAME OTHER: losses, norms and checkpoints of so many steps agree.
same_bits() {
  test "$(wc -l <"$scratch/$3.bits")" -eq $((2 * $1)) && cmp "$scratch/$2.bits" "$scratch/$3.bits" &&
    cmp "$scratch/$2.sums" "$scratch/$3.sums"
}

# children PID: its processes, in the order in which they were started.
children() {
  sed -n "s/^\\([0-9]*\\) (.*) [A-Za-z] $1 .*/\\1/p" /proc/[0-9]*/stat 2>/dev/null | sort -n
}

# await_steps LOG COUNT: until so many steps are in the log, or ten seconds have passed.
await_steps() {
  await_tries=0
  while test "$(cat "$1" 2>/dev/null | wc -l)" -lt "$2" && test $await_tries -lt 200; do
    sleep 0.05
    await_tries=$((await_tries + 1))
  done
}
