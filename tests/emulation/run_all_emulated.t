#!/bin/sh
# run_all_emulated.t: tests/gpu/run-all from its first line to its last over the backend compiled for the host: every part runs and is told in the
# table. What is measured there means nothing; models and cases are small.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

programs=$scratch/programs
mkdir -p "$programs" "$scratch/bin"
for name in bench hop kernels device_ops; do cp "$top_builddir/tests/gpu/${name}_emulated" "$programs/$name"; done
small='-s model.layers=2 -s model.hidden=32 -s model.heads=4 -s model.kv_heads=2 -s model.ffn=24 -s model.vocab=128 -s model.sequence=8
  -s batch.microbatch=1 -s pipeline.microbatches=2'

# put NAME TOPOLOGY OPTION...: a plan of that name among the programs.
put() {
  put_name=train_$1 put_topology=$top_srcdir/tests/gpu/$2
  shift 2
  build "$put_name" "$put_topology" $small "$@" && mv "$scratch/$put_name" "$programs/"
}
ok "one rank on the CPU" put cpu train.cfg -s cluster.device=cpu
ok "one rank" put cuda train.cfg -s cluster.device=cuda
ok "two ranks over ipc" put ipc_2 train.cfg -s cluster.device=cuda -s pipeline.ranks=2 -s cluster.transport=ipc
# One rank has pairs, too.
ok "pairs" put pairs_4 train.cfg -s cluster.device=cuda -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
ok "bf16 on one rank" put bf16_1 train.cfg -s cluster.device=cuda -s model.dtype=bf16
ok "bf16 on two" put bf16_4 train.cfg -s cluster.device=cuda -s model.dtype=bf16 -s pipeline.ranks=2
pieces='-s cluster.device=cuda -s tensor_parallel.partials=2'
tensor='-s tensor_parallel.ranks=2'
ok "two pieces on one rank" put pieces_1 train.cfg $pieces
ok "two pieces on two ranks" put pieces_2 train.cfg $pieces -s pipeline.ranks=2
ok "two tensor ranks" put tensor_2 train.cfg $pieces $tensor
ok "each with all tokens" put tensor_all_2 train.cfg $pieces $tensor -s tensor_parallel.sequence=false
replicas='-s cluster.device=cuda -s pipeline.ranks=2 -s data_parallel.replicas=2 -s pipeline.microbatches=1'
for shard in none optimizer weights; do
  ok "two replicas, shard = $shard" put "ipc_r2_$shard" train.cfg $replicas -s cluster.transport=ipc -s data_parallel.shard=$shard
done
nccl_rows=
if test -f "$top_builddir/libemulated_nccl.a"; then
  ok "two tensor ranks over NCCL" put nccl_tensor_2 train.cfg $pieces $tensor -s cluster.transport=nccl
  nccl_rows='train-nccl_tensor_2 train-nccl_2_put train-nccl_2_send train-nccl_4_put train-nccl_4_small'
  ok "two over NCCL" put nccl_2 train.cfg -s cluster.device=cuda -s pipeline.ranks=2 -s cluster.transport=nccl
  printf '#!/bin/sh\nPEN_EMULATED_NCCL_VERSION=22809 exec "%s/train_nccl_2" "$@"\n' "$programs" >"$programs/train_nccl_4"
  chmod +x "$programs/train_nccl_4"
fi
ok "GPT-2, small" put gpt2_124m gpt2_124m.cfg -s cluster.device=cuda -s model.kv_heads=4
ok "Llama, small" put llama_1b llama_1b.cfg -s cluster.device=cuda
make_tokens "$programs/train.bin" 4000

# A Python that has no PyTorch, a compute-sanitizer that finds nothing, and a name for the chip.
printf '#!/bin/sh\necho "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB"\n' >"$scratch/bin/nvidia-smi"
printf '#!/bin/sh\nexit 1\n' >"$scratch/bin/python3"
cat >"$scratch/bin/compute-sanitizer" <<'END'
#!/bin/sh
while test "${1#--}" != "$1"; do
  case "$1 $2" in
    "--error-exitcode 9" | "--tool "* | "--report-api-errors no") shift 2 ;;
    *) exit 64 ;;
  esac
done
exec "$@"
END
chmod +x "$scratch"/bin/*
PATH=$scratch/bin:$PATH PEN_GPU_OPS='ADD RMSNORM LINEAR' GPU_STEPS=8 GPU_SECONDS=3000 GPU_PATIENCE=10 GPU_SLOW_START=-60 \
  sh "$top_srcdir/tests/gpu/run-all" "$programs" "$scratch/table.md" >"$scratch/out" 2>"$scratch/err"
is "run-all passes" "$?" 0
is "and complains of nothing" "$(cat "$scratch/err")" ""
table=$(cat "$scratch/table.md")
matches "the table names the chip" "$table" "# *, NVIDIA H100 80GB HBM3*"
replica_rows='train-ipc_r2_none train-ipc_r2_optimizer train-ipc_r2_weights replicas-agree'
piece_rows='train-pieces_1 pieces-agree train-pieces_2 train-tensor_2 train-tensor_all_2 generate-tensor_2'
for row in probe probe-lazy kernels train-cuda train-cuda-again train-ipc_2 train-pairs_4 train-bf16_1 train-bf16_4 $piece_rows $nccl_rows $replica_rows bench \
  gpt2_124m llama_1b hop losses-agree memcheck-device_ops racecheck-device_ops initcheck-device_ops synccheck-device_ops memcheck-kernels racecheck-kernels; do
  matches "the table has $row, which passed" "$table" "*
| $row | passed (*"
done
if test -n "$nccl_rows"; then
  matches "an NCCL that puts nothing is tried once" "$table" "*
| train-nccl_4_send | as nccl_4_put: this NCCL puts nothing | |*"
  for way in 'put and signal' 'send and receive (PEN_NCCL asks for it)' 'send and receive (NCCL puts from 2.29 on)'; do
    matches "messages by $way" "$table" "*messages by $way; *"
  done
fi
matches "a slow start is spared" "$table" "*
| from here on | CUDA_MODULE_LOADING=LAZY: *"
matches "MFU is of the chip's peak" "$table" "*MFU of 989 TFLOP/s*"
matches "the losses" "$table" "*
8 [0-9]*
ipc_2: median step [0-9.]* ms, the longest [0-9.]* ms, 3 steps*"
for model in gpt2_124m llama_1b; do
  is "a row for $model, with seven figures" \
    "$(sed -n "s/^| $model | [0-9.e-]* | [0-9.e-]*, the longest of few | 3 | [0-9]* | [0-9.e-]* | [0-9.e-]* |\$/all/p" "$scratch/table.md")" all
done
for row in copy 'RMSNORM bf16' adamw 'LINEAR_DW bf16' 'ATTENTION bf16' 'ATTENTION_DX bf16' 'ipc hop'; do
  matches "a rate for $row" "$table" "*
$row *us*"
done

PATH=$scratch/bin:$PATH GPU_SECONDS=1 sh "$top_srcdir/tests/gpu/run-all" "$programs" "$scratch/short.md" >"$scratch/out" 2>&1
matches "what finds no time is said" "$(cat "$scratch/short.md")" "*| kernels | NOT RUN: no time was left |*"
mkdir "$scratch/alone" # no other part's program
printf '#!/bin/sh\necho "not ok 1"\n' >"$scratch/alone/device_ops"
cat >"$scratch/alone/train_nccl_4" <<'END'
#!/bin/sh
test "${NCCL_LAUNCH_ORDER_IMPLICIT:-}/${NCCL_GRAPH_MIXING_SUPPORT:-} $PEN_NCCL ${NCCL_BUFFSIZE:-}" = "$CURED"
END
chmod +x "$scratch"/alone/*
CURED='1/ send ' PATH=$scratch/bin:$PATH sh "$top_srcdir/tests/gpu/run-all" "$scratch/alone" "$scratch/failed.md" >"$scratch/out" 2>&1
is "a part that fails is its failure" "$?" 1
matches "and told" "$(cat "$scratch/failed.md")" "*| probe | FAILED, status 0 |*"
cures() { sed -n "s/^| train-nccl_4_$1\([^ ]*\) | \([a-zA-Z]*\).*/\1 \2/p" "$scratch/failed.md" | tr '\n' ';'; }
is "what NCCL fails at is tried otherwise, by puts" "$(cures put)" \
  ' FAILED;-plain FAILED;-NCCL_LAUNCH_ORDER_IMPLICIT=1 FAILED;-NCCL_GRAPH_MIXING_SUPPORT=1 FAILED;'
is "by sends" "$(cures send)" ' FAILED;-plain FAILED;-NCCL_LAUNCH_ORDER_IMPLICIT=1 passed;-NCCL_GRAPH_MIXING_SUPPORT=1 FAILED;'
matches "and its output is kept" "$(cat "$scratch/failed-failures.txt")" "*==== probe: FAILED, status 0
not ok 1
*"
CURED='/1 send 65536' PATH=$scratch/bin:$PATH sh "$top_srcdir/tests/gpu/run-all" "$scratch/alone" "$scratch/failed.md" >"$scratch/out" 2>&1
is "and with a small buffer" "$(cures small)" ' FAILED;-plain FAILED;-NCCL_LAUNCH_ORDER_IMPLICIT=1 FAILED;-NCCL_GRAPH_MIXING_SUPPORT=1 passed;'

# What fails with a graph alone, and an NCCL that takes one rank a GPU.
mkdir "$scratch/graphless"
cp "$scratch/alone/device_ops" "$scratch/graphless"
printf '#!/bin/sh\ntest "${PEN_GRAPH:-}" = plain\n' >"$scratch/graphless/train_ipc_2"
cp "$scratch/graphless/train_ipc_2" "$scratch/graphless/train_bf16_1"
printf '#!/bin/sh\necho "Duplicate GPU detected"; exit 71\n' >"$scratch/graphless/train_nccl_2"
chmod +x "$scratch"/graphless/*
CUDA_VISIBLE_DEVICES=0 PATH=$scratch/bin:$PATH sh "$top_srcdir/tests/gpu/run-all" "$scratch/graphless" "$scratch/failed.md" >"$scratch/out" 2>&1
rows() { sed -n "s/^| \(train-[^ ]*\) | \([a-zA-Z]*\).*/\1 \2/p" "$scratch/failed.md" | grep -v train-cuda | tr '\n' ';'; }
is "runs without graphs that pass have none from then on; NCCL refuses once" "$(rows)" \
  'train-ipc_2 FAILED;train-ipc_2-plain passed;train-bf16_1 passed;train-nccl_2_put skipped;train-nccl_2_send skipped;'
PATH=/usr/bin:/bin sh "$top_srcdir/tests/gpu/run-all" "$scratch/none" "$scratch/none.md" >"$scratch/out" 2>&1
is "no such folder" $? 66
mkdir "$scratch/none"
printf '#!/bin/sh\necho "1..0 # SKIP there is no GPU"\n' >"$scratch/none/device_ops"
chmod +x "$scratch/none/device_ops"
sh "$top_srcdir/tests/gpu/run-all" "$scratch/none" "$scratch/none.md" >"$scratch/out" 2>&1
is "no GPU" $? 77
matches "which is said" "$(cat "$scratch/out")" "*No GPU can be used: nothing was run."
if test -x "$top_builddir/tests/gpu/device_ops" && ! test -e /proc/driver/nvidia && ! test -e /dev/nvidiactl; then
  is "without a driver that is said" "$("$top_builddir/tests/gpu/device_ops")" '1..0 # SKIP looking for a GPU: there is no NVIDIA driver'
fi
finish
