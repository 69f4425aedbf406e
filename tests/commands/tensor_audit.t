#!/bin/sh
# tensor_audit.t: train --audit with tensor ranks: audits change no bit and find nothing where nothing is wrong; a bit that is flipped on any
# tensor rank is found, and named by its global rank and the action.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/flips.sh"

make_tokens "$scratch/data.bin" 20000
describe llama 4 ''
describe qwen3 4 'head_dim = 12;'
describe gpt2 4 '' # tied
sed -i 's/vocab = 200/vocab = 257/' "$scratch"/*.cfg # the last tensor rank has fewer tokens
echo 'tensor_parallel = { splits = 4; }; memory = { audit = true; };' | tee -a "$scratch/llama.cfg" "$scratch/gpt2.cfg" >>"$scratch/qwen3.cfg"
sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
T2='-s tensor_parallel.ranks=2'
T4='-s tensor_parallel.ranks=4'
v='-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block'
cube='-s pipeline.ranks=2 -s tensor_parallel.splits=2 -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=4'

# ---- nothing wrong ----

while read -r model name options; do
  ok "audits find nothing: $model, $name" undisturbed "$name" "$model" 20 $options
done <<END
llama two        $T2
llama four       $T4
llama all        $T2 -s tensor_parallel.sequence=false
llama two_v      $T2 $v
llama layers     $T4 -s memory.recompute=layer
qwen3 packed     $T2 -s batch.packed=true -s optimizer.clip_norm=0
bf16 bf16        $T2 -s pipeline.ranks=2
gpt2 tied        $T4 -s pipeline.ranks=2
gpt2 tied_splits $T2 -s pipeline.ranks=2 -s model.dtype=bf16
llama optimizer  $T2 $cube -s data_parallel.shard=optimizer
llama units      $T2 $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
END

# ---- flipped bits ----

ok "bits flipped on four tensor ranks are found" flips flip_four llama -s optimizer.steps=25 $T4
ok "... on two, with two ranks of two stages" flips flip_v llama -s optimizer.steps=25 $T2 $v
ok "... with bf16, replicas, and gathered weights" flips flip_units bf16 -s optimizer.steps=25 $T2 $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
ok "... with a head that is tied to the embedding of another rank" flips flip_tied gpt2 -s optimizer.steps=25 $T4 -s pipeline.ranks=2
count_flips
for rank in 0 1 2 3; do
  ok "those of tensor rank $rank of four" test "$(grep -c "^found [a-z]* $rank " "$scratch/flip_four.flips")" -ge 25
done

# ---- the end of a run ----

ends output 1 "" flip_four
ends weight 1 1 flip_four
ends within 3 3 flip_four
ends updated 2 "" flip_four
ends sent 3 1 flip_units
ok "nothing was saved" test ! -e "$scratch/none/latest"
finish
