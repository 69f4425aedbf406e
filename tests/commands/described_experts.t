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
qwen3_moe_described one    $losses -s model.dtype=f32
qwen3_moe_described two    $losses -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s memory.recompute=attention
END_RUNS
finish
