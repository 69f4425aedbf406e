#!/bin/sh
# evaluate.t: train --eval-every gives the losses that eval gives of the same weights, and changes nothing of what is trained.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 10; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
make_tokens held.bin 1000 9
ok "two ranks" build two model.cfg
ok "without clipping: no rank waits for another at a step's end" build free model.cfg -s optimizer.clip_norm=0
ok "a V of four ranks" build vee model.cfg -s pipeline.ranks=4 -s pipeline.schedule=zero_bubble_v -s pipeline.stages_per_rank=2 -s model.layers=8
ok "tied" build tied model.cfg -s model.tie_embeddings=true
ok "in bf16" build half model.cfg -s model.dtype=bf16

train() { # NAME LOG OPTION...
  train_name=$1 train_log=$2
  shift 2
  "./$train_name" train --data data.bin --quiet --overwrite --log "$train_log" "$@" 2>err
}
for name in two free vee tied half; do
  ok "$name: a run" train $name plain.log --checkpoint $name.ckpt --save-every 1
  ok "$name: a run that evaluates" train $name log --eval-data held.bin --eval-every 3 --checkpoint $name.evaluated --save-every 100
  for field in step loss grad_norm lr tokens; do
    is "$name: $field is the same" "$(grep -v eval_loss log | log_field /dev/stdin $field | cksum)" "$(log_field plain.log $field | cksum)"
  done
  ok "$name: the weights are the same" cmp $name.ckpt/latest/model.safetensors $name.evaluated/latest/model.safetensors
  ok "$name: and the moments" cmp $name.ckpt/latest/optimizer.safetensors $name.evaluated/latest/optimizer.safetensors
  is "$name: evaluated after steps 3, 6, 9 and the last" "$(grep eval_loss log | log_field /dev/stdin step | tr '\n' ' ')" "3 6 9 10 "
  for step in 3 6 9 10; do
    wanted=$("./$name" eval --data held.bin --checkpoint $name.ckpt/step-$(printf %08d $step) --quiet | tail -n 1)
    is "$name: step $step as eval says" "$(grep "\"step\":$step,\"eval_loss" log | sed 's/.*"eval_loss":\([^,]*\),"eval_perplexity":\([^,]*\),"eval_tokens":\([^,]*\),.*/{"loss":\1,"perplexity":\2,"tokens":\3}/')" "$wanted"
  done
done
ok "two: some steps" train two log --eval-data held.bin --eval-every 5 --eval-steps 2
wanted=$(./two eval --data held.bin --steps 2 --checkpoint two.ckpt/step-00000005 --quiet | tail -n 1 | sed 's/,"perp.*//')
is "two: two steps of evaluation" "$(grep '"step":5,"eval_loss' log | sed 's/.*"eval_loss":\([^,]*\),.*/{"loss":\1/')" "$wanted"
# Who reads weights alone wants no moments.
cp -R two.ckpt lean && rm lean/latest/optimizer.safetensors
is "a checkpoint without moments has the same result" "$(./two eval --data held.bin --checkpoint lean --quiet 2>&1 | tail -n 1)" \
  "$(./two eval --data held.bin --checkpoint two.ckpt --quiet | tail -n 1)"
./two train --data data.bin --checkpoint lean --resume --quiet 2>err
is "but cannot be resumed: status" $? 66
matches "which is said" "$(complaints err)" "*optimizer.safetensors: *"
./two train --data data.bin --eval-data held.bin --eval-every 5 2>err
matches "it is shown" "$(complaints err)" "*step 5  evaluation loss *step 10  evaluation loss *"

# A model that makes its own inputs needs no file.
ok "mlp" build mlp "$topologies/mlp_4.cfg" -s optimizer.steps=4
ok "mlp: evaluates" ./mlp train --quiet --overwrite --log log --eval-every 2
is "mlp: twice" "$(grep -c eval_loss log)" 2

# SIGTERM while it evaluates: all leave after the same step, saved, status 0.
rm -f log # of the run before
./two train --data data.bin --quiet --log log --eval-data data.bin --eval-every 1 --eval-steps 1000000 --checkpoint stopped 2>err &
pid=$!
await_steps log 1
kill -TERM $pid
wait $pid
is "SIGTERM while it evaluates: status" "$? $(complaints err)" "0 "
is "it leaves after the next step, saved" "$(readlink stopped/latest)" step-00000002
is "no incomplete evaluation is logged" "$(grep -c eval_loss log)" 0
./two eval --data data.bin --checkpoint stopped --steps 1000000000 --quiet >out 2>err &
pid=$!
await_held two $pid
kill -TERM $pid
wait $pid
is "SIGTERM to eval: status" $? 0
matches "a loss over a part of the file is reported as such" "$(complaints err)" "two: stopped by SIGTERM after * of 1000000000 steps: the rest was not read"

# A rank that dies while it evaluates is named.
rm log
./two train --data data.bin --quiet --log log --eval-data data.bin --eval-every 1 --eval-steps 1000000 2>err &
pid=$!
await_steps log 1
victim=$(children $pid | tail -n 1)
kill -9 "$victim"
wait $pid
is "a rank that dies while it evaluates: status" $? 75
matches "is named" "$(complaints err)" "penstock: rank 1 (pid $victim, host *) lost: signal 9 after *; rank 0 waits at * for rank 1"

refuses() { # STATUS PATTERN OPTION...
  refuses_status=$1 refuses_pattern=$2
  shift 2
  ./two train --data data.bin "$@" 2>err
  is "refused: $*: status" $? "$refuses_status"
  matches "refused: $*: message" "$(complaints err)" "penstock: $refuses_pattern"
}
refuses 64 "--eval-every 2 needs --eval-data FILE*" --eval-every 2
refuses 64 "--eval-data needs --eval-every N*" --eval-data held.bin
refuses 64 "--eval-steps needs --eval-every N*" --eval-steps 2
refuses 66 "none.bin: *" --eval-data none.bin --eval-every 2
make_tokens short.bin 40
refuses 65 "short.bin: 2 windows*" --eval-data short.bin --eval-every 2
finish
