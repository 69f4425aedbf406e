#!/bin/sh
# mock_device.t: what plans of several ranks would issue to CUDA and NCCL, step after step, in every profile, has no deadlock and touches no byte too
# soon, however streams run and NCCL behaves (rehearsal.h); two calls that are changed about are found; and so is the rank whose device stops.
# Needs neither CUDA nor NCCL.
. "${top_srcdir:-.}/tests/support/lib.sh"

# link_plan NAME: makes $scratch/NAME, the rehearsal of a plan.
link_plan() {
  (cd "$top_builddir" &&
    $CC $CFLAGS $PEN_CFLAGS -O0 -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    $CC $CFLAGS -o "$scratch/$1" "$scratch/$1.o" libmock_device.a libruntime.a $KERNEL_ARCHIVES $RUNTIME_LIBS)
}

# rehearse NAME TOPOLOGY SETTING...: each line of the rehearsal is a test here.
rehearse() {
  rehearse_name=$1 rehearse_topology=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  ok "$rehearse_name: a plan" build "$rehearse_name" "$rehearse_topology" -s cluster.device=cuda "$@"
  timeout 300 "$scratch/$rehearse_name" >"$scratch/$rehearse_name.tap" 2>&1
  is "$rehearse_name: its rehearsal" $? 0
  while read -r line; do
    case $line in
      'ok '*) result 0 "${line#ok * - }" ;;
      'not ok '*) result 1 "${line#not ok * - }" ;;
      '#'*) echo "$line" ;;
    esac
  done <"$scratch/$rehearse_name.tap"
}

cat >"$scratch/mlp.cfg" <<'END_OF_MODEL'
model = { family = "mlp"; layers = 16; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 4; microbatches = 8; schedule = "1f1b"; };
END_OF_MODEL
cat >"$scratch/tied.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; vocab = 128; sequence = 8; tie_embeddings = true; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 4; microbatches = 8; schedule = "1f1b"; };
END_OF_MODEL
cat >"$scratch/replicas.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 48; heads = 2; kv_heads = 1; ffn = 64; vocab = 256; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
END_OF_MODEL
{ cat "$scratch/replicas.cfg" && echo 'shapes = ({ sequence = 8; microbatches = 4; }, { sequence = 4; microbatches = 6; });'; } >"$scratch/shapes.cfg"
mlp=$scratch/mlp.cfg replicas=$scratch/replicas.cfg
rehearse pp2 "$mlp" pipeline.ranks=2
rehearse pp4 "$mlp"
rehearse pp8 "$mlp" pipeline.ranks=8
rehearse pp4_zero_bubble "$mlp" pipeline.zero_bubble=true
rehearse pp4_interleaved "$mlp" pipeline.stages_per_rank=2
rehearse pp4_gpipe "$mlp" pipeline.schedule=gpipe
rehearse pp4_looped "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=looped_bfs
rehearse pp4_zbv "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
rehearse pp8_zbv "$mlp" pipeline.ranks=8 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v pipeline.microbatches=16
rehearse pp4_v_half "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=v_half
rehearse pp4_pairs "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v
rehearse pp8_pairs "$mlp" pipeline.ranks=8 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v pipeline.microbatches=16
rehearse pp4_unclipped "$mlp" optimizer.clip_norm=0
rehearse pp4_zbv_unclipped "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v optimizer.clip_norm=0
rehearse pp4_tied "$scratch/tied.cfg"
# A rank that learns nothing still hears of the others before it tells its entries again.
rehearse pp4_frozen "$mlp" model.layers=4 'model.frozen=["0.w1.weight","0.w2.weight","0.w3.weight"]'
rehearse r2 "$replicas"
rehearse r2_one "$replicas" pipeline.ranks=1 data_parallel.shard=weights
rehearse r2_zbv "$replicas" data_parallel.shard=optimizer pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
rehearse r2_tied "$replicas" data_parallel.shard=weights model.tie_embeddings=true
rehearse r3 "$replicas" data_parallel.replicas=3 data_parallel.shard=weights data_parallel.reshard=use model.dtype=bf16 optimizer.clip_norm=0
rehearse r2_shapes "$scratch/shapes.cfg" data_parallel.shard=weights
# Without their credits puts write over homes that are in use, at some pace, but where two ranks hear of each other by all that they send.
is "plans of the 16 whose puts need their credits" "$(cat "$scratch"/*.tap | grep -c '^# credits are needed')" 13
finish
