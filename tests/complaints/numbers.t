#!/bin/sh
# numbers.t: complaints of silently wrong numbers: the same model trains to the same losses and gradient norms in each composition.
. "${top_srcdir:-.}/tests/complaints/support.sh"

four="pipeline.ranks=4"
v="pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v"
ok "one rank trains" train 4 one

ok "Megatron-LM #7452: pipeline, replicas and sharded weights together agree with one rank" \
  close 4 composed $v data_parallel.replicas=2 pipeline.microbatches=2 data_parallel.shard=weights data_parallel.unit=layer
ok "DeepSpeed #8152: stages do not scale accumulated gradients again" same 4 staged $four
ok "torchtitan #1732: nor does a step in one microbatch differ but by rounding" close 4 large pipeline.microbatches=1 batch.microbatch=8
ok "torchtitan #1733: nor one in microbatches of one window" close 4 small $four pipeline.microbatches=8 batch.microbatch=1

# One step reads all eight windows of the file; another last token of a window is another target in its microbatch.
windows() { # FILE [WINDOW]: window 0 to 7
  awk -v other="${2:-8}" 'BEGIN { for (i = 0; i <= 128; i++) printf "%c", 65 + (i * 7) % 50 + (i == other * 16 + 9) }' >text
  "$tokens" --bytes -o "$1" text 2>/dev/null
}
norm_of() { "$scratch/staged" train --data "$1" --seed 7 --steps 1 --quiet --overwrite --log norm.log && log_field norm.log grad_norm; }
windows whole.bin
norm_of whole.bin >norms
changes() { # WINDOW: the norm is one that no other window gave
  rm -f norm.log
  windows changed.bin "$1" && changed=$(norm_of changed.bin) && test -n "$changed" && ! grep -qx -e "$changed" norms && echo "$changed" >>norms
}
for window in 0 1 2 3 4 5; do
  ok "NeMo Automodel PR #3530: window $window, of microbatch $((window / 2)), is in the gradient" changes $window
done
for window in 6 7; do
  ok "DeepSpeed PR #7985: window $window, of the last microbatch, is in the gradient" changes $window
done

ok "pytorch #170277: weight gradients of a pass of their own have the same bits" same 4 split $four pipeline.schedule=zb_h1
ok "and in a V" same 4 split_v $v
ok "pytorch #185331: receive buffers are used again in each step, with the bits of one rank" \
  same 4 interleaved pipeline.ranks=2 pipeline.stages_per_rank=4 pipeline.schedule=interleaved
ok "and with more of them" same 4 spare pipeline.ranks=2 pipeline.stages_per_rank=4 pipeline.schedule=interleaved memory.extra_receive_buffers=3

replicas="data_parallel.replicas=2 pipeline.microbatches=2"
ok "torchtitan #2318: two replicas have the norm of one rank" close 4 replicas $replicas
for shard in optimizer weights; do
  ok "$shard sharded" train 4 $shard $replicas data_parallel.shard=$shard
  ok "$shard sharded: the same losses and norms" cmp replicas.bits $shard.bits
done
ok "gradients sharded, which are summed after each microbatch: the same but for rounding" close 4 gradients $replicas data_parallel.shard=gradients
ok "Megatron-LM PR #5916: a tied matrix on one rank" train 4 tied model.tie_embeddings=true
ok "and on two of four ranks" train 4 tied_four model.tie_embeddings=true $four
ok "counts once in the norm: the same bits" same_bits 4 tied tied_four
finish
