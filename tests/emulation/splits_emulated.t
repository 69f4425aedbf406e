#!/bin/sh
# splits_emulated.t: split weights (tensor_parallel.splits) with cluster.device = "cuda", over the CUDA backend compiled for the host: losses and
# norms are the CPU's with as many splits, except for the order of sums within a split; the bits depend on the number of splits alone, not on ranks,
# stages, recomputation, sharding or graphs; checkpoints continue with any number of splits; scores and texts are the CPU's.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 2 ''
describe qwen3 2 'head_dim = 8;'
describe gpt2 2 ''
sed -i 's/vocab = 200/vocab = 257/; s/microbatch = 2;/microbatch = 1;/' "$scratch"/*.cfg # the last split has fewer tokens
sed 's/layers = 2/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
sed 's/layers = 2/dtype = "bf16"; &/' "$scratch/gpt2.cfg" >"$scratch/bf16_gpt2.cfg"
sed 's/microbatch = 1/packed = true; &/' "$scratch/gpt2.cfg" >"$scratch/packed_gpt2.cfg"
cp "$scratch/llama.cfg" "$scratch/replicas.cfg"

train() { train_model 3 "$@" 2>"$scratch/$1.err" || { sed 's/^/# /' "$scratch/$1.err"; return 1; }; }
same() { same_bits 3 "$@"; }
# The first of each model is the reference of those that follow.
while read -r model splits name options; do
  ok "$model in $splits splits: $name trains" in_mode train "${model}_${splits}_$name" "$model" -s cluster.device=cuda -s tensor_parallel.splits="$splits" $options
  as_one_graph "$name" "$scratch/${model}_${splits}_$name.err"
  test "$name" = one || ok "with the bits of one rank" same "${model}_${splits}_one" "${model}_${splits}_$name"
done <<END
llama 4 one
llama 4 two_v    -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
llama 4 layer    -s memory.recompute=layer
qwen3 2 one
qwen3 2 two      -s pipeline.ranks=2 -s memory.recompute=full
gpt2 2 one
gpt2 2 pairs     -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
bf16 2 one
bf16 2 two       -s pipeline.ranks=2 -s pipeline.zero_bubble=true
bf16_gpt2 4 one
packed_gpt2 2 one
packed_gpt2 2 two -s pipeline.ranks=2
END
replicas='-s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=2 -s tensor_parallel.splits=2 -s cluster.device=cuda'
ok "two replicas" train replicas_one replicas $replicas
ok "with sharded weights" train replicas_units replicas $replicas -s data_parallel.shard=weights -s data_parallel.unit=layer
ok "have the same bits" same replicas_one replicas_units

# cpu_agrees NAME MODEL TOLERANCE SETTING...: to what the CPU computes with as many splits, by the same chunks of rows.
cpu_agrees() {
  cpu_name=$1 cpu_model=$2 cpu_tolerance=$3
  shift 3
  train "${cpu_name}_cpu" "$cpu_model" -s cluster.device=cpu "$@" && close_to "${cpu_name}_cpu" "$cpu_name" "$cpu_tolerance"
}
rows='-s model.loss_rows=2048' # as for GPUs
ok "llama: losses and norms are the CPU's" cpu_agrees llama_4_one llama 2e-5 -s tensor_parallel.splits=4 $rows
ok "qwen3: so are they" cpu_agrees qwen3_2_one qwen3 2e-5 -s tensor_parallel.splits=2 $rows
ok "gpt2: so are they" cpu_agrees gpt2_2_one gpt2 2e-5 -s tensor_parallel.splits=2 $rows
ok "bf16: so are they to 2%" cpu_agrees bf16_2_one bf16 2e-2 -s tensor_parallel.splits=2 $rows
ok "gpt2 in bf16: so are they to 2%" cpu_agrees bf16_gpt2_4_one bf16_gpt2 2e-2 -s tensor_parallel.splits=4 $rows
ok "packed gpt2: so are they" cpu_agrees packed_gpt2_2_one packed_gpt2 2e-5 -s tensor_parallel.splits=2 $rows
ok "llama in 2 splits" train llama_2 llama -s cluster.device=cuda -s tensor_parallel.splits=2
ok "has other bits than in 4 (the test can tell)" sh -c "! cmp -s '$scratch/llama_2.bits' '$scratch/llama_4_one.bits'"
ok "and almost the same losses and norms" close_to llama_2 llama_4_one 1e-4

# ---- logits that are in memory at once, and by the chunks of rows of a small loss_rows ----
for rows in 0 32; do
  options="-s model.loss_rows=$rows -s tensor_parallel.splits=4 -s model.sequence=48"
  ok "loss_rows = $rows" train "rows_$rows" llama -s cluster.device=cuda $options
  ok "loss_rows = $rows: as the CPU" cpu_agrees "rows_$rows" llama 2e-5 $options
done

# ---- graphs, checkpoints ----
PEN_EMULATED_NO_GRAPH=1 && export PEN_EMULATED_NO_GRAPH
cp "$scratch/llama_4_one" "$scratch/plain"
ok "without a graph" train_bits plain --data "$scratch/data.bin" --steps 3 2>"$scratch/plain.err"
unset PEN_EMULATED_NO_GRAPH
ok "the same bits" same llama_4_one plain
# resume NAME CHECKPOINT
resume() {
  rm -rf "$scratch/$1.ckpt"
  cp -a "$scratch/$2.ckpt" "$scratch/$1.ckpt" &&
    timeout 300 "$scratch/$1" train --data "$scratch/data.bin" --seed 7 --quiet --steps 5 --checkpoint "$scratch/$1.ckpt" --resume
}
for name in llama_4_one llama_2 llama_4_one_cpu; do ok "$name continues what 4 splits saved" resume $name llama_4_two_v; done
weights() { (cd "$scratch/$1.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors); }
ok "two ranks continue it" resume llama_4_layer llama_4_two_v
is "to the same bits" "$(weights llama_4_layer)" "$(weights llama_4_one)"

# ---- score, generate ----
make_tokens "$scratch/text.bin" 100 7
score() {
  "$scratch/$1" score --data "$scratch/text.bin" --checkpoint "$scratch/llama_4_two_v.ckpt" --quiet --output "$scratch/$1.scores" \
    --logits "$scratch/$1.logits" --logits-top 3 >"$scratch/$1.score"
}
ok "scores" score llama_4_one
ok "of the CPU" score llama_4_one_cpu
scores_agree() {
  paste "$scratch/$1.scores" "$scratch/$2.scores" | tr -s '[],:{}\t' '      ' | awk '{ n = NF / 2; for (i = 1; i <= n; i++) {
    d = $i - $(i + n); if (d < 0) d = -d; if (!(d <= 2e-5 * ($i < 0 ? -$i : $i) + 1e-5)) { bad = 1; print "# " $i, $(i + n) } } } END { exit bad || NR == 0 }'
}
ok "are the same to 2e-5" scores_agree llama_4_one llama_4_one_cpu
ids() { sed 's/, [-0-9.e]*\]/]/g' "$scratch/$1.logits"; }
is "so are the largest logits" "$(ids llama_4_one)" "$(ids llama_4_one_cpu)"
text() { "$scratch/$1" generate --checkpoint "$scratch/llama_4_two_v.ckpt" --prompt '65 66 67 68' --tokens 6 --temperature 0 2>/dev/null; }
is "a text is the CPU's" "$(text llama_4_one)" "$(text llama_4_one_cpu)"
finish
