# lib.sh: what the shell tests share. A test sources this, calls `ok CONDITION... -- NAME` or `is`, and ends with `finish`.
#
# top_srcdir, top_builddir, CC, CFLAGS, PEN_CFLAGS, RUNTIME_LIBS and KERNEL_ARCHIVES come from make check.
set -u
# Under nohup(1) SIGHUP is ignored, which a shell cannot undo, and so would the commands be to which tests send it.
case $(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/$$/status) in
  [13579bdf]) exec env --default-signal=HUP sh "$0" "$@" ;;
esac
: "${top_srcdir:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${top_builddir:=$top_srcdir}"
: "${PEN_CFLAGS:=-std=gnu17 -Wall -Wextra}"
gen=${PENSTOCK_GEN:-$top_builddir/penstock-gen}
tokens=$top_builddir/penstock-tokens
topologies=$top_srcdir/topologies
scratch=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
tests_run=0

# make_secret FILE: makes the secret of the runs over several hosts that this test starts.
make_secret() {
  (umask 077 && head -c 32 /dev/urandom >"$1")
  PENSTOCK_SECRET_FILE=$1
  export PENSTOCK_SECRET_FILE
}

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

# fails NAME STATUS TEXT COMMAND...: the command ends with the status and says the text.
fails() {
  fails_name=$1 fails_status=$2 fails_text=$3
  shift 3
  "$@" >"$scratch/said" 2>&1
  is "$fails_name: status" $? "$fails_status"
  matches "$fails_name: message" "$(cat "$scratch/said")" "*$fails_text*"
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

# need_hosts: skips the test unless it can run on emulated hosts (hosts.sh).
need_hosts() {
  test -n "$OFI_ARCHIVES" || skip_all "no libfabric here"
  sh "$top_srcdir/tests/support/hosts.sh" 2 true
  test $? -ne 77 || skip_all "no network namespaces here"
}

finish() {
  echo "1..$tests_run"
  exit 0
}

# build NAME TOPOLOGY [GEN OPTION...]: makes $scratch/NAME, the binary of a plan.
build() {
  build_name=$1 build_topology=$2
  shift 2
  "$gen" --name="$build_name" -o "$scratch/$build_name.c" --link="$scratch/$build_name.link" "$@" "$build_topology" &&
    link_plan "$build_name"
}

# Debug information makes a binary six times as large; of a test's binaries only sanitizers read it.
strip_debug=-Wl,--strip-debug

# link_plan NAME: makes $scratch/NAME from $scratch/NAME.c, and objects and options of the linker in $link_more.
link_plan() {
  (cd "$top_builddir" &&
    $CC $CFLAGS $PEN_CFLAGS -O0 -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    case $(cat "$scratch/$1.link") in
      *ofi | *auto) link_ofi="$OFI_LINK" link_ofi_libs=$OFI_LIBS ;;
      *) link_ofi= link_ofi_libs= ;;
    esac &&
    $CC $CFLAGS $strip_debug ${PEN_LDFLAGS-} '-Wl,-rpath,$ORIGIN/lib' -Wl,--disable-new-dtags -o "$scratch/$1" "$scratch/$1.o" ${link_more-} $link_ofi libruntime.a $KERNEL_ARCHIVES $link_ofi_libs $RUNTIME_LIBS)
}

# make_tokens FILE BYTES [SEED] [FIRST]: a token file of that many byte tokens, from a fixed pseudo-random walk that can be learnt; the FIRST are no
# targets, so that steps of these alone are skipped.
make_tokens() {
  awk -v n="$2" -v seed="${3:-1}" 'BEGIN {
    state = seed; previous = 65
    for (i = 0; i < n; i++) {
      state = (state * 16807) % 2147483647
      previous = state % 8 == 0 ? 32 + int(state / 8) % 64 : 32 + (previous * 5 + 17) % 64
      printf "%c", previous
    }
  }' >"$1.text"
  if test "${4:-0}" -gt 0; then
    {
      printf '{"prompt": "' && head -c "$4" "$1.text" | sed 's/[\\"]/\\&/g'
      printf '", "text": "' && tail -c "+$(($4 + 1))" "$1.text" | sed 's/[\\"]/\\&/g'
      printf '"}\n'
    } >"$1.json"
    "$tokens" --bytes --prompt-field prompt --field text -o "$1" "$1.json" 2>/dev/null
  else
    "$tokens" --bytes -o "$1" "$1.text" 2>/dev/null
  fi
}

# updates_are BEFORE AFTER LEARNING_RATE UPDATES [ENDING=UPDATES]...: the step between two checkpoints counts the updates of each tensor.
updates_are() { "${PYTHON:-python3}" "$top_srcdir/tests/support/updates.py" "$@"; }

# masked_tokens FILE: of a plain token file with a mask, each token and whether it counts as a target, one a line.
masked_tokens() {
  masked_count=$(od -An -td4 -j 8 -N 4 "$1" | tr -d ' ')
  od -An -v -tu2 -w2 -j 1024 -N $((2 * masked_count)) "$1" | tr -d ' ' >"$scratch/masked_tokens"
  od -An -v -tu1 -w1 -j $((1024 + 2 * masked_count)) "$1" |
    awk '{ for (b = 0; b < 8; b++) { print $1 % 2; $1 = int($1 / 2) } }' | head -n "$masked_count" | paste -d ' ' "$scratch/masked_tokens" -
}

# log_field LOG FIELD: that field of every line of a train log, one a line.
log_field() {
  sed -n "s/.*\"$2\":\\([^,}]*\\).*/\\1/p" "$1"
}

# anew FILES OPTION...: removes what a former run has left there, unless an option is --resume: train would refuse to write over it.
anew() {
  case " $* " in *" --resume "*) ;; *) rm -rf $1 ;; esac
}

# train_bits NAME TRAIN OPTION...: trains $scratch/NAME with seed 7; leaves NAME.bits (losses, then norms) and NAME.sums (of the
# checkpoint's files). Without output, unless quiet is empty.
quiet=--quiet
train_bits() {
  bits_name=$1
  shift
  anew "$scratch/$bits_name.log $scratch/$bits_name.ckpt" "$@"
  "$scratch/$bits_name" train --seed 7 $quiet --log "$scratch/$bits_name.log" --checkpoint "$scratch/$bits_name.ckpt" "$@" || return 1
  log_field "$scratch/$bits_name.log" loss >"$scratch/$bits_name.bits"
  log_field "$scratch/$bits_name.log" grad_norm >>"$scratch/$bits_name.bits"
  (cd "$scratch/$bits_name.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$bits_name.sums"
}

# same_bits STEPS NAME OTHER: losses, norms and checkpoints of so many steps agree.
same_bits() {
  test "$(wc -l <"$scratch/$3.bits")" -eq $((2 * $1)) && cmp "$scratch/$2.bits" "$scratch/$3.bits" &&
    cmp "$scratch/$2.sums" "$scratch/$3.sums"
}

# train_plan NAME OPTION...: builds $topology as NAME, and trains three steps.
train_plan() {
  train_name=$1
  shift
  build "$train_name" "$topology" "$@" && train_bits "$train_name" --data data.bin --steps 3
}

# same_as_whole NAME OPTION...: so does it; the bits are those of the plan $whole.
same_as_whole() {
  same_name=$1
  shift
  ok "$same_name" train_plan "$same_name" "$@"
  ok "$same_name: the same bits" same_bits 3 "$whole" "$same_name"
}

# close_to NAME OTHER TOLERANCE: their losses and norms, as many of the one as of the other, agree relatively.
close_to() {
  paste "$scratch/$1.bits" "$scratch/$2.bits" | awk -v most="$3" '{ d = $1 - $2; if (d < 0) d = -d
    if (NF != 2 || !(d <= most * ($1 < 0 ? -$1 : $1))) { bad = 1; print "# " $0 } } END { exit bad || NR == 0 }'
}

# train_model STEPS NAME MODEL OPTION...: builds $scratch/NAME of $scratch/MODEL.cfg and trains it on $scratch/data.bin.
train_model() {
  model_steps=$1 model_name=$2 model_file=$scratch/$3.cfg
  shift 3
  build "$model_name" "$model_file" "$@" && train_bits "$model_name" --data "$scratch/data.bin" --steps "$model_steps"
}

# describe_ranks NAME LAYERS HIDDEN FFN SEQUENCE: $scratch/NAME.cfg, a small Llama on four ranks.
describe_ranks() {
  cat >"$scratch/$1.cfg" <<END
model = { family = "llama"; layers = $2; hidden = $3; heads = 4; kv_heads = 2; ffn = $4; vocab = 256; sequence = $5; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
pipeline = { ranks = 4; microbatches = 8; schedule = "1f1b"; };
END
}

# prepare_hosts [LAYERS HIDDEN FFN SEQUENCE]: what runs over several emulated hosts need: $scratch/llama.cfg of describe_ranks, data.bin, a secret, and
# $port, which no other test has, below those that the kernel gives to connections.
prepare_hosts() {
  describe_ranks llama "${1:-4}" "${2:-32}" "${3:-48}" "${4:-16}"
  make_tokens "$scratch/data.bin" 20000
  make_secret "$scratch/secret"
  port=$((20000 + $$ % 12000))
}

# on_hosts COUNT NAME COMMAND...: a command of $scratch/NAME on each of so many emulated hosts; leaves out.N and err.N of each in $scratch; passes when
# all exit with 0.
on_hosts() {
  cat >"$scratch/on_hosts" <<'END'
scratch=$1 count=$2 name=$3
shift 3
for i in $(seq "$count"); do
  on "host$i" timeout 300 "$scratch/$name" "$@" >"$scratch/out.$i" 2>"$scratch/err.$i" &
  pids="${pids:-} $!"
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit $status
END
  sh "$top_srcdir/tests/support/hosts.sh" "$1" sh "$scratch/on_hosts" "$scratch" "$@"
}

# compare_runs STEPS: of each line MODEL NAME OPTION... of the input, trains $scratch/MODEL_NAME, built of $scratch/MODEL.cfg, as train_model. A run
# whose name ends with "one" is the reference of those after it, which have its bits.
compare_runs() {
  runs_steps=$1
  while read -r runs_model runs_name runs_options; do
    ok "$runs_model: $runs_name trains" train_model "$runs_steps" "${runs_model}_$runs_name" "$runs_model" $runs_options
    case $runs_name in
      *one) runs_reference=${runs_model}_$runs_name ;;
      *) ok "$runs_model: $runs_name has the bits of $runs_reference" same_bits "$runs_steps" "$runs_reference" "${runs_model}_$runs_name" ;;
    esac
  done
}

# other_bits NAME OTHER: their losses and norms, of both some, differ.
other_bits() { test -s "$scratch/$1.bits" && test -s "$scratch/$2.bits" && ! cmp -s "$scratch/$1.bits" "$scratch/$2.bits"; }

# goes_on FROM TO: $scratch/TO continues a copy of FROM's checkpoint from step 3 to step 6, and leaves on.ckpt and on.log.
goes_on() {
  rm -rf "$scratch/on.ckpt" "$scratch/on.log" && cp -r "$scratch/$1.ckpt" "$scratch/on.ckpt" &&
    "$scratch/$2" train --data "$scratch/data.bin" --steps 6 --quiet --resume --checkpoint "$scratch/on.ckpt" --log "$scratch/on.log" \
      2>"$scratch/on.err" && test "$(wc -l <"$scratch/on.log")" -eq 3
}

# describe FAMILY LAYERS SETTINGS: $scratch/FAMILY.cfg, a small model.
describe() {
  cat >"$scratch/$1.cfg" <<END
model = { family = "$1"; layers = $2; hidden = 32; heads = 4; ffn = 48; vocab = 200; sequence = 16; $3 };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
}

# find_python CODE CANDIDATE...: sets python to PEER, or the first of these, that runs the code; fails when none does.
find_python() {
  python_code=$1
  shift
  for python in ${PEER:-} "$@"; do
    if "$python" -c "$python_code" 2>/dev/null; then return 0; fi
  done
  python=
  return 1
}

# as_pytorch STEPS NAME: the first loss and norm of $scratch/NAME, trained for so many steps on $scratch/data.bin, are to 1e-5 those of an f64
# model written with PyTorch's operators; $python has it. With $router_factors, `AUX Z TOGETHER` of families_torch.py, so are the first
# losses of routers; with `AUX Z TOGETHER STEPS` those of all steps, whose weights have to stay.
as_pytorch() {
  "$scratch/$2" init --seed 7 --output "$scratch/$2.start" || return 1
  "$python" "$top_srcdir/tests/commands/families_torch.py" "$scratch/$2.ckpt/latest/config.json" "$scratch/$2.start" "$scratch/data.bin" 8 \
    ${router_factors:-} >"$scratch/$2.torch" || return 1
  pytorch_lines=$(wc -l <"$scratch/$2.torch")
  for pytorch_line in $(seq "$pytorch_lines"); do
    {
      sed -n "${pytorch_line}p;$(($1 + pytorch_line))p" "$scratch/$2.bits"
      log_field "$scratch/$2.log" aux_loss | sed -n "${pytorch_line}p"
      log_field "$scratch/$2.log" z_loss | sed -n "${pytorch_line}p"
    } | tr '\n' ' '
    echo
  done >"$scratch/$2.first"
  echo "# $2: PyTorch $(tr '\n' ' ' <"$scratch/$2.torch"), ours $(tr '\n' ' ' <"$scratch/$2.first")"
  paste -d ' ' "$scratch/$2.first" "$scratch/$2.torch" |
    awk -v want="${router_factors:+8}" '{
      wrong = wrong || NF != (want ? want : 4) || !($NF > 0)
      for (i = 1; i <= NF / 2; i++) { d = $i - $(i + NF / 2); wrong = wrong || d * d > 1e-10 * $i * $i }
    } END { exit wrong || NR == 0 }'
}

# all_as_pytorch STEPS NAME...: each is as_pytorch, where a Python has torch.
all_as_pytorch() {
  pytorch_steps=$1
  shift
  find_python 'import torch' /opt/peer/bin/peer-python python3
  for pytorch_run in "$@"; do
    pytorch_name="$pytorch_run has the loss and gradient norm of PyTorch's f64"
    if test -z "$python"; then
      skip "$pytorch_name" "no Python with torch here: set PEER"
    else
      ok "$pytorch_name" as_pytorch "$pytorch_steps" "$pytorch_run"
    fi
  done
}

# children PID: its processes, in the order in which they were started.
children() {
  sed -n "s/^\\([0-9]*\\) (.*) [A-Za-z] $1 .*/\\1/p" /proc/[0-9]*/stat 2>/dev/null | sort -n
}

# lives PROCESS: it has not ended. (kill -0 finds a child that has, too, until this shell waits for it.)
lives() { grep -q ') [^ZX] ' "/proc/$1/stat" 2>/dev/null; }

# interrupt_until_end PROCESS: sends it SIGINT twice, or more often: it may take one so late that the next one seems to come too soon.
interrupt_until_end() {
  while lives "$1"; do
    kill -INT "$1" 2>/dev/null
    sleep 1.1
  done
}

# complaints FILE...: their lines, without those that name a slow rank, as may happen wherever tests share cores, or say when a run saves, for whom it
# waits, or what is proved.
complaints() {
  cat "$@" | grep -v -e '"event":"slow"' -e ' plan since step ' -e ': proved: ' -e '^penstock: host [^ ]* waits ' -e 'nothing is saved: no --checkpoint$' -e 'not saved before the end: no --save-every$' || :
}

# await_steps LOG COUNT: until so many steps are in the log; two minutes at most.
await_steps() {
  await_tries=0
  while test "$(cat "$1" 2>/dev/null | wc -l)" -lt "$2" && test $await_tries -lt 2400; do
    sleep 0.05
    await_tries=$((await_tries + 1))
  done
}

# await_held NAME PROCESS: until the process of $scratch/NAME holds SIGTERM, for its end in order. (Before that it is this shell's child for a moment,
# which holds all, and then would run our trap.) A process that has ranks holds it, too: /proc shows no signal that sigtimedwait() waits for.
await_held() {
  await_tries=0
  until test "$(readlink "/proc/$2/exe")" = "$scratch/$1" &&
    { grep -q '^SigBlk:.*[4567cdef]...$' "/proc/$2/status" || test -n "$(children "$2")"; } || test $await_tries -ge 2400; do
    sleep 0.05
    await_tries=$((await_tries + 1))
  done
}

# lose_of_replica NAME RANK: $scratch/NAME trains until that rank, counted over all replicas, is killed; all end, and the line names it.
lose_of_replica() {
  rm -f "$scratch/lost.log"
  "$scratch/$1" train --data "$scratch/data.bin" --steps 1000000 --quiet --log "$scratch/lost.log" 2>"$scratch/lost" &
  lost_parent=$!
  await_steps "$scratch/lost.log" 3
  kill -9 "$(children $lost_parent | sed -n "$(($2 + 1))p")"
  wait $lost_parent
  is "$1: a lost rank of a replica ends the run with 75" $? 75
  matches "it is named by its global rank" "$(complaints "$scratch/lost")" \
    "penstock: rank $2 (pid *, host *) lost: signal 9 after *; rank * waits at * for rank $2"
}

# make_astray NAME: makes $scratch/NAME_astray, which runs $scratch/NAME with ranks that leave at a signal, with status 3 at SIGUSR2 and 0 at SIGALRM,
# or from SIGVTALRM on stop where they wait: on the CPU for another rank, else for their device.
make_astray() {
  cat >"$scratch/astray.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile sig_atomic_t stopped;
static void leave(int number) { _exit(number == SIGUSR2 ? 3 : 0); }
static void stop(int number) { (void)number; stopped = 1; }
__attribute__((constructor)) static void ready(void) {
  signal(SIGUSR2, leave);
  signal(SIGALRM, leave);
  signal(SIGVTALRM, stop);
}
long syscall(long number, ...) {
  long a[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  while (stopped && number == SYS_futex && a[1] == FUTEX_WAIT) pause();
  return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
int nanosleep(const struct timespec *time, struct timespec *left) {
  while (stopped && gettid() == getpid()) pause();
  return clock_nanosleep(CLOCK_REALTIME, 0, time, left);
}
END
  printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$scratch/astray.so" "$scratch/$1" >"$scratch/$1_astray"
  chmod +x "$scratch/$1_astray" && $CC -shared -fPIC -o "$scratch/astray.so" "$scratch/astray.c" -ldl
}
