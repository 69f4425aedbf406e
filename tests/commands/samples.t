#!/bin/sh
# samples.t: train --sample-every writes to the log what generate makes of the weights of that step; no bit of training changes by it.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; ffn = 32; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 6; };
generate = { prompts = 2; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 2000
printf '{"prompt": "A\\"b\\\\ "}\n{"prompt": "two", "seed": 9}\n' >prompts.json
train() { # NAME OPTION...: the messages in err
  train_name=$1
  shift
  "./$train_name" train --seed 7 --data data.bin --quiet "$@" 2>err
}
sampled() { # LOG: its samples, as generate writes them, after "STEP "
  sed -n 's/^{"event":"sample","step":\([0-9]*\),"prompt":\(.*\),"text":\(".*"\)}$/\1 {"prompt": \2, "text": \3}/p' "$1"
}
generated() { # NAME DIR STEP OPTION...: what generate makes of that checkpoint, in the same form
  generated_name=$1 generated_dir=$2 generated_step=$3
  shift 3
  "./$generated_name" generate --seed 7 --checkpoint "$generated_dir/step-0000000$generated_step" --prompts prompts.json "$@" 2>/dev/null |
    sed "s/^/$generated_step /"
}
steps() { grep -v '"event"' "$1" | sed 's/,"step_ms":[^,]*,"tokens_per_second":[^,}]*//'; } # the log without samples and times
same_run() { # DIR OTHER: checkpoints of the same bits
  for file in model.safetensors optimizer.safetensors manifest.json; do cmp "$1/latest/$file" "$2/latest/$file" || return 1; done
}
of_generate="--tokens 20 --samples 2 --top-k 40 --repetition-penalty 1.1 --stop 33"

# ---- on two ranks, on replicas and on tensor ranks ----
for name in two replicas tensor; do
  case $name in
    two) settings= ;;
    replicas) settings="-s data_parallel.replicas=2 -s data_parallel.shard=weights -s pipeline.ranks=1 -s pipeline.microbatches=2" ;;
    tensor) settings="-s tensor_parallel.ranks=2 -s pipeline.ranks=1" ;;
  esac
  ok "$name: a plan" build $name model.cfg $settings
  ok "$name: a run" train $name --steps 6 --checkpoint $name.plain --save-every 2 --log $name.plain.log
  ok "$name: with samples" train $name --steps 6 --checkpoint $name.run --save-every 2 --log $name.log \
    --sample-every 4 --prompts prompts.json $of_generate
  ok "$name: has the bits of the one without" same_run $name.plain $name.run
  steps $name.plain.log >wanted
  steps $name.log >got
  ok "$name: and its losses" cmp wanted got
  { generated $name $name.run 4 $of_generate && generated $name $name.run 6 $of_generate; } | sed 's/, "finish_reason": "[a-z]*"//' >wanted
  sampled $name.log >got
  is "$name: samples after every fourth step and the last" "$(cut -d ' ' -f 1 got | tr '\n' ' ')" "4 4 4 4 6 6 6 6 "
  ok "$name: they are generate's" cmp wanted got
done

# ---- with evaluations, and a text ----
ok "evaluations beside samples" train two --steps 4 --checkpoint eval --log eval.log --eval-data data.bin --eval-every 2 --eval-steps 2 \
  --sample-every 2 --prompt "The " --tokens 5
is "both are in the log" "$(sed -n 's/.*\("eval_loss"\|"sample","step":[0-9]*,"prompt":"[^"]*"\).*/\1/p' eval.log | tr '\n' ' ')" \
  '"eval_loss" "sample","step":2,"prompt":"The " "eval_loss" "sample","step":4,"prompt":"The " '

# ---- resumed, and restarted ----
ok "a run of four steps" train two --steps 4 --checkpoint parts --log parts.log --sample-every 2 --prompts prompts.json $of_generate
ok "continues" train two --steps 6 --resume --checkpoint parts --log parts.log --sample-every 2 --prompts prompts.json $of_generate
ok "to the checkpoint of the whole run" same_run two.plain parts
is "samples follow each other" "$(sampled parts.log | cut -d ' ' -f 1 | uniq | tr '\n' ' ')" "2 4 6 "
long="--steps 300 --sample-every 7 --prompt x --tokens 20" # as often as the state is copied
ok "a longer run" train two $long --checkpoint long --log long.log
./two train --seed 7 --data data.bin --quiet $long --restarts 1 --recover-every 7 --checkpoint lost --log lost.log 2>err &
pid=$!
await_steps lost.log 40
kill -KILL "$(children $pid | tail -n 1)"
wait $pid
is "one that loses a rank" "$? $(grep -c '"event":"restart"' lost.log)" "0 1"
sampled long.log >wanted
sampled lost.log >got
ok "writes each sample once" cmp wanted got
ok "and has its bits" same_run long lost

# ---- weights that are no numbers end the texts, not the run ----
build wild model.cfg -s optimizer.learning_rate=1e30 -s optimizer.clip_norm=0 >/dev/null
train wild --steps 3 --log wild.log --sample-every 1 --prompt x --tokens 3 --max-skipped 9
matches "a run that diverges" "$? $(complaints err)" "79 *diverged*"
is "its samples end" "$(sampled wild.log | tail -n 1)" '2 {"prompt": "x", "text": ""}'

# ---- the command line ----
fails "no prompt" 64 "--sample-every 2 needs either --prompt TEXT" ./two train --data data.bin --sample-every 2 --log l
fails "both" 64 "--sample-every 2 needs either --prompt TEXT" ./two train --data data.bin --sample-every 2 --log l --prompt x --prompts prompts.json
fails "no log" 64 "--sample-every 2 needs --log FILE" ./two train --data data.bin --sample-every 2 --prompt x
fails "an option of samples alone" 64 "--top-k needs --sample-every N" ./two train --data data.bin --top-k 3
ok "a model that makes its inputs" build mlp "$topologies/mlp_4.cfg"
fails "which is no language model" 64 "--sample-every 2: this binary's model is not a language model" ./mlp train --sample-every 2 --prompt x --log l
finish
