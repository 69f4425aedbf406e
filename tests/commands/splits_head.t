#!/bin/sh
# splits_head.t: the head of split weights (tensor_parallel.splits) where it is tied to the embedding, so that its splits have gradients of their
# own, which are added to the embedding's at the step's end; and where its loss is computed by chunks of rows (model.loss_rows). The bits depend on the
# number of splits and of rows alone, not on ranks, schedule, recomputation or sharding; checkpoints continue with any number of splits; loss and norm
# are those of an f64 model written with PyTorch's operators.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/splits.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 4 'tie_embeddings = true;'
describe qwen3 4 'tie_embeddings = true; head_dim = 12;'
describe gpt2 4 ''
sed -i 's/vocab = 200/vocab = 257/' "$scratch"/*.cfg # the last split has fewer tokens
sed 's/hidden = 32/hidden = 36/' "$scratch/gpt2.cfg" >"$scratch/odd.cfg" # no multiple of 64 bytes
sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
sed 's/microbatch = 2/packed = true; &/' "$scratch/qwen3.cfg" >"$scratch/packed.cfg"
cp "$scratch/llama.cfg" "$scratch/replicas.cfg"
rows='-s model.loss_rows=32 -s model.sequence=48'
sed 's/tie_embeddings = true/tie_embeddings = false/' "$scratch/llama.cfg" >"$scratch/rows.cfg"
cp "$scratch/gpt2.cfg" "$scratch/rows_gpt2.cfg"
cp "$scratch/bf16.cfg" "$scratch/rows_bf16.cfg"
cp "$scratch/rows.cfg" "$scratch/rows_frozen.cfg"
cp "$scratch/llama.cfg" "$scratch/rows_replicas.cfg"
cp "$scratch/llama.cfg" "$scratch/frozen.cfg"
replicas='-s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=2'

train() { train_model 3 "$@"; }
compare_splits <<END
llama 1 one
llama 2 one
llama 4 one
llama 4 two       -s pipeline.ranks=2
llama 4 two_zb    -s pipeline.ranks=2 -s pipeline.zero_bubble=true
llama 4 alone     -s pipeline.ranks=2 -s partition.before=[lm_head]
llama 4 two_v     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
llama 4 layer     -s memory.recompute=layer -s pipeline.ranks=2
llama 4 audited   -s memory.audit=true -s pipeline.ranks=2
qwen3 1 one
qwen3 2 one
qwen3 2 two       -s pipeline.ranks=2
gpt2 1 one
gpt2 2 one
gpt2 2 two_zb     -s pipeline.ranks=2 -s pipeline.zero_bubble=true
odd 4 one
odd 4 two         -s pipeline.ranks=2
odd 4 audited     -s pipeline.ranks=2 -s memory.audit=true
bf16 2 one
bf16 2 two        -s pipeline.ranks=2
bf16 2 audited    -s pipeline.ranks=2 -s memory.audit=true
packed 2 one
packed 2 two      -s pipeline.ranks=2
replicas 2 one    $replicas
replicas 2 two    $replicas -s pipeline.ranks=2
replicas 2 shards $replicas -s data_parallel.shard=gradients -s pipeline.ranks=2
replicas 2 units  $replicas -s data_parallel.shard=weights -s data_parallel.unit=layer -s pipeline.ranks=2
frozen 2 one      -s model.frozen=[embed_tokens.weight]
frozen 2 two      -s model.frozen=[embed_tokens.weight] -s pipeline.ranks=2
rows 1 one        $rows
rows 2 one        $rows
rows 4 one        $rows
rows 4 two_zb     $rows -s pipeline.ranks=2 -s pipeline.zero_bubble=true
rows 4 alone      $rows -s pipeline.ranks=2 -s partition.before=[lm_head]
rows 4 split      $rows -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s partition.before=[lm_head]
rows 4 full       $rows -s memory.recompute=full
rows 4 layer      $rows -s memory.recompute=layer -s pipeline.ranks=2
rows 4 attention  $rows -s memory.recompute=attention
rows 4 audited    $rows -s memory.audit=true
rows_gpt2 2 one   $rows
rows_gpt2 2 two   $rows -s pipeline.ranks=2
rows_bf16 2 one   $rows
rows_bf16 2 two   $rows -s pipeline.ranks=2 -s pipeline.zero_bubble=true
rows_frozen 2 one $rows -s model.frozen=[lm_head.weight]
rows_frozen 2 two $rows -s model.frozen=[lm_head.weight] -s pipeline.ranks=2
rows_replicas 2 one   $rows $replicas
rows_replicas 2 units $rows $replicas -s data_parallel.shard=weights -s data_parallel.unit=layer -s pipeline.ranks=2
END

for splits in 1 2 4; do
  ok "whole logits in $splits splits train" train "whole_$splits" rows -s model.sequence=48 -s tensor_parallel.splits=$splits
  ok "chunks of rows in $splits splits have almost their losses and norms" close_to "whole_$splits" "rows_${splits}_one" 1e-5
done
ok "chunks of rows in 4 splits have other bits than in 2" other_bits rows_2_one rows_4_one
# The arena of a plan: what chunks are for.
arena() { "$scratch/$1" info --json | sed -n 's/.*"arena_bytes": *\([0-9]*\).*/\1/p' | head -n 1; }
ok "chunks of rows take less memory" test "$(arena rows_4_one)" -lt "$(arena whole_4)"

near_whole llama qwen3 gpt2

train_bits llama_4_one --data "$scratch/data.bin" --steps 6
log_field "$scratch/llama_4_one.log" loss >"$scratch/straight"
train_bits llama_4_one --data "$scratch/data.bin" --steps 3
ok "a run in 4 splits continues on two ranks" goes_on llama_4_one llama_4_two
is "with the bits of a run that was not interrupted" "$(log_field "$scratch/on.log" loss)" "$(tail -n 3 "$scratch/straight")"
ok "one of a whole embedding continues in 4 splits" goes_on llama_1_one llama_4_two
ok "and one of 4 splits in a whole one" goes_on llama_4_two llama_1_one
ok "with almost the same loss" sh -c "tail -n 1 '$scratch/straight' | cat - '$scratch/on.log' | awk 'NR == 1 { want = \$1 } END {
  sub(/.*\"loss\":/, \"\"); sub(/,.*/, \"\"); d = \$0 - want; exit !(d < 1e-3 && d > -1e-3) }'"

# An audit takes the checksum of each split that the owner sends.
ok "audited steps find no other bits" "$scratch/odd_4_audited" train --data "$scratch/data.bin" --steps 4 --audit 1 --quiet --log "$scratch/audit.log"

all_as_pytorch 3 llama_4_two qwen3_2_one gpt2_2_two_zb rows_4_split rows_gpt2_2_two
finish
