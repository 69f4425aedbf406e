#!/bin/sh
# signals.t: SIGTERM, SIGINT, SIGHUP and SIGUSR1, to the parent, to a rank, to all: every rank leaves after the same step, saved, status 0; and the run
# has the same results as one without a signal.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/four.cfg" <<'END'
pipeline = { ranks = 4; stages_per_rank = 2; microbatches = 8; schedule = "zero_bubble_v"; };
model = { family = "mlp"; layers = 8; hidden = 32; sequence = 32; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-6; steps = 100000000; };
END
ok "a plan is built" build four "$scratch/four.cfg"
ok "a plan without clipping is built" build free "$scratch/four.cfg" -s optimizer.clip_norm=0

# interrupt NAME SIGNAL WHOM: trains, then sends the signal to `parent`, `all`, or the rank of that number; sets status.
interrupt() {
  rm -rf "$scratch/log" "$scratch/trace" "$scratch/ckpt"
  "$scratch/$1" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" --trace "$scratch/trace" 2>"$scratch/err" &
  run=$!
  await_steps "$scratch/log" 3
  ranks=$(children "$run")
  case $3 in
    parent) kill -"$2" "$run" ;;
    all) kill -"$2" $ranks "$run" ;;
    *) kill -"$2" "$(echo "$ranks" | sed -n "$(($3 + 1))p")" ;;
  esac
  wait "$run"
  status=$?
}

# saved_last_step: the checkpoint is that of the last step logged.
saved_last_step() {
  last=$(log_field "$scratch/log" step | tail -n 1)
  test "$(readlink "$scratch/ckpt/latest")" = "$(printf 'step-%08d' "$last")"
}

whole_json() {
  head -c 1 "$1" | grep -q '{' && tail -n 1 "$1" | grep -q '^]}$' && ! grep -q '^,' "$1" &&
    if command -v python3 >/dev/null; then python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1"; fi
}

while read -r name signal whom; do
  interrupt "$name" "$signal" "$whom"
  is "$name: $signal to $whom: status" "$status" 0
  is "$name: $signal to $whom: no complaint" "$(complaints "$scratch/err")" ""
  ok "$name: $signal to $whom: the last step is saved" saved_last_step
  ok "$name: $signal to $whom: the trace is whole" whole_json "$scratch/trace"
done <<'END'
four TERM parent
four INT parent
four TERM 0
four INT 3
four TERM all
four HUP parent
four USR1 1
free TERM parent
free INT 2
END

# Under nohup(1) SIGHUP is ignored: the run goes on.
rm -rf "$scratch/log" "$scratch/ckpt"
(trap '' HUP && exec "$scratch/four" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" 2>"$scratch/err") &
run=$!
await_steps "$scratch/log" 3
kill -HUP "$run" $(children "$run")
hung_up_at=$(wc -l <"$scratch/log")
await_steps "$scratch/log" $((hung_up_at + 20))
ok "SIGHUP that is ignored ends nothing" lives "$run"
kill -TERM "$run"
wait "$run"
is "until another signal does" "$?: $(complaints "$scratch/err")" "0: "
ok "saved" saved_last_step

# Two runs in one folder would write over each other's checkpoints: the later one is refused, and the earlier one continues.
rm -rf "$scratch/log" "$scratch/ckpt"
"$scratch/four" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" 2>"$scratch/err" &
run=$!
await_steps "$scratch/log" 3
"$scratch/free" train --quiet --checkpoint "$scratch/ckpt" --steps 3 2>"$scratch/refused"
is "a second run in the folder: status" $? 73
is "a second run in the folder: message" "$(cat "$scratch/refused")" "penstock: --checkpoint $scratch/ckpt: another run saves there"
kill -TERM "$run"
wait "$run"
is "the first one ends well" "$?: $(complaints "$scratch/err")" "0: "
ok "and is saved" saved_last_step
"$scratch/free" train --quiet --overwrite --checkpoint "$scratch/ckpt" --steps 3
is "then another one may save there" $? 0

# A run waits two seconds for the folder. hold_next stops $next while it waits, so that another run may take its time to end.
hold_next() {
  await_held four "$next"
  kill -STOP "$next"
}

# A run that resumes in the folder of a run that is ending starts after the last step of that one, not after an earlier save.
rm -rf "$scratch/log" "$scratch/ckpt"
"$scratch/four" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" --save-every 2 2>"$scratch/err" &
run=$!
await_steps "$scratch/log" 3
"$scratch/four" train --quiet --log "$scratch/next" --checkpoint "$scratch/ckpt" --resume 2>"$scratch/err2" &
next=$!
hold_next
kill -TERM "$run"
wait "$run"
kill -CONT "$next"
await_steps "$scratch/next" 1
kill -TERM "$next"
wait "$next"
is "a run that resumes what is just leaving: status" "$?: $(complaints "$scratch/err2")" "0: "
is "it starts after the other's last step" "$(log_field "$scratch/next" step | head -n 1)" "$(($(log_field "$scratch/log" step | tail -n 1) + 1))"

# A signal before there are ranks, here while the run waits for the folder, ends it in order, too: after its first step, saved.
rm -rf "$scratch/log" "$scratch/next" "$scratch/ckpt"
"$scratch/four" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" 2>"$scratch/err" &
run=$!
await_steps "$scratch/log" 3
"$scratch/four" train --quiet --log "$scratch/next" --checkpoint "$scratch/ckpt" --resume 2>"$scratch/err2" &
next=$!
hold_next
kill -TERM $next $run
wait "$run"
kill -CONT "$next"
wait "$next"
is "a signal before there are ranks: status" "$?: $(complaints "$scratch/err2")" "0: "
is "it ended after one step" "$(wc -l <"$scratch/next")" 1
is "which is saved" "$(readlink "$scratch/ckpt/latest")" "$(printf 'step-%08d' "$(log_field "$scratch/next" step)")"

# What ^Z and fg do: all are stopped for longer than any limit, and go on.
rm -rf "$scratch/log"
"$scratch/four" train --quiet --log "$scratch/log" --timeout 1 2>"$scratch/err" &
run=$!
await_steps "$scratch/log" 3
ranks=$(children "$run")
kill -STOP "$run" && kill -STOP $ranks
stopped_at=$(wc -l <"$scratch/log")
sleep 1.5
kill -CONT "$run" $ranks
sleep 0.5
kill -TERM "$run"
wait "$run"
is "stopped and continued: status" "$?: $(complaints "$scratch/err")" "0: "
ok "stopped and continued: it went on" test "$(wc -l <"$scratch/log")" -gt "$stopped_at"

# Interrupted and resumed, against not interrupted.
interrupt free TERM 1
last=$(log_field "$scratch/log" step | tail -n 1)
more=$((last + 3))
"$scratch/free" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" --resume --steps $more
is "the run is resumed" $? 0
"$scratch/free" train --quiet --log "$scratch/straight" --checkpoint "$scratch/straight.ckpt" --steps $more
is "an uninterrupted run of as many steps" $? 0
for field in step loss grad_norm lr; do
  is "$field is the same in both" "$(log_field "$scratch/log" $field | cksum)" "$(log_field "$scratch/straight" $field | cksum)"
done
for file in model optimizer; do
  ok "$file.safetensors is the same in both" cmp "$scratch/ckpt/latest/$file.safetensors" "$scratch/straight.ckpt/latest/$file.safetensors"
done

# However many ask, the step is ended; but who sits there and asks again does not wait for it.
ok "a plan with a long step" build long "$topologies/mlp_1.cfg" -s pipeline.ranks=2 -s pipeline.microbatches=60000 -s model.hidden=128
"$scratch/long" train --quiet 2>"$scratch/err" &
pid=$!
await_held long $pid
kill -TERM $pid
sleep 0.1
kill -TERM $pid
kill -INT $pid
sleep 1.1
kill -TERM $pid
sleep 0.3
ok "signals of any number wait for the step's end" lives $pid
interrupt_until_end $pid
wait $pid
is "SIGINT a second after the first one does not: status" $? 130
is "which is said" "$(complaints "$scratch/err")" "penstock: killed by a second SIGINT; no checkpoint"

# timeout(1) signals the command and then its group, which the kernel may deliver as one.
for signal in TERM INT; do
  rm -rf "$scratch/log" "$scratch/ckpt"
  timeout 300 "$scratch/four" train --quiet --log "$scratch/log" --checkpoint "$scratch/ckpt" 2>"$scratch/err" &
  run=$!
  await_steps "$scratch/log" 1
  kill -$signal $run
  wait $run
  is "$signal by way of timeout: status, and no complaint" "$?: $(complaints "$scratch/err")" "0: "
  ok "$signal by way of timeout: saved" saved_last_step
done
finish
