#!/bin/sh
# replicas_emulated.t: replicas on CUDA, each rank a process with an emulated GPU (emulate_streams.cc): R replicas have the same bits however many
# ranks and stages each has, whatever they share out, and whatever carries it; and agree with one replica on all of the data to 1e-5.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

cat >"$scratch/model.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 48; heads = 2; kv_heads = 1; ffn = 64; vocab = 256; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 2; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
cluster = { device = "cuda"; };
END_OF_MODEL
make_tokens "$scratch/data.bin" 2000
steps=3

# run NAME [OPTION...]: trains NAME; leaves NAME.bits, NAME.sums and NAME.err.
run() {
  run_name=$1
  shift
  anew "$scratch/$run_name.log $scratch/$run_name.ckpt" "$@"
  timeout 300 "$scratch/$run_name" train --data "$scratch/data.bin" --seed 7 --log "$scratch/$run_name.log" --steps $steps --save-every 2 \
    --checkpoint "$scratch/$run_name.ckpt" "$@" 2>"$scratch/$run_name.err" || { sed 's/^/# /' "$scratch/$run_name.err"; return 1; }
  { log_field "$scratch/$run_name.log" loss; log_field "$scratch/$run_name.log" grad_norm; } >"$scratch/$run_name.bits"
  (cd "$scratch/$run_name.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$run_name.sums"
}

# case_of NAME REFERENCE SETTING...: a plan of the model trains, as one graph, to the bits of REFERENCE ("-": to any).
case_of() {
  case_name=$1 reference=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  ok "$case_name: a plan" build "$case_name" "$scratch/model.cfg" "$@"
  ok "$case_name: trains" in_mode run "$case_name"
  as_one_graph "$case_name" "$scratch/$case_name.err"
  test "$reference" = - || ok "$case_name: with the bits of $reference" same_bits $steps "$reference" "$case_name"
}
v="pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v"

case_of one - data_parallel.replicas=1 pipeline.microbatches=4
case_of two -
ok "two replicas agree with one to 1e-5" close_to one two 1e-5
ok "but not in every bit (the test can tell)" sh -c "! cmp -s '$scratch/one.bits' '$scratch/two.bits'"
case_of v2 two pipeline.ranks=2 $v
case_of optimizer2 two data_parallel.shard=optimizer pipeline.ranks=2
case_of weights2 two data_parallel.shard=weights pipeline.ranks=2 $v
case_of chunks - pipeline.ranks=2 $v model.sequence=48 model.loss_rows=32
case_of chunks2 chunks pipeline.ranks=2 $v model.sequence=48 model.loss_rows=32 data_parallel.shard=weights data_parallel.reshard=use
case_of snapshot two data_parallel.shard=weights pipeline.ranks=2 memory.snapshot=true
for file in model optimizer; do
  ok "the snapshot of step 2 is what two replicas of one rank save: $file" \
    cmp "$scratch/two.ckpt/step-00000002/$file.safetensors" "$scratch/snapshot.ckpt/step-00000002/$file.safetensors"
done
case_of tied - model.tie_embeddings=true
case_of tied2 tied model.tie_embeddings=true pipeline.ranks=2 data_parallel.shard=weights
case_of groups - data_parallel.replicas=4 data_parallel.shard_ranks=2
case_of groups2 groups data_parallel.replicas=4 data_parallel.shard_ranks=2 data_parallel.shard=weights data_parallel.unit=layer data_parallel.reduce=step
case_of three - data_parallel.replicas=3 model.dtype=bf16 optimizer.clip_norm=0
case_of three2 three data_parallel.replicas=3 model.dtype=bf16 optimizer.clip_norm=0 pipeline.ranks=2 data_parallel.shard=weights data_parallel.reshard=use
muon="optimizer.name=muon model.dtype=bf16"
case_of muon - $muon
case_of muon2 muon $muon data_parallel.shard=weights pipeline.ranks=2

# Over NCCL, emulated, gradients come by sends into staging, and are added up there.
if test -f "$top_builddir/libemulated_nccl.a"; then
  case_of nccl2 two cluster.transport=nccl pipeline.ranks=2 data_parallel.shard=optimizer
  case_of nccl_v2 two cluster.transport=nccl pipeline.ranks=2 $v data_parallel.shard=weights
  case_of nccl_groups groups cluster.transport=nccl data_parallel.replicas=4 data_parallel.shard_ranks=2 data_parallel.shard=optimizer
  case_of nccl_muon muon $muon data_parallel.shard=optimizer cluster.transport=nccl
  case_of nccl_three three data_parallel.replicas=3 model.dtype=bf16 optimizer.clip_norm=0 cluster.transport=nccl
fi

# Collectives within programs: gradients summed after each microbatch, weights gathered by layer. A pair a|b that has some runs one after the other.
unit="data_parallel.shard=weights data_parallel.unit=layer"
dual="pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v"
case_of sums - data_parallel.reduce=microbatch pipeline.microbatches=4
case_of sums_dual sums data_parallel.reduce=microbatch pipeline.microbatches=4 $dual data_parallel.shard=optimizer
case_of unit_v2 sums $unit pipeline.microbatches=4 pipeline.ranks=2 $v memory.recompute=layer
case_of unit_dual sums $unit pipeline.microbatches=4 $dual memory.snapshot=true
case_of gradients2 sums data_parallel.shard=gradients pipeline.microbatches=4 pipeline.ranks=2 pipeline.zero_bubble=true
case_of unit_step two $unit data_parallel.reduce=step pipeline.ranks=2
case_of three_sums - data_parallel.replicas=3 model.dtype=bf16 optimizer.clip_norm=0 data_parallel.reduce=microbatch
if test -f "$top_builddir/libemulated_nccl.a"; then
  case_of nccl_unit sums $unit pipeline.microbatches=4 pipeline.ranks=2 $v cluster.transport=nccl
  case_of nccl_dual sums data_parallel.shard=gradients pipeline.microbatches=4 $dual cluster.transport=nccl
  case_of nccl_three_unit three_sums data_parallel.replicas=3 model.dtype=bf16 optimizer.clip_norm=0 $unit cluster.transport=nccl
fi

# A connection among three peers that breaks: it is the one that has stopped who is named, and not who has noticed. All end, though no communicator can
# be aborted.
if test -x "$scratch/nccl_three"; then
  rm -f "$scratch/lost.log"
  PEN_EMULATED_WRONG=$scratch/wrong PEN_EMULATED_NCCL_PEERS=$scratch/broken "$scratch/nccl_three" train --data "$scratch/data.bin" --steps 100000 \
    --quiet --timeout 60 --log "$scratch/lost.log" 2>"$scratch/lost.err" &
  run=$!
  await_steps "$scratch/lost.log" 3
  echo "$(children $run | sed -n 3p) adamw" >"$scratch/wrong.new"
  mv "$scratch/wrong.new" "$scratch/wrong"
  await_stall
  # The others have come to where they wait when they have computed for a while.
  for other in 1 2; do await_ticks "$(children $run | sed -n ${other}p)" 20; done
  touch "$scratch/broken"
  began=$(date +%s)
  wait $run
  is "three peers whose connection breaks: status" $? 75
  took=$(($(date +%s) - began))
  ok "soon (after $took s)" test $took -le 45
  matches "the one that is behind is named" "$(complaints "$scratch/lost.err" | grep penstock:)" \
    "penstock: rank 2 (pid *, host *) lost: remote process exited* after *; rank [01] waits at * for rank 2"
fi

# Evaluation updates nothing: its replicas may be steps apart. Training continues from there.
ok "training and evaluating in turns" timeout 300 "$scratch/weights2" train --data "$scratch/data.bin" --seed 7 --quiet --steps $steps \
  --eval-data "$scratch/data.bin" --eval-steps 3 --eval-every 1 --log "$scratch/turns.log"
is "changes nothing" "$(log_field "$scratch/turns.log" loss)" "$(log_field "$scratch/two.log" loss)"
lose_of_replica v2 2
finish
