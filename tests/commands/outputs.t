#!/bin/sh
# outputs.t: model.outputs: values of the last stage that a step keeps. eval --outputs writes them, with the same bytes on any ranks; training has the
# bits that it has without; what no last stage makes is refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

models=$(cd "$top_srcdir/tests/models" && pwd)
cd "$scratch" || exit 99
make_tokens data.bin 2080 # 129 windows of 16 tokens
# model NAME SETTINGS: NAME.cfg.
model() {
  cat >"$1.cfg" <<END
model = { $2; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
}
model nano "family = \"described\"; description = \"$models/nano.json\""
model gpt2 'family = "gpt2"; layers = 2; hidden = 32; heads = 4; ffn = 128; vocab = 97'
both='model.outputs=["logits","h.1.g"]'
# plan NAME MODEL SETTING...: builds.
plan() {
  plan_name=$1 plan_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$plan_name" "$plan_model.cfg" "$@"
}
evaluate() { "./$1" eval --data data.bin --init "${2:-weights}" --quiet --outputs "$1.safetensors" >"$1.result"; }
tensors() { "${PYTHON:-python3}" "$top_srcdir/tests/support/tensors.py" "$@"; }

# ---- on one rank and on several ----
ok "without outputs: a plan" plan none nano
ok "with two" plan one nano "$both"
./none init --seed 3 --output weights
ok "are written" evaluate one
is "of 128 windows" "$(tensors one.safetensors)" "h.1.g F32 [128, 16, 192]
logits F32 [128, 16, 97]"
./none eval --data data.bin --init weights --quiet >none.result
ok "the result is that without" cmp none.result one.result
./none score --data data.bin --init weights --quiet --output - --logits logits --logits-top 0 >scores
ok "the logits are those that score writes" tensors one.safetensors logits logits
while read -r name settings; do
  # shellcheck disable=SC2086
  ok "$name: a plan" plan "$name" nano "$both" $settings
  ok "$name: eval" evaluate "$name"
  ok "$name: the same bytes" cmp one.safetensors "$name.safetensors"
done <<'END_OF_PLANS'
two pipeline.ranks=2 pipeline.zero_bubble=true
larger batch.microbatch=2 pipeline.microbatches=2
replicas data_parallel.replicas=2 pipeline.microbatches=2 pipeline.ranks=2
four pipeline.ranks=4 partition.unit=block partition.before=[h.0.ln_1,h.1.ln_1,h.1.ln_2]
END_OF_PLANS
for name in one larger; do
  is "$name: bytes placed" "$("./$name" info --json | sed -n 's/.*"outputs":\([0-9]*\).*/\1/p')" $((4 * 16 * (97 + 192) * 4))
done

# ---- training ----
for name in none two; do ok "$name trains" train_bits $name --data data.bin --steps 3; done
ok "to the same bits" same_bits 3 none two
ok "gpt2 on four ranks, in bf16: a plan" plan half gpt2 'model.outputs=["logits"]' model.dtype=bf16 pipeline.ranks=4 partition.unit=block
./half init --seed 3 --output half.weights
ok "are written" evaluate half half.weights
is "in bf16" "$(tensors half.safetensors)" "logits BF16 [128, 16, 97]"
# check MODEL SETTING...
check() {
  check_model=$1
  shift
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  "$gen" --check "$check_model.cfg" "$@"
}
for settings in cluster.device=cuda memory.recompute=full memory.audit=true; do ok "a plan with $settings" check nano "$both" $settings; done

# ---- what is refused ----
fails "a value of another stage" 78 'model.outputs = ?"h.0.g"?: values that the last stage makes, from h.1.ln_1 on; it makes no "h.0.g"' check nano 'model.outputs=["h.0.g"]' pipeline.ranks=2 partition.unit=block partition.before=[h.1.ln_1]
fails "what does not exist" 78 'it makes no "hidden"' check gpt2 'model.outputs=["hidden"]'
fails "logits in chunks" 78 'it makes no "logits", or, with model.loss_rows, not as a whole' check nano batch.microbatch=4 'model.outputs=["logits"]' model.loss_rows=32
fails "a name twice" 78 'names that differ; two are "logits"' check gpt2 'model.outputs=["logits","logits"]'
fails "splits" 78 'none, with tensor_parallel.splits = 2' check gpt2 'model.outputs=["logits"]' tensor_parallel.splits=2
fails "shapes" 78 'none, with shapes' check gpt2 'model.outputs=["logits"]' shapes.sequence=[8] shapes.microbatches=[8]
fails "a plan without outputs" 64 "--outputs x: the plan of this binary keeps no outputs: model.outputs names none" ./none eval --data data.bin --init weights --outputs x
fails "the data" 64 "--outputs data.bin" ./one eval --data data.bin --init weights --outputs data.bin
finish
