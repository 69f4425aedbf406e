#!/bin/sh
# threads.t: cluster.threads_per_rank: losses, norms, checkpoints, log-probabilities and texts do not depend on it, whatever the family,
# dtype, instruction set, and what else the plan has.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=3
describe llama 2 "kv_heads = 2"
describe qwen3 2 "kv_heads = 2; head_dim = 24"
describe gpt2 2 "tie_embeddings = true"
# Products of several blocks: more rows than 96, and columns and sums of more than 768; element-wise ops of several tiles.
sed 's/hidden = 32/hidden = 104/; s/ffn = 48/ffn = 824/; s/vocab = 200/vocab = 257/; s/sequence = 16/sequence = 131/' "$scratch/llama.cfg" >"$scratch/wide.cfg"
sed 's/microbatch = 2;/& packed = true;/; s/vocab = 257/vocab = 256/' "$scratch/wide.cfg" >"$scratch/packed.cfg"
make_tokens "$scratch/tokens" 20000
make_tokens "$scratch/short" 700 5
awk 'BEGIN { for (n = 0; n < 400; n++) printf "%*s\n", 1 + n * 7 % 61, n }' >"$scratch/lines"
"$tokens" --bytes --end-of-text 10 --pack 131 -o "$scratch/documents" "$scratch/lines" 2>/dev/null

# compare NAME MODEL SET THREADS OPTION...: one thread and each of the list of THREADS; SET: for PEN_ISA.
compare() {
  compare_name=$1 compare_model=$2 compare_threads=$4
  PEN_ISA=${3#best}
  export PEN_ISA
  shift 4
  case $compare_model in packed) cp "$scratch/documents" "$scratch/data.bin" ;; *) cp "$scratch/tokens" "$scratch/data.bin" ;; esac
  for threads in 1 $compare_threads; do
    ok "$compare_name: $threads threads train" train_model $steps "${compare_name}_$threads" "$compare_model" -s cluster.bind=none \
      -s cluster.threads_per_rank="$threads" "$@"
    test "$threads" = 1 || ok "$compare_name: they have the bits of one" same_bits $steps "${compare_name}_1" "${compare_name}_$threads"
  done
}
while read -r name model set threads options; do
  compare "$name" "$model" "$set" "$(echo "$threads" | tr , ' ')" $options
done <<'END'
llama      llama  best 2,3
qwen3      qwen3  best 2,3
gpt2       gpt2   best 2,3
wide       wide   best 2,3
llama_bf16 llama  best 3 -s model.dtype=bf16
gpt2_bf16  gpt2   best 3 -s model.dtype=bf16
wide_bf16  wide   best 2,3 -s model.dtype=bf16
wide_avx2  wide   avx2 3 -s model.dtype=bf16
wide_plain wide   baseline 3
packed     packed best 3
recompute  wide   best 3 -s memory.recompute=layer
loss_rows  wide   best 3 -s model.loss_rows=96
split      wide   best 2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
replicas   wide   best 2 -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer
audited    wide   best 3 -s memory.audit=true
END
unset PEN_ISA

audit() { "$scratch/audited_3" train --seed 7 --quiet --data "$scratch/data.bin" --steps 12 --audit 1 2>"$scratch/err"; }
ok "audits of several threads find nothing" audit
is "and say nothing" "$(complaints "$scratch/err")" ""

# score and generate, with a cache and without, from one checkpoint.
serve="-s model.vocab=256 -s cluster.bind=none"
for threads in 1 3; do
  ok "serve: $threads threads" build "serve_$threads" "$scratch/wide.cfg" $serve -s cluster.threads_per_rank=$threads -s generate.prompts=2
  ok "serve: $threads threads, without a cache" build "whole_$threads" "$scratch/wide.cfg" $serve -s cluster.threads_per_rank=$threads \
    -s generate.prompts=0
done
"$scratch/serve_1" train --data "$scratch/tokens" --seed 7 --steps $steps --quiet --checkpoint "$scratch/ckpt"
is "serve: trained a little" $? 0
score() { "$scratch/serve_$1" score --data "$scratch/short" --checkpoint "$scratch/ckpt" --quiet --output "$scratch/scores.$1"; }
generate() {
  "$scratch/$1" generate --checkpoint "$scratch/ckpt" --quiet --prompt "a prompt of more than one chunk of the cache" --tokens 12 \
    >"$scratch/text.$1"
}
for threads in 1 3; do
  score $threads >"$scratch/result.$threads"
  is "score: $threads threads" $? 0
  for plan in serve_$threads whole_$threads; do ok "generate: $plan" generate $plan; done
done
ok "score: the same log-probabilities" cmp "$scratch/scores.1" "$scratch/scores.3"
is "score: the same result" "$(cat "$scratch/result.3")" "$(cat "$scratch/result.1")"
ok "score: there is one" test -s "$scratch/scores.1"
for plan in serve whole; do ok "generate: the same text of $plan" cmp "$scratch/text.${plan}_1" "$scratch/text.${plan}_3"; done
ok "generate: there is one" test "$(wc -c <"$scratch/text.serve_3")" -gt 12
finish
