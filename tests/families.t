#!/bin/sh
# families.t: every family of transformers but llama (bits.t) trains with the same bits over ranks, stages and cuts within layers; and all
# of them give the loss and the gradient norm of an f64 model written with PyTorch's operators, where there is PyTorch.
. "${top_srcdir:-.}/tests/lib.sh"

make_tokens "$scratch/data.bin" 4000
# describe FAMILY SETTINGS
describe() {
  cat >"$scratch/$1.cfg" <<END
model = { family = "$1"; layers = 4; hidden = 32; heads = 4; ffn = 48; vocab = 200; sequence = 16; $2 };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
}
describe llama "kv_heads = 2;"
describe gpt2 "tie_embeddings = false;" # tied: tied.t
describe qwen3 "kv_heads = 2; head_dim = 12; norm_epsilon = 1e-6; rope_theta = 1e6;"

# train NAME FAMILY OPTIONS...: builds and trains.
train() {
  train_name=$1 train_family=$2
  shift 2
  build "$train_name" "$scratch/$train_family.cfg" "$@" && train_bits "$train_name" --data "$scratch/data.bin" --steps 3
}
same() { same_bits 3 "$@"; }

while read -r family name options; do
  ok "$family: $name trains" train "${family}_$name" "$family" $options
  test "$name" = one || ok "$family: $name has the same bits as one rank" same "${family}_one" "${family}_$name"
done <<'END'
llama one
qwen3 one
qwen3 one_zb     -s pipeline.zero_bubble=true
qwen3 recomputed -s memory.recompute=full
qwen3 two_cut    -s pipeline.ranks=2 -s partition.before=[model.layers.2.mlp]
qwen3 two_v      -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
qwen3 four       -s pipeline.ranks=4
gpt2 one
gpt2 one_zb      -s pipeline.zero_bubble=true
gpt2 recomputed  -s memory.recompute=full
gpt2 two_cut     -s pipeline.ranks=2 -s partition.before=[transformer.h.2.mlp]
gpt2 two_v       -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
gpt2 four        -s pipeline.ranks=4
END

# ---- an independent model ----
python=
for candidate in ${PEER:-} /opt/peer/bin/peer-python python3; do
  test -z "$python" && "$candidate" -c 'import torch' 2>/dev/null && python=$candidate
done

# loss_and_norm FAMILY: both to 1e-5 of the f64 model's.
loss_and_norm() {
  "$scratch/$1_one" init --seed 7 --output "$scratch/$1.start" || return 1
  "$python" "$top_srcdir/tests/families_torch.py" "$scratch/$1_one.ckpt/latest/config.json" "$scratch/$1.start" "$scratch/data.bin" 8 \
    >"$scratch/$1.torch" || return 1
  echo "# $1: PyTorch $(cat "$scratch/$1.torch"), ours $(sed -n '1p;4p' "$scratch/$1_one.bits" | tr '\n' ' ')"
  sed -n '1p;4p' "$scratch/$1_one.bits" | tr '\n' ' ' | paste -d ' ' - "$scratch/$1.torch" |
    awk '{ a = $1 - $3; b = $2 - $4; exit !(NF == 4 && a * a <= 1e-10 * $3 * $3 && b * b <= 1e-10 * $4 * $4 && $4 > 0) }'
}
for family in llama qwen3 gpt2; do
  if test -z "$python"; then
    skip "$family has the loss and gradient norm of PyTorch's f64" "no Python with torch here: set PEER"
  else
    ok "$family has the loss and gradient norm of PyTorch's f64" loss_and_norm "$family"
  fi
done
finish
