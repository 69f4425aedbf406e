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
# as REFERENCE NAME MODEL SETTING...: trains to the bits of REFERENCE.
as() {
  as_reference=$1 as_name=$2
  shift
  ok "$as_name trains" train "$@"
  ok "$as_name has the bits of $as_reference" same_bits $steps "$as_reference" "$as_name"
}
# first NAME: the loss and the norm of the first step.
first() { log_field "$scratch/$1.log" loss | head -1; log_field "$scratch/$1.log" grad_norm | head -1; }
# is_near NAME LOSS NORM: those of PyTorch in f64, within 1e-5.
is_near() {
  first "$1" | awk -v loss="$2" -v norm="$3" '{ wanted = NR == 1 ? loss : norm; if (($1 - wanted) ^ 2 > (1e-5 * wanted) ^ 2) bad = 1 } END { exit bad || NR != 2 }'
}

# ---- descriptions of families have their bits; of others, one rank and several have the same ----
model llama 'family = "llama"; layers = 3; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 200;'
model gpt2 'family = "gpt2"; layers = 2; hidden = 32; heads = 4; ffn = 128; vocab = 200;'
model gemma3 'family = "gemma3_text"; layers = 6; hidden = 32; heads = 4; kv_heads = 2; head_dim = 16; ffn = 48; vocab = 200; window = 5; query_scalar = 32; rope_theta = 1e6;'
for name in llama gpt2 gemma3 olmo2 nano readers; do described $name; done
for name in llama gpt2 gemma3; do ok "$name: the family trains" train $name $name; done
as llama llama_described llama_described pipeline.ranks=2 partition.unit=block
as gpt2 gpt2_described gpt2_described pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=layer
as gemma3 gemma3_described gemma3_described pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v memory.recompute=attention
while read -r name loss norm; do
  ok "$name trains" train ${name}_one ${name}_described
  ok "$name: the loss and norm of PyTorch" is_near ${name}_one "$loss" "$norm"
done <<END_OF_REFERENCES
olmo2 5.325565133157726 2.267856684988479
nano 4.591859284595682 1.9286835929378632
END_OF_REFERENCES
as olmo2_one olmo2_four olmo2_described pipeline.ranks=4 memory.recompute=full
as nano_one nano_two nano_described pipeline.ranks=2 pipeline.stages_per_rank=3 pipeline.schedule=interleaved
finish
