#!/bin/sh
# tensor_head.t: tensor ranks (tensor_parallel.ranks) whose head is tied to the embedding, or whose loss is computed by chunks of rows
# (model.loss_rows): with one number of splits and of rows the losses, norms and checkpoints of 1, 2 and 4 tensor ranks are the same bits, with any
# pipeline, replicas, sharding and recomputation; checkpoints continue at any degree; evaluation too.
. "${top_srcdir:-.}/tests/support/lib.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 4 'tie_embeddings = true;'
describe qwen3 4 'tie_embeddings = true; head_dim = 12;'
describe gpt2 4 ''
sed -i 's/vocab = 200/vocab = 257/' "$scratch"/*.cfg # the last tensor rank has fewer tokens
echo 'tensor_parallel = { splits = 4; };' | tee -a "$scratch/llama.cfg" "$scratch/qwen3.cfg" >>"$scratch/gpt2.cfg"
sed 's/hidden = 32/hidden = 36/' "$scratch/gpt2.cfg" >"$scratch/odd.cfg" # no multiple of 64 bytes
sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
sed 's/microbatch = 2/packed = true; &/' "$scratch/qwen3.cfg" >"$scratch/packed.cfg"
cp "$scratch/llama.cfg" "$scratch/frozen.cfg"
cp "$scratch/gpt2.cfg" "$scratch/cube.cfg"
cp "$scratch/bf16.cfg" "$scratch/cube_bf16.cfg"
rows='-s model.loss_rows=32 -s model.sequence=48'
sed 's/tie_embeddings = true/tie_embeddings = false/' "$scratch/llama.cfg" >"$scratch/rows.cfg"
cp "$scratch/gpt2.cfg" "$scratch/rows_gpt2.cfg"
cp "$scratch/bf16.cfg" "$scratch/rows_bf16.cfg"
cp "$scratch/rows.cfg" "$scratch/rows_frozen.cfg"
cp "$scratch/llama.cfg" "$scratch/rows_cube.cfg"

train() { train_model 3 "$@"; }
same() { same_bits 3 "$@"; }
T2='-s tensor_parallel.ranks=2'
T4='-s tensor_parallel.ranks=4'
all='-s tensor_parallel.sequence=false' # each has all tokens
replicas='-s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=4'
cube="$replicas $T2 -s pipeline.ranks=2"
# The first of each group is the reference of those that follow.
while read -r model name options; do
  ok "$model: $name trains" train "${model}_$name" "$model" $options
  case $name in
    one*) reference=${model}_$name ;;
    *) ok "$model: $name has the bits of one tensor rank" same "$reference" "${model}_$name" ;;
  esac
done <<END
llama one
llama two          $T2
llama four         $T4
llama two_all      $T2 $all
llama two_v        $T2 -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
llama four_two     $T4 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
llama alone        $T2 -s pipeline.ranks=2 -s partition.before=[lm_head]
llama two_layer    $T2 -s pipeline.ranks=2 -s memory.recompute=layer
llama two_snapshot $T2 -s pipeline.ranks=2 -s memory.snapshot=true
qwen3 one
qwen3 two          $T2 -s pipeline.ranks=2
qwen3 four         $T4
gpt2 one
gpt2 two           $T2
gpt2 two_zb        $T2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
gpt2 four          $T4 -s pipeline.ranks=2
gpt2 four_all      $T4 -s pipeline.ranks=2 $all
odd one
odd two            $T2 -s pipeline.ranks=2
bf16 one
bf16 two           $T2
bf16 four          $T4 -s pipeline.ranks=2
packed one
packed two         $T2 -s pipeline.ranks=2
frozen one         -s model.frozen=[embed_tokens.weight]
frozen two         -s model.frozen=[embed_tokens.weight] $T2
frozen four        -s model.frozen=[embed_tokens.weight] $T4 -s pipeline.ranks=2
cube one           $replicas
cube 1f1b          $cube
cube zb_h1         $cube -s pipeline.zero_bubble=true
cube interleaved   $cube -s pipeline.stages_per_rank=2
cube v             $cube -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
cube search        $cube -s pipeline.schedule=search
cube optimizer     $cube -s data_parallel.shard=optimizer
cube gradients     $cube -s data_parallel.shard=gradients
cube units         $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
cube together      $replicas $T4 -s data_parallel.shard=gradients
cube_bf16 one      $replicas
cube_bf16 weights  $cube -s data_parallel.shard=weights
rows one           $rows
rows two           $rows $T2
rows four          $rows $T4
rows two_all       $rows $T2 $all
rows two_zb        $rows $T2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
rows alone         $rows $T2 -s pipeline.ranks=2 -s partition.before=[lm_head]
rows split         $rows $T2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s partition.before=[lm_head]
rows full          $rows $T4 -s memory.recompute=full
rows layer         $rows $T2 -s memory.recompute=layer -s pipeline.ranks=2
rows attention     $rows $T2 -s memory.recompute=attention
rows_gpt2 one      $rows
rows_gpt2 two      $rows $T2 -s pipeline.ranks=2
rows_gpt2 four     $rows $T4
rows_bf16 one      $rows
rows_bf16 two      $rows $T2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
rows_frozen one    $rows -s model.frozen=[lm_head.weight]
rows_frozen two    $rows -s model.frozen=[lm_head.weight] $T2
rows_cube one      $rows $replicas
rows_cube units    $rows $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
END

ok "whole logits train" train whole rows -s model.sequence=48
ok "chunks of rows have other bits (the test can tell)" sh -c "! cmp -s '$scratch/whole.bits' '$scratch/rows_one.bits'"
ok "chunks of rows have almost their losses and norms" close_to whole rows_four 1e-5

# ---- files ----
# goes_on FROM TO: $scratch/TO continues a copy of FROM's checkpoint from step 3 to step 6, and leaves it in on.ckpt.
goes_on() {
  rm -rf "$scratch/on.ckpt" "$scratch/on.log" && cp -r "$scratch/$1.ckpt" "$scratch/on.ckpt" &&
    "$scratch/$2" train --data "$scratch/data.bin" --steps 6 --quiet --resume --checkpoint "$scratch/on.ckpt" --log "$scratch/on.log" \
      2>"$scratch/on.err" && test "$(wc -l <"$scratch/on.log")" -eq 3
}
# ends NAME: the losses of on.log, and the sums of on.ckpt.
ends() { (log_field "$scratch/on.log" loss; cd "$scratch/on.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$1.end"; }
for model in gpt2 bf16; do
  ok "$model: a run of one tensor rank continues" goes_on ${model}_one ${model}_one
  ends one
  for pair in "one four" "four two" "two one"; do
    ok "$model: a checkpoint continues: $pair" goes_on ${model}_${pair% *} ${model}_${pair#* }
    ends other
    ok "$model: with the same bits" cmp "$scratch/one.end" "$scratch/other.end"
  done
done

# ---- evaluation ----
evaluate() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/$2.ckpt" 2>/dev/null; }
is "eval of a tied head on two tensor ranks" "$(evaluate gpt2_two_zb gpt2_one)" "$(evaluate gpt2_one gpt2_one)"
is "eval by chunks of rows" "$(evaluate rows_two_zb rows_one)" "$(evaluate rows_one rows_one)"

# ---- copies in memory ----
"$scratch/gpt2_four" train --seed 7 --data "$scratch/data.bin" --steps 300 --restarts 1 --recover-every 1 --quiet --log "$scratch/again.log" 2>"$scratch/again.err" &
again_run=$!
await_steps "$scratch/again.log" 3
kill -KILL "$(children $again_run | sed -n 6p)"
wait $again_run
is "a restart from the copies in memory" $? 0
is "has the bits of a run that was not interrupted" "$(log_field "$scratch/again.log" loss | head -n 3)" "$(head -n 3 "$scratch/gpt2_one.bits")"
ok "and goes on to its end" test "$(grep -c '"loss"' "$scratch/again.log")" -eq 300

# ---- PyTorch ----
find_python 'import torch' /opt/peer/bin/peer-python python3
for run in gpt2_four llama_two_v rows_split rows_gpt2_two; do
  if test -z "$python"; then
    skip "$run has the loss and gradient norm of PyTorch's f64" "no Python with torch here: set PEER"
  else
    ok "$run has the loss and gradient norm of PyTorch's f64" as_pytorch "${run%%_*}" "$run" 3
  fi
done
finish
