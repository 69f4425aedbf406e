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
updated="-s model.bias_update=0.25 -s model.outputs=[model.layers.2.y]"
compare_runs 3 <<END_RUNS
mixtral             one    $slices
mixtral_described   four   $slices -s pipeline.ranks=4 -s partition.unit=block -s memory.recompute=layer
qwen3_moe           one    $losses
qwen3_moe_described two    $losses -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s memory.recompute=attention
qwen3_moe           data_one $losses -s model.aux_scope=step -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s model.dtype=bf16
qwen3_moe_described data   $losses -s model.aux_scope=step -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer -s memory.recompute=full -s model.dtype=bf16
dots1_described     one    $slices $updated
dots1_described     v      $slices $updated -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block -s partition.before=[model.layers.0.post_attention_layernorm,model.layers.1.input_layernorm,model.layers.2.input_layernorm] -s memory.audit=true -s cluster.threads_per_rank=2 -s cluster.bind=none
END_RUNS
ok "audits find nothing" "$scratch/dots1_described_v" train --data "$scratch/data.bin" --steps 3 --audit 1 --quiet

# Of dots1 the routers precede the shared experts, whose ops come first: files have another order, and so has the sum of the norm.
ok "dots1: built" build dots1_family "$scratch/dots1.cfg" $slices -s model.bias_update=0.25
"$scratch/dots1_family" init --seed 7 --output "$scratch/dots1.start"
for name in dots1_family dots1_described_one; do
  ok "$name: trains from weights of the family" train_bits "$name" --data "$scratch/data.bin" --steps 3 --init "$scratch/dots1.start"
done
ok "they have the same losses and norms" cmp "$scratch/dots1_family.bits" "$scratch/dots1_described_one.bits"
of_routers() { for field in aux_loss z_loss expert_load idle_experts; do log_field "$scratch/$1.log" $field; done; }
for pair in "12 qwen3_moe_one qwen3_moe_described_two" "6 dots1_family dots1_described_one"; do
  numbers=${pair%% *} pair=${pair#* }
  of_routers "${pair% *}" >"$scratch/losses"
  of_routers "${pair#* }" >"$scratch/other.losses"
  ok "$pair: the same losses and loads of routers" cmp "$scratch/losses" "$scratch/other.losses"
  is "$pair: of each step" "$(grep -c '^[0-9]' "$scratch/losses")" $numbers
done

# ---- scores, texts, outputs ----
for name in one v; do
  "$scratch/dots1_described_$name" eval --data "$scratch/data.bin" --init "$scratch/dots1.start" --quiet --outputs "$scratch/$name.outputs" >"$scratch/said" 2>&1
  is "$name: outputs of an evaluation" $? 0
done
ok "the same on two ranks" cmp "$scratch/one.outputs" "$scratch/v.outputs"
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

# ---- settings of plans ----
check() { "$gen" --check "$scratch/$@"; }
for setting in model.dtype=bf16 cluster.device=cuda pipeline.schedule=inference batch.packed=true "shapes.sequence=[8] -s shapes.microbatches=[8]" \
  "model.outputs=[model.layers.1.y,model.layers.2.sr] $slices" optimizer.name=muon; do
  # shellcheck disable=SC2086
  ok "dots1 with $setting" check dots1_described.cfg -s $setting
done
ok "with plans to measure: built" build measured "$scratch/qwen3_moe_described.cfg" --blocks $slices
ok "measured" "$scratch/measured" measure --seconds 0.2 --output "$scratch/costs.json"
routes() { grep -A 9 "\"block\": \"model.layers.$1.post" "$scratch/costs.json" | grep -c "\"routes\": \"$2\""; }
is "blocks of experts with both routes, and those without" "$(routes 0 balanced) $(routes 0 doubled) $(routes 1 balanced)" "4 4 0"
ok "which a plan takes" check qwen3_moe_described.cfg --costs="$scratch/costs.json"
cat >"$scratch/planned.cfg" <<END_OF_PLAN
model = { family = "described"; description = "$models/dots1.json"; sequence = 16; aux_loss = 0.01; bias_update = 0.001; };
optimizer = { learning_rate = 1e-2; steps = 8; };
plan = { ranks = 2; sequences = 4; memory_mib = 64; replicas = [1]; microbatch = [1]; schedules = ["1f1b"]; recompute = ["none"]; };
END_OF_PLAN
"$top_builddir/penstock-plan" --seconds 0 -o "$scratch/chosen.cfg" "$scratch/planned.cfg" >"$scratch/said" 2>&1
is "penstock-plan chooses a topology" $? 0
ok "which is a plan" check chosen.cfg

sed 's/\(mlp.gate.weight", "shape": \[\)/\11, /; s/\(score_correction_bias", "shape": \[\)/\11, /' "$models/dots1.json" >"$scratch/dims.json"
balances() { "$gen" "$scratch/dots1_described.cfg" -s model.bias_update=0.1 -s model.description="$1" | grep -c 'optimizer = PEN_OPTIMIZER_BALANCE'; }
is "two biases of routers" "$(balances "$models/dots1.json")" 2
is "and with extents of 1" "$(balances "$scratch/dims.json")" 2

sed 's/mlp.gate.weight/mlp.router/' "$models/qwen3_moe.json" >"$scratch/router.json"
ok "a balance of steps with a router of any name" check qwen3_moe_described.cfg -s model.description="$scratch/router.json" -s model.aux_loss=0.1 -s model.aux_scope=step

# ---- what is refused: a description of which sed changes a line; the message after the file's name ----
while IFS='|' read -r model change message; do
  sed "$change" "$models/$model.json" >"$scratch/wrong.json"
  fails "$change" 78 "wrong.json: $message" check "${model}_described.cfg" -s model.description="$scratch/wrong.json"
done <<'END_OF_REFUSALS'
mixtral|s/"choices": 2, //|unit layer, op 10, MOE: the attribute choices is missing; its attributes are: choices normalize sigmoid
mixtral|s/"choices": 2/"choices": 5/|unit layer, op 10, MOE: choices = 5: at most 4, with 4 experts
mixtral|s/"choices": 2/"choices": 1.5/|unit layer, op 10, MOE: choices = 1.5: a whole number from 1 to
mixtral|s/"normalize": 1/"normalize": 2/|unit layer, op 10, MOE: normalize = 2: 1, or absent
mixtral|s/"normalize": 1/"capacity": 1/|unit layer, op 10, MOE: there is no attribute capacity
mixtral|s/"normalize": 1/"scale": 0/|unit layer, op 10, MOE: scale: above 0
mixtral|s/"normalize": 1/"groups": 2/|unit layer, op 10, MOE: groups = 2: 1, without sigmoid = 1
mixtral|s/\["m", "\.block/["n", ".block/|unit layer, op 9, RMSNORM: m: no op reads it
mixtral|s/"r"\], {"choices"/"table"], {"choices"/|unit layer, op 10, MOE: table: operand a: a value, not a constant
mixtral|s/w1.weight", "shape": \[4, 24, 32\]/w1.weight", "shape": [24, 32]/|unit layer, op 10, MOE: block_sparse_moe.experts.*.w1.weight: operand gate: a matrix of each expert: of three extents
mixtral|s/experts\.\*\.w1\.weight/experts.3.w1.weight/|unit layer, op 10, MOE: block_sparse_moe.experts.3.w1.weight: operand gate: a matrix of each expert
mixtral|s/w2.weight", "shape": \[4, 32, 24\]/w2.weight", "shape": [4, 32, 23]/|unit layer, op 10, MOE: down?experts,width,ffn? is 4 x 32 x 24, by the other operands and attributes, but what it reads has 4 x 32 x 23 elements
mixtral|s/gate.weight", "shape": \[4, 32\]/gate.weight", "shape": [4, 16]/|unit layer, op 10, MOE: x?rows,width? is 1 x 16, by the other operands and attributes, but what it reads has 32 elements
mixtral|s/o_proj.weight", "shape"/o_proj.weight", "shape": [2, 2, 2], "size"/|weights?5?.size: there is no such key
mixtral|s/self_attn.o_proj/self_attn.*/|unit layer, op 8, LINEAR: self_attn.*.weight: operand w: no matrix of each expert, whose name has a ?
mixtral|s/w1.weight", "shape": \[4, 24, 32\]/w1.weight", "shape": [1, 2, 4, 24, 32]/|weights?8?.shape = ?1,2,4,24,32?: a list of one to
qwen3_moe|s/"layer", "prefix": "model.layers.", "count": 1}/"layer", "prefix": "model.layers.1.a."}/|unit layer, op 12, MOE: in a layer, a unit with a count or a prefix that ends with a number, which takes and gives a value; not in the unit of prefix "model.layers.1.a."
qwen3_moe|/"dense": /,$ { s/\["LINEAR", \["m", "\.mlp\.gate_proj.*/["MOE", ["m", ".mlp.gate.weight", null, ".mlp.experts.*.gate_proj.weight", ".mlp.experts.*.up_proj.weight", ".mlp.experts.*.down_proj.weight", "r"], {"choices": 2}, ["y"]]/; /mlp\.up_proj/d; /SWIGLU/d; /mlp\.down_proj/d }|unit dense, op 12, MOE: choices = 2: 3, as unit layer, op 12, MOE of model.layers.0.; all MOE of a model have the same
qwen3_moe|s/\["MOE".*/&, &/|unit layer, op 13, MOE: one MOE of a unit, not two
qwen3_moe|s/\["MOE", \["m"\(.*\), "r"\]/["SELECT_TOKENS", ["m"], {}, ["t"]], ["MOE", ["t"\1]/|unit layer, op 13, MOE: operand x: a value of tokens, not of samples
dots1|s/"best_groups": 2/"best_groups": 1/|unit layer, op 16, MOE: best_groups = 1: at most groups = 4, with choices = 3 experts or more in all
dots1|s/"groups": 4/"groups": 8/|unit layer, op 16, MOE: groups = 8: a divisor of 8 experts, with two or more in each
dots1|s/"sigmoid": 1, "groups": 4, "best_groups": 2, //|unit layer, op 16, MOE: operand bias: absent, without sigmoid = 1
END_OF_REFUSALS
fails "a loss of routers that are not there" 78 "model.aux_loss = 0.1: not given, with $models/nano.json, which has no experts" check mixtral_described.cfg -s model.description="$models/nano.json" -s model.aux_loss=0.1
fails "an update of a bias that is not there" 78 "model.bias_update = 0.1: not given, with $models/mixtral.json, whose routers have no bias" check mixtral_described.cfg -s model.bias_update=0.1
for change in "s/mlp.gate.weight/mlp.router/; s/post_attention_layernorm.weight/mlp.router.counts/" "s/model.norm.weight/model.layers.0.mlp.gate/"; do
  sed "$change" "$models/qwen3_moe.json" >"$scratch/named.json"
  fails "a weight named as counts of choices, $change" 78 "model.aux_scope = step: not \"step\", with $scratch/named.json: its weight model.layers.0.mlp." \
    check qwen3_moe_described.cfg -s model.description="$scratch/named.json" -s model.aux_loss=0.1 -s model.aux_scope=step
done
fails "experts of the description" 78 "model.experts = 8: none, with model.family = \"described\": it follows from" check mixtral_described.cfg -s model.experts=8
fails "other slices" 78 "a multiple of batch.microbatch = 2 that divides" check mixtral_described.cfg -s expert_parallel.rows=12
fails "some experts of a stack" 78 "endings of the names of all experts" check mixtral_described.cfg -s model.frozen=[experts.3.w1.weight]
finish
