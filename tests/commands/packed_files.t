#!/bin/sh
# packed_files.t: documents packed into windows train as each document alone, whatever the topology; what is wrong with a packed file is said.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 64; };
batch = { microbatch = 2; packed = true; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 2; schedule = "1f1b"; };
END

# Twelve documents of 20, 21 and 23 bytes, four times: four windows of three.
awk 'BEGIN {
  state = 7; split("20 21 23", length_of)
  for (d = 0; d < 12; d++) {
    text = ""
    for (t = 1; t < length_of[d % 3 + 1]; t++) {
      state = (state * 16807) % 2147483647
      text = text sprintf("%c", 97 + state % 26)
    }
    printf "{\"id\": %d, \"text\": \"%s\"}\n", d, text
  }
}' >"$scratch/documents.jsonl"
pack() { "$tokens" --field text --end-of-text 10 --quiet "$@" "$scratch/documents.jsonl" 2>"$scratch/report"; }
ok "documents are packed" pack --pack 64 -o "$scratch/packed.bin"
matches "the fill is reported" "$(cat "$scratch/report")" \
  '*12 documents in 12 pieces, 4 windows of up to 64 tokens, 244 targets; fill 100.00% of whole windows, 100.00% of *'
ok "and written alone" pack --pack 64 --pad-to 8 --single -o "$scratch/alone.bin"
matches "each in a window of its own" "$(cat "$scratch/report")" '*12 documents in 12 pieces, 12 windows*fill 33.33% of whole windows, 88.89% of *'
ok "the same bytes again" sh -c "cp '$scratch/packed.bin' '$scratch/before' && '$tokens' --field text --end-of-text 10 --pack 64 \
  -o '$scratch/packed.bin' '$scratch/documents.jsonl' 2>/dev/null && cmp '$scratch/before' '$scratch/packed.bin'"

# train NAME DATA STEPS: leaves NAME.bits and NAME.ckpt.
train() {
  rm -rf "$scratch/$1.ckpt" "$scratch/$1.log"
  "$scratch/$1" train --data "$scratch/$2" --steps "$3" --seed 7 --quiet --log "$scratch/$1.log" --checkpoint "$scratch/$1.ckpt" || return 1
  { log_field "$scratch/$1.log" loss; log_field "$scratch/$1.log" grad_norm; } >"$scratch/$1.bits"
}
# close_to NAME OTHER: the first moments after a step, which are a tenth of the gradients, agree to 1e-6 of the greatest, and the losses to
# 1e-6. The optimizer's file is floats after its header, a tensor's second moment after its first.
floats() {
  file=$scratch/$1.ckpt/latest/optimizer.safetensors
  tail -c +$(($(od -An -tu8 -N8 "$file") + 9)) "$file" | od -An -v -tf4 -w4
}
close_to() {
  paste "$scratch/$1.bits" "$scratch/$2.bits" |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (!($1 > 0) || d > 1e-6 * $1) bad = 1 } END { exit bad || NR != 2 }' || return 1
  floats "$1" >"$scratch/a"
  floats "$2" >"$scratch/b"
  paste "$scratch/a" "$scratch/b" | awk '{ a = $1 < 0 ? -$1 : $1; d = $1 - $2; if (d < 0) d = -d; if (a > most) most = a; if (d > off) off = d }
    END { print "# most " most ", off " off; exit !(NR > 10000 && most > 0 && off <= 1e-6 * most) }'
}

for family in llama mistral qwen2 qwen3 gemma3_text gpt2; do
  heads=
  if test $family = gpt2; then heads="-s model.kv_heads=4"; fi
  if test $family = gemma3_text; then heads="-s model.window=9 -s model.layers=6"; fi
  if test $family = mistral; then heads="-s model.window=9"; fi
  ok "$family is built for four windows" build "$family" "$scratch/model.cfg" -s model.family=$family $heads
  ok "$family is built for twelve" build "${family}_alone" "$scratch/model.cfg" -s model.family=$family $heads -s pipeline.microbatches=6
  ok "$family trains on packed documents" train "$family" packed.bin 1
  ok "$family trains on each alone" train "${family}_alone" alone.bin 1
  ok "$family: losses and gradients agree to 1e-6" close_to "$family" "${family}_alone"
done
is "the log counts the targets" "$(log_field "$scratch/llama.log" tokens)" 244
sed 's/packed = true/packed = false/' "$scratch/model.cfg" >"$scratch/plain.cfg"
ok "without bounds the losses differ (the test can tell)" sh -c "! paste '$scratch/llama.bits' '$scratch/gpt2.bits' | awk '\$1 != \$2 { exit 1 }'"

# Padding has no weight in the loss, in the file or after the window, whatever its tokens are.
ok "windows alone, padded to 64" pack --pack 64 --pad-to 64 --single -o "$scratch/padded.bin"
cp "$scratch/llama_alone.bits" "$scratch/alone.bits"
ok "train on them" train llama_alone padded.bin 1
ok "the same bits" cmp "$scratch/alone.bits" "$scratch/llama_alone.bits"

# Documents of one token have no target. A step of nothing else teaches nothing, and is counted; a file of nothing else is refused.
lone() { # NAME WITH WITHOUT WITH: windows
  awk -v a="$2" -v b="$3" -v c="$4" 'BEGIN { for (w = 0; w < a + b + c; w++) printf "{\"text\": \"%s\"}\n", (w < a || w >= a + b ? "water" w : "\\n") }' |
    "$tokens" --field text --end-of-text 10 --pack 64 --single --quiet -o "$scratch/$1.bin" - 2>/dev/null
}
ok "four windows without targets among eight with" lone among 4 4 4
ok "in front" lone front 0 4 4
ok "and nothing else" lone none 0 4 0
ok "train continues over them" "$scratch/llama" train --data "$scratch/among.bin" --steps 3 --save-every 1 --quiet --log "$scratch/lone.log" \
  --checkpoint "$scratch/lone"
is "the step is logged as skipped" "$(log_field "$scratch/lone.log" skipped | tr '\n' ' ')$(log_field "$scratch/lone.log" tokens | sed -n 2p)" "1 1 0"
for file in model optimizer; do
  ok "it leaves $file as it was" cmp "$scratch/lone/step-00000001/$file.safetensors" "$scratch/lone/step-00000002/$file.safetensors"
done
ok "the next does not" sh -c "! cmp -s '$scratch/lone/step-00000002/model.safetensors' '$scratch/lone/step-00000003/model.safetensors'"
for command in train eval; do
  start="--init $scratch/lone/latest"
  said=$("$scratch/llama" $command --data "$scratch/none.bin" $start --steps 1 --quiet 2>&1)
  is "$command: the status of a file without a target" $? 65
  matches "and its message" "$said" "*none.bin: no window has a target: each of its 4 documents is one token*"
done
said=$("$scratch/llama" eval --data "$scratch/front.bin" --steps 1 --init "$scratch/lone/latest" --quiet 2>&1)
is "eval: the status of steps without a target" $? 65
matches "and its message" "$said" "*front.bin: no target in the windows of the 1 steps*"
matches "all of the file has a loss" "$("$scratch/llama" eval --data "$scratch/front.bin" --init "$scratch/lone/latest" --quiet)" '{"loss":[1-9]*"tokens":2[0-9]}'

# A plain file is the same with bounds and without.
make_tokens "$scratch/plain.bin" 4000
ok "a binary without bounds" build unbound "$scratch/plain.cfg"
ok "trains on a plain file" train unbound plain.bin 3
ok "as one with bounds does" train llama plain.bin 3
ok "with the same bits" cmp "$scratch/unbound.bits" "$scratch/llama.bits"
"$scratch/unbound" train --data "$scratch/packed.bin" --steps 1 2>"$scratch/refusal"
is "but takes no windows of several documents: 65" $? 65
matches "and says why" "$(cat "$scratch/refusal")" '*packed.bin: window 0 holds 3 documents: * batch.packed = false*'

# Every stage with attention gets the starts of its microbatch's documents, and without bounds none.
starts() {
  "$gen" -p shapes -s pipeline.ranks=4 -s partition.balance=count "$@" 2>/dev/null | tr -d ' \n' | grep -o '{"tensor":"starts"[^}]*}' | sed 's/.*"from":\([^,]*\),"to":\([^,]*\),.*"split":\(.*\)}/\1 \2 \3/'
}
is "each stage gets the starts, split by sequences" "$(starts "$scratch/model.cfg")" '"data" 0 0
"data" 1 0
"data" 2 0
"data" 3 0'
is "and none without bounds" "$(starts -s batch.packed=false "$scratch/model.cfg")" ""

# Topologies.
ok "packed on one rank" train llama packed.bin 3
while read -r name options; do
  ok "$name is built" build "$name" "$scratch/model.cfg" $options
  ok "$name trains" train "$name" packed.bin 3
  ok "$name has the same bits as one rank" cmp "$scratch/llama.bits" "$scratch/$name.bits"
done <<'END'
two       -s pipeline.ranks=2
four      -s pipeline.ranks=4
two_v     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
again     -s pipeline.ranks=2 -s memory.recompute=full
layer     -s pipeline.ranks=2 -s memory.recompute=layer
attention -s pipeline.ranks=2 -s memory.recompute=attention
END
# bf16: the same bits on any topology, and the first loss, of the same weights, as each document alone.
ok "bf16 on one rank" build narrow "$scratch/model.cfg" -s model.dtype=bf16
ok "bf16 on two" build narrow_two "$scratch/model.cfg" -s model.dtype=bf16 -s pipeline.ranks=2
ok "bf16 for documents alone" build narrow_alone "$scratch/model.cfg" -s model.dtype=bf16 -s pipeline.microbatches=6
ok "bf16 trains" train narrow packed.bin 3
ok "bf16 trains on two ranks" train narrow_two packed.bin 3
ok "bf16 trains on each document alone" train narrow_alone alone.bin 3
ok "bf16 has the same bits on two ranks" cmp "$scratch/narrow.bits" "$scratch/narrow_two.bits"
ok "bf16: the losses agree, at first to 1e-6, then to 1e-3" sh -c "paste '$scratch/narrow.bits' '$scratch/narrow_alone.bits' |
  awk '{ d = \$1 - \$2; if (d < 0) d = -d; if (d > (NR == 1 ? 1e-6 : 1e-3) * \$1) bad = 1 } END { exit bad || NR != 6 }'"

is "eval divides by the targets too" "$("$scratch/two" eval --data "$scratch/packed.bin" --checkpoint "$scratch/llama.ckpt" 2>/dev/null)" \
  "$("$scratch/llama" eval --data "$scratch/packed.bin" --checkpoint "$scratch/llama.ckpt" 2>/dev/null)"
matches "and counts them" "$("$scratch/llama" eval --data "$scratch/packed.bin" --checkpoint "$scratch/llama.ckpt" 2>/dev/null)" '*"tokens":244}'

# What is wrong is said: 65.
# refuses NAME PATTERN: training on NAME ends with 65 and says so.
refuses() {
  "$scratch/llama" train --data "$scratch/$1" --steps 1 --quiet 2>"$scratch/refusal"
  refused=$?
  case "$refused $(cat "$scratch/refusal")" in "65 "*$2*) return 0 ;; esac
  sed 's/^/# /' "$scratch/refusal"
  return 1
}
# flip FILE OFFSET: packed.bin with one bit of that byte changed.
flip() {
  cp "$scratch/packed.bin" "$scratch/$1"
  byte=$(od -An -tu1 -j "$2" -N 1 "$scratch/packed.bin")
  printf "\\$(printf %o $((byte ^ 4)))" | dd of="$scratch/$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
size=$(wc -c <"$scratch/packed.bin")
head -c $((size - 1)) "$scratch/packed.bin" >"$scratch/short.bin"
ok "a file cut short" refuses short.bin "short.bin: $((size - 1)) bytes: its header counts 256 tokens, 12 documents and 4 windows, which take $size bytes"
head -c 40 "$scratch/packed.bin" >"$scratch/shorter.bin"
ok "a header cut short" refuses shorter.bin "shorter.bin: 40 bytes: a packed token file has a header of 64 bytes"
flip header.bin 17
ok "a changed header" refuses header.bin "header.bin: damaged header: checksum"
flip token.bin 300
ok "a changed token" refuses token.bin "token.bin: damaged window 1: checksum"
flip index.bin $((size - 5))
ok "a changed index" refuses index.bin "index.bin: damaged index: checksum"
"$tokens" --field text --pack 128 -o "$scratch/long.bin" "$scratch/documents.jsonl" 2>/dev/null
ok "windows that are too long" refuses long.bin "long.bin: windows of up to 128 tokens: sequences of this binary hold 64"
: >"$scratch/empty.jsonl"
"$tokens" --field text --pack 64 -o "$scratch/none.bin" "$scratch/empty.jsonl" 2>/dev/null
ok "no windows" refuses none.bin "none.bin: it has no windows"
finish
