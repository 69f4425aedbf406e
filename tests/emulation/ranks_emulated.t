#!/bin/sh
# ranks_emulated.t: several ranks on CUDA over the transport ipc, each a process, with streams, words, graphs and shared memory emulated
# (emulate_streams.cc): bit for bit what one rank trains, whatever ranks, stages and schedule; then faults. It says nothing of a driver.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

cat >"$scratch/llama.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; vocab = 128; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 3; schedule = "1f1b"; };
cluster = { device = "cuda"; };
END_OF_MODEL
cat >"$scratch/mlp.cfg" <<'END_OF_MODEL'
model = { family = "mlp"; layers = 8; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; clip_norm = 1.0; };
pipeline = { ranks = 1; microbatches = 8; schedule = "1f1b"; };
cluster = { device = "cuda"; };
END_OF_MODEL
make_tokens "$scratch/data.bin" 2000
ok "tokens" test -s "$scratch/data.bin"

# plan NAME MODEL SETTING...: builds a plan.
plan() {
  plan_name=$1 plan_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$plan_name" "$scratch/$plan_model.cfg" "$@"
}

# train NAME BINARY OPTION...: trains with seed 7; leaves NAME.bits, NAME.sums and NAME.err.
train() {
  train_name=$1 train_binary=$2
  shift 2
  anew "$scratch/$train_name.log $scratch/$train_name.ckpt" "$@"
  timeout 300 "$scratch/$train_binary" train --data "$scratch/data.bin" --seed 7 --log "$scratch/$train_name.log" \
    --checkpoint "$scratch/$train_name.ckpt" "$@" 2>"$scratch/$train_name.err" || { sed 's/^/# /' "$scratch/$train_name.err"; return 1; }
  { log_field "$scratch/$train_name.log" loss; log_field "$scratch/$train_name.log" grad_norm; } >"$scratch/$train_name.bits"
  (cd "$scratch/$train_name.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$train_name.sums"
}

# case_of NAME MODEL SETTING...: a plan of several ranks trains to the bits of MODEL's one rank.
case_of() {
  ok "$1: a plan" plan "$@"
  ok "$1: trains" in_mode train "$1" "$1" --steps 3
  as_one_graph "$1" "$scratch/$1.err"
  ok "$1: with one rank's bits" same_bits 3 "one_$2" "$1"
}

for model in llama mlp; do
  ok "one rank of $model" plan "one_$model" "$model"
  ok "trains" train "one_$model" "one_$model" --steps 3
done
case_of llama_2 llama pipeline.ranks=2
case_of llama_zbv llama pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
case_of mlp_2 mlp pipeline.ranks=2
case_of mlp_4 mlp pipeline.ranks=4
case_of mlp_4_zbv mlp pipeline.ranks=4 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
case_of mlp_4_pairs mlp pipeline.ranks=4 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v
case_of mlp_8 mlp pipeline.ranks=8
matches "says its transport" "$("$scratch/mlp_4" info)" "*device        cuda, transport ipc*"

# NCCL, emulated. By puts, where its version has them, and by sends: messages of 512 bytes, smaller than its buffers and larger.
nccl=$(test -f "$top_builddir/libemulated_nccl.a" && echo yes)

# again NAME BINARY PATTERN: the plan of $scratch/BINARY trains to the bits of mlp's one rank, and its line of NCCL's is as the pattern.
again() {
  ok "$1: trains" in_mode train "$1" "$2" --steps 3
  matches "$1: says what it found" "$(grep ' NCCL ' "$scratch/$1.err")" "$3"
  ok "$1: with one rank's bits" same_bits 3 one_mlp "$1"
}

# found SETTINGS NAME BINARY PATTERN: the same with other finds; of its four ranks each says that it captures nothing, or none does.
found() {
  found_settings=$1
  shift
  export $found_settings
  again "$@"
  is "$1: ranks without a graph" "$(grep -c 'its actions are enqueued one by one' "$scratch/$1.err")" "$uncaptured"
  for setting in $found_settings; do unset "${setting%%=*}"; done
}

if test -n "$nccl"; then
  case_of llama_nccl_2 llama pipeline.ranks=2 cluster.transport=nccl
  matches "says what it found" "$(complaints "$scratch/llama_nccl_2.err")" \
    "*NCCL 2.*, 2 pairs of ranks made in 2 rounds: messages by put and signal; NCCL's own memory, MiB by rank: 3.0 3.0*"
  case_of mlp_nccl_4 mlp pipeline.ranks=4 cluster.transport=nccl
  case_of mlp_nccl_8 mlp pipeline.ranks=8 cluster.transport=nccl
  case_of mlp_nccl_zbv mlp pipeline.ranks=4 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v cluster.transport=nccl
  case_of mlp_nccl_pairs mlp pipeline.ranks=4 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v cluster.transport=nccl
  ok "a rank that captures nothing" train traced_nccl mlp_nccl_zbv --steps 3 --trace "$scratch/trace"
  ok "with one rank's bits" same_bits 3 one_mlp traced_nccl
  uncaptured=0
  found PEN_NCCL=send large mlp_nccl_4 "* by send and receive (PEN_NCCL asks for it); *"
  found "PEN_NCCL=send NCCL_BUFFSIZE=96" small mlp_nccl_4 "* by send and receive (*"
  found "PEN_NCCL=send NCCL_BUFFSIZE=96" small_zbv mlp_nccl_zbv "* by send and receive (*"
  found PEN_EMULATED_NCCL_VERSION=22809 older mlp_nccl_zbv "*NCCL 2.28.9,* by send and receive (NCCL puts from 2.29 on); *"
  found PEN_EMULATED_NCCL_VERSION=23004 alike mlp_nccl_zbv "*NCCL 2.30.4,* by put and signal; *"
  found PEN_EMULATED_NCCL_NO_WINDOW=1 windowless mlp_nccl_4 \
    "* by put and signal over 2, by send and receive over the others (NCCL has no window for these ranks, or no signals); *"
  found PEN_EMULATED_NCCL_NO_SIGNAL=3 signalless mlp_nccl_4 \
    "* by put and signal over 4, by send and receive over the others (NCCL has no window for these ranks, or no signals); *"
  found "PEN_NCCL=send PEN_EMULATED_NCCL_NO_REGISTER=1" unregistered mlp_nccl_4 "* by send and receive (*"
  matches "rank 1 says why" "$(complaints "$scratch/unregistered.err")" "*: rank 1: NCCL does not register its memory (registering memory: *): messages go *"
  uncaptured=4
  found PEN_EMULATED_NCCL_VERSION=22902 uncaptured mlp_nccl_4 "*NCCL 2.29.2,* by put and signal; *"
  matches "says why" "$(complaints "$scratch/uncaptured.err")" "*cannot be one graph (NCCL's puts can be captured from 2.30 on; PEN_NCCL=send can be before)*"
  for way in put send; do
    found "PEN_NCCL=$way PEN_EMULATED_NCCL_NO_CAPTURE=2" "refused_$way" mlp_nccl_4 "* by $way and *"
    matches "rank 2 says why" "$(grep 'rank 2:' "$scratch/refused_$way.err")" "*rank 2: a step of train cannot be one graph (*: an error); its actions*"
    matches "the others that it is another" "$(grep 'rank 1:' "$scratch/refused_$way.err")" "*rank 1: a step of train cannot be one graph (another rank's cannot)*"
  done
fi

plain() { PEN_EMULATED_NO_GRAPH=1 train "$@"; }
ok "four ranks train where nothing can be captured" plain plain mlp_4_zbv --steps 3
is "each says so" "$(grep -c 'its actions are enqueued one by one' "$scratch/plain.err")" 4
ok "with the same bits" same_bits 3 one_mlp plain
ok "and row by row, for a trace" train traced mlp_4_zbv --steps 3 --trace "$scratch/trace"
ok "with the same bits" same_bits 3 one_mlp traced

# asked WAY BINARY: the bits of one rank, in the way that is asked for; and how many ranks enqueue rows one by one.
asked() {
  PEN_GRAPH=$1 && export PEN_GRAPH
  ok "PEN_GRAPH=$1, $2: trains" train "asked_$1" "$2" --steps 3
  unset PEN_GRAPH
  ok "with the same bits" same_bits 3 one_mlp "asked_$1"
  is "ranks without a graph" "$(grep -c '(PEN_GRAPH asks for it); its actions are enqueued one by one' "$scratch/asked_$1.err")" "$3"
}
asked unmarked mlp_4_zbv 0
asked plain mlp_2 2
test -z "$nccl" || asked plain mlp_nccl_4 4

# refused WHAT MODE REFUSALS: where that cannot be captured (emulate_streams.cc) the four ranks use the next mode, and say why.
refused() {
  PEN_EMULATED_NO_GRAPH=$1 && export PEN_EMULATED_NO_GRAPH
  ok "$1 cannot be captured: four ranks train" train "refused_$1" mlp_4_zbv --steps 3
  is "$1: each says why" "$(grep -c "a step of train is one graph ($2): .* MiB; refused: $3$" "$scratch/refused_$1.err")" 4
  ok "$1: with the same bits" same_bits 3 one_mlp "refused_$1"
  ok "$1: with --quiet they do not" is_quiet
  unset PEN_EMULATED_NO_GRAPH
}
is_quiet() {
  "$scratch/mlp_4_zbv" train --data "$scratch/data.bin" --steps 1 --quiet 2>"$scratch/quiet.err" && ! grep 'graph' "$scratch/quiet.err"
}
refused pinned unmarked 'marked: ending a capture: .*'
refused branches serial 'marked, unmarked: ending a capture: .*'

# A serial graph is a chain (as_one_graph); the test can tell.
PEN_GRAPH_DOT=$scratch/branches.dot && export PEN_GRAPH_DOT
ok "a graph is drawn" train drawn mlp_4_zbv --steps 1
unset PEN_GRAPH_DOT
matches "with its branches" "$(shape_of "$scratch/branches.dot")" "*, branches"
PEN_GRAPH_DOT=$scratch/none/graph.dot "$scratch/mlp_2" train --data "$scratch/data.bin" --steps 1 --quiet 2>"$scratch/err"
is "a file that cannot be written: status" $? 71
matches "which is said" "$(complaints "$scratch/err")" "*penstock: device cuda: PEN_GRAPH_DOT: $scratch/none/graph.dot: *"

ok "two ranks save at step 2" train two mlp_2 --steps 2
ok "four go on from there" train two mlp_4 --steps 3 --resume
ok "to the checkpoint of one run" cmp "$scratch/one_mlp.sums" "$scratch/two.sums"

# Without clipping nobody waits for a step's end.
ok "one rank without clipping" plan one_free mlp optimizer.clip_norm=0
ok "trains" train one_free one_free --steps 5
ok "four ranks without clipping" plan free mlp optimizer.clip_norm=0 pipeline.ranks=4
ok "train" train free free --steps 5
ok "to one rank's bits" same_bits 5 one_free free
if test -n "$nccl"; then
  ok "two over NCCL" plan free_nccl mlp optimizer.clip_norm=0 pipeline.ranks=2 cluster.transport=nccl
  ok "train" train free_nccl free_nccl --steps 5
  ok "to one rank's bits" same_bits 5 one_free free_nccl
  ok "four over NCCL" plan free_zbv mlp optimizer.clip_norm=0 pipeline.ranks=4 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v \
    cluster.transport=nccl
  for way in put send; do
    PEN_NCCL=$way && export PEN_NCCL
    ok "train by $way" train "free_$way" free_zbv --steps 5
    ok "to one rank's bits" same_bits 5 one_free "free_$way"
  done
  unset PEN_NCCL
fi

# outlasts BINARY OPTION...: trains well though a step takes longer than the timeout, in which no rank may stop.
outlasts() {
  outlasts_binary=$1
  shift
  rm -f "$scratch/slow.log"
  PEN_EMULATED_SLOW=8 timeout 300 "$scratch/$outlasts_binary" train --quiet --timeout 2.5 --log "$scratch/slow.log" "$@" 2>"$scratch/slow.err" ||
    { sed 's/^/# /' "$scratch/slow.err"; return 1; }
  log_field "$scratch/slow.log" step_ms | awk '{ step_ms = $1 } END { exit step_ms < 2500 }'
}
ok "a step that takes longer than the timeout, as a graph" outlasts mlp_2 --steps 2
PEN_GRAPH=plain && export PEN_GRAPH
ok "row by row" outlasts mlp_2 --steps 1
unset PEN_GRAPH
test -z "$nccl" || ok "traced, over NCCL" outlasts free_nccl --steps 1 --trace "$scratch/trace"

ok "one rank with a tied matrix" plan one_tied llama model.tie_embeddings=true
ok "trains" train one_tied one_tied --steps 3
ok "two ranks, head and embedding apart" plan tied llama model.tie_embeddings=true pipeline.ranks=2
ok "train" train tied tied --steps 3
ok "to one rank's bits" same_bits 3 one_tied tied
if test -n "$nccl"; then
  ok "and over NCCL" plan tied_nccl llama model.tie_embeddings=true pipeline.ranks=2 cluster.transport=nccl
  ok "train" train tied_nccl tied_nccl --steps 3
  ok "to one rank's bits" same_bits 3 one_tied tied_nccl
fi

ok "one rank in bf16" plan one_bf16 llama model.dtype=bf16
ok "trains" train one_bf16 one_bf16 --steps 3
ok "two ranks in bf16" plan bf16 llama model.dtype=bf16 pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v
ok "train" train bf16 bf16 --steps 3
ok "to one rank's bits" same_bits 3 one_bf16 bf16

score() { timeout 300 "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/one_llama.ckpt" --steps 2 --quiet >"$scratch/eval.$1"; }
ok "one rank evaluates" score one_llama
ok "two evaluate" score llama_2
ok "to the same line" cmp "$scratch/eval.one_llama" "$scratch/eval.llama_2"

# ---- faults: one line, status 75, everybody gone ----

timeout_s=5
# start_lost BINARY: trains in the background; sets run, and ranks to its processes once steps are made.
start_lost() {
  rm -f "$scratch/lost.log"
  "$scratch/$1" train --steps 100000 --quiet --timeout $timeout_s --log "$scratch/lost.log" $lost_options 2>"$scratch/lost.err" &
  run=$!
  await_steps "$scratch/lost.log" 3
  ranks=$(children $run)
  (sleep 60; kill -9 $run) 2>/dev/null &
  guard=$!
}

waits=yes lost_options=
# A rank that ends or is stopped is lost at once, one that stops after the timeout. Then all are given 0.5 s to come to where they wait for
# it, and 1 s to leave (runtime/supervise/watchdog.c); the rest of the margin is for a machine that has other things to do.
margin_ms=45000
now_ms() { awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime; }

# check_lost NAME RANK CAUSE: of the others some one waits for it, unless waits is empty.
check_lost() {
  began=$(now_ms)
  wait $run
  is "$1: status" $? 75
  took_ms=$(($(now_ms) - began))
  case $3 in signal* | stopped) most_ms=$margin_ms ;; *) most_ms=$((1000 * timeout_s + margin_ms)) ;; esac
  ok "within $most_ms ms, not $took_ms" test "$took_ms" -le "$most_ms"
  kill $guard 2>/dev/null
  sed 's/^/# /' "$scratch/lost.err"
  waiter="no rank waits for it"
  if test -n "$waits"; then waiter="rank [0-9] waits at * for rank $2"; fi
  matches "one line names it" "$(complaints "$scratch/lost.err" | grep penstock:)" "penstock: rank $2 (pid *, host $(uname -n)) lost: $3 after *; $waiter"
  is "and no more" "$(complaints "$scratch/lost.err" | grep -c penstock:)" 1
  left=0
  for process in $ranks; do if test -d "/proc/$process" && ! grep -q ' Z ' "/proc/$process/stat" 2>/dev/null; then left=1; fi; done
  is "no process is left" $left 0
}

# lose BINARY RANK SIGNAL CAUSE: a run of four whose rank gets that signal in mid-step.
lose() {
  start_lost "$1"
  kill -"$3" "$(echo "$ranks" | sed -n "$(($2 + 1))p")"
  check_lost "$1, rank $2, signal $3" "$2" "$4"
}
lose mlp_4 0 KILL "signal 9"
lose mlp_4 2 KILL "signal 9"
lose mlp_4 3 STOP stopped
# A host that stops while what its device waits for comes, and says all the while that it waits.
ok "a run that goes astray is built" make_astray mlp_4_zbv
timeout_s=2
for rank in 0 2; do lose mlp_4_zbv_astray $rank VTALRM "no progress in 2 s"; done
timeout_s=5

# start_wrong BINARY RANK WORD: a run whose rank's device does that in mid-step (emulate_streams.cc).
start_wrong() {
  PEN_EMULATED_WRONG=$scratch/wrong && export PEN_EMULATED_WRONG
  rm -f "$scratch/wrong"
  start_lost "$1"
  echo "$(echo "$ranks" | sed -n "$(($2 + 1))p") $3" >"$scratch/wrong.new"
  mv "$scratch/wrong.new" "$scratch/wrong"
}

# go_wrong BINARY RANK WORD CAUSE. Of a stall over NCCL no more is known than which rows were done, and the line may name a neighbour that waits.
go_wrong() {
  start_wrong "$1" "$2" "$3"
  who=$2
  case $1-$3 in *nccl*-stall) who='[0-9]' ;; esac
  check_lost "$1, rank $2: its device: $3" "$who" "$4"
  unset PEN_EMULATED_WRONG
}
# Where all is on one stream, it waits for credits, too.
PEN_GRAPH=serial && export PEN_GRAPH
go_wrong mlp_4 1 stall "no progress in 5 s"
unset PEN_GRAPH
# Where rows are enqueued one by one, a device that takes no more calls holds up its host; where they are traced, each row does.
PEN_EMULATED_NO_GRAPH=1 && export PEN_EMULATED_NO_GRAPH
go_wrong mlp_4_zbv 1 stall "no progress in 5 s"
unset PEN_EMULATED_NO_GRAPH
lost_options="--trace $scratch/trace"
go_wrong mlp_4_zbv 2 stall "no progress in 5 s"
lost_options=
# Its rows go on, up to where it waits for a neighbour, who waits for it.
go_wrong mlp_4_zbv 2 copies "no progress in 5 s"
# At a step's end a rank waits for its peers to have updated what it reads in the next.
ok "two replicas that share weights" plan mlp_weights mlp data_parallel.replicas=2 data_parallel.shard=weights
start_wrong mlp_weights 1 adamw
await_stall
kill -STOP "$(echo "$ranks" | sed -n 2p)"
check_lost "stopped in its update" 1 stopped
unset PEN_EMULATED_WRONG
go_wrong mlp_4 2 memory "the GPU's work: *ncorrectable*"
waits=
start_wrong one_mlp 0 stall
cores() { sed -n 's/^Cpus_allowed_list:\s*//p' "/proc/$1/status"; }
is "a rank with a device keeps all cores, for its driver's threads" "$(cores "$ranks")" "$(cores $run)"
check_lost "one_mlp, rank 0: its device: stall" 0 "no progress in 5 s"
unset PEN_EMULATED_WRONG
go_wrong one_mlp 0 memory "the GPU's work: *ncorrectable*"
waits=yes
if test -n "$nccl"; then
  lose mlp_nccl_4 1 KILL "signal 9"
  # unconnected SETTING WAY RANK WHAT: ranks do not connect; the rank that is furthest behind is lost, with the state it is in. 10 s are enough for
  # all ranks to come to that state, on a busy machine too.
  unconnected() {
    env "PEN_EMULATED_NCCL_$1" PEN_NCCL="$2" timeout -s KILL 300 "$scratch/mlp_nccl_4" train --steps 1 --quiet --timeout 1 2>"$scratch/err"
    is "ranks that cannot connect, $1: status" $? 75
    matches "which is said, and that one is lost" "$(complaints "$scratch/err")" "penstock: rank $3 cannot connect to the others by transport nccl, $4: *
penstock: rank $3 (pid *, host $(uname -n)) lost: no progress in 10 s after start; no rank waits for it"
  }
  unconnected ABSENT=2 put 0 "joining all ranks"
  unconnected SILENT=2 send 1 "trying a pair of ranks (2>1)" # rank 0 is further, rank 3 at its pair with rank 2
  go_wrong mlp_nccl_4 2 stall "no progress in 5 s"
  go_wrong mlp_nccl_4 1 memory "the GPU's work: *ncorrectable*"
  PEN_EMULATED_NCCL_TROUBLE=0,100000 && export PEN_EMULATED_NCCL_TROUBLE
  start_lost mlp_nccl_4
  check_lost "a broken connection" 1 "remote process exited*"
  is "communicators that a graph holds are left" "$(grep -c '# aborted' "$scratch/lost.err")" 0
  PEN_EMULATED_NCCL_TROUBLE=0,10000000 PEN_NCCL=send PEN_EMULATED_NO_GRAPH=1 && export PEN_NCCL PEN_EMULATED_NO_GRAPH # more than pairs are tried with
  start_lost mlp_nccl_4
  check_lost "a broken connection, by sends" 1 "remote process exited*"
  ok "others are let go" grep -q "# aborted" "$scratch/lost.err"
  unset PEN_EMULATED_NCCL_TROUBLE PEN_EMULATED_NO_GRAPH
  lose mlp_nccl_4 2 STOP stopped
  unset PEN_NCCL
fi
finish
