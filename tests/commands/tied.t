#!/bin/sh
# tied.t: head and embedding are one tensor: the same bits on any ranks, the tensor once in every file, its norm once, and loss
# and norm those of an f64 model written with PyTorch's operators, where there is PyTorch.
. "${top_srcdir:-.}/tests/support/lib.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 8 "kv_heads = 2; tie_embeddings = true;"
sed 's/tie_embeddings/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg" # the head reads a copy; across ranks, of another's
describe gpt2 8 "" # tied by default, as in Hugging Face

# train NAME FAMILY OPTIONS...: builds and trains.
train() { train_model 4 "$@"; }
same() { same_bits 4 "$@"; }
compare_runs 4 <<'END'
llama one
llama one_zb      -s pipeline.zero_bubble=true
llama two         -s pipeline.ranks=2
llama two_loop    -s pipeline.ranks=2 -s pipeline.stages_per_rank=2
llama two_v       -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
llama two_again   -s pipeline.ranks=2 -s memory.recompute=full
llama two_layer   -s pipeline.ranks=2 -s memory.recompute=layer
llama four        -s pipeline.ranks=4
llama four_zb     -s pipeline.ranks=4 -s pipeline.zero_bubble=true
llama four_head   -s pipeline.ranks=4 -s partition.before=[model.layers.3,model.layers.6.mlp,lm_head]
llama four_loop   -s pipeline.ranks=4 -s pipeline.stages_per_rank=2
llama four_v      -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
bf16 one
bf16 two          -s pipeline.ranks=2
bf16 four_v       -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
gpt2 one
gpt2 two          -s pipeline.ranks=2
gpt2 four         -s pipeline.ranks=4
gpt2 four_v       -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
END

# Without clipping no rank waits for the others' norms: the steps overlap, and the messages alone keep the copies apart.
ok "without clipping: one rank trains" train free_one llama -s optimizer.clip_norm=0
for ranks in 2 4; do
  ok "without clipping: $ranks ranks train" train free_$ranks llama -s optimizer.clip_norm=0 -s pipeline.ranks=$ranks
  ok "without clipping: $ranks ranks have the same bits" same free_one free_$ranks
done

# An order from a file has no times: the head's gradient is sent after everything else.
"$gen" -p actions -o "$scratch/given.actions" -s pipeline.ranks=4 "$scratch/llama.cfg"
ok "--print=actions shows the schedule's kinds alone" sh -c "! grep -E '(SEND|RECV|WAIT)_[GV]|ADD_TIED_GRAD' '$scratch/given.actions'"
ok "an order from a file trains" train llama_given llama --actions="$scratch/given.actions" -s pipeline.ranks=4
ok "an order from a file has the same bits" same llama_one llama_given

# The tensor is in the files once; a frozen one does not change.
header() { head -c "$(($(od -An -td8 -N8 "$1") + 8))" "$1" | tail -c +9; }
is "model.safetensors has no lm_head" "$(header "$scratch/llama_four.ckpt/latest/model.safetensors" | grep -c lm_head)" 0
is "and the embedding once" "$(header "$scratch/llama_four.ckpt/latest/model.safetensors" | grep -o '"model.embed_tokens.weight"' | wc -l)" 1
ok "config.json says that it is tied" grep -q '"tie_word_embeddings": true' "$scratch/llama_four.ckpt/latest/config.json"
ok "frozen: four ranks train" train frozen_four llama -s pipeline.ranks=4 -s 'model.frozen=[embed_tokens.weight]'
ok "frozen: one rank trains" train frozen_one llama -s 'model.frozen=[embed_tokens.weight]'
ok "frozen: the same bits" same frozen_one frozen_four
ok "frozen: other bits than when it learns (the test can tell)" other_bits llama_one frozen_one

# Resume: four ranks go on where one stopped; the head's copy comes from the file.
ok "four ranks train 8 steps without a stop" "$scratch/llama_four" train --data "$scratch/data.bin" --seed 7 --quiet --steps 8 \
  --log "$scratch/whole.log" --checkpoint "$scratch/whole.ckpt"
ok "four ranks go on from one rank's checkpoint" "$scratch/llama_four" train --data "$scratch/data.bin" --seed 7 --quiet --steps 8 \
  --log "$scratch/resumed.log" --checkpoint "$scratch/llama_one.ckpt" --resume
is "the resumed losses are those of the whole run" "$(log_field "$scratch/resumed.log" loss)" "$(log_field "$scratch/whole.log" loss | tail -n 4)"
ok "the resumed weights are the whole run's" cmp "$scratch/whole.ckpt/latest/model.safetensors" "$scratch/llama_one.ckpt/latest/model.safetensors"
loss_of() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/whole.ckpt" --steps 2 2>/dev/null | tail -n 1; }
ok "a plan of inference is built" build score "$scratch/llama.cfg" -s pipeline.ranks=2 -s pipeline.schedule=inference
matches "eval gives a loss" "$(loss_of llama_one)" '{"loss":[0-9]*,"perplexity":*'
is "eval gives the same bits on one rank and on four" "$(loss_of llama_four)" "$(loss_of llama_one)"
is "and by a plan of inference" "$(loss_of score)" "$(loss_of llama_one)"
is "a checkpoint of the tied model is no untied one's" \
  "$(build untied "$scratch/llama.cfg" -s model.tie_embeddings=false && "$scratch/untied" eval --data "$scratch/data.bin" \
    --checkpoint "$scratch/whole.ckpt" 2>/dev/null; echo $?)" 65

# An odd width of a head is gpt2's right: it has no rotary positions.
ok "gpt2 takes heads of an odd width" "$gen" --check -s model.hidden=36 "$scratch/gpt2.cfg"
is "llama does not" "$("$gen" --check -s model.hidden=36 "$scratch/llama.cfg" 2>/dev/null; echo $?)" 78

# ---- an independent model ----
all_as_pytorch 4 llama_four gpt2_four
finish
