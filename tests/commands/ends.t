#!/bin/sh
# ends.t: what train says at its start and at its end: what is saved and when, by what it was stopped, and that it is alive.
. "${top_srcdir:-.}/tests/support/lib.sh"
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 32; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; minimum_ratio = 0.25; decay = "cosine"; steps = 4; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
ok "a plan" build two model.cfg
train() { ./two train --data data.bin --seed 7 "$@" 2>err; }
says() { is "$1" "$(grep -c -F -x -e "$2" err)" 1; }

# ---- the start ----
ok "a run without --checkpoint" train --quiet --steps 2
is "it says so, with --quiet, too" "$(cat err)" "penstock: nothing is saved: no --checkpoint"
ok "a run without --save-every" train --quiet --checkpoint run
is "it says so" "$(cat err)" "penstock: not saved before the end: no --save-every"
ok "a run that saves" train --quiet --checkpoint saves --save-every 2
is "it says nothing" "$(cat err)" ""
ok "a run beyond optimizer.steps" train --quiet --checkpoint saves --save-every 2 --resume --steps 6
is "it says the rate of these steps" "$(cat err)" "penstock: steps after optimizer.steps, 4, have the learning rate 0.00025"

core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
taskset -c "$core" ./two train --data data.bin --steps 2 2>err
says "ranks that share cores are named" "two: 2 ranks share 1 core"

# ---- a signal ----
# stopped SIGNAL OPTION...: a run that gets it after two steps.
stopped() {
  stopped_signal=$1
  shift
  rm -f log
  ./two train --data data.bin --seed 7 --steps 100000000 --log log "$@" 2>err &
  stopped_run=$!
  await_steps log 2
  kill -"$stopped_signal" $stopped_run
  wait $stopped_run
  stopped_step=$(log_field log step | tail -n 1)
}
for signal in INT TERM USR1; do
  stopped $signal --checkpoint run.$signal
  says "SIG$signal: the end is said" \
    "two: stopped by SIG$signal after step $stopped_step, saved in run.$signal/step-$(printf %08d "$stopped_step")"
  ok "SIG$signal: and true" test -s "run.$signal/step-$(printf %08d "$stopped_step")/manifest.json"
done
stopped TERM
says "without --checkpoint, too" "two: stopped by SIGTERM after step $stopped_step, not saved: no --checkpoint"
stopped TERM --checkpoint run.quiet --quiet
is "it is progress: not with --quiet" "$(grep -c 'stopped by' err)" 0
stopped TERM --checkpoint run.quiet --quiet --resume
./two eval --data data.bin --checkpoint run.quiet --steps 100000000 2>err &
run=$!
tries=0
until grep -q 'step ' err || test $tries -ge 2400; do sleep 0.05; tries=$((tries + 1)); done
kill -INT $run
wait $run
matches "eval says what it has read" "$(cat err)" "*two: stopped by SIGINT after * of 100000000 steps: the rest was not read"

# ---- hosts that do not come ----
# waits RANK PATTERN: that rank's command ends after six seconds, and says before for whom it waits.
waits() {
  ./far train --data data.bin --rank "$1" --timeout 6 --no-secret 2>err
  is "rank $1 waits for the other host as long as --timeout says" $? 75
  matches "rank $1 says so" "$(cat err)" "*penstock: host $2
penstock: *"
}
if test -n "$OFI_ARCHIVES"; then
  port=$((20000 + $$ % 12000))
  ok "a plan for two hosts" build far model.cfg -s 'cluster.hosts=[127.0.0.1,elsewhere]' -s cluster.interface=127.0.0.1 -s cluster.port=$port -s cluster.bind=none
  waits 0 "127.0.0.1 waits for elsewhere"
  waits 1 "elsewhere waits for host 127.0.0.1, which it does not reach at port $port"
fi

# ---- life before the first step has ended ----
cat >gate.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

/* The ranks, which bind themselves to cores, wait for the file "go". */
int sched_setaffinity(pid_t process, size_t bytes, const cpu_set_t *cores) {
  int (*next)(pid_t, size_t, const cpu_set_t *) = dlsym(RTLD_NEXT, "sched_setaffinity");
  while (access("go", F_OK) != 0) usleep(10000);
  return next(process, bytes, cores);
}
END
if ! ${CC:-cc} -shared -fPIC -o gate.so gate.c -ldl 2>/dev/null; then
  skip "a start that lasts is shown" "no compiler for a shared library"
  finish
fi
LD_PRELOAD=$scratch/gate.so ./two train --data data.bin --steps 2 2>err &
run=$!
tries=0
until grep -q 'starting: ' err || test $tries -ge 2400; do sleep 0.05; tries=$((tries + 1)); done
touch go
wait $run
is "a start that lasts: the run" $? 0
matches "a start that lasts is shown" "$(grep starting err)" "two: starting: [1-9]* s; rank 0 opens its files*"
finish
