#!/bin/sh
# tensor_emulated.t: tensor ranks (tensor_parallel.ranks) on CUDA, each a process with an emulated GPU (emulate_streams.cc): with one number of splits
# the losses, norms and checkpoints of 1, 2 and 4 tensor ranks are the same bits, with any pipeline, replicas, sharding and recomputation, over ipc and
# over NCCL, with and without a graph, whether each has all tokens or they share them; evaluation too; checkpoints continue at any degree; a lost rank is named.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 2 ''
describe qwen3 2 'head_dim = 8; loss_rows = 0;'
describe gpt2 2 '' # tied
describe qwen3_moe 2 'experts = 8; experts_per_token = 3; moe_ffn = 24; head_dim = 8; aux_loss = 0.02;'
sed -i 's/vocab = 200/vocab = 257/; s/microbatch = 2;/microbatch = 1;/' "$scratch"/*.cfg # the last tensor rank has fewer tokens
for family in llama qwen3 gpt2 qwen3_moe; do
  echo 'tensor_parallel = { splits = 4; sequence = false; }; cluster = { device = "cuda"; };' >>"$scratch/$family.cfg"
done
sed 's/layers = 2/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
sed 's/microbatch = 1/packed = true; &/' "$scratch/gpt2.cfg" >"$scratch/packed_gpt2.cfg"

train() { train_model 3 "$@" 2>"$scratch/$1.err" || { sed 's/^/# /' "$scratch/$1.err"; return 1; }; }
same() { same_bits 3 "$@"; }
T2='-s tensor_parallel.ranks=2'
T4='-s tensor_parallel.ranks=4'
shared='-s tensor_parallel.sequence=true' # tokens
# The first of each group is the reference of those that follow.
compare() {
  while read -r model name options; do
    ok "$model: $name trains" in_mode train "${model}_$name" "$model" $options
    as_one_graph "$name" "$scratch/${model}_$name.err"
    case $name in
      one*) reference=${model}_$name ;;
      *) ok "with the bits of one tensor rank" same "$reference" "${model}_$name" ;;
    esac
  done
}
v='-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block'
replicas='-s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=2'
compare <<END
llama one
llama two         $T2
llama four        $T4
llama two_v       $T2 $v
llama two_pairs   $T2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
llama four_layer  $T4 -s memory.recompute=layer
llama two_runs    $T2 $shared
llama four_runs   $T4 $shared -s pipeline.ranks=2 -s memory.recompute=layer
llama two_v_runs  $T2 $shared $v
llama one_rows    -s model.loss_rows=32 -s model.sequence=48
llama two_rows_r  $T2 $shared -s model.loss_rows=32 -s model.sequence=48
llama one
llama two_snap    $T2 -s memory.snapshot=true
llama one_muon    -s optimizer.name=muon
llama two_muon    $T2 -s optimizer.name=muon
llama four_muon   $T4 $shared -s optimizer.name=muon -s pipeline.ranks=2
qwen3 one
qwen3 two_runs    $T2 $shared -s memory.recompute=attention
gpt2 one
gpt2 two          $T2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
gpt2 four_runs    $T4 $shared
bf16 one
bf16 four         $T4
bf16 two_runs     $T2 $shared -s pipeline.ranks=2
packed_gpt2 one
packed_gpt2 two_runs $T2 $shared
qwen3_moe one
qwen3_moe two_pairs $T2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
qwen3_moe two_runs  $T2 $shared -s pipeline.ranks=2 -s pipeline.zero_bubble=true
qwen3_moe four_runs $T4 $shared -s memory.recompute=layer
END
compare <<END
llama one_cube    $replicas
llama shards_runs $T2 $shared $replicas -s data_parallel.shard=optimizer -s pipeline.ranks=2
llama units_runs  $T2 $shared $replicas -s data_parallel.shard=weights -s data_parallel.unit=layer
END
ok "the CPU" train llama_cpu llama $T2 -s cluster.device=cpu
ok "computes almost the same losses and norms" close_to llama_cpu llama_two 2e-5
PEN_EMULATED_NO_GRAPH=1 && export PEN_EMULATED_NO_GRAPH
cp "$scratch/llama_two" "$scratch/plain"
ok "without a graph" train_bits plain --data "$scratch/data.bin" --steps 3 2>"$scratch/plain.err"
unset PEN_EMULATED_NO_GRAPH
is "which both say" "$(grep -c '(marked, unmarked, serial: .*); its actions are enqueued one by one' "$scratch/plain.err")" 2
ok "the same bits" same llama_one plain

# ---- checkpoints, evaluation ----
# resume NAME CHECKPOINT
resume() {
  rm -rf "$scratch/$1.ckpt"
  cp -a "$scratch/$2.ckpt" "$scratch/$1.ckpt" &&
    timeout 300 "$scratch/$1" train --data "$scratch/data.bin" --seed 7 --quiet --steps 5 --checkpoint "$scratch/$1.ckpt" --resume
}
weights() { (cd "$scratch/$1.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors); }
for name in llama_one llama_two llama_four; do ok "$name continues what two tensor ranks of two ranks saved" resume $name llama_two_v; done
is "two tensor ranks to the bits of one" "$(weights llama_two)" "$(weights llama_one)"
is "and so four" "$(weights llama_four)" "$(weights llama_one)"
evaluate() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/llama_two_v.ckpt" --steps 3 --quiet; }
is "two evaluate as one" "$(evaluate llama_two)" "$(evaluate llama_one)"
is "and where they share the tokens" "$(evaluate llama_two_runs)" "$(evaluate llama_one)"
make_tokens "$scratch/text.bin" 100 7
score() {
  "$scratch/$1" score --data "$scratch/text.bin" --checkpoint "$scratch/llama_two_v.ckpt" --quiet --output "$scratch/$1.scores" \
    --logits "$scratch/$1.logits" --logits-top 3
}
is "two score as one" "$(score llama_two)" "$(score llama_one)"
ok "to the bit" cmp "$scratch/llama_one.scores" "$scratch/llama_two.scores"
ok "with the same logits" cmp "$scratch/llama_one.logits" "$scratch/llama_two.logits"
ok "two that share the tokens score" score llama_two_runs
ok "as one" cmp "$scratch/llama_one.scores" "$scratch/llama_two_runs.scores"
ok "so do four" score llama_four
ok "each of which has one split" cmp "$scratch/llama_one.scores" "$scratch/llama_four.scores"
generate() { # NAME OPTION...
  generate_name=$1
  shift
  "$scratch/$generate_name" generate --checkpoint "$scratch/llama_two_v.ckpt" --prompt '65 66' --tokens 12 --seed 3 --temperature 1 "$@" 2>"$scratch/$generate_name.err"
}
text=$(generate llama_one)
matches "one generates" "$text" '65 66 [0-9]*'
for name in llama_two llama_two_runs llama_two_v llama_four llama_four_runs llama_shards_runs plain; do
  test "$name" != plain || { PEN_EMULATED_NO_GRAPH=1 && export PEN_EMULATED_NO_GRAPH; }
  is "$name generates as one" "$(generate $name)" "$text"
done
unset PEN_EMULATED_NO_GRAPH
stop=$(echo "$text" | cut -d ' ' -f 9)
stopped=$(echo "$text" | awk -v stop="$stop" '{ for (i = 1; i <= NF && (i < 4 || $(i - 1) != stop); i++) printf "%s ", $i }')
for name in llama_one llama_two_v llama_four; do is "$name stops at token $stop" "$(generate $name --stop "$stop")" "$stopped"; done
sampling='--top-k 60 --top-p 0.9 --min-p 0.01 --repetition-penalty 1.3'
chosen=$(generate llama_one $sampling)
matches "one generates with $sampling" "$chosen" '65 66 [0-9]*'
for name in llama_two_v llama_four; do is "$name: as one" "$(generate $name $sampling)" "$chosen"; done
ok "training and evaluating in turns" timeout 300 "$scratch/llama_two_v" train --data "$scratch/data.bin" --seed 7 --quiet --steps 3 \
  --eval-data "$scratch/data.bin" --eval-steps 3 --eval-every 1 --log "$scratch/turns.log"
is "changes nothing" "$(log_field "$scratch/turns.log" loss | head -n 3)" "$(log_field "$scratch/llama_one.log" loss)"

# ---- over NCCL, emulated: exchanges are sends and receives ----
if test -f "$top_builddir/libemulated_nccl.a"; then
  nccl='-s cluster.transport=nccl'
  ok "one tensor rank once more" train llama_one llama
  compare <<END
llama one
llama nccl_two    $T2 $nccl
llama nccl_four   $T4 $nccl -s memory.recompute=layer
llama nccl_2_runs $T2 $nccl $shared $v
llama nccl_4_runs $T4 $nccl $shared
llama one_muon    -s optimizer.name=muon
llama nccl_muon   $T2 $nccl -s optimizer.name=muon
bf16 one
bf16 nccl_two     $T2 $nccl -s pipeline.ranks=2
gpt2 one
gpt2 nccl_4_runs  $T4 $nccl $shared
qwen3_moe one
qwen3_moe nccl_2_runs $T2 $nccl $shared
END
  for name in llama_nccl_two llama_nccl_2_runs llama_nccl_4_runs; do is "$name generates as one" "$(generate $name)" "$text"; done
  compare <<END
llama one_cube    $replicas
llama nccl_shards $T2 $nccl $replicas -s data_parallel.shard=optimizer -s pipeline.ranks=2
llama nccl_u_runs $T2 $nccl $shared $replicas -s data_parallel.shard=weights -s data_parallel.unit=layer
END
fi
lose_of_replica llama_two_v 1
finish
