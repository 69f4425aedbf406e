#!/bin/sh
# described.t: family described: models of tests/models/, which are descriptions, have the bits of the families that they describe.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=3
models=$(cd "$top_srcdir/tests/models" && pwd)
make_tokens "$scratch/data.bin" 4000

# model NAME SETTINGS: $scratch/NAME.cfg.
model() {
  cat >"$scratch/$1.cfg" <<END_OF_MODEL
model = { sequence = 16; $2 };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
}
# described NAME: $scratch/NAME_described.cfg, of the description of that name.
described() { model "$1_described" "family = \"described\"; description = \"$models/$1.json\";"; }

# train NAME MODEL SETTING...: builds and trains.
train() {
  train_name=$1 train_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$train_name" "$scratch/$train_model.cfg" "$@" && train_bits "$train_name" --data "$scratch/data.bin" --steps $steps
}
# alike MODEL SETTING...: the family and the description train to the same bits.
alike() {
  alike_model=$1
  shift
  ok "$alike_model $*: the family trains" train "$alike_model" "$alike_model" "$@"
  ok "$alike_model $*: the description trains" train "${alike_model}_described" "${alike_model}_described" "$@"
  ok "$alike_model $*: losses, norms and checkpoints are the same" same_bits $steps "$alike_model" "${alike_model}_described"
}

model llama 'family = "llama"; layers = 3; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 200;'
described llama
alike llama pipeline.ranks=2

model gpt2 'family = "gpt2"; layers = 2; hidden = 32; heads = 4; ffn = 128; vocab = 200;'
described gpt2
alike gpt2 pipeline.ranks=2

model gemma3 'family = "gemma3_text"; layers = 6; hidden = 32; heads = 4; kv_heads = 2; head_dim = 16; ffn = 48; vocab = 200; window = 5; query_scalar = 32; rope_theta = 1e6;'
described gemma3
alike gemma3 pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
finish
