#!/bin/sh
# mock_device.t: what plans of several ranks would issue to CUDA and NCCL, step after step, in every profile, has no deadlock and touches no byte too
# soon, however streams run and NCCL behaves (mock_device.h); calls that are changed about or left out are found; and so is the rank whose
# device stops; and the bytes that go from process to process in a step are those of tests/golden/copies. Needs neither CUDA nor NCCL.
#
#   mock_device.t          the test
#   mock_device.t --list   the lines of tests/golden/copies
. "${top_srcdir:-.}/tests/support/lib.sh"

golden=$(cd "$top_srcdir" && pwd)/tests/golden/copies
lists=${1-}
exec 3>&1
test -z "$lists" || exec >/dev/null

# link_plan NAME: makes $scratch/NAME, the replay of a plan.
link_plan() {
  (cd "$top_builddir" &&
    $CC $CFLAGS $PEN_CFLAGS -O0 -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    $CC $CFLAGS $strip_debug -o "$scratch/$1" "$scratch/$1.o" libmock_device.a libruntime.a $KERNEL_ARCHIVES $RUNTIME_LIBS)
}

# replay NAME TOPOLOGY SETTING...: each line of the replay is a test here.
replay() {
  replay_name=$1 replay_topology=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  ok "$replay_name: a plan" build "$replay_name" "$replay_topology" -s cluster.device=cuda "$@"
  "$scratch/$replay_name" --copies | sed "s/^/$replay_name /" >"$scratch/$replay_name.copies"
  if test -n "$lists"; then
    cat "$scratch/$replay_name.copies" >&3
    return
  fi
  grep "^$replay_name " "$golden" | cmp - "$scratch/$replay_name.copies" >/dev/null
  is "$replay_name: its copies" $? 0
  timeout 300 "$scratch/$replay_name" >"$scratch/$replay_name.tap" 2>&1
  is "$replay_name: its replay" $? 0
  while read -r line; do
    case $line in
      'ok '*) result 0 "${line#ok * - }" ;;
      'not ok '*) result 1 "${line#not ok * - }" ;;
      '#'*) echo "$line" ;;
    esac
  done <"$scratch/$replay_name.tap"
}

cat >"$scratch/mlp.cfg" <<'END_OF_MODEL'
model = { family = "mlp"; layers = 16; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 4; microbatches = 8; schedule = "1f1b"; };
partition = { balance = "count"; };
END_OF_MODEL
cat >"$scratch/tied.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; vocab = 128; sequence = 8; tie_embeddings = true; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 4; microbatches = 8; schedule = "1f1b"; };
partition = { balance = "count"; };
END_OF_MODEL
cat >"$scratch/replicas.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 48; heads = 2; kv_heads = 1; ffn = 64; vocab = 256; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
partition = { balance = "count"; };
data_parallel = { replicas = 2; };
END_OF_MODEL
{ cat "$scratch/replicas.cfg" && echo 'shapes = ({ sequence = 8; microbatches = 4; }, { sequence = 4; microbatches = 6; });'; } >"$scratch/shapes.cfg"
mlp=$scratch/mlp.cfg replicas=$scratch/replicas.cfg
replay pp2 "$mlp" pipeline.ranks=2
replay pp4 "$mlp"
replay pp8 "$mlp" pipeline.ranks=8
replay pp4_zero_bubble "$mlp" pipeline.zero_bubble=true
replay pp4_interleaved "$mlp" pipeline.stages_per_rank=2
replay pp4_gpipe "$mlp" pipeline.schedule=gpipe
replay pp4_looped "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=looped_bfs
replay pp4_zbv "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
replay pp8_zbv "$mlp" pipeline.ranks=8 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v pipeline.microbatches=16
replay pp4_v_half "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=v_half
replay pp4_pairs "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v
replay pp8_pairs "$mlp" pipeline.ranks=8 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v pipeline.microbatches=16
replay pp4_unclipped "$mlp" optimizer.clip_norm=0
replay pp4_zbv_unclipped "$mlp" pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v optimizer.clip_norm=0
replay pp4_tied "$scratch/tied.cfg"
# A rank that learns nothing still hears of the others before it tells its entries again.
replay pp4_frozen "$mlp" model.layers=4 'model.frozen=["0.w1.weight","0.w2.weight","0.w3.weight"]'
replay r2 "$replicas"
replay r2_one "$replicas" pipeline.ranks=1 data_parallel.shard=weights
replay r2_zbv "$replicas" data_parallel.shard=optimizer pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
replay r2_muon "$replicas" data_parallel.shard=optimizer pipeline.ranks=1 optimizer.name=muon
replay r2_tied "$replicas" data_parallel.shard=weights model.tie_embeddings=true
replay r3 "$replicas" data_parallel.replicas=3 data_parallel.shard=weights data_parallel.reshard=use model.dtype=bf16 optimizer.clip_norm=0
replay r2_shapes "$scratch/shapes.cfg" data_parallel.shard=weights
# Collectives of single layers, within programs.
replay r2_layer "$replicas" data_parallel.shard=weights data_parallel.unit=layer
replay r2_each "$replicas" data_parallel.shard=gradients data_parallel.unit=layer data_parallel.reduce=microbatch
# Tensor ranks share the tokens, or each has all.
tensor() { tensor_name=$1 && shift && replay "$tensor_name" "$replicas" model.kv_heads=2 model.head_dim=8 tensor_parallel.ranks=2 "$@"; }
tensor t2 pipeline.ranks=1 data_parallel.replicas=1
tensor t2_all data_parallel.replicas=1 tensor_parallel.sequence=false
tensor t2_zbv data_parallel.replicas=1 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v optimizer.clip_norm=0
tensor t2_pairs data_parallel.replicas=1 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v tensor_parallel.sequence=false
tensor t2_tied data_parallel.replicas=1 model.tie_embeddings=true model.dtype=bf16
tensor t4 data_parallel.replicas=1 tensor_parallel.ranks=4 model.heads=4 model.kv_heads=4 pipeline.ranks=1 memory.recompute=layer
tensor t2_r2 pipeline.ranks=1 data_parallel.shard=weights
tensor t2_r2_layer pipeline.ranks=1 data_parallel.shard=weights data_parallel.unit=layer
tensor t2_r2_all data_parallel.shard=optimizer tensor_parallel.sequence=false
replicas=$scratch/shapes.cfg
tensor t2_shapes data_parallel.replicas=1
test -z "$lists" || exit 0
# Without their credits puts write over targets that are in use, at some pace, but where two ranks hear of each other by all that they send.
is "plans of the 16 whose puts need their credits" "$(cat "$scratch"/pp*.tap | grep -c '^# credits are needed')" 13
finish
