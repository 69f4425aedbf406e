# run-all-parts.sh: the parts of run-all, a function each; run-all starts this script with the name of one, within the part's time limit.
#
# From run-all: HERE, the folder of both; PART, the part's name; PROGRAMS; LIBRARIES, a path for them; PYTHON; and WORK, where parts leave what others
# read: PART.log, the log of a training, PART, its checkpoint, and PART.out, what it printed. Lines of $WORK/notes stand in the part's row; files in
# $WORK/files go to the results.
set -u
trap 'wait; exit 143' TERM # what it has started is told, too, and killed if it does not end

# loaded PROGRAM: the libraries that it finds.
loaded() { LD_LIBRARY_PATH=$LIBRARIES ldd "$PROGRAMS/$1" 2>/dev/null | sed -n 's/.* => \(.*\) (0x.*/\1/p' | sort -u; }

# ours PROGRAM ARGUMENT...: runs a program of the bundle.
ours() { LD_LIBRARY_PATH=$LIBRARIES env "$PROGRAMS/$@"; }
note() { echo "$*" >>"$WORK/notes"; }
skip() {
  echo "1..0 # SKIP $*"
  exit 0
}
# has_cudnn PROGRAM: was it built --with-cudnn? Then it can say why it runs our attention.
has_cudnn() { grep -aq '; attention: own kernels' "$PROGRAMS/$1"; }
# tool NAME: a program of the CUDA toolkit, on PATH or in its folder; skips the part where there is none.
tool() {
  for tool_found in "$(command -v "$1")" /usr/local/cuda*/bin/"$1" /opt/nvidia/*/"$1" /opt/nvidia/*/*/"$1"; do
    test ! -x "$tool_found" || return 0
  done
  skip "there is no $1"
}

# ---- facts ----
# What is there. Reading the libraries once brings them into the page cache, so that no part waits for the disk.
facts() {
  nvidia-smi
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$WORK/device" 2>/dev/null || : >"$WORK/device"
  case ${CUDA_VISIBLE_DEVICES:-,} in *,*) nvidia-smi -L 2>/dev/null | grep -c '^GPU' >"$WORK/gpus" ;; *) echo 1 >"$WORK/gpus" ;; esac
  uname -a && free -m && nproc && ldd --version | head -n 1
  # gVisor names itself in the kernel's messages, and always gives this build as its version.
  if dmesg 2>/dev/null | grep -qi gvisor || test "$(uname -v)" = '#1 SMP Sun Jan 10 15:06:54 PST 2016'; then
    echo 'the kernel is gVisor' | tee "$WORK/gvisor"
    note 'the kernel is gVisor'
  fi
  test ! -s "$WORK/missing" || test -z "$(cat "$WORK/missing")" || note "libraries not found: $(paste -s -d ' ' "$WORK/missing")"
  "$PYTHON" -c 'import importlib.metadata as m
print(*sorted({f"{d.name} {d.version}" for d in m.distributions() if d.name.lower().startswith(("torch", "nvidia", "triton"))}), sep="\n")' 2>/dev/null
  ask_nccl
  for library in $(loaded device_ops | sed -n '/libcublasLt\|libcudart/p') $(echo "$LIBRARIES" | sed 's|:|/libcudnn*.so.* |g; s|$|/libcudnn*.so.*|'); do
    test ! -e "$library" || cat "$library" >/dev/null
  done
  test ! -x "$PROGRAMS/describe" || ours describe "$WORK/files/gpu.json"
  return 0
}

# ask_nccl: $WORK/nccl receives its version, as it says it: 22809 is 2.28.9; nothing if it cannot be asked.
ask_nccl() {
  nccl=$(loaded train_nccl_2 | sed -n '/libnccl/p')
  "$PYTHON" -c 'import ctypes, sys
number = ctypes.c_int()
ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number))
print(number.value)' "${nccl:-libnccl.so.2}" 2>/dev/null >"$WORK/nccl"
  test ! -s "$WORK/nccl" || echo "NCCL $(cat "$WORK/nccl")"
}

# ---- the kernels ----
device_ops() { ours device_ops "$@"; }

# Four processes, since the CPU computes what each kernel has to give; one more where attention is cuDNN's, for ours.
kernels() {
  attention='ATTENTION*' products='LINEAR* AFFINE*' norms='*NORM* *LOSS* LOGITS_* CROSS_ENTROPY* HEAD_* SUM_*'
  shard attention "${PEN_GPU_OPS-$attention}"
  if test -z "${PEN_GPU_OPS+chosen}"; then
    shard products "$products"
    shard norms_and_losses "$norms"
    shard rest "! $attention $products $norms"
    ! has_cudnn kernels || PEN_ATTENTION=own shard own_attention "$attention"
  fi
  wrong=0
  trap 'wait; tail -n +1 "$WORK"/shard.*; exit 143' TERM # the op after the last one is that which hangs
  for shard in $shards; do wait "$shard" || wrong=$?; done
  tail -n +1 "$WORK"/shard.*
  return "$wrong"
}
shards=
shard() {
  LD_LIBRARY_PATH=$LIBRARIES PEN_GPU_OPS=$2 "$PROGRAMS/kernels" >"$WORK/shard.$1" 2>&1 &
  shards="$shards $!"
}

# ---- figures ----
# log_field NAME: that field of each line of a log of steps.
log_field() { sed -n "s/.*\"$1\":\\([^,}]*\\).*/\\1/p"; }

# spread LOG: of steps from the sixth on, the median and the 99th percentile in milliseconds, how many they are, and what the second is called: of
# fewer than a hundred it is the longest.
spread() {
  log_field step_ms <"$1" | tail -n +6 | sort -n | awk '{ ms[NR] = $1 }
    function at(share) { return ms[int(share * (NR - 1)) + 1] }
    END { if (NR) print at(0.5), at(NR < 100 ? 1 : 0.99), NR, NR < 100 ? "the longest" : "99th percentile" }'
}

# note_spread NAME: keeps that of a training for the table.
note_spread() {
  spread "$WORK/$1.log" | while read -r median most count called; do echo "$1: median step $median ms, $called $most ms, $count steps"; done >>"$WORK/medians"
}

# note_model NAME OPERATIONS WALL HOST COUNTED: keeps the figures of a training for the table: of OPERATIONS a token, that took WALL seconds, and HOST of
# the host's processor for the last COUNTED steps.
note_model() {
  spread "$WORK/$1.log" | while read -r median most count called; do
    test "$called" != 'the longest' || most="$most, the longest of few"
    log_field step_ms <"$WORK/$1.log" | awk -v name="$1" -v median="$median" -v most="$most" -v count="$count" -v operations="$2" \
      -v tokens="$(log_field tokens <"$WORK/$1.log" | head -n 1)" -v wall="$3" -v host="$4" -v counted="$5" '{ sum += $1 }
      END { rate = tokens / median * 1e3
        printf "%s|%s|%s|%d|%.0f|%s|%s|%.1f\n", name, median, most, count, rate, rate * operations * 1e-12,
          (counted > 0) ? sprintf("%.3g", 1e3 * host / counted) : "?", wall - sum * 1e-3 }'
  done >>"$WORK/models"
}

# ---- training ----
steps=${GPU_STEPS:-20}
# train_plan PROGRAM ARGUMENT...: trains, and leaves $WORK/$PART.log and $WORK/$PART.
train_plan() {
  test -x "$PROGRAMS/train_$1" || skip "train_$1 is not among the programs"
  train_program=train_$1
  shift
  rm -rf "$WORK/$PART.log" "$WORK/${PART:?}"
  ours "$train_program" train --data "$PROGRAMS/train.bin" --steps "$steps" --log "$WORK/$PART.log" --checkpoint "$WORK/$PART" "$@" && note_spread "$PART"
}
# On the CPU, beside other parts; then PyTorch is read into the page cache, for the peers.
train_cpu() {
  LD_LIBRARY_PATH=$LIBRARIES nice "$PROGRAMS/train_cpu" train --data "$PROGRAMS/train.bin" --quiet --steps "$steps" --overwrite --log "$WORK/cpu.log"
  nice "$PYTHON" -c 'import torch'
}

# agree LOG OTHER TOLERANCE: the losses of the steps that both have do, relatively; of one step at least.
agree() {
  log_field loss <"$1" >"$WORK/losses.1" && log_field loss <"$2" >"$WORK/losses.2" || return 1
  paste "$WORK/losses.1" "$WORK/losses.2" | awk -v most="$3" 'NF == 2 { d = $1 - $2; if (d < 0) d = -d; n++; print; if (!(d <= most * $1)) bad = 1 }
    END { print n + 0 " losses compared"; exit bad || !n }'
}

# One rank trains with the CPU's losses. The CPU may not have ended: some seconds are spent on waiting for it, and what it has is compared.
train() {
  PEN_GRAPH_DOT=$WORK/graph.dot train_plan cuda --timeout 20 || return
  test ! -s "$WORK/graph.dot" || gzip -c "$WORK/graph.dot" >"$WORK/files/graph.dot.gz"
  tries=0
  while test "$(cat "$WORK/cpu.log" 2>/dev/null | wc -l)" -lt "$steps" && test $tries -lt "$((100 * ${GPU_PATIENCE:-1}))"; do
    sleep 0.1
    tries=$((tries + 1))
  done
  agree "$WORK/train.log" "$WORK/cpu.log" 1e-3 >"$WORK/agree"
  agreed=$?
  cat "$WORK/agree"
  note "$(tail -n 1 "$WORK/agree") with the CPU's, to 1e-3"
  return "$agreed"
}

# same_weights PART: those that this part has trained.
same_weights() {
  for file in model optimizer; do cmp "$WORK/$1/latest/$file.safetensors" "$WORK/$PART/latest/$file.safetensors" || return; done
}
# ranks PROGRAM REFERENCE [NAME=VALUE...]: trains, with these in the environment, bit for bit what the part REFERENCE has ("-": whatever it trains).
ranks() {
  ranks_program=$1 ranks_reference=$2
  shift 2
  for ranks_setting in "$@"; do export "${ranks_setting?}"; done
  train_plan "$ranks_program" --timeout 20 && { test "$ranks_reference" = - || same_weights "$ranks_reference"; }
}
# sends PROGRAM REFERENCE: messages by sends, where NCCL can put, and so has not sent yet.
sends() {
  ! grep -q 'messages by send' "$WORK/$1_put.out" 2>/dev/null || skip "as $1_put: this NCCL puts nothing"
  ranks "$1" "$2" PEN_NCCL=send
}
# Weights in two splits, and gradients of two replicas, are added in another order than whole ones (on the CPU 2e-5 apart in 20 steps).
splits_1() { ranks splits_1 - && agree "$WORK/train.log" "$WORK/splits_1.log" 1e-4; }
ipc_r2_none() { ranks ipc_r2_none - && agree "$WORK/train.log" "$WORK/ipc_r2_none.log" 1e-4; }

# A run that was stopped and goes on has the bits of one that was not.
resume() {
  half=$((steps / 2)) whole=$steps
  steps=$half && train_plan cuda --quiet || return
  ours train_cuda train --data "$PROGRAMS/train.bin" --quiet --steps "$whole" --checkpoint "$WORK/resume" --resume && same_weights train
}

# Two ranks, each of which works on a group of texts, generate what one rank does, at a rate. Without a cache they may differ by products' rows.
generate_2() {
  for plan in cuda ipc_2; do
    test -x "$PROGRAMS/train_$plan" || skip "train_$plan is not among the programs"
    ours "train_$plan" generate --checkpoint "$WORK/train" --prompt "65 66" --tokens 40 --samples 3 --seed 3 >"$WORK/text.$plan" 2>"$WORK/rate" || return
    cat "$WORK/text.$plan" "$WORK/rate"
    note "train_$plan: $(sed -n '$s/^penstock: //p' "$WORK/rate")"
  done
  test -s "$WORK/text.cuda" && cmp "$WORK/text.cuda" "$WORK/text.ipc_2"
}

# Two tensor ranks generate what one rank does.
generate_tensor_2() {
  for plan in splits_1 tensor_2; do
    test -x "$PROGRAMS/train_$plan" || skip "train_$plan is not among the programs"
    ours "train_$plan" generate --checkpoint "$WORK/splits_1" --prompt "65 66" --tokens 8 --seed 3 --quiet >"$WORK/text.$plan" || return
    cat "$WORK/text.$plan"
  done
  test -s "$WORK/text.splits_1" && cmp "$WORK/text.splits_1" "$WORK/text.tensor_2"
}

# ---- speed ----
# model NAME STEPS OPERATIONS: trains a model in bf16, once, with so many operations a token. The host's processor time is that of the steps after the
# first ones; start and end take what the steps do not.
model() {
  steps=${GPU_STEPS:-$2} began=$(date +%s.%N)
  LD_LIBRARY_PATH=$LIBRARIES "$PROGRAMS/train_$1" train --data "$PROGRAMS/train.bin" --steps "$steps" --overwrite --log "$WORK/$1.log" &
  process=$!
  until test -s "$WORK/$1.log" || ! kill -0 "$process" 2>/dev/null; do sleep 0.05; done
  at=$(cat "$WORK/$1.log" 2>/dev/null | wc -l) used=$(processor_seconds "$process")
  times >"$WORK/times.1"
  wait "$process" || return
  times >"$WORK/times.2"
  all=$(tail -q -n 1 "$WORK/times.1" "$WORK/times.2" | sed 's/[ms]/ /g' | awk '{ s[NR] = 60 * $1 + $2 + 60 * $3 + $4 } END { print s[2] - s[1] }')
  echo "$began $(date +%s.%N) $all $used" | awk '{ print $2 - $1, $3 - $4 }' >"$WORK/times.1"
  read -r wall host <"$WORK/times.1"
  note_model "$1" "$3" "$wall" "$host" "$((steps - at))"
}
# processor_seconds PROCESS: those that it and its children have used.
processor_seconds() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v pid="$1" -v ticks="$(getconf CLK_TCK)" '$1 == pid || $4 == pid { used += $14 + $15 } END { print used / ticks }'
}

bench() {
  measured bench.txt ours bench || return
  ! has_cudnn bench || { measured bench.txt echo '# attention by our kernels' && PEN_ATTENTION=own measured bench.txt ours bench attention; }
}
# measured FILE COMMAND...: also appends what it prints to a file of the results.
measured() {
  measured_file=$WORK/files/$1
  shift
  { { "$@" 2>&1; echo $? >"$WORK/status"; } | tee -a "$measured_file"; }
  return "$(cat "$WORK/status")"
}
hop() { ours hop; }

# ---- the profiler ----
# profile CSV ARGUMENT...: runs ncu; its lines of CSV are appended to the file.
profile() {
  csv=$1
  shift
  LD_LIBRARY_PATH=$LIBRARIES "$tool_found" --clock-control none --csv --kill yes "$@" >"$WORK/ncu" 2>&1
  status=$?
  sed '/^"/d' "$WORK/ncu" # what else it says
  ! grep -q ERR_NVGPUCTRPERM "$WORK/ncu" || skip 'ncu may not read the counters of this GPU (ERR_NVGPUCTRPERM)'
  grep '^"' "$WORK/ncu" >>"$csv" || return $((status ? status : 1))
}
# Why attention takes its time: the first launches at a model's shape, with cuDNN's where it is used.
ncu_attention() {
  tool ncu
  for kernels in 'attend|sdpa.*fprop' 'differentiate|sdpa.*bprop'; do
    profile "$WORK/files/ncu-attention.csv" --set full -k "regex:$kernels" -c 3 "$PROGRAMS/bench" attention || return
  done
}
# sum_kernels CSV: of each kernel that ncu has timed, milliseconds, launches, and its name.
sum_kernels() {
  awk -F '","' '/"Kernel Name"/ { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { value = $NF; gsub(/[",]/, "", value); unit = $at["Metric Unit"]; name = $at["Kernel Name"]; sub(/[(<].*/, "", name)
      ms[name] += value * (unit ~ /^(s|second)$/ ? 1e3 : unit ~ /^(ms|msecond)$/ ? 1 : unit ~ /^(us|usecond)$/ ? 1e-3 : 1e-6); count[name]++ }
    END { for (name in ms) printf "%10.3f ms %5d x %s\n", ms[name], count[name], name }' "$1" | sort -rn
}

# The time of each kernel of a step: 700 launches, after those that warm up.
ncu_step() {
  tool ncu
  PEN_GRAPH=plain profile "$WORK/ncu-step.csv" --target-processes all --metrics gpu__time_duration.sum --launch-skip 700 -c 700 \
    "$PROGRAMS/train_llama_1b" train --data "$PROGRAMS/train.bin" --quiet --steps 2 || return
  gzip -c "$WORK/ncu-step.csv" >"$WORK/files/ncu-step.csv.gz"
  sum_kernels "$WORK/ncu-step.csv" | tee "$WORK/kernels.txt"
}

# ---- peers ----
has_torch() { "$PYTHON" -c 'import torch' 2>/dev/null || skip "$PYTHON has no PyTorch"; }
peer() {
  has_torch
  measured peer.txt "$PYTHON" "$HERE/peer.py"
}
peer_train() {
  has_torch
  "$PYTHON" "$HERE/peer_train.py" "$1" "${GPU_STEPS:-$2}"
}

# ---- compute-sanitizer ----
# sanitize TOOL PROGRAM [OP...]: calls that device_ops lets fail on purpose are no errors of ours.
sanitize() {
  tool compute-sanitizer
  sanitize_tool=$1 sanitized=$PROGRAMS/$2
  shift 2
  test $# -eq 0 || export PEN_GPU_OPS="$*"
  test "$sanitize_tool" != memcheck || set -- --report-api-errors no
  test "$sanitize_tool" = memcheck || set --
  LD_LIBRARY_PATH=$LIBRARIES PEN_GPU_SMALL=1 "$tool_found" --error-exitcode 9 --tool "$sanitize_tool" "$@" "$sanitized"
}

"$@"
