#!/bin/sh
# host_memory.t: a plan that does not fit into the memory of its host is refused before its ranks start; one whose ranks are killed before the
# first step is told why, and started again once at most.
. "${top_srcdir:-.}/tests/support/lib.sh"
describe_ranks llama 4 32 48 16
make_tokens "$scratch/data.bin" 20000
ok "a plan is built" build llama "$scratch/llama.cfg"
ok "a checkpoint is made" "$scratch/llama" train --data "$scratch/data.bin" --steps 2 --quiet --checkpoint "$scratch/ckpt"
ok "a plan of terabytes is built" build large "$scratch/llama.cfg" -s batch.microbatch=65536 -s model.sequence=4096

# refused NAME HAS COMMAND...
refused() {
  refused_name=$1 refused_has=$2
  shift 2
  timeout 100 "$@" >"$scratch/out" 2>"$scratch/err"
  is "$refused_name" $? 71
  matches "$refused_name: which is said" "$(complaints "$scratch/err")" "*penstock: * needs *B, this host has $refused_has: model.sequence, memory.recompute, *"
}
refused "more than the machine has" "* GB" "$scratch/large" train --data "$scratch/data.bin"
refused "generate, too" "* GB" "$scratch/large" generate --init "$scratch/ckpt/latest/model.safetensors" --prompt a --tokens 2

# In a mount namespace with files in place of the control groups'.
cat >"$scratch/in_group" <<'END'
limit=$1 version=$2
shift 2
mount -t tmpfs tmpfs /sys/fs/cgroup || exit 77
case $version in
  1) group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) file=memory.limit_in_bytes ;;
  2) group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup) file=memory.max ;;
esac
mkdir -p "$group"
echo "$limit" >"$group/$file"
exec "$@"
END
for version in 1 2; do
  pattern=$(test $version = 1 && echo '^[0-9]*:memory:' || echo '^0::')
  if ! grep -q "$pattern" /proc/self/cgroup || ! unshare --mount sh "$scratch/in_group" 1 $version true 2>/dev/null; then
    skip "a control group of version $version" "none here"
    continue
  fi
  refused "a control group of version $version" "0.001 GB (the limit of its control group)" \
    unshare --mount sh "$scratch/in_group" 1000000 $version "$scratch/llama" train --data "$scratch/data.bin" --steps 2
  for command in "eval --data $scratch/data.bin" "score --data $scratch/data.bin --output $scratch/scores"; do
    refused "${command%% *} in version $version" "0.001 GB (the limit of its control group)" \
      unshare --mount sh "$scratch/in_group" 1000000 $version "$scratch/llama" $command --checkpoint "$scratch/ckpt"
  done
  ok "one of version $version that is large enough" \
    unshare --mount sh "$scratch/in_group" 100000000000 $version "$scratch/llama" train --data "$scratch/data.bin" --steps 2 --quiet
done

# with_memory TOTAL_KB AVAILABLE_KB COMMAND...: where /proc/meminfo says so.
cat >"$scratch/with_memory" <<'END'
printf 'MemTotal: %s kB\nMemFree: 1 kB\nMemAvailable: %s kB\n' "$1" "$2" >"$0.info"
shift 2
mount --bind "$0.info" /proc/meminfo || exit 77
exec "$@"
END
if unshare --mount sh "$scratch/with_memory" 1 1 true 2>/dev/null; then
  refused "a small machine" "0.001 GB" unshare --mount sh "$scratch/with_memory" 1000 1000 "$scratch/llama" train --data "$scratch/data.bin"
  unshare --mount sh "$scratch/with_memory" 1000000000 1000 "$scratch/llama" train --data "$scratch/data.bin" --steps 2 --quiet 2>"$scratch/err"
  is "a machine that is in use" $? 0
  matches "which is said" "$(complaints "$scratch/err")" "penstock: llama needs *B, of which this host has 0.001 GB available: model.sequence, memory.recompute, *"
else
  skip "machines with less memory" "no mount namespaces here"
fi

# ---- ranks that are killed at once ----
cat >"$scratch/kill.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
pid_t fork(void) {
  pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
  const pid_t process = real();
  if (process == 0) kill(getpid(), SIGKILL);
  return process;
}
END
ok "a library that kills ranks is built" $CC $CFLAGS -shared -fPIC -o "$scratch/kill.so" "$scratch/kill.c" -ldl
timeout 100 env LD_PRELOAD="$scratch/kill.so" "$scratch/llama" train --data "$scratch/data.bin" --steps 2 --restarts 5 2>"$scratch/err"
is "ranks that are killed before the first step" $? 75
matches "their line says why" "$(grep -m 1 "lost:" "$scratch/err")" "penstock: rank * lost: signal 9 after start; *; no step was made: memory is the likely cause"
is "they are started again once" "$(grep -c '^penstock: no restart: ranks were killed again before the first step' "$scratch/err")" 1
finish
