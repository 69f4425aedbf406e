#!/bin/sh
# cached.t: generate over a cache of keys and values samples the same tokens as from whole sequences (generate.prompts = 0), whatever the
# family, dtype, ranks and number of texts at once; past the sequence the window slides.
. "${top_srcdir:-.}/tests/support/lib.sh"
PEN_PRODUCTS=own # sums do not depend on the number of rows, so that bits are equal
export PEN_PRODUCTS

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 96; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 12; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
generate = { prompts = 3; };
cluster = { device = "cpu"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 8000
# Prompts of 1 to 120 tokens: some shorter than a chunk of 48, some longer, one longer than the sequence.
awk 'BEGIN { s = 11; for (p = 0; p < 7; p++) { n = substr("001008047048049095120", 3 * p + 1, 3) + 0; text = ""
  for (i = 0; i < n; i++) { s = s * 16807 % 2147483647; text = text sprintf("%c", 65 + s % 26) } print "{\"prompt\": \"" text "\"}" } }' >prompts.json

generate() { # NAME OPTION...
  generate_name=$1
  shift
  "./$generate_name" generate --checkpoint ckpt --quiet "$@"
}
# compare WHAT SETTING...: with a cache and without, cold and sampled, the same texts.
compare() {
  compare_what=$1
  shift
  ok "$compare_what" build cached model.cfg "$@"
  ok "$compare_what, without a cache" build plain model.cfg "$@" -s generate.prompts=0
  rm -rf ckpt
  ./cached train --data data.bin --quiet --checkpoint ckpt
  is "$compare_what: trained a little" $? 0
  for compare_options in "--temperature 0" "--temperature 1.2 --seed 4 --samples 2"; do
    generate cached --prompts prompts.json --tokens 40 $compare_options >cached.json
    is "$compare_what, $compare_options: status" $? 0
    generate plain --prompts prompts.json --tokens 40 $compare_options >plain.json
    ok "$compare_what, $compare_options: the same texts" cmp cached.json plain.json
  done
}
compare "llama on two ranks"
is "a text for each sample" "$(wc -l <cached.json | tr -d ' ')" 14
cp cached.json two.json
for topology in "one rank:pipeline.ranks=1" "one text alone:generate.prompts=1 -s generate.microbatches=1" "one group:generate.microbatches=1" \
  "five groups:generate.microbatches=5" "eight groups of one text:generate.prompts=1 -s generate.microbatches=8" "eight texts at once:generate.prompts=8" \
  "a V:pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v" "without training:pipeline.schedule=inference -s pipeline.ranks=4" \
  "a sequence that no chunk divides:model.sequence=97" "replicas that share out their weights:data_parallel.replicas=2 -s data_parallel.shard=weights"; do
  ok "${topology%%:*}" build other model.cfg -s ${topology#*:}
  generate other --prompts prompts.json --tokens 40 --temperature 1.2 --seed 4 --samples 2 >other.json
  is "${topology%%:*}: status" $? 0
  case $topology in
    *sequence*) is "${topology%%:*}: the same while they fit" "$(head -n 8 other.json | cksum)" "$(head -n 8 two.json | cksum)" ;;
    *) ok "${topology%%:*}: the same texts" cmp other.json two.json ;;
  esac
done
generate cached --prompt ABC --tokens 120 --samples 4 --seed 9 >cached.text
generate plain --prompt ABC --tokens 120 --samples 4 --seed 9 >plain.text
ok "--prompt with samples, past the sequence: the same" cmp cached.text plain.text
stop=$(tail -c +20 cached.text | head -c 1)
generate cached --prompts prompts.json --tokens 40 --seed 9 --end-of-text "$(printf %d "'$stop")" >cached.json
generate plain --prompts prompts.json --tokens 40 --seed 9 --end-of-text "$(printf %d "'$stop")" >plain.json
ok "texts of different lengths: the same" cmp cached.json plain.json
compare "gpt2" -s model.family=gpt2 -s model.kv_heads=4 -s pipeline.stages_per_rank=2
compare "qwen3, tied" -s model.family=qwen3 -s model.tie_embeddings=true
compare "qwen2" -s model.family=qwen2
compare "mistral, with a window" -s model.family=mistral -s model.window=20
compare "gemma3, with windows in some layers" -s model.family=gemma3_text -s model.window=20
compare "bf16" -s model.dtype=bf16
compare "bf16, with a window" -s model.family=mistral -s model.window=20 -s model.dtype=bf16
compare "packed" -s batch.packed=true
PEN_ISA=baseline
export PEN_ISA
compare "bf16 with the baseline instruction set" -s model.dtype=bf16
compare "f32 with the baseline instruction set"
unset PEN_ISA

# Memory: in the plan, in the place of training's activations, within the limit.
sum_of() { ./"$1" info --json | tr ',{' '\n\n' | sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" | awk '{ n += $1 } END { print n }'; }
texts=$((2 * 4 * 96 * 2 * 8 * 4)) # 2 x 4 layers x 96 tokens x 2 heads x 8 numbers
is "info counts the keys and values of 2 groups of 3 texts" "$(sum_of cached cache_bytes)" $((6 * texts))
is "and none without" "$(sum_of plain cache_bytes)" 0
is "the arena is no larger" "$(sum_of cached arena_bytes) $(sum_of cached cache)" "$(sum_of plain arena_bytes) 0"
ok "with 2 groups of 64 texts" build large model.cfg -s generate.prompts=64
is "their keys and values" "$(sum_of large cache_bytes)" $((128 * texts))
is "the arena is larger by what they exceed" "$(sum_of large arena_bytes)" $(($(sum_of plain arena_bytes) + $(sum_of large cache)))
ok "which is less than they are" test "$(sum_of large cache)" -lt $((128 * texts))
"$PENSTOCK_GEN" --check model.cfg -s generate.prompts=64 -s memory.limit_mib=1 2>err
is "a cache beyond memory.limit_mib: status" $? 78
matches "a cache beyond memory.limit_mib: message" "$(complaints err)" "*memory.limit_mib = 1: 0 (none) or at least *"
"$PENSTOCK_GEN" --check model.cfg -s generate.prompts=65 2>err
is "too many: status" $? 78
"$PENSTOCK_GEN" --check model.cfg -s generate.microbatches=0 2>err
is "no group: status" $? 78
matches "no group: message" "$(complaints err)" "*generate.microbatches = 0*1 to 64*"
finish
