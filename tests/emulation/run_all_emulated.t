#!/bin/sh
# run_all_emulated.t: tests/gpu/run-all from its first line to its last over the backend compiled for the host: every part runs and is told in the
# table. What is measured there means nothing; models and cases are small.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

programs=$scratch/programs
mkdir -p "$programs" "$scratch/bin"
for name in bench hop device_ops; do cp "$top_builddir/tests/gpu/${name}_emulated" "$programs/$name"; done
# Of each shard of the kernels one op is enough, and of attention none.
cat >"$programs/kernels" <<END
#!/bin/sh
case \$PEN_GPU_OPS in
  '!'*) PEN_GPU_OPS=ADD ;;
  *LINEAR*) PEN_GPU_OPS=LINEAR ;;
  *NORM*) PEN_GPU_OPS=RMSNORM ;;
  *) PEN_GPU_OPS=NONE ;;
esac
exec "$(cd "$top_builddir" && pwd)/tests/gpu/kernels_emulated"
END
chmod +x "$programs/kernels"
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
splits='-s cluster.device=cuda -s tensor_parallel.splits=2'
tensor='-s tensor_parallel.ranks=2'
ok "two splits on one rank" put splits_1 train.cfg $splits
ok "two splits on two ranks" put splits_2 train.cfg $splits -s pipeline.ranks=2
ok "two tensor ranks" put tensor_2 train.cfg $splits $tensor
ok "each with all tokens" put tensor_all_2 train.cfg $splits $tensor -s tensor_parallel.sequence=false
replicas='-s cluster.device=cuda -s pipeline.ranks=2 -s data_parallel.replicas=2 -s pipeline.microbatches=1'
for shard in none optimizer weights; do
  ok "two replicas, shard = $shard" put "ipc_r2_$shard" train.cfg $replicas -s cluster.transport=ipc -s data_parallel.shard=$shard
done
nccl_rows=
if test -f "$top_builddir/libemulated_nccl.a"; then
  ok "two tensor ranks over NCCL" put nccl_tensor_2 train.cfg $splits $tensor -s cluster.transport=nccl
  nccl_rows='nccl_tensor_2 nccl_2_put nccl_2_send nccl_4_put nccl_4_small'
  ok "two over NCCL" put nccl_2 train.cfg -s cluster.device=cuda -s pipeline.ranks=2 -s cluster.transport=nccl
  printf '#!/bin/sh\nPEN_EMULATED_NCCL_VERSION=22809 exec "%s/train_nccl_2" "$@"\n' "$programs" >"$programs/train_nccl_4"
  chmod +x "$programs/train_nccl_4"
fi
ok "GPT-2, small" put gpt2_124m gpt2_124m.cfg -s cluster.device=cuda -s model.kv_heads=4
ok "Llama, small" put llama_1b llama_1b.cfg -s cluster.device=cuda
make_tokens "$programs/train.bin" 4000

# A Python that has no PyTorch, a compute-sanitizer that finds nothing, a profiler that may not look, and names for the chip and the kernel.
printf '#!/bin/sh\necho "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB"\n' >"$scratch/bin/nvidia-smi"
printf '#!/bin/sh\necho ERR_NVGPUCTRPERM\nexit 1\n' >"$scratch/bin/ncu"
printf '#!/bin/sh\necho Linux\n' >"$scratch/bin/uname"
printf '#!/bin/sh\nexit 1\n' >"$scratch/bin/python3"
cp "$scratch/bin/python3" "$scratch/bin/dmesg"
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
PATH=$scratch/bin:$PATH GPU_STEPS=8 GPU_SECONDS=3000 GPU_PATIENCE=10 \
  sh "$top_srcdir/tests/gpu/run-all" "$programs" "$scratch/out" >"$scratch/said" 2>"$scratch/err"
is "run-all passes" "$?" 0
is "and complains of nothing" "$(complaints "$scratch/err")" ""
table=$(cat "$scratch/out/results.md")
matches "the table names the chip" "$table" "# *, NVIDIA H100 80GB HBM3*"
for row in facts device_ops kernels train llama_1b gpt2_124m bench hop two_ranks ipc_2 pairs_4 splits_1 tensor_2 bf16_1 bf16_4 ipc_r2_none ipc_r2_weights \
  $nccl_rows resume generate_2 generate_tensor_2 splits_2 tensor_all_2 ipc_r2_optimizer memcheck racecheck initcheck synccheck; do
  matches "the table has $row, which passed" "$table" "*
| $row | passed (*"
done
for skipped in 'ncu_attention | skipped: ncu may not' 'peer | skipped: python3 has no' 'ipc_8 | skipped: train_ipc_8 is not'; do
  matches "and $skipped" "$table" "*
| $skipped *"
done
matches "losses are the CPU's" "$table" "*
| train | passed (*) | *8 losses compared with the CPU's, to 1e-3*"
if test -n "$nccl_rows"; then
  matches "an NCCL that puts nothing is tried once" "$table" "*
| nccl_4_send | skipped: as nccl_4_put: this NCCL puts nothing |*"
  for way in 'put and signal' 'send and receive (PEN_NCCL asks for it)' 'send and receive (NCCL puts from 2.29 on)'; do
    matches "messages by $way" "$table" "*messages by $way; *"
  done
fi
matches "MFU is of the chip's peak" "$table" "*MFU of 989 TFLOP/s*"
matches "the losses" "$table" "*
8 [0-9]*
ipc_2: median step [0-9.]* ms, the longest [0-9.]* ms, 3 steps*"
for model in gpt2_124m llama_1b; do
  is "a row for $model, with eight figures" \
    "$(sed -n "s/^| $model | [0-9.e-]* | [0-9.e-]*, the longest of few | 3 | [0-9]* | [0-9.e-]* | [0-9.e+?-]* | [0-9.]* |\$/all/p" "$scratch/out/results.md")" all
done
for row in copy 'RMSNORM bf16' adamw 'LINEAR_DW bf16' 'ATTENTION bf16' 'ATTENTION_DX bf16' 'ipc hop'; do
  matches "a rate for $row" "$table" "*
$row *us*"
done
matches "the log has what each part printed" "$(cat "$scratch/out/all.log")" "*==== kernels: passed (*
ok * - agrees_with_the_cpu: RMSNORM bf16
*==== train: passed *"

# chosen PATTERNS: the ops that the kernels' tests then have.
chosen() { PEN_GPU_OPS=$1 "$top_builddir/tests/gpu/kernels_emulated" 2>&1 | sed -n 's/^ok .*cpu: \([A-Z_0-9]*\) f32$/\1/p' | paste -s -d ' '; }
export CMOCKA_MESSAGE_OUTPUT=TAP
is "ops are chosen by pattern" "$(chosen 'ADD SC*')" 'SCALE ADD'
is "or left out" "$(chosen '! [!S]* S[!C]*')" 'SCALE'
if test -x "$top_builddir/tests/gpu/device_ops" && ! test -e /proc/driver/nvidia && ! test -e /dev/nvidiactl; then
  is "without a driver that is said" "$("$top_builddir/tests/gpu/device_ops")" '1..0 # SKIP looking for a GPU: there is no NVIDIA driver'
fi
finish
