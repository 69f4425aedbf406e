#!/bin/sh
# restart.t: train --restarts: after the loss of ranks all start again, from the state in memory or the last checkpoint, and the finished run has
# the bits, the log and the checkpoints of one that was never disturbed.
. "${top_srcdir:-.}/tests/support/lib.sh"
describe_ranks model 8 64 96 32
make_tokens "$scratch/data.bin" 200000 1 1100 # The first two steps are skipped: the others' updates are numbered from 1.
make_tokens "$scratch/eval.bin" 2000 2
steps=60

# run NAME OUT OPTION...: trains $scratch/NAME in the background, with its files in OUT.*; sets run.
run() {
  run_name=$1 out=$scratch/$2
  shift 2
  rm -rf "$out".*
  "$scratch/$run_name" train --data "$scratch/data.bin" --seed 7 --quiet --steps $steps --log "$out.log" --checkpoint "$out.ckpt" "$@" 2>"$out.err" &
  run=$!
}
steps_of() { grep -v '"event"' "$1.log" | sed 's/,"step_ms".*\(,"skipped":[0-9]*\).*/\1/; s/,"step_ms".*//; s/,"eval_ms".*//'; }
sums_of() { (cd "$1.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors); }
# same_run OUT OTHER: the same steps in the log, the same bits, once each.
same_run() {
  test "$(steps_of "$scratch/$1" | wc -l)" -ge $steps && test "$(steps_of "$scratch/$1")" = "$(steps_of "$scratch/$2")" &&
    test "$(sums_of "$scratch/$1")" = "$(sums_of "$scratch/$2")"
}
events() { grep -c '"event":"restart"' "$out.log"; }
# lose RANK AFTER: kills the rank once that many lines are logged.
lose() {
  await_steps "$out.log" "$2"
  kill -KILL "$(children $run | sed -n "$(($1 + 1))p")"
}

# ---- one rank, every schedule's kind of state ----
# case_of NAME GEN OPTION...
case_of() {
  case_name=$1
  shift
  ok "$case_name: a plan is built" build "$case_name" "$scratch/model.cfg" "$@"
  run "$case_name" "$case_name.whole" --save-every 7
  wait $run
  for source in memory checkpoint; do
    run "$case_name" "$case_name.$source" --save-every 7 --restarts 3 $(test $source = checkpoint || echo --recover-every 1)
    lose 1 10
    lose 2 30
    wait $run
    is "$case_name, from $source: two losses are survived" $? 0
    ok "$case_name, from $source: with the log and the bits of an undisturbed run" same_run "$case_name.whole" "$case_name.$source"
    is "$case_name, from $source: two restarts are logged" "$(grep -c "\"event\":\"restart\",.*\"source\":\"$source\",\"seconds\":" "$out.log")" 2
    sed 's/^/# /' "$out.err"
  done
}
case_of 1f1b
case_of zbv -s pipeline.schedule=zero_bubble_v -s pipeline.stages_per_rank=2 -s memory.snapshot=true
case_of bf16 -s model.dtype=bf16 -s model.tie_embeddings=true
replicas="-s pipeline.ranks=2 -s data_parallel.replicas=2 -s pipeline.microbatches=4"
case_of optimizer $replicas -s data_parallel.shard=optimizer
case_of weights $replicas -s data_parallel.shard=weights -s model.dtype=bf16

# ---- what is said ----
matches "the lost rank is named" "$(complaints "$scratch/1f1b.memory.err" | sed -n 1p)" "penstock: rank 1 (pid *, host $(uname -n)) lost: signal 9 after *"
matches "the restart, too" "$(complaints "$scratch/1f1b.memory.err" | sed -n 2p)" \
  "penstock: restart 1: training continues after step *, from the state in memory, 0.* s after the loss"
line=$(grep '"event":"restart"' "$scratch/1f1b.memory.log" | sed -n 1p)
matches "the log has both" "$line" \
  "{\"event\":\"restart\",\"lost\":\[{\"rank\":1,\"host\":\"$(uname -n)\",\"cause\":\"penstock: rank 1 (pid *) lost: signal 9 after *\"}\],\"from_step\":*,\"source\":\"memory\",\"seconds\":0.*}"

# ---- without a checkpoint, from the beginning; with evaluation ----
run 1f1b evaluated --eval-data "$scratch/eval.bin" --eval-every 5
wait $run
run 1f1b from_begin --eval-data "$scratch/eval.bin" --eval-every 5 --restarts 1
lose 3 20
wait $run
is "a run without a checkpoint starts again" $? 0
ok "with the log and the bits of an undisturbed run" same_run evaluated from_begin
matches "from the beginning" "$(grep '"event":"restart"' "$out.log")" '*"from_step":0,"source":"checkpoint",*'

# ---- the end of restarts ----
run 1f1b few --restarts 1 --recover-every 3
lose 0 10
lose 0 30
wait $run
is "when no restart is left, a loss ends the run with 75" $? 75
is "after one restart" "$(events)" 1
run 1f1b stop --restarts 5 --recover-every 1
lose 0 10
await_steps "$out.log" 20
kill -TERM $run
wait $run
is "a run that was started again ends in order at SIGTERM" $? 0
ok "and has saved" test -f "$out.ckpt/latest/model.safetensors"
run 1f1b random --restarts 100 --recover-every 2 --save-every 9
for lines in 5 9 12 18 22 29 33 40 44 52; do lose $((lines % 4)) $lines; done
wait $run
is "ten losses are survived" $? 0
ok "with the log and the bits of an undisturbed run" same_run 1f1b.whole random
# Two ranks that are lost together have a line each, and one restart.
is "every loss is logged" "$(grep '"event":"restart"' "$out.log" | grep -o '"rank":' | wc -l)" "$(grep -c ' lost: ' "$out.err")"

# ---- options ----
"$scratch/1f1b" train --data "$scratch/data.bin" --recover-every 1 2>"$scratch/err"
is "--recover-every alone: status" $? 64
is "--recover-every alone: message" "$(complaints "$scratch/err")" "penstock: --recover-every 1 needs --restarts N: what it is for"
"$scratch/1f1b" train --data "$scratch/data.bin" --restarts 1 --trace "$scratch/trace" 2>"$scratch/err"
is "--restarts with --trace: status" $? 64
is "--restarts with --trace: message" "$(complaints "$scratch/err")" "penstock: --restarts 1: --trace follows ranks that are started once"
finish
