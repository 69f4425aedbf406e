#!/bin/sh
# commands_emulated.t: what a binary for CUDA does besides training steps of one shape: evaluation while it trains, several shapes of a step,
# score, generate, snapshots. Over the CUDA backend compiled for the host (tests/emulation/emulate.h), on one rank and on several over ipc and nccl:
# the bits of one rank, and the numbers of the CPU but for the order of sums.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

cat >"$scratch/model.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; vocab = 128; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 10; };
pipeline = { ranks = 1; microbatches = 3; schedule = "1f1b"; };
END_OF_MODEL
cd "$scratch" || exit 99
make_tokens data.bin 4000
make_tokens held.bin 500 9
links="ipc$(test -f "$top_builddir/libemulated_nccl.a" && echo ' nccl')"
v="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v"

# built PREFIX SETTING...: PREFIX_cpu, PREFIX_one for CUDA, PREFIX_LINK for two ranks in a V.
built() {
  built_prefix=$1
  shift
  ok "$built_prefix: a plan for the CPU" build "${built_prefix}_cpu" model.cfg -s cluster.device=cpu "$@"
  ok "$built_prefix: for CUDA" build "${built_prefix}_one" model.cfg -s cluster.device=cuda "$@"
  for link in $links; do
    ok "$built_prefix: for two ranks over $link" build "${built_prefix}_$link" model.cfg -s cluster.device=cuda -s cluster.transport=$link $v "$@"
  done
}

# train NAME DATA STEPS OPTION...: leaves NAME.log, NAME.bits and NAME.err.
train() {
  train_name=$1 train_data=$2 train_steps=$3
  shift 3
  anew "$train_name.log" "$@"
  timeout 300 "./$train_name" train --data "$train_data" --steps "$train_steps" --seed 7 --log "$train_name.log" "$@" 2>"$train_name.err" ||
    { sed 's/^/# /' "$train_name.err"; return 1; }
  numbers_of "$train_name" loss grad_norm eval_loss
}

# numbers_of NAME FIELD...: leaves NAME.bits from NAME.log.
numbers_of() {
  numbers_name=$1
  shift
  for field in "$@"; do log_field "$numbers_name.log" "$field"; done >"$numbers_name.bits"
}
same() { test "$(wc -l <"$2.bits")" -eq "$3" && cmp "$1.bits" "$2.bits"; }
captured() { is "$1: all as graphs" "$(grep -c 'cannot be one graph' "$1.err")" 0; }

# same_everywhere PREFIX COUNT: the CPU's numbers to 2e-5, relatively (f32 sums of a few thousand terms in another order), and over links one
# rank's COUNT numbers; all as graphs.
same_everywhere() {
  ok "to the CPU's numbers" close_to "$1_cpu" "$1_one" 2e-5
  captured "$1_one"
  for link in $links; do
    ok "over $link to one rank's bits" same "$1_one" "$1_$link" "$2"
    captured "$1_$link"
  done
}

# ---- evaluation while it trains ----

built plain
for name in cpu one $links; do
  ok "plain_$name trains and evaluates" train "plain_$name" data.bin 5 --eval-data held.bin --eval-every 2 --checkpoint "plain_$name.ckpt"
done
same_everywhere plain 13
cp plain_one.bits evaluated.bits
ok "it trains without evaluating" train plain_one data.bin 5 --checkpoint alone.ckpt
ok "to the same losses and norms" sh -c 'head -n 10 evaluated.bits | cmp - plain_one.bits'
ok "and weights" cmp alone.ckpt/latest/model.safetensors plain_one.ckpt/latest/model.safetensors
ok "and moments" cmp alone.ckpt/latest/optimizer.safetensors plain_one.ckpt/latest/optimizer.safetensors
is "the last evaluation is eval's" "$(tail -n 1 evaluated.bits)" \
  "$(./plain_one eval --data held.bin --checkpoint alone.ckpt --quiet | log_field - loss)"
plain() { PEN_EMULATED_NO_GRAPH=1 train "$@"; }
ok "it evaluates where nothing can be captured" plain plain_ipc data.bin 5 --eval-data held.bin --eval-every 2
ok "with the same bits" cmp plain_ipc.bits evaluated.bits
is "and says so of every profile" "$(grep -c 'a step of .* cannot be one graph (.*; its actions' plain_ipc.err)" 4

# ---- samples while it trains ----
echo '{"prompt": "ABCD"}' >prompts.json
for name in one $links; do
  ok "$name trains with samples" train "plain_$name" data.bin 5 --sample-every 2 --prompts prompts.json --tokens 20 --checkpoint "$name.sampled"
  ok "$name: to the same weights" cmp alone.ckpt/latest/model.safetensors "$name.sampled/latest/model.safetensors"
  is "$name: a sample is what generate makes" "$(sed -n 's/^{"event":"sample","step":5,"prompt":\(".*"\),"text":\(".*"\)}$/{"prompt": \1, "text": \2}/p' "plain_$name.log")" \
    "$("./plain_$name" generate --checkpoint alone.ckpt --prompts prompts.json --tokens 20 --seed 7 2>/dev/null)"
done

# SIGTERM while it evaluates: all leave after the same step, saved, status 0.
rm -f stopped.log
./plain_ipc train --data data.bin --quiet --log stopped.log --eval-data data.bin --eval-every 1 --eval-steps 1000000 --checkpoint stopped &
pid=$!
await_steps stopped.log 1
sleep 0.5
kill -TERM $pid
wait $pid
is "a signal ends an evaluation" $? 0
ok "and what was trained is saved" test -e stopped/latest/manifest.json

# ---- score and generate, with whole logits and by chunks of rows ----

# numbers FILE: the numbers of a score, one a line.
numbers() { tr ',[]:{}' '\n\n\n\n\n\n' <"$1" | grep '^-*[0-9]' >"$2.bits"; }
for chunks in plain chunks; do
  test $chunks = plain || built chunks -s model.loss_rows=32 -s batch.microbatch=3
  for name in cpu one $links; do
    ok "$chunks: $name scores" "./${chunks}_$name" score --data held.bin --checkpoint alone.ckpt --output "$name.json" --end-of-text 69 --quiet
    numbers "$name.json" "score_$name"
  done
  ok "$chunks: each token as the CPU" close_to score_cpu score_one 2e-5
  for link in $links; do ok "$chunks: over $link to one rank's bits" cmp one.json "$link.json"; done
  for name in cpu one; do
    ok "$chunks: $name writes logits" "./${chunks}_$name" score --data held.bin --checkpoint alone.ckpt --output "$name.json" --quiet \
      --logits "$name.top" --logits-top 2
    tr -d '[]' <"$name.top" | awk -F ', ' 'NF == 4 && $2 - $4 > 1e-4 { print NR, $1; next } { print NR, NF }' >"$name.ids"
  done
  ok "$chunks: the likeliest tokens are the CPU's" cmp cpu.ids one.ids
  is "$chunks: of every token but the first" "$(grep -c , one.top) $(wc -l <one.top | tr -d ' ')" "499 500"
  is "$chunks: every token" "$(grep -o '"tokens":[0-9]*' one.json | awk -F : '{ n += $2 } END { print n }')" 500
done
for name in cpu one $links; do
  ok "$name generates" sh -c "./plain_$name generate --checkpoint alone.ckpt --prompt ABCD --tokens 40 --samples 2 --seed 3 >$name.text"
  ok "$name continues lines" sh -c "printf '65 66 67 68\n1\n' | ./plain_$name generate --checkpoint alone.ckpt --stream --tokens 40 --seed 3 >$name.lines"
done
is "a text for each line" "$(awk '{ print NF }' cpu.lines | tr '\n' ' ')" "40 40 "
for name in one $links; do ok "$name: the CPU's ids" cmp cpu.lines "$name.lines"; done
ok "the CPU's text" cmp cpu.text one.text
for link in $links; do ok "over $link the same" cmp one.text "$link.text"; done
is "two samples of the prompt and forty tokens" "$(grep -c '^ABCD' one.text) $(test "$(wc -c <one.text)" -gt 88 && echo long)" "2 long"
ok "in bf16" build half model.cfg -s cluster.device=cuda -s model.dtype=bf16
ok "it generates" sh -c "./half generate --checkpoint alone.ckpt --prompt ABCD --tokens 40 >half.text"
matches "from the prompt on" "$(cat half.text)" "ABCD*"

# ---- memory.snapshot: a disk that stops, and kill -9 ----

# Writes to the folder of step 2 wait for the file `go`.
cat >gate.c <<'END'
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  while (strstr(path, "/step-00000002") != NULL && access("go", F_OK) != 0) usleep(1000);
  return syscall(SYS_pwrite64, fd, from, bytes, offset);
}
END
ok "a disk that stops, made" ${CC:-cc} -shared -fPIC -o gate.so gate.c
ok "the same without snapshots" train plain_one data.bin 6 --save-every 2 --checkpoint unsnapped
for name in one ipc; do
  settings=
  test $name = one || settings="-s cluster.transport=$name $v"
  ok "$name: a plan with room for a snapshot" build snap_$name model.cfg -s cluster.device=cuda -s memory.snapshot=true $settings
  rm -f go
  LD_PRELOAD=$scratch/gate.so timeout 300 ./snap_$name train --data data.bin --seed 7 --quiet --steps 6 --save-every 2 --log snap.log --checkpoint snap.$name &
  pid=$!
  for more in 1 2 3 4 5 6; do await_steps snap.log 4; done
  is "$name: training continues while step 2 is not written" "$(wc -l <snap.log) $(ls snap.$name)" "4 step-00000002.tmp"
  touch go
  wait $pid
  is "$name: and ends" $? 0
  for step in 2 4 6; do
    for file in model optimizer; do
      ok "$name: step $step has the bytes of a save that steps wait for: $file" \
        cmp unsnapped/step-0000000$step/$file.safetensors snap.$name/step-0000000$step/$file.safetensors
    done
  done
  rm -f snap.log
done
# Killed at random instants, and gone on from what is left.
kills=0
for try in 1 2 3 4; do
  ./snap_one train --data data.bin --seed 7 --quiet --steps 6 --save-every 1 --resume --log killed.log --checkpoint killed 2>/dev/null &
  pid=$!
  await_steps killed.log $((try / 2 + 1))
  sleep 0.0$try
  kill -9 $(children $pid) 2>/dev/null && kills=$((kills + 1))
  wait $pid 2>/dev/null
done
ok "ranks are killed while they save" test $kills -ge 1
ok "what they leave is gone on from" ./snap_one train --data data.bin --seed 7 --quiet --steps 6 --resume --checkpoint killed
ok "to the same weights" cmp unsnapped/latest/model.safetensors killed/latest/model.safetensors
ok "and moments" cmp unsnapped/latest/optimizer.safetensors killed/latest/optimizer.safetensors

# ---- shapes ----

cat >>model.cfg <<'END_OF_MODEL'
shapes = ({ sequence = 8; microbatches = 4; }, { sequence = 4; microbatches = 8; });
END_OF_MODEL
{ # steps of 4, 16, 8, 4
  awk 'BEGIN { for (i = 0; i < 60; i++) {
    longest = i < 16 ? 4 : i < 22 ? 16 : i < 30 ? 8 : i < 46 ? 4 : 16
    text = ""
    for (t = 1; t < longest - i % 2; t++) text = text sprintf("%c", 97 + (i * 7 + t * t) % 26)
    print text
  } }'
} >mixed.text
ok "documents, a window each" "$tokens" --bytes --end-of-text 10 --pack 16 --pad-to 4 --single --quiet -o mixed.bin mixed.text
built shapes -s batch.packed=true
for name in cpu one $links; do
  ok "shapes_$name trains steps of three shapes, and evaluates" train "shapes_$name" mixed.bin 5 --eval-data mixed.bin --eval-every 3
done
is "as the windows want" "$(log_field shapes_cpu.log tokens | tr '\n' ' ')" "$(log_field shapes_one.log tokens | tr '\n' ' ')"
same_everywhere shapes 12
for name in cpu one; do ok "shapes_$name trains in the shape that is forced" train "shapes_$name" data.bin 2 --shape 8; done 2>/dev/null
finish
