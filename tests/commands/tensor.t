#!/bin/sh
# tensor.t: tensor_parallel.ranks: with one number of splits (splits) the losses, norms and checkpoints of 1, 2 and 4 tensor ranks are the
# same bits, whether they share the tokens between the matrices (sequence) or each has all, with any pipeline, replicas, sharding and recomputation; checkpoints continue at any degree; evaluation too; a lost rank is named by
# its global rank; nothing is allocated between steps; what is not built is refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 4 ''
describe qwen3 4 'head_dim = 12;'
describe gpt2 4 'tie_embeddings = false;'
sed -i 's/vocab = 200/vocab = 257/' "$scratch"/*.cfg # the last tensor rank has fewer tokens
echo 'tensor_parallel = { splits = 4; };' | tee -a "$scratch/llama.cfg" "$scratch/qwen3.cfg" >>"$scratch/gpt2.cfg"
for family in llama qwen3 gpt2; do
  sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/$family.cfg" >"$scratch/bf16_$family.cfg"
  sed 's/microbatch = 2/packed = true; &/' "$scratch/$family.cfg" >"$scratch/packed_$family.cfg"
done

train() { train_model 3 "$@"; }
T2='-s tensor_parallel.ranks=2'
T4='-s tensor_parallel.ranks=4'
all='-s tensor_parallel.sequence=false' # each has all tokens
compare() { compare_runs 3; }
compare <<END
llama one
llama two           $T2
llama four          $T4
llama two_all       $T2 $all
llama four_all      $T4 $all
llama two_v         $T2 -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
llama four_v_all    $T4 $all -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
llama four_full     $T4 -s memory.recompute=full
llama two_full_all  $T2 $all -s memory.recompute=full
llama two_layer     $T2 -s memory.recompute=layer -s pipeline.ranks=2 -s partition.unit=block -s partition.before=[model.layers.1.mlp]
llama four_attn     $T4 -s memory.recompute=attention -s pipeline.ranks=2 -s pipeline.zero_bubble=true
llama two_snapshot  $T2 $all -s memory.snapshot=true
llama two_threads   $T2 -s cluster.threads_per_rank=2 -s cluster.bind=none
qwen3 one
qwen3 two           $T2 -s memory.recompute=attention
qwen3 four          $T4
qwen3 four_all      $T4 $all
gpt2 one
gpt2 two            $T2 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
gpt2 four           $T4
gpt2 four_all       $T4 $all
bf16_llama one
bf16_llama four     $T4
bf16_llama two_all  $T2 $all
bf16_qwen3 one
bf16_qwen3 two      $T2 -s pipeline.ranks=2 -s memory.recompute=layer
bf16_gpt2 one
bf16_gpt2 two       $T2
bf16_gpt2 two_all   $T2 $all
packed_qwen3 one
packed_qwen3 two    $T2
packed_gpt2 one
packed_gpt2 four    $T4 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
packed_gpt2 two_all $T2 $all
END
ok "other bits in 2 splits than in 4 (the test can tell)" train llama_splits llama -s tensor_parallel.splits=2 $T2
ok "they are" other_bits llama_one llama_splits

# ---- 2 x 2 x 2 ranks: tensor x pipeline x replicas ----
cp "$scratch/llama.cfg" "$scratch/cube.cfg"
cp "$scratch/bf16_qwen3.cfg" "$scratch/cube_bf16.cfg"
replicas='-s tensor_parallel.splits=2 -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=4'
cube="$replicas $T2 -s pipeline.ranks=2"
compare <<END
cube one            $replicas
cube 1f1b           $cube
cube 1f1b_all       $cube $all
cube interleaved    $cube -s pipeline.stages_per_rank=2
cube zb_h1          $cube -s pipeline.zero_bubble=true
cube v              $cube -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
cube search         $cube -s pipeline.schedule=search
cube v_all          $cube $all -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
cube dual_pipe      $cube -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
cube optimizer      $cube $all -s data_parallel.shard=optimizer
cube gradients      $cube -s data_parallel.shard=gradients
cube units          $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
cube units_all      $cube $all -s data_parallel.shard=weights -s data_parallel.unit=layer
cube_bf16 one       $replicas
cube_bf16 weights   $cube -s data_parallel.shard=weights
END

# ---- files ----
# ends NAME: the losses of on.log, and the sums of on.ckpt.
ends() { (log_field "$scratch/on.log" loss; cd "$scratch/on.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$1.end"; }
ok "a run of one tensor rank continues" goes_on llama_one llama_one
ends one
for pair in "llama_one llama_four" "llama_four llama_two_all" "llama_four_all llama_two" "llama_two_v llama_one" "llama_two llama_two_v"; do
  ok "a checkpoint continues: $pair" goes_on $pair
  ends other
  ok "with the same bits" cmp "$scratch/one.end" "$scratch/other.end"
done
is "initial weights written by any are the same" \
  "$("$scratch/llama_two" init --seed 7 --output "$scratch/two.start" && sha256sum <"$scratch/two.start")" \
  "$("$scratch/llama_one" init --seed 7 --output "$scratch/one.start" && sha256sum <"$scratch/one.start")"
ok "training starts from a file" "$scratch/llama_two" train --init "$scratch/one.start" --data "$scratch/data.bin" --steps 3 --quiet \
  --log "$scratch/start.log"
is "with the bits of its seed" "$(log_field "$scratch/start.log" loss)" "$(head -n 3 "$scratch/llama_one.bits")"

# ---- the other commands ----
evaluate() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/llama_one.ckpt" 2>/dev/null; }
is "eval of two tensor ranks" "$(evaluate llama_two)" "$(evaluate llama_one)"
is "eval of two with all tokens each" "$(evaluate llama_two_all)" "$(evaluate llama_one)"
is "eval of two, in stages" "$(evaluate llama_two_v)" "$(evaluate llama_one)"
matches "info counts the processes" "$("$scratch/cube_1f1b" info --json)" '*"tensor_ranks":2,*'
evals() {
  rm -f "$scratch/evals.log"
  "$scratch/$1" train --seed 7 --data "$scratch/data.bin" --steps 4 --eval-data "$scratch/data.bin" --eval-every 2 --quiet --log "$scratch/evals.log" &&
    sed -n 's/.*"event":"eval".*"loss":\([^,}]*\).*/\1/p' "$scratch/evals.log"
}
is "evaluation between steps" "$(evals llama_two)" "$(evals llama_one)"

# ---- failures ----
# The third tensor rank of the second pipeline rank of two: global rank 1 x 4 + 2.
ok "four tensor ranks of two stages" build lost "$scratch/llama.cfg" $T4 -s pipeline.ranks=2 -s optimizer.steps=1000000
"$scratch/lost" train --data "$scratch/data.bin" --quiet --log "$scratch/lost.log" 2>"$scratch/lost.err" &
lost_run=$!
await_steps "$scratch/lost.log" 1
kill -KILL "$(ps -o pid= --ppid $lost_run | sort -n | sed -n 7p)"
wait $lost_run
is "a lost tensor rank ends the run" $? 75
matches "it is named by its global rank, and so is one that waits for it" "$(complaints "$scratch/lost.err")" \
  '*penstock: rank 6 (pid *) lost: signal 9 after *; rank [0-7] waits at * for rank 6*'
"$scratch/llama_two" train --seed 7 --data "$scratch/data.bin" --steps 400 --restarts 1 --recover-every 1 --quiet --log "$scratch/again.log" 2>"$scratch/again.err" &
again_run=$!
await_steps "$scratch/again.log" 3
kill -KILL "$(ps -o pid= --ppid $again_run | sort -n | sed -n 2p)"
wait $again_run
is "a restart from the copies in memory" $? 0
is "has the bits of a run that was not interrupted" "$(log_field "$scratch/again.log" loss | head -n 3)" "$(head -n 3 "$scratch/llama_one.bits")"
ok "and goes on to its end" test "$(grep -c '"loss"' "$scratch/again.log")" -eq 400

# ---- seal ----
wrapped=$(grep -o -- '-Wl,--wrap=[a-z_,=-]*' "$top_srcdir/runtime/base/seal.c" | tr '\n' ' ')
sealed_build() {
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -DPEN_TEST_SEAL -I"$top_srcdir" $wrapped -o "$scratch/sealed" \
    "$top_srcdir/runtime/base/seal.c" "$scratch/$1.o" libruntime.a $KERNEL_ARCHIVES $OFI_LIBS $RUNTIME_LIBS)
}
ok "the test build" sealed_build cube_units
ok "keeps the seal" "$scratch/sealed" train --data "$scratch/data.bin" --quiet --steps 20 --save-every 5 --checkpoint "$scratch/sealed.ckpt"

# ---- what is refused ----
refused() { refused_what=$1 refused_text=$2; shift 2; fails "$refused_what" 78 "$refused_text" "$gen" --check "$@" "$scratch/llama.cfg"; }
refused "3 tensor ranks" 'tensor_parallel.ranks' -s tensor_parallel.ranks=3 -s tensor_parallel.splits=4
refused "fewer splits than ranks" 'a power of two, at least tensor_parallel.ranks = 4' $T4 -s tensor_parallel.splits=2
two='-s cluster.hosts=[a,b] -s cluster.port=7000 -s pipeline.ranks=2'
refused "tensor ranks on two hosts" 'a divisor of cluster.ranks_per_host' $T2 -s cluster.hosts=[a,b] -s cluster.port=7000
refused "in turns" 'cluster.mapping' $T2 $two -s cluster.mapping=cyclic
refused "by a list" 'not ranks 0 and 1 on two' $T2 $two -s cluster.mapping=[0,1,0,1]
finish
