#!/bin/sh
# gradients.t: mlp over eight stages: the pipelined gradients are the unpipelined ones (with clip_norm 0 and after step 1,
# exp_avg/(1-beta1) is the gradient), each weight gradient is added to once a microbatch, frozen weights stay.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/mlp.cfg" <<'END'
model = { family = "mlp"; layers = 8; hidden = 24; sequence = 4; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 10; clip_norm = 0; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END

train() {
  train_name=$1
  shift
  build "$train_name" "$scratch/mlp.cfg" "$@" &&
    "$scratch/$train_name" train --steps 1 --seed 3 --quiet --checkpoint "$scratch/$train_name.ckpt"
}
same_gradient() { cmp "$scratch/one.ckpt/latest/optimizer.safetensors" "$scratch/$1.ckpt/latest/optimizer.safetensors"; }

ok "one rank, one stage" train one
ok "eight ranks" train eight -s pipeline.ranks=8
ok "eight ranks: the same gradients" same_gradient eight
ok "eight stages on four ranks, V" train four_v -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
ok "eight stages on four ranks, V: the same gradients" same_gradient four_v
ok "eight stages on two ranks" train two -s pipeline.ranks=2 -s pipeline.stages_per_rank=4 -s pipeline.zero_bubble=true
ok "eight stages on two ranks: the same gradients" same_gradient two

ok "four ranks cut within layers" train four_cut -s pipeline.ranks=4 -s 'partition.before=[layers.1.w2,layers.4.w3,loss]'
ok "four ranks cut within layers: the same gradients" same_gradient four_cut

# One microbatch of 8 sequences has the same sum of gradients as four of 2 (mlp's loss is a sum), up to rounding.
ok "one large microbatch" train large -s pipeline.microbatches=1 -s batch.microbatch=8
floats() { tail -c $((4 * 24 * 24 * 2)) "$scratch/$1.ckpt/latest/optimizer.safetensors" | od -An -v -tf4 -w4 | head -n 576; }
floats one >"$scratch/a"
floats large >"$scratch/b"
ok "each weight's gradient is the sum over all microbatches, each once" \
  sh -c "paste '$scratch/a' '$scratch/b' | awk '{ s += \$2 < 0 ? -\$2 : \$2; d = \$1 - \$2; e += d < 0 ? -d : d }
    END { exit !(NR == 576 && s > 0 && e <= 1e-4 * s) }'"

# Frozen weights: no moments, no change.
ok "w2 and w3 frozen" train frozen -s 'model.frozen=[w2.weight,w3.weight]' -s pipeline.ranks=4
ok "init writes what training starts from" "$scratch/frozen" init --seed 3 --output "$scratch/start.safetensors"
tensor() { # FILE HEADER-BYTES INDEX: one of the 24 matrices, in model order
  tail -c +$(($2 + 1 + $3 * 2304)) "$1" | head -c 2304 | sha256sum
}
header=$(($(od -An -tu8 -N8 "$scratch/start.safetensors") + 8))
changed=
for index in 0 1 2 3 4 5; do
  if test "$(tensor "$scratch/start.safetensors" $header $index)" != \
    "$(tensor "$scratch/frozen.ckpt/latest/model.safetensors" $header $index)"; then changed="$changed $index"; fi
done
is "only the weights that are not frozen change" "$changed" " 0 3"
ok "the frozen have no moments" sh -c "! head -c 4000 '$scratch/frozen.ckpt/latest/optimizer.safetensors' | grep -q 'w[23].weight'"
finish
