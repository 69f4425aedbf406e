#!/bin/sh
# splits.t: with split weights (tensor_parallel.splits) the bits depend on the number of splits alone, not on ranks, stages, schedule,
# recomputation or sharding; checkpoints hold whole tensors, from the same initial values, and continue with any number of splits; loss and
# norm are those of an f64 model written with PyTorch's operators, where there is PyTorch.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/splits.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 4 ''
describe qwen3 4 'head_dim = 12;'
describe gpt2 4 'tie_embeddings = false;'
describe qwen2 4 'norm_epsilon = 1e-6;'
describe mistral 4 'window = 5;'
describe gemma3_text 7 'head_dim = 12; query_scalar = 20; window = 5;' # tied
sed -i 's/vocab = 200/vocab = 257/' "$scratch"/*.cfg # the last split has fewer tokens
sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
sed 's/microbatch = 2/packed = true; &/' "$scratch/qwen3.cfg" >"$scratch/packed.cfg"
sed 's/microbatch = 2/packed = true; &/' "$scratch/gpt2.cfg" >"$scratch/packed_gpt2.cfg"
sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/gpt2.cfg" >"$scratch/bf16_gpt2.cfg"
cp "$scratch/llama.cfg" "$scratch/replicas.cfg"
sed 's/layers = 4/attention_bias = true; mlp_bias = true; &/' "$scratch/llama.cfg" >"$scratch/biases.cfg"
replicas='-s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=2'

train() { train_model 3 "$@"; }
compare_splits <<END
llama 1 one
llama 2 one
llama 2 two_zb    -s pipeline.ranks=2 -s pipeline.zero_bubble=true
llama 4 one
llama 4 two_cut   -s pipeline.ranks=2 -s partition.before=[model.layers.2.mlp]
llama 4 two_v     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
llama 4 full      -s memory.recompute=full
llama 4 layer     -s memory.recompute=layer -s pipeline.ranks=2 -s partition.unit=block -s partition.before=[lm_head]
qwen3 1 one
qwen3 2 one
qwen3 2 two_v     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
qwen3 2 attention -s memory.recompute=attention
qwen3 2 audited   -s memory.audit=true
qwen3 2 snapshot  -s memory.snapshot=true -s pipeline.ranks=2
bf16 1 one
bf16 2 one
bf16 2 two_zb     -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s memory.recompute=layer
gpt2 1 one
gpt2 2 one
gpt2 4 one
gpt2 4 two_v      -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
gpt2 4 layer      -s memory.recompute=layer
biases 1 one
biases 2 one
biases 2 two_zb   -s pipeline.ranks=2 -s pipeline.zero_bubble=true
qwen2 1 one
qwen2 2 one
qwen2 2 two_zb    -s pipeline.ranks=2 -s pipeline.zero_bubble=true
mistral 1 one
mistral 2 one
mistral 2 two     -s pipeline.ranks=2
gemma3_text 1 one
gemma3_text 2 one
gemma3_text 2 two_v -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
gemma3_text 2 layer -s memory.recompute=layer
packed 2 one
packed 2 two      -s pipeline.ranks=2
packed_gpt2 2 one
packed_gpt2 2 two -s pipeline.ranks=2
bf16_gpt2 2 one
bf16_gpt2 2 two   -s pipeline.ranks=2 -s pipeline.zero_bubble=true
replicas 2 one    $replicas
replicas 2 shards $replicas -s data_parallel.shard=optimizer -s pipeline.ranks=2
replicas 2 units  $replicas -s data_parallel.shard=weights -s data_parallel.unit=layer
END

near_whole llama biases qwen3 gpt2 qwen2 mistral gemma3_text
ok "llama: other bits in 4 splits than in 2" other_bits llama_2_one llama_4_one
ok "bf16: almost the same losses and norms" close_to bf16_1_one bf16_2_one 2e-2

# ---- files ----
# Frozen tensors keep their initial values, whose key is the element's index in the whole tensor.
frozen='-s model.frozen=[embed_tokens.weight,q_proj.weight,o_proj.weight,down_proj.weight,lm_head.weight,k_proj.weight]'
# tensors NAME: the SHA-256 of the frozen tensors of its checkpoint.
tensors() { sed -n 's/.*"\(.*\(embed_tokens\|[qko]_proj\|down_proj\|lm_head\).weight\)": \(.*\)/\1 \3/p' "$scratch/$1.ckpt/latest/manifest.json"; }
for splits in 1 2 4; do
  ok "frozen in $splits splits: trains" train "frozen_$splits" llama $frozen -s tensor_parallel.splits=$splits
done
is "a checkpoint has 18 frozen tensors" "$(tensors frozen_1 | wc -l)" 18
is "splits have the initial values of the whole tensors" "$(tensors frozen_2)" "$(tensors frozen_1)"
is "in any number" "$(tensors frozen_4)" "$(tensors frozen_1)"

for to in 1 2 4; do
  ok "a checkpoint of 2 splits continues in $to" goes_on frozen_2 frozen_$to
  is "with its frozen tensors" "$(tensors on)" "$(tensors frozen_2)"
done
ok "one of whole tensors continues in 4 splits" goes_on frozen_1 frozen_4
is "with its frozen tensors, too" "$(tensors on)" "$(tensors frozen_1)"
train_bits llama_4_one --data "$scratch/data.bin" --steps 6
log_field "$scratch/llama_4_one.log" loss >"$scratch/straight"
train_bits llama_4_one --data "$scratch/data.bin" --steps 3
ok "a run in 4 splits continues" goes_on llama_4_one llama_4_two_v
is "with the bits of a run that was not interrupted" "$(log_field "$scratch/on.log" loss)" "$(tail -n 3 "$scratch/straight")"
sed -i 's/\(k_proj.weight": "\)./\1x/' "$scratch/llama_4_one.ckpt/latest/manifest.json"
fails "a wrong checksum of a split tensor is refused" 65 "k_proj.weight" "$scratch/llama_4_one" train --data "$scratch/data.bin" --steps 4 \
  --resume --checkpoint "$scratch/llama_4_one.ckpt"

# ---- the other commands ----
# last COMMAND...: the loss of the last line of eval.
last() { "$@" --data "$scratch/data.bin" --checkpoint "$scratch/llama_1_one.ckpt" 2>/dev/null | sed -n 's/.*"loss":\(.......\).*/\1/p'; }
is "eval in 4 splits has the loss of eval of whole tensors" "$(last "$scratch/llama_4_one" eval)" "$(last "$scratch/llama_1_one" eval)"

# ---- an independent model ----
all_as_pytorch 3 llama_4_one biases_2_one qwen3_2_one gpt2_2_one qwen2_2_one mistral_2_one gemma3_text_2_one

# ---- what is refused ----
refused() { refused_what=$1 refused_text=$2; shift 2; fails "$refused_what" 78 "$refused_text" "$gen" --check "$@" "$scratch/llama.cfg"; }
refused "3 splits" 'a power of two' -s tensor_parallel.splits=3
refused "more splits than heads" 'a divisor of model.heads = 4' -s tensor_parallel.splits=8
refused "splits of a sequence" 'a divisor of shapes.sequence = 6' -s tensor_parallel.splits=4 -s shapes.sequence=[6] -s shapes.microbatches=[4]
refused "another family" '1, with the family mlp' -s tensor_parallel.splits=2 -s model.family=mlp
finish
