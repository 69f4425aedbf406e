#!/bin/sh
# library.t: a program that gives its samples to a library has the losses, norms and checkpoints of train on the same windows.
. "${top_srcdir:-.}/tests/support/lib.sh"

cd "$scratch" || exit 99
. "$top_srcdir/tests/support/library.sh"
make_tokens data.bin 1500 # 93 windows of 16 tokens
cp "$top_srcdir/tests/models/nano.json" .
sed 's/, "from": "t[a-z]*"//' nano.json >named.json
cat >named.cfg <<'END'
model = { family = "described"; description = "named.json"; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
cat >family.cfg <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 64; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
END
samples() { "${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$@"; } # OUT FIRST COUNT TOKENS SEQUENCE NAME:DTYPE:WHAT...
samples all.safetensors 0 93 data.bin 16 idx:I32:tokens targets:I64:targets

# as_train NAME TOKENS TARGETS: three steps of NAME.loop have what train's three steps have.
as_train() {
  ok "$1: a library" library "$1" loop
  ./"$1.loop" data.bin 16 "$2" "$3" 3 "$1.saved" --seed 7 >"$1.found"
  is "$1: the program ends" $? 0
  log_field "$1.log" loss >"$1.losses"
  log_field "$1.log" grad_norm | paste -d ' ' "$1.losses" - >"$1.wanted"
  is "$1: losses and norms of train" "$(cat "$1.found")" "$(cat "$1.wanted")"
  for file in model.safetensors optimizer.safetensors config.json; do
    ok "$1: the $file of train" cmp "$1.saved/latest/$file" "$1.ckpt/latest/$file"
  done
}
ok "family: a plan" build family family.cfg
ok "family trains" train_bits family --data data.bin --steps 3
as_train family tokens:I32 targets:I64
is "each exported symbol begins with pen_" "$(nm -D --defined-only libpenstock-family.so | awk '$3 !~ /^pen_/')" ""
ok "named: a plan" build named named.cfg
ok "named trains" train_bits named --data all.safetensors --steps 3
as_train named idx:I64 targets:I32
ok "two: a plan" build two named.cfg -s 'model.outputs=["logits"]' -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s 'pipeline.schedule="interleaved"'
ok "two trains" train_bits two --data all.safetensors --steps 3
as_train two idx:I32 targets:I32

# ---- after the first step, evaluation, scores and text neither the program nor the ranks allocate, map, open or start anything ----
if has_strace; then
  traced() { strace -f -o trace ./two.loop data.bin 16 idx:I32 targets:I32 20esgo traced --log traced.log >found 2>more; }
  ok "a program under strace" traced
  no_memory "steps, evaluations, scores and texts" trace 20
  is "strace saw the steps of the ranks" "$(grep -c ' write(.*"{\\"step\\":' steps)" 19
else
  skip "no memory in steps, evaluations, scores and texts" "no strace here"
fi

# ---- errors are values ----
# refused NAME STATUS MESSAGE PROGRAM ARGUMENT...
refused() {
  refused_name=$1 refused_status=$2 refused_message=$3
  shift 3
  "$@" >out 2>err
  is "$refused_name: status" $? "$refused_status"
  is "$refused_name: message" "$(tail -n 1 err)" "$refused_message"
}
wanted='I32 or I64 [samples, 16] is wanted'
loop='./named.loop data.bin'
refused "another name" 65 "penstock: samples: input targets: missing; $wanted" $loop 16 idx:I32 target:I32 1 x
refused "another dtype" 65 "penstock: samples: input idx: it is F32 [4, 16], and $wanted" $loop 16 idx:F32 targets:I32 1 x
refused "other extents" 65 "penstock: samples: input idx: it is I32 [4, 8], and $wanted" $loop 8 idx:I32 targets:I32 1 x
refused "an option of data" 64 "penstock: --steps: not with a library, whose caller gives each step's samples" \
  $loop 16 idx:I32 targets:I32 1 x --steps 3
refused "absent weights" 66 "penstock: none.safetensors: No such file or directory" $loop 16 idx:I32 targets:I32 1 x --init none.safetensors
refused "a folder that cannot be" 73 "penstock: $scratch/data.bin: cannot create: Not a directory; step 1 is not saved, training continues" \
  $loop 16 idx:I32 targets:I32 1 data.bin

# ---- sessions of two libraries, used by another thread: evaluation, weights, the learning rate; a lost rank, a lost caller ----
ok "two: another program" library two calls named
./two init --seed 7 --output seed7.safetensors
"${PYTHON:-python3}" -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<256i80H", 20240520, 1, 80, *[0] * 253, *range(80)))' >counted.bin
samples counted.safetensors 0 4 counted.bin 16 idx:I32:tokens targets:I32:targets
evaluated=$(./two eval --init seed7.safetensors --data counted.safetensors --quiet 2>err | sed -n 's/.*"loss": *\([^,}]*\).*/\1/p')
./two score --init seed7.safetensors --data counted.bin --output scores.json --quiet >out 2>err
printf '{"prompt": "AB"}\n{"prompt": "\\u0003\\u0004\\u0005"}\n' >prompts.jsonl
./two generate --init seed7.safetensors --prompts prompts.jsonl --tokens 5 --seed 7 --quiet >texts.jsonl 2>err
mkfifo go
./two.calls idx targets 16 calls <go >called 2>called.err &
program=$!
exec 3>go
# said PATTERN: waits until the program has printed it.
said() { until grep -q "$1" called || ! kill -0 $program 2>/dev/null; do sleep 0.05; done; }
# ranks_of SEED: the processes of the session that was opened with it, the command first.
ranks_of() {
  command=$(ps -o pid=,args= --ppid $program | awk -v seed="--seed $1" 'index($0, seed) { print $1 }')
  echo $command $(ps -o pid= --ppid "$command")
}
said '^second step'
kill -KILL "$(ranks_of 7 | awk '{ print $NF }')"
echo >&3
said '^loaded'
left="$(ranks_of 7) $(ranks_of 8)"
kill -KILL $program
wait $program
# gone PID...: all have ended, at the latest after some seconds.
gone() {
  for gone_try in $(seq 600); do
    test -n "$(ps -o stat= -p "$(echo $* | tr ' ' ,)" | grep -v '^Z')" || return 0
    sleep 0.1
  done
  return 1
}
is "two sessions have five processes" "$(echo $left | wc -w)" 5
ok "the ranks end with their caller" gone $left
exec 3>&-
ok "weights that were read and set are those of the other session" cmp calls/first/latest/model.safetensors calls/second/latest/model.safetensors
ok "they are those of the seed" cmp calls/first/latest/model.safetensors seed7.safetensors
ok "a step of rate 0 changes none" cmp calls/first/latest/model.safetensors calls/unchanged/latest/model.safetensors
same_scores() { # those of the command for the first 63 targets; the last is none
  "${PYTHON:-python3}" -c 'import json, sys
wanted = json.load(open("scores.json"))["log_probabilities"][1:64]
found = [float(line.split()[1]) for line in open("called.err") if line.startswith("score ")]
sys.exit(len(found) != 64 or found[:63] != wanted or found[63] == found[63])'
}
ok "scores are those of score" same_scores
same_texts() {
  "${PYTHON:-python3}" -c 'import json, sys
wanted = [[ord(c) for c in text["prompt"] + text["text"]] for text in map(json.loads, open("texts.jsonl"))]
found = [[int(word) for word in line.split()[1:]] for line in open("called.err") if line.startswith("text ")]
sys.exit(found != wanted or [len(text) for text in found] != [7, 8])'
}
ok "texts are those of generate" same_texts
lost=$(grep -m 1 '^75' called)
is "calls have their results, and what does not fit is refused" "$(cat called)" "loss $evaluated of 64
64 penstock: score: 63 log-probabilities, and there are 64
64 penstock: generate: text 1: 8 tokens and 9 new ones: from 1 on, and at most 16 in all
65 penstock: generate: text 1: token 1 is 97: the model's vocab is 97
64 penstock: generate: top_p 0: above 0, at most 1
65 penstock: weights: tensor wte.weight: 4657 elements, and it has 4656
65 penstock: weights: tensor wte.weight: element 0 is not finite
65 penstock: weights: tensor none: the model has none of that name
73 penstock: $scratch/calls/first: another run saves there; step 0 is not saved, training continues
65 penstock: samples: input idx: element 1 of sample 1 is 1048576: ids from 0 to 96
64 penstock: the session is a null pointer
64 penstock: samples: inputs: a null pointer
64 penstock: samples: the input at index 0: name, dtype, dim or data is a null pointer
64 penstock: step: result: a null pointer
64 penstock: evaluate: result: a null pointer
64 penstock: generate: generation: a null pointer
64 penstock: weights: name: a null pointer
64 penstock: save: no folder is named
forked 64
rate 0
64 penstock: learning rate -1: a number from 0 to 3.4e38
rate 0.01 step 2
second step 1
$lost
$lost
66 penstock: $scratch/calls/nothing: No such file or directory
$lost
64 penstock: --checkpoint $scratch/calls/second/step-00000000: is one checkpoint itself: name the folder that holds it
66 penstock: $scratch/calls/.: holds no checkpoint
66 penstock: $scratch/calls/.: holds no checkpoint
loaded, step 2"
matches "a lost rank is a value" "$lost" "75 penstock: rank 1 (*) lost: signal 9 *"
rm penstock-named
refused "no binary" 66 "penstock: ./penstock-named: No such file or directory" $loop 16 idx:I32 targets:I32 1 x
finish
