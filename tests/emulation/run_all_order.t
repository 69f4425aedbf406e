#!/bin/sh
# run_all_order.t: tests/gpu/run-all over stub programs: the order of its parts, its rules, and what is left when it is killed.
. "${top_srcdir:-.}/tests/support/lib.sh"
run_all=$top_srcdir/tests/gpu/run-all

# ---- the stubs: each says which part it is in, and does what $BEHAVIOUR has for "PART/MODE" or "PART" ----
stubs=$scratch/stubs
mkdir -p "$stubs" "$scratch/bin"
cat >"$stubs/device_ops" <<'END'
#!/bin/sh
# built as if --with-cudnn: "; attention: own kernels"
name=${0##*/} mode=${PEN_GRAPH:-marked}
echo "$PART $mode $name ${PEN_GPU_OPS:+[$PEN_GPU_OPS]}${PEN_ATTENTION-}${PEN_NCCL-} $*" >>"$CALLS"
echo "ok 1 - $PART said"
for rule in $BEHAVIOUR; do
  case $rule in
    "$PART=slow") echo 'ipc hop                64                             5000.1 us      0.8 GB/s' && exit ;;
    "$PART=hangs" | "$PART/$mode=hangs") exec sleep 100 ;;
    "$PART=wrong") test "${PEN_GPU_OPS#!}" = "$PEN_GPU_OPS" || { echo 'not ok 2 - agrees_with_the_cpu: ADD f32' && exit 1; } ;;
    "$PART=fails" | "$PART/$mode=fails") exit 70 ;;
  esac
done
if test -n "${HANGS_AT:-}" && test "$PART" != cpu && test "$(awk '!/^cpu/ && !seen[$1]++ { n++ } END { print n }' "$CALLS")" -eq "$HANGS_AT"; then exec sleep 100; fi
test -z "${PEN_GRAPH_DOT:-}" || echo digraph >"$PEN_GRAPH_DOT"
case $name in
  describe) echo '{}' >"$1" ;;
  hop) echo 'ipc hop                64                               80.0 us      0.8 GB/s' ;;
  train_*)
    while test $# -gt 0; do
      case $1 in
        --checkpoint)
          mkdir -p "$2/latest"
          for file in model optimizer; do echo weights >"$2/latest/$file.safetensors"; done
          ;;
        --log) printf '{"step":%d,"loss":5.5,"tokens":4096,"step_ms":250,"tokens_per_second":9}\n' 1 2 3 4 5 6 7 >"$2" ;;
      esac
      shift
    done
    test "$PART" != cpu || sleep 100
    ;;
esac
END
chmod +x "$stubs/device_ops"
for name in kernels bench describe hop train_cpu train_cuda train_llama_1b train_gpt2_124m train_ipc_2 train_ipc_4 train_ipc_8 train_pairs_4 train_zbv_4 train_bf16_1 \
  train_bf16_4 train_splits_1 train_splits_2 train_tensor_2 train_tensor_all_2 train_ipc_r2_none train_ipc_r2_optimizer train_ipc_r2_weights train_nccl_2 \
  train_nccl_4 train_nccl_8 train_nccl_tensor_2 train_nccl_r2_weights; do
  ln "$stubs/device_ops" "$stubs/$name"
done
cat >"$scratch/bin/python3" <<'END'
#!/bin/sh
case "$*" in
  *ncclGetVersion*) echo "$NCCL_VERSION" ;;
  *peer_train.py*) echo "$PART torch.compile: median step 9 ms" ;;
  *peer.py*) echo "cuDNN attention" ;;
esac
END
cat >"$scratch/bin/ncu" <<'END'
#!/bin/sh
case "$*" in
  *-c\ 3*) test -z "${DENIED:-}" || { echo '==ERROR== ERR_NVGPUCTRPERM' && exit 1; } ;;
esac
printf '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
printf '"0","7","each<int, 4>(int, long)","gpu__time_duration.sum","us","%s"\n' 1,500.5 499.5
END
printf '#!/bin/sh\nfor last; do :; done\nexec "$last"\n' >"$scratch/bin/compute-sanitizer"
cat >"$scratch/bin/nvidia-smi" <<'END'
#!/bin/sh
case $BEHAVIOUR in facts=ignores) trap '' TERM && while :; do sleep 1; done ;; esac
echo "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB"
END
printf '#!/bin/sh\necho "$KERNEL"\n' >"$scratch/bin/dmesg"
printf '#!/bin/sh\necho Linux\n' >"$scratch/bin/uname"
chmod +x "$scratch"/bin/*

# over_stubs NAME NAME=VALUE...: run-all with these in its environment; leaves $scratch/NAME/out, calls, said and status.
over_stubs() {
  over=$scratch/$1
  shift
  mkdir -p "$over"
  : >"$over/calls"
  env PATH="$scratch/bin:$PATH" CALLS="$over/calls" BEHAVIOUR= KERNEL=Linux NCCL_VERSION=22809 GPU_STEPS=7 CUDA_VISIBLE_DEVICES=0 TMPDIR="$scratch" "$@" \
    sh "$run_all" "$stubs" "$over/out" >"$over/said" 2>&1
  echo $? >"$over/status"
}
rows() { sed -n "/^## /q; s/^| \\([^ |]*\\) | \\([a-zA-Z]*\\).*/\\1 \\2/p" "$scratch/$1/out/results.md" | sed 1d; }
row() { sed -n "s/^| $2 | \\(.*\\) |\$/\\1/p" "$scratch/$1/out/results.md"; }

over_stubs all &
over_stubs failing NCCL_VERSION=23004 BEHAVIOUR='kernels=wrong ipc_2/marked=fails ipc_2/serial=fails pairs_4=fails ipc_4=fails nccl_4_put=fails' &
over_stubs slow DENIED=1 BEHAVIOUR='train/marked=fails train/unmarked=fails hop=slow' &
over_stubs gvisor KERNEL='Starting gVisor...' BEHAVIOUR='train=fails' &
pids=$(jobs -p)
over_stubs short GPU_SECONDS=15 BEHAVIOUR='facts=ignores' &
wait $pids

# ---- the list ----
sh "$run_all" --list >"$scratch/list"
is "the first parts" "$(head -n 11 "$scratch/list" | cut -d ' ' -f 1 | paste -s -d ' ')" \
  'facts device_ops kernels train llama_1b gpt2_124m bench ncu_attention ncu_step peer hop'
is "each part has a name, expected seconds, and a limit that is not below them" "$(grep -vc '^[a-z0-9_]* [0-9]* [0-9]*$' "$scratch/list") \
$(awk '$2 > $3' "$scratch/list" | wc -l) $(cut -d ' ' -f 1 "$scratch/list" | sort | uniq -d | wc -l)" '0 0 0'
ok "up to the peers 180 s are expected at most" awk '{ sum += $2 } $1 == "peer" { exit sum > 180 }' "$scratch/list"
ok "and 480 s in all" awk '{ sum += $2 } END { exit sum > 480 }' "$scratch/list"

# ---- all passes ----
is "all pass" "$(cat "$scratch/all/status")" 0
is "in the order of the list" "$(rows all | cut -d ' ' -f 1)" "$(cut -d ' ' -f 1 "$scratch/list")"
is "but for what this NCCL cannot do" "$(rows all | sed '/ passed$/d; s/nccl_[0-9a-z_]*/nccl/' | sort | uniq -c | tr -s ' ')" ' 9 nccl skipped'
matches "NCCL is asked for its version" "$(row all nccl_2_put)" 'skipped: NCCL 2.28.9 takes one rank a GPU, and several only from 2.30 on*'
matches "a profiler that may not look has a reason" "$(row slow ncu_attention)" 'skipped: *ERR_NVGPUCTRPERM*'
matches "each kernel's time is added up" "$(cat "$scratch/all/out/results.md")" '*
     2.000 ms     2 x each
*'
for model in gpt2_124m llama_1b; do
  matches "$model: figures" "$(row all "$model" | tail -n 1)" '250 | 250, the longest of few | 2 | 16384 | 0.* | * | *'
done
is "the eight files" "$(ls -A "$scratch/all/out" | paste -s -d ' ')" \
  'all.log bench.txt gpu.json graph.dot.gz ncu-attention.csv ncu-step.csv.gz peer.txt results.md'
is "attention runs with cuDNN and with our kernels" "$(sed -n 's/^\(kernels\|bench\) .*own \(.*\)$/\1 \2/p' "$scratch/all/calls" | paste -s -d ';')" \
  'kernels ;bench attention'
is "kernels run in four shards, of which one has what the others leave out" \
  "$(sed -n 's/^kernels marked kernels \[\(.*\)\] $/\1/p' "$scratch/all/calls" | awk '/^!/ { rest = $0; next } { all = all " " $0; n++ } END { print n }
    END { split(substr(rest, 3), left, " "); for (i in left) count++; print count - split(all, parts, " ") }' | paste -s -d ' ')" '3 0'

# ---- what fails ----
is "a part that fails is the failure of all" "$(cat "$scratch/failing/status")" 1
is "what fails is tried in other modes, and its family ends after two failures" "$(rows failing | grep -v nccl_ | grep -A 99 '^hop' | sed '/_peer/d' | paste -s -d ';')" \
  "hop passed;two_ranks passed;ipc_2 FAILED;ipc_2-serial FAILED;ipc_2-plain passed;pairs_4 FAILED;splits_1 passed;tensor_2 passed;ipc_4 FAILED;bf16_1 \
passed;bf16_4 skipped;ipc_r2_none passed;ipc_r2_weights passed;resume passed;generate_2 skipped;generate_tensor_2 passed;zbv_4 skipped;ipc_8 skipped;splits_2 \
skipped;tensor_all_2 passed;ipc_r2_optimizer passed;memcheck passed;racecheck passed;initcheck passed;synccheck passed"
matches "which is said" "$(row failing zbv_4)" 'skipped: two parts of the family ipc have failed*'
matches "the mode that passes is kept" "$(row failing ipc_2-plain)" '*kept for later parts: PEN_GRAPH=plain*'
is "for all later parts" "$(sed -n '/^tensor_2\|^resume/p' "$scratch/failing/calls" | cut -d ' ' -f 2 | sort -u)" plain
is "an op that fails is run under the sanitizer" "$(rows failing | grep -A 3 '^kernels' | paste -s -d ';')" \
  'kernels FAILED;memcheck-ADD passed;racecheck-ADD passed;train passed'
matches "alone" "$(cat "$scratch/failing/calls")" '*
kernels marked kernels \[ADD\]*'
is "NCCL from 2.30 on takes several ranks; it is tried in other ways" "$(rows failing | grep '^nccl_[24]' | head -n 6 | paste -s -d ';')" \
  "nccl_2_put passed;nccl_2_send passed;nccl_4_put FAILED;nccl_4_put-NCCL_LAUNCH_ORDER_IMPLICIT=1 FAILED;nccl_4_put-NCCL_GRAPH_MIXING_SUPPORT=1 \
FAILED;nccl_4_send passed"
matches "all output is kept" "$(cat "$scratch/failing/out/all.log")" '*==== ipc_2-serial: FAILED, status 70
ok 1 - ipc_2 said
==== ipc_2-plain: passed (1)
*'

# ---- time slices, and one rank that needs another mode ----
is "one rank that trains serially is a failure" "$(cat "$scratch/slow/status")" 1
is "modes are tried in turn" "$(rows slow | grep '^train' | paste -s -d ';')" 'train FAILED;train-unmarked FAILED;train-serial passed'
is "the one that passes is that of all that follows" "$(sed -n '/^llama_1b\|^ipc_2/p' "$scratch/slow/calls" | cut -d ' ' -f 2 | sort -u)" serial
is "with a hop of 5000.1 us three parts put several processes on one GPU" "$(rows slow | sed -n '/^hop/,$ { /passed/ s/ .*//p; }' | paste -s -d ' ')" \
  'hop two_ranks ipc_2 pairs_4 splits_1 tensor_2 bf16_1 resume llama_1b_peer gpt2_124m_peer memcheck racecheck initcheck synccheck'
matches "which is said" "$(row slow ipc_4)" 'skipped: a message between processes on one GPU takes 5000.1 us (hop)*'
is "gVisor: no ipc" "$(rows gvisor | sed -n '/^hop/,$ { /nccl/d; /skipped/ s/ .*//p; }' | paste -s -d ' ')" \
  'hop ipc_2 pairs_4 tensor_2 ipc_4 bf16_4 ipc_r2_none ipc_r2_weights generate_2 generate_tensor_2 zbv_4 ipc_8 splits_2 tensor_all_2 ipc_r2_optimizer'
matches "which is said" "$(row gvisor ipc_2) $(row gvisor facts)" 'skipped: the kernel is gVisor*the kernel is gVisor*'
is "no mode trains" "$(rows gvisor | grep '^train' | paste -s -d ';')" 'train FAILED;train-unmarked FAILED;train-serial FAILED;train-plain FAILED'

# ---- what cannot begin ----
sh "$run_all" "$scratch/none" "$scratch/none.out" >/dev/null 2>&1
is "no such folder" $? 66
mkdir "$scratch/none"
printf '#!/bin/sh\necho "1..0 # SKIP there is no GPU"\n' >"$scratch/none/device_ops"
chmod +x "$scratch/none/device_ops"
tar -C "$scratch" --transform 's/^none/gpu-bundle/' -cJf "$scratch/none.tar.xz" none
printf '#!/bin/sh\nexit 1\n' >"$scratch/none/tar"
chmod +x "$scratch/none/tar"
PATH=$scratch/none:$PATH sh "$run_all" "$scratch/none.tar.xz" "$scratch/none.out" >"$scratch/out" 2>&1
is "an archive, without xz, on a machine without a GPU" $? 77
matches "which is said" "$(cat "$scratch/none.out/results.md")" "*No GPU can be used: nothing was run."

# ---- killed ----
# processes SESSION: those that run in it.
processes() { sed -n "s/^\\([0-9]*\\) (.*) [^Z] [0-9]* [0-9]* $1 .*/\\1/p" /proc/[0-9]*/stat 2>/dev/null; }
begun() { awk '!/^cpu/ && !seen[$1]++ { print $1 }' "$killed/calls"; }
# kill_at NUMBER PART DELAY HANGS_AT: kills run-all so many seconds after that many parts have begun, and says what is wrong then.
kill_at() {
  killed=$scratch/killed.$1
  mkdir -p "$killed/folder"
  : >"$killed/calls"
  PATH=$scratch/bin:$PATH TMPDIR=$scratch CALLS=$killed/calls BEHAVIOUR='' KERNEL=Linux NCCL_VERSION=23004 GPU_STEPS=7 HANGS_AT=$4 \
    setsid sh "$run_all" "$stubs" "$killed/folder/out" >"$killed/said" 2>&1 &
  killed_pid=$!
  while test "$(begun | wc -l)" -lt "$2" && kill -0 $killed_pid 2>/dev/null; do sleep 0.1; done
  sleep "$3"
  kill -9 $killed_pid
  { wait $killed_pid; } 2>/dev/null
  test $? -eq 137 || echo "it had ended: $(tail -n 1 "$killed/said")"
  begun | sed '$d' | while read -r part; do
    grep -q "^| $part | passed" "$killed/folder/out/results.md" || echo "no row of $part"
    grep -qx "ok 1 - $part said" "$killed/folder/out/all.log" || echo "no output of $part"
  done
  ls -A "$killed/folder/out" | grep -v '^[a-z]*[-.][a-z.]*$'
  killed_tries=0
  while test -n "$(processes $killed_pid)" && test $killed_tries -lt 2400; do
    sleep 0.1
    killed_tries=$((killed_tries + 1))
  done
  test -z "$(processes $killed_pid)" || { echo "processes that stay" && kill -9 $(processes $killed_pid); }
}
seed=${SEED:-$$}
echo "# SEED=$seed"
parts=$(awk '!/^cpu/ && !seen[$1]++ { n++ } END { print n }' "$scratch/all/calls")
# Early moments are more frequent, since they take less time. In every second run the part that has begun does not end.
awk -v seed="$seed" -v parts="$parts" 'BEGIN { srand(seed)
  for (n = 1; n <= 20; n++) { at = 1 + int(parts * rand() ^ 2); print n, at, sprintf("%.2f", rand() / 5), n % 2 ? "" : at } }' >"$scratch/moments"
for lane in 0 1 2; do
  awk -v lane=$lane 'NR % 3 == lane' "$scratch/moments" | while read -r number at delay hangs; do
    kill_at "$number" "$at" "$delay" "$hangs" >"$scratch/wrong.$number"
  done &
done
wait

# ---- time ----
matches "a part ends with the time of all" "$(row short facts)" 'FAILED: not done after [0-9]* s | 1[0-9] s | '
is "and what is left has none" "$(rows short | sed '1d; /^nccl/d' | cut -d ' ' -f 2- | sort -u)" NOT
is "status" "$(cat "$scratch/short/status")" 1
is "what ignores its end is killed" "$(grep -l "$scratch/bin/[n]vidia-smi" /proc/[0-9]*/cmdline 2>/dev/null)" ""

while read -r number at delay hangs; do
  is "killed $delay s after part $at had begun${hangs:+, which hangs}: what had passed is known, and nothing runs on" "$(cat "$scratch/wrong.$number")" ''
done <"$scratch/moments"
finish
