#!/bin/sh
# threads.t: cluster.threads_per_rank: the bits do not depend on it; what does not fit the cores of a host is refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=3
describe llama 3 "kv_heads = 2"
describe qwen3 2 "kv_heads = 2; head_dim = 24"
describe gpt2 2 "tie_embeddings = true"
# Products of several blocks: more rows than 96, and columns and sums of more than 768.
sed 's/hidden = 32/hidden = 104/; s/ffn = 48/ffn = 824/; s/vocab = 200/vocab = 257/; s/sequence = 16/sequence = 131/' "$scratch/llama.cfg" >"$scratch/wide.cfg"
make_tokens "$scratch/data.bin" 20000

train() {
  train_name=$1 train_model=$2
  shift 2
  train_model $steps "$train_name" "$train_model" -s cluster.bind=none "$@"
}
while read -r name model options; do
  ok "$name: one thread trains" train "${name}_1" "$model" $options
  for threads in 2 3; do
    ok "$name: $threads threads train" train "${name}_$threads" "$model" -s cluster.threads_per_rank=$threads $options
    ok "$name: $threads threads have the bits of one" same_bits $steps "${name}_1" "${name}_$threads"
  done
done <<'END'
llama      llama
qwen3      qwen3
gpt2       gpt2
wide       wide
llama_bf16 llama -s model.dtype=bf16
gpt2_bf16  gpt2 -s model.dtype=bf16
wide_bf16  wide -s model.dtype=bf16
recompute  llama -s memory.recompute=layer
END
finish
