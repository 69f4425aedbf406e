#!/bin/sh
# same_bits.t: topologies of one model that run a stage's backward in the same order of microbatches give the same bits: losses, norms and
# checkpoints. gpipe, which runs it in falling order, agrees with them to 1e-5. Checkpoints carry over from one to the other.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=4
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 16; hidden = 48; heads = 4; kv_heads = 2; ffn = 80; vocab = 256; sequence = 32; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 8; schedule = "1f1b"; };
END
make_tokens "$scratch/data.bin" 40000

# train NAME OPTIONS...: builds and trains.
train() {
  train_name=$1
  shift
  train_model $steps "$train_name" model "$@"
}
same() { same_bits $steps "$1" "$2"; }

ok "one rank trains" train one
while read -r name options; do
  ok "$name trains" train "$name" $options
  ok "$name has the same bits as one rank" same one "$name"
done <<'END'
one_zb       -s pipeline.zero_bubble=true
one_stages4  -s pipeline.stages_per_rank=4
two          -s pipeline.ranks=2
two_zb       -s pipeline.ranks=2 -s pipeline.zero_bubble=true
two_looped   -s pipeline.ranks=2 -s pipeline.stages_per_rank=2
two_v        -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
two_unclip   -s pipeline.ranks=2 -s partition.layers=[5,11]
two_cut_mlp  -s pipeline.ranks=2 -s partition.before=[model.layers.7.mlp]
two_cut_ends -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s partition.before=[model.layers.0,model.layers.3.mlp,lm_head]
four         -s pipeline.ranks=4
four_timed   -s pipeline.ranks=4 -s partition.balance=time -s partition.unit=block
four_v_cut   -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block -s partition.virtual_post=1
four_warm2   -s pipeline.ranks=4 -s pipeline.warmup=2
four_loop_zb -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.zero_bubble=true
four_v       -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
four_dual    -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
four_search  -s pipeline.ranks=4 -s pipeline.schedule=search --search-seconds=0
four_v_srch  -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=search -s pipeline.live_limit=5 --search-seconds=1
two_inter    -s pipeline.ranks=2 -s pipeline.stages_per_rank=4 -s pipeline.schedule=interleaved
four_h1      -s pipeline.ranks=4 -s pipeline.schedule=zb_h1
four_h2      -s pipeline.ranks=4 -s pipeline.schedule=zb_h2
four_half    -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=v_half
four_min     -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=v_min
eight        -s pipeline.ranks=8
eight_v      -s pipeline.ranks=8 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
END

"$gen" -p csv -o "$scratch/dual.csv" -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v "$scratch/model.cfg"
ok "an order from a file trains" train four_file -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.placement=v \
  -s pipeline.schedule=file -s "pipeline.schedule_file=$scratch/dual.csv"
ok "with the same bits too" same one four_file

ok "gpipe on one rank trains" train gpipe_one -s pipeline.schedule=gpipe
for ranks in 2 4 8; do
  ok "gpipe on $ranks ranks trains" train gpipe_$ranks -s pipeline.schedule=gpipe -s pipeline.ranks=$ranks
  ok "gpipe on $ranks ranks has the same bits as on one" same gpipe_one gpipe_$ranks
done
ok "gpipe and 1f1b agree to 1e-5" close_to one gpipe_one 1e-5
ok "gpipe and 1f1b are not the same bits (the test can tell)" other_bits one gpipe_one

# Resume: four ranks go on where one stopped, and the other way round, as if nothing had happened.
ok "four ranks train 8 steps without a stop" "$scratch/four" train --data "$scratch/data.bin" --seed 7 --quiet --steps 8 \
  --log "$scratch/whole.log" --checkpoint "$scratch/whole.ckpt"
ok "zero_bubble_v resumes from one rank's checkpoint" "$scratch/four_v" train --data "$scratch/data.bin" --seed 7 --quiet --steps 8 \
  --log "$scratch/resumed.log" --checkpoint "$scratch/one.ckpt" --resume
is "the resumed losses are those of the whole run" "$(log_field "$scratch/resumed.log" loss)" \
  "$(log_field "$scratch/whole.log" loss | tail -n 4)"
for file in model.safetensors optimizer.safetensors; do
  ok "the resumed $file is the whole run's" cmp "$scratch/whole.ckpt/latest/$file" "$scratch/one.ckpt/latest/$file"
done
loss_of() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/whole.ckpt" --steps 2 2>/dev/null | tail -n 1; }
is "eval gives the same bits on one rank and on eight, V and not" "$(loss_of eight_v)" "$(loss_of one)"
# A plan of inference evaluates with the same bits, holds neither gradients nor moments, and cannot train.
ok "a plan of inference is built" build score "$scratch/model.cfg" -s pipeline.ranks=4 -s pipeline.schedule=inference
ok "and one with two stages a rank" build score_v "$scratch/model.cfg" -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 \
  -s pipeline.schedule=inference -s pipeline.placement=v
is "its eval gives the same bits" "$(loss_of score)" "$(loss_of one)"
is "in a V too" "$(loss_of score_v)" "$(loss_of one)"
is "train is refused with status 64" "$("$scratch/score" train --data "$scratch/data.bin" 2>"$scratch/refusal"; echo $?)" 64
matches "and says why" "$(cat "$scratch/refusal")" "*train: this binary has no plan for it: its schedule is inference*"
matches "info shows no bytes of gradients or moments" "$("$scratch/score" info --json)" '*"gradient_bytes":0,"moment_bytes":0,*'
matches "eval's last line is as agreed" "$(loss_of four)" '{"loss":*,"perplexity":*,"tokens":*}'
finish
