#!/bin/sh
# cached_emulated.t: generate with cluster.device = "cuda" over a cache of keys and values samples the tokens that it samples from whole sequences
# (generate.prompts = 0), of fused and of separate products, in both dtypes, on two ranks and on two tensor ranks, in one group of texts and in
# several. Over the CUDA backend compiled for the host (tests/emulation/emulate.h), whose products do not depend on the number of rows.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 32; vocab = 128; sequence = 32; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 12; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
generate = { prompts = 2; };
cluster = { device = "cuda"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 2000
# Prompts of 1 to 40 tokens: some shorter than a chunk of 32, one longer than the sequence.
awk 'BEGIN { s = 11; for (p = 0; p < 5; p++) { n = substr("0103082240", 2 * p + 1, 2) + 0; text = ""
  for (i = 0; i < n; i++) { s = s * 16807 % 2147483647; text = text sprintf("%c", 65 + s % 26) } print "{\"prompt\": \"" text "\"}" } }' >prompts.json

# texts NAME SETTING...: leaves NAME.json, of a plan with these settings.
texts() {
  texts_name=$1
  shift
  ok "$texts_name: a plan" build "$texts_name" model.cfg "$@"
  ok "$texts_name: generates" sh -c '"./$1" generate --checkpoint weights --prompts prompts.json --tokens 12 --temperature 0.5 --seed 4 --quiet >"$1.json"' \
    sh "$texts_name"
}
# compare NAME SETTING...: with a cache and without, the same texts, by weights that the CPU has trained a little.
compare() {
  compare_name=$1
  shift
  rm -rf weights
  ok "$compare_name: a plan for the CPU" build cpu model.cfg "$@" -s cluster.device=cpu
  ok "$compare_name: which trains" ./cpu train --data data.bin --seed 7 --quiet --checkpoint weights
  texts "$compare_name" "$@"
  texts "${compare_name}_plain" "$@" -s generate.prompts=0
  ok "$compare_name: the same texts without a cache" cmp "$compare_name.json" "${compare_name}_plain.json"
}
compare bf16 -s model.dtype=bf16
compare gpt2 -s model.family=gpt2 -s model.kv_heads=4 -s pipeline.stages_per_rank=2
compare mistral -s model.family=mistral -s model.window=7
compare llama
sum_of() { ./"$1" info --json | tr ',{' '\n\n' | sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" | awk '{ n += $1 } END { print n }'; }
is "keys and values of 2 groups of 2 texts" "$(sum_of llama cache_bytes)" $((2 * 2 * 32 * 2 * 8 * 4 * 4)) # 2 x 2 layers x 32 tokens x 2 heads x 8 numbers
is "lie where training has its activations" "$(sum_of llama cache)" 0
for topology in "groups_1:generate.microbatches=1" "groups_5:generate.microbatches=5 -s generate.prompts=1" \
  "tensor:tensor_parallel.ranks=2 -s pipeline.ranks=1"; do
  texts ${topology%%:*} -s ${topology#*:}
  ok "${topology%%:*}: the same texts" cmp ${topology%%:*}.json llama.json
done
finish
