#!/bin/sh
# faults.t: a rank that dies, stops or stalls ends the run on all ranks with one line and status 75, in time, and leaves nothing
# on the machine; a rank that ends by an error of its own ends the run with that error's status.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/four.cfg" <<'END'
pipeline = { ranks = 4; stages_per_rank = 2; microbatches = 8; schedule = "zero_bubble_v"; };
model = { family = "mlp"; layers = 8; hidden = 64; sequence = 32; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 10; };
END
ok "a plan is built" build four "$scratch/four.cfg"

now_ms() {
  awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime
}

# start NAME OPTION...: trains in the background until stopped; sets run, and ranks to the ranks' processes once steps are made.
start() {
  start_name=$1
  shift
  rm -rf "$scratch/log" "$scratch/ckpt"
  "$scratch/$start_name" train --steps 100000000 --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" "$@" \
    >"$scratch/out" 2>"$scratch/err" &
  run=$!
  await_steps "$scratch/log" 3
  ranks=$(children "$run")
}

# process_of RANK
process_of() {
  echo "$ranks" | sed -n "$(($1 + 1))p"
}

# join: waits for the run; sets status and took_ms.
join() {
  began=$(now_ms)
  wait "$run"
  status=$?
  took_ms=$(($(now_ms) - began))
}

# gone: no rank's process runs. The kernel kills the ranks of a dead parent; on a busy machine that takes some time.
gone() {
  for process in $ranks; do
    tries=1200
    while lives "$process"; do
      tries=$((tries - 1))
      if test "$tries" -eq 0; then return 1; fi
      sleep 0.1
    done
  done
}

no_leftovers() {
  test -z "$(ls -d "$scratch"/ckpt/*.tmp "$scratch"/ckpt/*/*.tmp 2>/dev/null)"
}

# one_line CAUSE RANK: standard error is the lost line alone, of that rank and cause.
one_line() {
  host=$(uname -n)
  action='([0-9]+(F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]+|NORM|PUBLISH|WAIT_NORM|UPDATE)'
  test "$(complaints "$scratch/err" | wc -l)" -eq 1 &&
    grep -Eq "^penstock: rank $2 \\(pid $(process_of "$2"), host $host\\) lost: $1 after ($action|start); (rank [0-9] waits at $action for rank $2|no rank waits for it)\$" \
      "$scratch/err"
}

# waiter_is_real: the rank that the line says waits is not the lost one.
waiter_is_real() {
  grep -Eq 'rank ([0-9]+) waits at .* for rank ([0-9]+)' "$scratch/err" &&
    ! grep -Eq 'rank ([0-9]+) waits at .* for rank \1$' "$scratch/err"
}

# check_lost CAUSE RANK: in time: long before the default --timeout, and seconds on an idle machine.
check_lost() {
  is "rank $2, $1: status" "$status" 75
  ok "rank $2, $1: one line says so" one_line "$1" "$2"
  ok "rank $2, $1: and who waits" waiter_is_real
  echo "# it took $took_ms ms"
  ok "rank $2, $1: in time" test "$took_ms" -le 60000
  ok "rank $2, $1: no process is left" gone
  ok "rank $2, $1: no half-written checkpoint" no_leftovers
  sed 's/^/# /' "$scratch/err"
}

for rank in 0 1 2 3; do
  start four
  kill -KILL "$(process_of $rank)"
  join
  check_lost "signal 9" $rank
done

# The launcher sees both dead, however long this shell takes between the two signals: it is stopped meanwhile.
start four
kill -STOP "$run"
until grep -q ') T ' "/proc/$run/stat" || ! lives "$run"; do sleep 0.01; done
kill -KILL "$(process_of 1)" "$(process_of 3)"
(ranks="$(process_of 1) $(process_of 3)" && gone)
kill -CONT "$run"
join
is "two ranks that are killed at once end the run with 75" "$status" 75
is "and a line names each" "$(sed -n 's/^penstock: rank \([0-9]\) (pid [0-9]*, host .*) lost: signal 9 after .*/\1/p' "$scratch/err" | sort | tr '\n' ' ')" "1 3 "
is "and no other" "$(complaints "$scratch/err" | wc -l)" 2

for rank in 0 2; do
  start four
  kill -STOP "$(process_of $rank)"
  join
  check_lost stopped $rank
done

# A rank that leaves by itself, in the middle of a step and without a message, as when a library calls exit(); and one that stops in a wait
# until what it waits for has come and longer, which says all the while that it waits.
ok "a run that goes astray is built" make_astray four
start four_astray
kill -USR2 "$(process_of 2)"
join
check_lost "exit 3" 2
start four_astray
kill -ALRM "$(process_of 1)"
join
check_lost "exit 0" 1
for rank in 0 2 3; do
  start four_astray --timeout 1
  kill -VTALRM "$(process_of $rank)"
  join
  check_lost "no progress in 1 s" $rank
done

# stop_and_interrupt: rank 1 stops where it waits, and the run, which then stands, gets SIGINT twice.
stop_and_interrupt() {
  kill -VTALRM "$(process_of 1)"
  stands=
  until test "$stands" = "$(wc -l <"$scratch/log")"; do
    stands=$(wc -l <"$scratch/log")
    sleep 0.3
  done
  interrupt_until_end "$run"
  join
}
# A second SIGINT ends a stalled run and reports what was saved.
start four_astray --timeout 1000 --save-every 1
stop_and_interrupt
is "a second SIGINT: status" "$status" 130
is "a second SIGINT: the line" "$(complaints "$scratch/err")" \
  "penstock: killed by a second SIGINT; last checkpoint: step $(readlink "$scratch/ckpt/latest" | sed 's/step-0*//')"
ok "a second SIGINT: no half-written checkpoint" no_leftovers
# After a restart from memory the run begins at a step that is not saved.
start four_astray --timeout 1000 --restarts 1 --recover-every 1
kill -9 "$(process_of 2)"
until grep -q '"event":"restart"' "$scratch/log" || ! lives "$run"; do sleep 0.05; done
steps_at_restart=$(grep -c '"step"' "$scratch/log")
await_steps "$scratch/log" $((steps_at_restart + 3))
ranks=$(children "$run")
stop_and_interrupt
is "a second SIGINT after a restart from memory: the line" "$(complaints "$scratch/err" | tail -n 1)" \
  "penstock: killed by a second SIGINT; no checkpoint"
ok "which is so" test ! -e "$scratch/ckpt/latest"

# A process whose exit the parent never sees, like one that waits in the kernel for a device that hangs: its tracer keeps the exit from the
# parent. The parent waits for it while the tests continue.
cat >"$scratch/hold.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(int count, char **words) {
  if (count != 2 || ptrace(PTRACE_SEIZE, atoi(words[1]), 0, 0) != 0) return 1;
  puts("held");
  fflush(stdout);
  return pause();
}
END
ok "what holds a process is built" $CC -o "$scratch/hold" "$scratch/hold.c"
start four
ln "$scratch/err" "$scratch/held.err"
rm "$scratch/err"
held_run=$run held=$(process_of 1)
"$scratch/hold" "$held" >"$scratch/held" &
holder=$!
tries=0
until test -s "$scratch/held" || ! lives $holder || test $tries -ge 2400; do tries=$((tries + 1)) && sleep 0.1; done
kill -KILL "$(process_of 0)"
sleep 2 # the others are gone

# A checkpoint after each step, and a rank that dies somewhere in it.
for rank in 0 3; do
  start four --save-every 1
  kill -KILL "$(process_of $rank)"
  join
  is "killed while saving, rank $rank: status" "$status" 75
  ok "killed while saving, rank $rank: no half-written checkpoint" no_leftovers
  "$scratch/four" train --steps 1 --quiet --checkpoint "$scratch/ckpt" --resume 2>"$scratch/err2"
  is "killed while saving, rank $rank: the latest one is whole" $? 0
done

# One action that takes longer than the timeout: the others wait for it, directly or through a chain.
cat >"$scratch/slow.cfg" <<'END'
pipeline = { ranks = 3; microbatches = 3; schedule = "1f1b"; };
model = { family = "mlp"; layers = 3; hidden = 1536; sequence = 1536; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 2; };
END
ok "a slow plan is built" build slow "$scratch/slow.cfg"
"$scratch/slow" train --quiet --timeout 0.1 >"$scratch/out" 2>"$scratch/err"
is "a rank that stalls: status" $? 75
ok "a rank that stalls: the line" grep -Eq \
  '^penstock: rank [0-2] .* lost: no progress in 0.1 s after [^ ]*; rank [0-2] waits at [0-9]+[A-Z_]+[0-9]+ for rank [0-2]$' "$scratch/err"
sed 's/^/# /' "$scratch/err"

# The parent dies: the ranks follow.
start four
kill -KILL "$run"
wait "$run" 2>/dev/null
ok "a dead parent leaves no process" gone

if test -s "$scratch/held"; then
  wait "$held_run"
  is "a rank that cannot be killed: status" $? 75
  matches "a rank that cannot be killed: which is said" "$(complaints "$scratch/held.err")" "penstock: rank 0 * lost: signal 9 after *
penstock: rank 1 (pid $held) cannot be killed: the device or disk that it waits for hangs"
else
  wait "$held_run"
  skip "a rank that cannot be killed" "no process may trace another here"
fi
kill $holder 2>/dev/null
wait $holder 2>/dev/null

# Errors that a rank finds out itself: no lost line.
cat >"$scratch/tokens.cfg" <<'END'
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 64; vocab = 64; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 5; };
END
ok "a plan that reads tokens is built" build tokens "$scratch/tokens.cfg"
make_tokens "$scratch/data.bin" 3000 # bytes from 32 to 95: not all below 64
"$scratch/tokens" train --quiet --data "$scratch/data.bin" >"$scratch/out" 2>"$scratch/err"
is "a token beyond the vocab: status" $? 65
matches "a token beyond the vocab: the message" "$(complaints "$scratch/err")" "penstock: $scratch/data.bin: token * is *: the model's vocab is 64"
if test -c /dev/full; then
  "$scratch/four" train --quiet --steps 5 --log /dev/full >"$scratch/out" 2>"$scratch/err"
  is "a full disk under the log: status" $? 74
  matches "a full disk under the log: the message" "$(complaints "$scratch/err")" "penstock: --log /dev/full: *"
fi
(ulimit -f 1; exec "$scratch/four" train --quiet --steps 1 >"$scratch/out" 2>"$scratch/err")
status=$?
ok "shared memory over the limit of files is a message, no signal" test "$status" -eq 71
matches "shared memory over the limit of files: the message" "$(complaints "$scratch/err")" "penstock: *shared memory: File too large"
finish
