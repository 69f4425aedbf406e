#!/bin/sh
# experts.t: mixtures of experts: the bits of training over threads, dtypes, shards and what else a plan has; scores and texts that depend on
# no slice and no other token; a tensor an expert in files; routes when a router says nothing or nonsense; settings that are refused.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/routers.sh"

moe="kv_heads = 2; head_dim = 12; experts = 8; experts_per_token = 3; moe_ffn = 24; router_normalize = true;"
describe qwen3_moe 2 "$moe"
describe dots1 2 "$moe"
sed 's/experts = 8;/& bias_update = 0.25;/' "$scratch/dots1.cfg" >"$scratch/updated.cfg"
describe mixtral 2 "kv_heads = 2; experts = 4; experts_per_token = 2; moe_ffn = 24; window = 5;"
make_tokens "$scratch/data.bin" 4000
sed 's/microbatch = 2;/& packed = true;/' "$scratch/qwen3_moe.cfg" >"$scratch/packed.cfg"
awk 'BEGIN { for (n = 0; n < 400; n++) printf "%*s\n", 1 + n * 7 % 13, n }' >"$scratch/lines"
"$tokens" --bytes --end-of-text 10 --pack 16 -o "$scratch/documents" "$scratch/lines" 2>/dev/null

# ---- bits ----
slices="-s expert_parallel.rows=16"
together="-s optimizer.name=muon -s model.aux_loss=0.02 -s model.z_loss=0.003 -s model.aux_scope=step"
compare_runs 3 <<END_RUNS
qwen3_moe one      $slices
qwen3_moe threads  $slices -s cluster.threads_per_rank=3 -s cluster.bind=none
qwen3_moe audited  $slices -s memory.audit=true -s memory.recompute=layer
qwen3_moe bf16_one $slices -s model.dtype=bf16
qwen3_moe bf16_two $slices -s model.dtype=bf16 -s pipeline.ranks=2 -s memory.recompute=full -s cluster.threads_per_rank=2 -s cluster.bind=none
qwen3_moe data_one $slices -s data_parallel.replicas=3
qwen3_moe moments  $slices -s data_parallel.replicas=3 -s data_parallel.shard=optimizer
qwen3_moe weights  $slices -s data_parallel.replicas=3 -s data_parallel.shard=weights
qwen3_moe summed_one $slices -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch
qwen3_moe summed   $slices -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer -s pipeline.ranks=2 -s pipeline.schedule=zb_h1
qwen3_moe muon_one $slices -s optimizer.name=muon -s data_parallel.replicas=2
qwen3_moe muon     $slices -s optimizer.name=muon -s data_parallel.replicas=2 -s data_parallel.shard=optimizer -s pipeline.ranks=2 -s memory.audit=true
qwen3_moe split_one  $slices -s tensor_parallel.splits=2
qwen3_moe split      $slices -s tensor_parallel.ranks=2 -s tensor_parallel.sequence=false -s pipeline.ranks=2 -s memory.recompute=layer -s memory.audit=true
qwen3_moe mixed_one $slices -s model.mlp_only=[0] -s cluster.threads_per_rank=3 -s cluster.bind=none
qwen3_moe mixed_two $slices -s model.mlp_only=[0] -s pipeline.ranks=2 -s memory.recompute=layer
qwen3_moe balanced_one   $slices -s model.aux_loss=0.02 -s model.z_loss=0.003
qwen3_moe balanced_layer $slices -s model.aux_loss=0.02 -s model.z_loss=0.003 -s memory.recompute=layer -s memory.audit=true
qwen3_moe balanced_v     $slices -s model.aux_loss=0.02 -s model.z_loss=0.003 -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
qwen3_moe spread_one     $slices -s model.aux_loss=0.02 -s model.z_loss=0.003 -s model.aux_scope=microbatch -s data_parallel.replicas=2 -s pipeline.zero_bubble=true
qwen3_moe spread_weights $slices -s model.aux_loss=0.02 -s model.z_loss=0.003 -s model.aux_scope=microbatch -s data_parallel.replicas=2 -s data_parallel.shard=weights -s pipeline.ranks=2 -s memory.recompute=full
updated one        $slices
updated layer      $slices -s pipeline.ranks=2 -s memory.recompute=layer -s memory.audit=true
updated spread_one $slices $together -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch
updated spread_two $slices $together -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer -s pipeline.ranks=2 -s memory.recompute=full
updated split_one  $slices $together -s tensor_parallel.splits=2
updated split      $slices $together -s tensor_parallel.ranks=2 -s tensor_parallel.sequence=false -s pipeline.ranks=2 -s pipeline.zero_bubble=true
mixtral one        $slices
mixtral two        $slices -s pipeline.ranks=2 -s memory.recompute=full -s memory.audit=true
END_RUNS

# ---- the load of experts ----
# same_load NAME OTHER: their logs have the same of each step, and some.
loads() { log_field "$scratch/$1.log" expert_load && log_field "$scratch/$1.log" idle_experts; }
same_load() {
  loads "$1" >"$scratch/load" && loads "$2" >"$scratch/other.load" && test "$(grep -c '^[0-9]' "$scratch/load")" -eq 6 && cmp "$scratch/load" "$scratch/other.load"
}
while read -r one others; do
  for other in $others; do ok "$other: the load of experts of $one" same_load "$one" "$other"; done
done <<END_RUNS
qwen3_moe_one        qwen3_moe_threads qwen3_moe_audited
qwen3_moe_bf16_one   qwen3_moe_bf16_two
qwen3_moe_data_one   qwen3_moe_weights
qwen3_moe_summed_one qwen3_moe_summed
qwen3_moe_split_one  qwen3_moe_split
qwen3_moe_mixed_one  qwen3_moe_mixed_two
qwen3_moe_balanced_one qwen3_moe_balanced_v
updated_spread_one   updated_spread_two
END_RUNS

# ---- losses of routers ----
# router_losses RUN: those of its log.
router_losses() { log_field "$scratch/$1.log" aux_loss && log_field "$scratch/$1.log" z_loss; }
for run in balanced_one spread_one; do
  router_losses "qwen3_moe_$run" >"$scratch/$run.losses"
  is "$run: two losses a step" "$(grep -c '^0\.' "$scratch/$run.losses")" 6
done
for run in balanced_layer balanced_v spread_weights; do
  router_losses "qwen3_moe_$run" >"$scratch/$run.losses"
  ok "$run: the same losses of routers" cmp "$scratch/${run%_*}_one.losses" "$scratch/$run.losses"
done
ok "they change the gradient" other_bits qwen3_moe_balanced_one qwen3_moe_one
is "the loss is the model's alone" "$(head -n 1 "$scratch/qwen3_moe_balanced_one.bits")" "$(head -n 1 "$scratch/qwen3_moe_one.bits")"
is "without them the log has none" "$(router_losses qwen3_moe_one)" ""

mv "$scratch/data.bin" "$scratch/stream"
cp "$scratch/documents" "$scratch/data.bin"
compare_runs 3 <<END_RUNS
packed one    $slices
packed layers $slices -s pipeline.ranks=2 -s memory.recompute=layer
END_RUNS
mv "$scratch/stream" "$scratch/data.bin"
for binary in audited split; do
  ok "audits find nothing: $binary" "$scratch/qwen3_moe_$binary" train --data "$scratch/data.bin" --steps 3 --audit 1 --quiet
done

# ---- a token depends on no other, nor on slices ----
cp "$scratch/qwen3_moe_one.ckpt/latest/model.safetensors" "$scratch/trained"
score() { # NAME BINARY DATA
  "$scratch/$2" score --data "$3" --init "$scratch/trained" --output "$scratch/$1.scores" --quiet >"$scratch/$1.scored"
}
ok "another microbatch: built" build alone "$scratch/qwen3_moe.cfg" -s batch.microbatch=1 -s pipeline.microbatches=8 -s expert_parallel.rows=4
ok "scores in slices of 16 of 32" score slices qwen3_moe_one "$scratch/data.bin"
ok "scores in slices of 4 of 16" score alone alone "$scratch/data.bin"
ok "they are the same" cmp "$scratch/slices.scores" "$scratch/alone.scores"
eval_loss() { "$scratch/$1" eval --data "$scratch/data.bin" --init "$scratch/trained" --quiet 2>/dev/null | tail -n 1 | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
is "eval has the same loss" "$(eval_loss alone | cut -c1-12)" "$(eval_loss qwen3_moe_one | cut -c1-12)"
matches "which is a number" "$(eval_loss alone)" "[1-9].*"
ok "without a cache: built" build plain "$scratch/qwen3_moe.cfg" -s generate.prompts=0
for binary in alone plain; do
  PEN_PRODUCTS=own "$scratch/$binary" generate --init "$scratch/trained" --prompt AB --tokens 12 --temperature 0 --quiet >"$scratch/$binary.text"
done
ok "the same text with a cache and without" cmp "$scratch/alone.text" "$scratch/plain.text"
ok "of 14 bytes" test "$(wc -c <"$scratch/alone.text")" -ge 14

# ---- files ----
names() { header "$1" | tr ',{' '\n\n' | grep -c "$2"; }
is "a tensor an expert" "$(names "$scratch/trained" '^"model.layers.1.mlp.experts.7.down_proj.weight":$')" 1
is "48 of them" "$(names "$scratch/trained" 'mlp.experts')" 48
is "and their moments" "$(names "$scratch/qwen3_moe_one.ckpt/latest/optimizer.safetensors" 'mlp.experts.*exp_avg')" 96
ok "with fewer experts: built" build fewer "$scratch/qwen3_moe.cfg" -s model.experts=7
fails "other experts" 65 "model.layers.0.mlp.gate.weight" "$scratch/fewer" eval --data "$scratch/data.bin" --init "$scratch/trained"

# ---- routers ----
cp "$scratch/trained" "$scratch/level"
for layer in 0 1; do put_router $layer '\000\000\000\000' "$scratch/level"; done
ok "all tokens at the same experts: scored" "$scratch/qwen3_moe_one" score --data "$scratch/data.bin" --init "$scratch/level" --output "$scratch/level.scores" --quiet
ok "which changes scores (the test can tell)" sh -c "! cmp -s '$scratch/level.scores' '$scratch/slices.scores'"
ok "trained" "$scratch/qwen3_moe_threads" train --data "$scratch/data.bin" --init "$scratch/level" --steps 3 --quiet --log "$scratch/level.log" --checkpoint "$scratch/level.ckpt"
is "three experts of each layer have all tokens" "$(log_field "$scratch/level.log" expert_load | head -n 1 | cut -c1-6) $(log_field "$scratch/level.log" idle_experts | head -n 1)" "2.6666 10"
cp "$scratch/trained" "$scratch/huge"
put_router 0 '\346\261\141\177' "$scratch/huge"
fails "logits that are not finite" 79 "" "$scratch/qwen3_moe_one" train --data "$scratch/data.bin" --init "$scratch/huge" --steps 5 --max-skipped 2 --log "$scratch/huge.log" --checkpoint "$scratch/huge.ckpt"
is "its steps are skipped" "$(grep -c '"loss":null.*"skipped":' "$scratch/huge.log")" 2

# ---- costs ----
report() { # FIELD OPTION...: of the model with a dense layer
  report_field=$1
  shift
  "$gen" -p report "$scratch/qwen3_moe.cfg" $slices -s model.mlp_only=[0] "$@" 2>"$scratch/said" | sed -n "s/^ *\"$report_field\": \([^,]*\),*/\1/p" | head -n 1
}
is "rows of an expert in a slice" "$(report segment_rows)" 6.0
is "of a microbatch" "$(report rows_worst)" 96
is "imbalance" "$(report imbalance) $(report imbalance -s costs.expert_imbalance=2)" "1.2 2.0"
is "bounds have balanced routes" "$(report lower_bound -s costs.expert_imbalance=2)" "$(report makespan -s costs.expert_imbalance=1)"
ok "a step has not" test "$(report makespan)" != "$(report lower_bound)"
block() { echo "{\"block\": \"model.$1\", \"microbatch\": 2, $2 \"forward\": $3, \"backward_input\": $3, \"backward_weight\": 10, \"backward\": $(($3 + 10)), \"recompute\": 0}"; }
made() { # ROUTES
  cat <<END
{"version": 2, "device": "cpu", "dtype": "f32", "sequence": 16, "messages": [], "collectives": [], "optimizer": {"ms_per_element": 0}, "blocks": [
$(block embed_tokens "" 10), $(block layers.0.self_attn "" 10), $(block layers.0.mlp "" 10), $(block layers.1.self_attn "" 10),
$(block layers.1.mlp '"routes": "balanced",' 10), $(block layers.1.mlp "\"routes\": \"$1\"," 20), $(block norm "" 10), $(block head "" 10 | sed s/model.head/lm_head/)]}
END
}
made doubled >"$scratch/made.json"
# F and B of seven blocks take 10 and 20; with twice its rows F and I of the experts take 10 more each.
one="-s pipeline.microbatches=1 --costs=$scratch/made.json"
is "measured with doubled rows" "$(report makespan $one)" "$(awk 'BEGIN { printf "%.1f", 210 + .2 * 20 }')"
is "and computed again" "$(report makespan $one -s memory.recompute=full)" "$(awk 'BEGIN { printf "%.1f", 270 + .2 * 30 }')"
is "and of balanced rows" "$(report makespan $one -s costs.expert_imbalance=1)" 210.0
made uneven >"$scratch/made.json"
report makespan $one >/dev/null
matches "other routes" "$(cat "$scratch/said")" '*blocks*.routes*must be "balanced" or "doubled"*'
ok "with plans to measure: built" build measured "$scratch/qwen3_moe.cfg" --blocks $slices -s model.mlp_only=[0]
ok "measured" "$scratch/measured" measure --seconds 0.2 --output "$scratch/costs.json"
is "blocks of experts, with both routes, of each microbatch" "$(grep -A 9 '"block": "model.layers.1.mlp"' "$scratch/costs.json" | sed -n 's/.*"routes": "\(.*\)".*/\1/p' | tr '\n' ' ')" \
  "balanced doubled balanced doubled balanced doubled balanced doubled "
is "and without experts" "$(grep -c '"block": "model.layers.0.mlp"' "$scratch/costs.json")" 4
ok "which a plan takes" report makespan --costs="$scratch/costs.json"
matches "info has the experts" "$("$scratch/measured" info)" "*experts *8, 3 a token; slices of 16 tokens, 6 rows an expert on average*"

# ---- the bias of a router ----
# In three steps all tokens choose first experts 0 to 2, of equal scores; then, by the bias, 3 to 5; then 6, 7 and 0.
ok "a router that says nothing: built" build biased "$scratch/updated.cfg" -s model.frozen=[mlp.gate.weight]
"$scratch/biased" init --seed 7 --output "$scratch/biased.start"
put_router 0 '\000\000\000\000' "$scratch/biased.start"
ok "trained three steps" "$scratch/biased" train --data "$scratch/data.bin" --init "$scratch/biased.start" --steps 3 --quiet --checkpoint "$scratch/biased.ckpt"
biased=$scratch/biased.ckpt/latest/model.safetensors
bias_at=$(header "$biased" | sed 's/.*"model.layers.0.mlp.gate.e_score_correction_bias":{[^}]*offsets":\[\([0-9]*\),.*/\1/')
bias_at=$((bias_at + 8 + $(od -An -tu8 -N 8 "$biased" | tr -d ' ')))
is "its bias" "$(od -An -tf4 -v -w32 -j "$bias_at" -N 32 "$biased" | awk '{ $1 = $1; print }')" "-0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25"
ok "audits of it find nothing" "$scratch/updated_layer" train --data "$scratch/data.bin" --steps 8 --audit 1 --quiet

# ---- what is refused ----
refused() { # TEXT SETTING...
  refused_text=$1
  shift
  fails "$*" 78 "$refused_text" "$gen" --check "$scratch/qwen3_moe.cfg" "$@"
}
refused "at most model.experts = 8" -s model.experts_per_token=9
refused "a multiple of batch.microbatch = 2 that divides" -s expert_parallel.rows=12
refused "endings of the names of all experts" -s model.frozen=[experts.3.gate_proj.weight]
refused "endings of the names of all experts" -s "optimizer.groups=[3.up_proj.weight: rate=2]"
refused "false, with family qwen3_moe and tensor_parallel.ranks = 2" -s tensor_parallel.ranks=2
refused "which has no experts" -s model.family=qwen3
refused "a number from 1 to 1024" -s costs.expert_imbalance=0.9
refused "has experts" -s model.expert_every=3
refused "has experts" -s model.mlp_only=[1,0]
refused "numbers of layers" -s model.mlp_only=[2]
refused "not given, with family mixtral" -s model.family=mixtral -s model.expert_every=2
refused "not given, with family qwen3_moe" -s model.shared_experts=1
refused "not given, with family qwen3_moe" -s model.dense_layers=1
refused "not given, with family qwen3_moe" -s model.bias_update=1
refused "\"softmax\", with family qwen3_moe" -s model.router_score=sigmoid
dots="-s model.family=dots1"
refused "\"sigmoid\", with family dots1" $dots -s model.router_score=softmax
refused "true, with family dots1" $dots -s model.router_bias=false
refused "not given, with family dots1" $dots -s model.mlp_only=[0]
refused "a divisor of model.experts = 8, with two experts or more" $dots -s model.router_groups=8
refused "at most model.router_groups = 4, with model.experts_per_token = 3 experts or more" $dots -s model.router_groups=4 -s model.router_top_groups=1
refused "so that one of model.layers = 2 has experts" $dots -s model.dense_layers=2
finish
