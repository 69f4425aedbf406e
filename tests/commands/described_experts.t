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
  ok "$name: trains from weights of the family" train_bits "$name" --data "$scratch/data.bin" --steps 3 --init "$scratch/dots1.start"
done
ok "they have the same losses and norms" cmp "$scratch/dots1_family.bits" "$scratch/dots1_described_one.bits"
router_losses() { for field in aux_loss z_loss expert_load idle_experts; do log_field "$scratch/$1.log" $field; done; }
for pair in "qwen3_moe_one qwen3_moe_described_two" "dots1_family dots1_described_one"; do
  router_losses "${pair% *}" >"$scratch/losses"
  router_losses "${pair#* }" >"$scratch/other.losses"
  ok "$pair: the same losses and loads of routers" cmp "$scratch/losses" "$scratch/other.losses"
  is "$pair: of each step" "$(grep -c '^[0-9]' "$scratch/losses")" 12
done

# ---- scores, texts ----
for pair in "mixtral_one mixtral_described_four" "dots1_family dots1_described_one"; do
  trained=$scratch/${pair% *}.ckpt/latest/model.safetensors
  for name in $pair; do
    "$scratch/$name" score --data "$scratch/data.bin" --init "$trained" --output "$scratch/$name.scores" --quiet >"$scratch/said" &&
      "$scratch/$name" generate --init "$trained" --quiet --prompt "65 66 67" --tokens 12 --seed 3 >"$scratch/$name.text" &&
      "$scratch/$name" eval --data "$scratch/data.bin" --init "$trained" --quiet 2>/dev/null | sed 's/.*"loss":\([^,]*\),.*/\1/' >"$scratch/$name.eval"
    is "$name: scores, a text and an evaluation" $? 0
  done
  for kind in scores text eval; do ok "$pair: the same $kind" cmp "$scratch/${pair% *}.$kind" "$scratch/${pair#* }.$kind"; done
done
sed 's/microbatch = 2;/& packed = true;/' "$scratch/mixtral_described.cfg" >"$scratch/packed.cfg"

# ---- settings of plans ----
check() { "$gen" --check "$scratch/$@"; }
for setting in model.dtype=bf16 cluster.device=cuda pipeline.schedule=inference batch.packed=true "shapes.sequence=[8] -s shapes.microbatches=[8]" \
  model.outputs=[model.layers.0.y,model.layers.1.r] optimizer.name=muon; do
  # shellcheck disable=SC2086
  ok "dots1 with $setting" check dots1_described.cfg -s $setting
done
ok "with plans to measure: built" build measured "$scratch/qwen3_moe_described.cfg" --blocks $slices
ok "measured" "$scratch/measured" measure --seconds 0.2 --output "$scratch/costs.json"
routes() { grep -A 9 "\"block\": \"model.layers.$1.post" "$scratch/costs.json" | grep -c "\"routes\": \"$2\""; }
is "blocks of experts with both routes, and those without" "$(routes 0 balanced) $(routes 0 doubled) $(routes 1 balanced)" "4 4 0"
ok "which a plan takes" check qwen3_moe_described.cfg --costs="$scratch/costs.json"
finish
