#!/bin/sh
# experts.t: complaints of mixtures of experts: norms that count experts wrongly, results that depend on other tokens, choices that recomputation makes
# again, tokens that are dropped.
. "${top_srcdir:-.}/tests/complaints/support.sh"
. "$top_srcdir/tests/support/routers.sh"

describe qwen3_moe 2 "kv_heads = 2; head_dim = 12; experts = 8; experts_per_token = 3; moe_ffn = 24; router_normalize = true;"
moe() { # STEPS NAME SETTING...
  moe_steps=$1 moe_name=$2
  shift 2
  for setting; do set -- "$@" -s "$setting"; shift; done
  train_model "$moe_steps" "$moe_name" qwen3_moe "$@"
}
rows=expert_parallel.rows=16

# ---- norm ----
# Of the first step, before any update: squares of the norms of parts add up to that of the whole.
experts='"gate_proj.weight","up_proj.weight","down_proj.weight"'
rest='"embed_tokens.weight","norm.weight","layernorm.weight","q_proj.weight","k_proj.weight","v_proj.weight","o_proj.weight","mlp.gate.weight","lm_head.weight"'
ok "one rank trains" moe 2 whole $rows
ok "its experts alone" moe 1 experts $rows "model.frozen=[$rest]"
ok "and all else" moe 1 rest $rows "model.frozen=[$experts]"
norm() { log_field "$1.log" grad_norm | head -n 1; }
ok "DeepSpeed PR #8478: the norm is that of all experts and all else, each once" awk "BEGIN {
  all = $(norm whole)^2; parts = $(norm experts)^2 + $(norm rest)^2
  exit !(all > 0 && $(norm experts) > 0 && (all - parts)^2 < 1e-12 * all^2) }"
ok "Megatron-LM PR #5916: two pipeline ranks and sharded weights" moe 2 spread $rows pipeline.ranks=2 data_parallel.replicas=2 pipeline.microbatches=2 data_parallel.shard=weights
ok "have the norm of one rank" close_to whole spread 1e-5

# ---- other tokens ----
awk 'BEGIN { for (n = 0; n < 9; n++) { for (i = 0; i < 14; i++) printf "%c", 65 + (n * 11 + i * 7) % 50; print "" } }' >lines
"$tokens" --bytes --end-of-text 10 --pack 16 -o nine lines 2>said
head -n 1 lines >line
"$tokens" --bytes --end-of-text 10 --pack 16 -o alone line 2>said
ok "packed, in slices of 16 tokens" build packed qwen3_moe.cfg -s batch.packed=true -s $rows
ok "of 4, a text at a time" build single qwen3_moe.cfg -s batch.packed=true -s batch.microbatch=1 -s pipeline.microbatches=8 -s expert_parallel.rows=4
first_scores() { # BINARY DATA WEIGHTS: of the first text
  ./"$1" score --data "$2" --init "$3" --output scores --quiet >/dev/null && head -n 1 scores
}
weights=whole.ckpt/latest/model.safetensors
first_scores packed nine $weights >with_others
matches "a text has scores" "$(cat with_others)" '*"document":0,*-[0-9]*'
is "Megatron-Bridge #4635: they do not depend on what is beside it" "$(first_scores single alone $weights)" "$(cat with_others)"

# ---- all tokens at the same experts: equal scores everywhere ----
./whole init --seed 7 --output level
for layer in 0 1; do put_router $layer '\000\000\000\000' level; done
level() { # NAME: trains its binary from these routers
  train_bits "$1" --data data.bin --steps 2 --init level
}
ok "equal scores: one rank trains" level whole
ok "layers that are computed again" build layers qwen3_moe.cfg -s $rows -s memory.recompute=layer -s pipeline.ranks=2
ok "train" level layers
ok "NeMo Automodel PR #3156, VeOmni #979: with the same choices, so the same bits" same_bits 2 whole layers
ok "PaddleFormers PR #3010: experts without a token do no harm" test "$(log_field whole.log loss | grep -c '^[0-9]')" -eq 2
first_scores packed nine level >with_others
is "Megatron-LM PR #5288: nothing is dropped: a text has the scores that it has alone" "$(first_scores single alone level)" "$(cat with_others)"
ok "which are not those of other routers (the test can tell)" test "$(cat with_others)" != "$(first_scores single alone $weights)"
finish
