#!/bin/sh
# described_experts.t: mixtures of experts in descriptions, the op MOE: models of tests/models/ have the bits of the families that they describe, also
# over ranks, schedules and what is computed again; scores, texts, costs; what is refused.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/routers.sh"

models=$(cd "$top_srcdir/tests/models" && pwd)
make_tokens "$scratch/data.bin" 4000
moe="kv_heads = 2; head_dim = 12; experts = 8; experts_per_token = 3; moe_ffn = 24;"
describe mixtral 2 "kv_heads = 2; experts = 4; experts_per_token = 2; moe_ffn = 24; window = 5;"
describe qwen3_moe 3 "$moe mlp_only = [1];"
describe dots1 3 "$moe dense_layers = 1; shared_experts = 1; router_normalize = true; router_groups = 4; router_top_groups = 2; router_scale = 2.5;"
for name in mixtral qwen3_moe dots1; do
  sed "s|^model = .*|model = { family = \"described\"; description = \"$models/$name.json\"; sequence = 16; };|" "$scratch/$name.cfg" >"$scratch/${name}_described.cfg"
done

# ---- the bits of the families ----
slices="-s expert_parallel.rows=16"
losses="$slices -s model.aux_loss=0.02 -s model.z_loss=0.003"
compare_runs 3 <<END_RUNS
mixtral             one    $slices
mixtral_described   four   $slices -s pipeline.ranks=4 -s partition.unit=block -s memory.recompute=layer
qwen3_moe           one    $losses
qwen3_moe_described two    $losses -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s memory.recompute=attention
qwen3_moe           data_one $losses -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s model.dtype=bf16
qwen3_moe_described data   $losses -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer -s memory.recompute=full -s model.dtype=bf16
dots1_described     one    $losses -s model.bias_update=0.25
dots1_described     v      $losses -s model.bias_update=0.25 -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s memory.audit=true -s cluster.threads_per_rank=2 -s cluster.bind=none
END_RUNS
ok "audits find nothing" "$scratch/dots1_described_v" train --data "$scratch/data.bin" --steps 3 --audit 1 --quiet

# Of dots1 the routers precede the shared experts, whose ops come first: files have another order, and so has the sum of the norm.
ok "dots1: built" build dots1_family "$scratch/dots1.cfg" $losses -s model.bias_update=0.25
"$scratch/dots1_family" init --seed 7 --output "$scratch/dots1.start"
for name in dots1_family dots1_described_one; do
  ok "$name: trains from the weights of the family" train_bits "$name" --data "$scratch/data.bin" --steps 3 --init "$scratch/dots1.start"
done

# ---- scores, texts ----
cat $scratch/dots1_family.bits $scratch/dots1_described_one.bits
finish
