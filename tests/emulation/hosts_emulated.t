#!/bin/sh
# hosts_emulated.t: a plan for several hosts: which ranks a command starts, and two commands that train together, each with a control memory
# of its own and TCP between them (runtime/control/control_tcp.c), messages over the emulated NCCL. Both run on this host.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"
test -f "$top_builddir/libemulated_nccl.a" || skip_all "no NCCL to compile the transport with"

# same_bits_of NAME OTHER: both have logged the same losses and norms, and as many.
same_bits_of() {
  for bits_name in "$@"; do
    { log_field "$scratch/$bits_name.log" loss; log_field "$scratch/$bits_name.log" grad_norm; } >"$scratch/$bits_name.bits"
  done
  test -s "$scratch/$1.bits" && cmp "$scratch/$1.bits" "$scratch/$2.bits"
}

make_secret "$scratch/secret"
port=$((20000 + $$ % 12000))
cat >"$scratch/one.cfg" <<'END_OF_MODEL'
model = { family = "mlp"; layers = 8; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 1000000; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
cluster = { device = "cuda"; };
END_OF_MODEL
sed 's/ranks = 1/ranks = 4/; /^cluster/d' "$scratch/one.cfg" >"$scratch/two.cfg"
echo "cluster = { device = \"cuda\"; hosts = (\"127.0.0.1\", \"elsewhere\"); interface = \"127.0.0.1\"; port = $port; };" >>"$scratch/two.cfg"

ok "one rank" build one "$scratch/one.cfg"
ok "two hosts of two ranks" build two "$scratch/two.cfg"
ok "a host to each rank" build four "$scratch/two.cfg" -s cluster.hosts=[127.0.0.1,b,c,d] -s cluster.interface=127.0.0.1 -s memory.snapshot=true
matches "nccl is what goes between hosts" "$("$scratch/two" info)" "*transport nccl*"
"$gen" --check "$scratch/two.cfg" -s cluster.transport=ipc 2>"$scratch/err"
is "ipc does not" $? 78
matches "which is said" "$(complaints "$scratch/err")" '*cluster.hosts = *: one host, with cluster.transport = "ipc"*'
sed 's/ port = [0-9]*;//' "$scratch/two.cfg" >"$scratch/portless.cfg"
"$gen" --check "$scratch/portless.cfg" 2>"$scratch/err"
is "a port is wanted" $? 78
matches "which is said" "$(complaints "$scratch/err")" "*portless.cfg: cluster.port*"

# ---- which ranks ----
clean() { env -u SLURM_PROCID -u PMIX_RANK -u PMI_RANK -u OMPI_COMM_WORLD_RANK -u RANK "$@"; }
sizes='SLURM_STEP_NUM_TASKS=4 PMI_SIZE=4 OMPI_COMM_WORLD_SIZE=4 WORLD_SIZE=4'
# refused NAME PATTERN COMMAND...: it exits with 64 and says so. An impossible rank shows what was read.
refused() {
  refused_name=$1 refused_pattern=$2
  shift 2
  clean timeout 300 "$@" train --steps 1 --quiet 2>"$scratch/err"
  is "$refused_name: status" $? 64
  matches "$refused_name: says so" "$(complaints "$scratch/err")" "$refused_pattern"
}
refused "no name fits" "penstock: this host, $(uname -n), is none of cluster.hosts*" "$scratch/two"
refused "SLURM first" "penstock: SLURM_PROCID = 14: a rank of this binary, 0 to 3" \
  env $sizes SLURM_PROCID=14 PMIX_RANK=15 OMPI_COMM_WORLD_RANK=16 RANK=17 "$scratch/two"
refused "then PMIX" "penstock: PMIX_RANK = 15:*" env $sizes PMIX_RANK=15 PMI_RANK=18 OMPI_COMM_WORLD_RANK=16 RANK=17 "$scratch/two"
refused "then PMI" "penstock: PMI_RANK = 18:*" env $sizes PMI_RANK=18 OMPI_COMM_WORLD_RANK=16 RANK=17 "$scratch/two"
refused "then Open MPI" "penstock: OMPI_COMM_WORLD_RANK = 16:*" env $sizes OMPI_COMM_WORLD_RANK=16 RANK=17 "$scratch/two"
refused "then RANK" "penstock: RANK = 17:*" env $sizes RANK=17 "$scratch/two"
refused "no number" "penstock: RANK = 1x:*" env $sizes RANK=1x "$scratch/two"
refused "another number of commands" "penstock: WORLD_SIZE = 3: start 4 commands, one a rank, or 2, one a host" env WORLD_SIZE=3 RANK=1 "$scratch/two"
refused "one command of a launcher: by name" "penstock: this host, *" env WORLD_SIZE=1 RANK=0 "$scratch/two"
refused "no number of commands: by name" "penstock: this host, *" env RANK=0 "$scratch/two"
refused "a launcher in a shell of another" "penstock: RANK = 17:*" env SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1 WORLD_SIZE=4 RANK=17 "$scratch/two"
timeout 300 "$scratch/two" train --host nowhere --steps 1 --quiet 2>"$scratch/err"
is "--host: status" $? 64
matches "--host: says so" "$(complaints "$scratch/err")" "penstock: --host, nowhere, is none of cluster.hosts (127.0.0.1, elsewhere)*"
SLURM_PROCID=1 timeout 300 "$scratch/two" train --rank 18 --steps 1 --quiet 2>"$scratch/err"
is "--rank before all: status" $? 64
matches "--rank before all: says so" "$(complaints "$scratch/err")" "penstock: --rank = 18:*"
"$scratch/one" train --rank 0 --steps 1 2>"$scratch/err"
is "--rank with one host: status" $? 64

# ---- training together ----
train_one() { "$scratch/one" train --seed 7 --quiet --log "$scratch/one.log" --checkpoint "$scratch/one.ckpt" --save-every 2 --steps 4; }
ok "one rank trains" train_one

# start BINARY COMMAND OPTION...: starts four commands, each a rank, that of rank 2 last, with the option and value in `second`, in place of its own if
# it has that option; join waits, and sets status to all that they exit with.
second=
start() {
  start_binary=$1 start_command=$2
  shift 2
  pids=
  for rank in 3 1 0 2; do
    if test $rank -eq 2; then
      dropped=
      for word; do # each word goes to the end, but for the option and its value
        shift
        case $dropped$word in
          dropped*) dropped= ;;
          "${second%% *}") dropped=dropped ;;
          *) set -- "$@" "$word" ;;
        esac
      done
      set -- "$@" $second
    fi
    WORLD_SIZE=4 RANK=$rank timeout 300 "$scratch/$start_binary" "$start_command" "$@" >"$scratch/out.$rank" 2>"$scratch/err.$rank" &
    pids="$pids $!"
  done
}
# together BINARY OPTION...: starts training.
together() {
  together_binary=$1
  shift
  start "$together_binary" train --seed 7 --quiet --log "$scratch/$together_binary.log" --checkpoint "$scratch/$together_binary.ckpt" "$@"
}
join() {
  status=
  for pid in $pids; do wait "$pid"; status="$status $?"; done
  sed 's/^/# /' "$scratch"/err.?
}
together four --steps 4 --save-every 2
join
is "four commands of a rank each train, and save snapshots" "$status" " 0 0 0 0"
for name in one four; do { log_field "$scratch/$name.log" loss; log_field "$scratch/$name.log" grad_norm; } >"$scratch/$name.bits"; done
is "and say nothing" "$(complaints "$scratch"/err.?)" ""
is "four steps are logged, by one" "$(wc -l <"$scratch/four.log")" 4
ok "with one rank's losses and norms" cmp "$scratch/one.bits" "$scratch/four.bits"
ok "and weights" cmp "$scratch/one.ckpt/latest/model.safetensors" "$scratch/four.ckpt/latest/model.safetensors"
ok "and moments" cmp "$scratch/one.ckpt/latest/optimizer.safetensors" "$scratch/four.ckpt/latest/optimizer.safetensors"
for file in model manifest; do
  suffix=$(test $file = model && echo safetensors || echo json)
  ok "the snapshot of step 2 is what one rank saves: $file" \
    cmp "$scratch/one.ckpt/step-00000002/$file.$suffix" "$scratch/four.ckpt/step-00000002/$file.$suffix"
done

# ---- replicas: each leaves the checksums of some weights of the same ranks ----
sed 's/ranks = 4/ranks = 2/' "$scratch/two.cfg" >"$scratch/replicas_four.cfg"
sed '/^cluster/d' "$scratch/replicas_four.cfg" >"$scratch/replicas_one.cfg"
echo 'cluster = { device = "cuda"; transport = "nccl"; };' >>"$scratch/replicas_one.cfg"
ok "two replicas of two ranks on one host" build replicas_one "$scratch/replicas_one.cfg" -s data_parallel.replicas=2
ok "on four" build replicas_four "$scratch/replicas_four.cfg" -s data_parallel.replicas=2 -s cluster.hosts=[127.0.0.1,b,c,d] -s cluster.interface=127.0.0.1
ok "those on one host train" "$scratch/replicas_one" train --seed 7 --quiet --checkpoint "$scratch/replicas_one.ckpt" --steps 2
together replicas_four --steps 2
join
is "those on four do" "$status" " 0 0 0 0"
for file in model.safetensors optimizer.safetensors manifest.json; do
  ok "and save the same: $file" cmp "$scratch/replicas_one.ckpt/latest/$file" "$scratch/replicas_four.ckpt/latest/$file"
done

# Two hosts of two ranks, a replica on each, so that all that replicas tell and give each other goes between hosts. Here they have names of their own.
cat >"$scratch/host.c" <<'END_OF_NAME'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int gethostname(char *name, size_t bytes) { return snprintf(name, bytes, "%s", getenv("HOST_HERE")) < 0; }
END_OF_NAME
ok "a name for a host" $CC -shared -fPIC -o "$scratch/host.so" "$scratch/host.c"
cat >"$scratch/pair.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 48; heads = 2; kv_heads = 1; ffn = 64; vocab = 256; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 1000000; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
cluster = { device = "cuda"; transport = "nccl"; };
END_OF_MODEL
make_tokens "$scratch/pair.bin" 2000

# same_lines: how many lines there are on standard input, if all are equal.
same_lines() { sort | uniq -c | awk '{ print $1 }'; }
# start_hosts NAME OPTION...: a command on either host trains; wait_hosts sets status to what they exit with.
start_hosts() {
  hosts_name=$1
  shift
  anew "$scratch/$hosts_name.log" "$@"
  pids=
  for host in 127.0.0.1 b; do
    env -u SLURM_PROCID -u PMIX_RANK -u OMPI_COMM_WORLD_RANK -u RANK LD_PRELOAD="$scratch/host.so" HOST_HERE=$host \
      timeout 300 "$scratch/$hosts_name" train --data "$scratch/pair.bin" --seed 7 --quiet --log "$scratch/$hosts_name.log" "$@" \
      2>"$scratch/said.$host" &
    pids="$pids $!"
  done
}
wait_hosts() {
  status=
  for pid in $pids; do wait "$pid"; status="$status $?"; done
}
ok "two replicas of two ranks of a language model on one host" build pair "$scratch/pair.cfg"
ok "train" "$scratch/pair" train --data "$scratch/pair.bin" --seed 7 --quiet --steps 3 --log "$scratch/pair.log" --checkpoint "$scratch/pair.ckpt"
for shard in none optimizer weights; do
  ok "a replica to a host, shard = $shard" build "pair_$shard" "$scratch/pair.cfg" -s data_parallel.shard=$shard -s cluster.hosts=[127.0.0.1,b] -s cluster.interface=127.0.0.1 \
    -s cluster.port=$port
  start_hosts "pair_$shard" --steps 3 --checkpoint "$scratch/pair_$shard.ckpt"
  wait_hosts
  is "shard = $shard: both hosts' commands train" "$status $(complaints "$scratch/said.127.0.0.1" "$scratch/said.b" | grep -v 'messages by')" " 0 0 "
  ok "with the bits of one host" same_bits_of pair "pair_$shard"
  for file in model.safetensors optimizer.safetensors manifest.json; do
    ok "and its $file" cmp "$scratch/pair.ckpt/latest/$file" "$scratch/pair_$shard.ckpt/latest/$file"
  done
done

# Rank 3, the second of replica 1, is killed; its host's command says so.
rm -f "$scratch/pair_weights.log"
start_hosts pair_weights --steps 1000000
await_steps "$scratch/pair_weights.log" 3
kill -KILL "$(children "$(children "${pids##* }")" | sed -n 2p)"
wait_hosts
is "a killed rank of a replica ends both hosts' with 75" "$status" " 75 75"
is "both commands say so, in the same words" "$(complaints "$scratch/said.127.0.0.1" "$scratch/said.b" | grep penstock: | same_lines)" 2
matches "and name it, its host and its row" "$(complaints "$scratch/said.127.0.0.1" | grep penstock:)" \
  "penstock: rank 3 (pid *, host b) lost: signal 9 after [0-9A-Z]*; rank [012] waits at [0-9A-Z]* for rank 3"

# ---- one command that starts from something else ----

# differs NAME STATUS PATTERN OPTION...: the command of rank 2 has other options, as `second` says; all end.
differs() {
  differs_name=$1 differs_status=$2 differs_pattern=$3
  shift 3
  together four --resume "$@"
  join
  all_end
}
all_end() {
  second=
  is "$differs_name: all end" "$status" " $differs_status $differs_status $differs_status $differs_status"
  is "$differs_name: one says why" "$(complaints "$scratch"/err.? | grep penstock:)" "penstock: rank 2 $differs_pattern"
}
# fresh_differs NAME OPTION OPTION...: the same of commands that start from no checkpoint, for another OPTION.
fresh_differs() {
  differs_name=$1 differs_status=64 differs_pattern="was started with another $2 than rank 0"
  shift 2
  start four train --seed 7 --quiet --steps 1 "$@"
  join
  all_end
}
mkdir "$scratch/older" "$scratch/other"
cp -r "$scratch/four.ckpt/step-00000002" "$scratch/older/latest"
ok "another run of four steps" "$scratch/one" train --seed 8 --quiet --steps 4 --checkpoint "$scratch/other"
second="--checkpoint $scratch/older"
differs "an older checkpoint" 65 "starts from step 2, rank 0 from step 4: --checkpoint must hold the same for all ranks" --steps 6
second="--checkpoint $scratch/nothing"
differs "none" 65 "starts from step 0, rank 0 from step 4: --checkpoint must hold the same for all ranks" --steps 6
second="--checkpoint $scratch/other"
differs "another run's" 65 "and rank 0 both start from step 4, but from other weights: --checkpoint must hold the same for all ranks" --steps 6
second="--save-every 3"
differs "another option" 64 "was started with another --save-every than rank 0" --save-every 2 --steps 6
ok "weights" "$scratch/one" init --seed 7 --output "$scratch/seven"
ok "others" "$scratch/one" init --seed 8 --output "$scratch/eight"
second="--init $scratch/eight"
fresh_differs "other weights" "--init" --init "$scratch/seven"
second="--init $scratch/seven"
fresh_differs "weights from a file, rather than from the seed" "--init"

# ---- score and generate: what the last stage finds is reported on its host ----
cat >"$scratch/text.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; vocab = 128; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 10; };
cluster = { device = "cuda"; };
END_OF_MODEL
make_tokens "$scratch/data.bin" 200
ok "a language model on one rank" build text_one "$scratch/text.cfg" -s pipeline.ranks=1 -s pipeline.microbatches=4 -s pipeline.schedule=1f1b
ok "on four hosts" build text_four "$scratch/text.cfg" -s pipeline.ranks=4 -s pipeline.microbatches=4 -s pipeline.schedule=1f1b \
  -s cluster.hosts=[127.0.0.1,b,c,d] -s cluster.interface=127.0.0.1 -s cluster.port=$port
ok "its weights" "$scratch/text_one" init --seed 7 --output "$scratch/weights"
ok "one rank scores" sh -c '"$1/text_one" score --data "$1/data.bin" --init "$1/weights" --output "$1/one.json" --quiet >"$1/one.out"' sh "$scratch"
start text_four score --data "$scratch/data.bin" --init "$scratch/weights" --output "$scratch/four.json" --quiet
join
is "four hosts score" "$status" " 0 0 0 0"
ok "every token as one rank" cmp "$scratch/one.json" "$scratch/four.json"
is "the line of all is reported once, where the last stage is" "$(cat "$scratch"/out.0 "$scratch"/out.1 "$scratch"/out.2) $(cat "$scratch/out.3")" \
  " $(cat "$scratch/one.out")"

second="--shuffle-seed 8"
differs_name="another order of the data" differs_status=64 differs_pattern="was started with another --shuffle than rank 0"
start text_four train --seed 7 --quiet --steps 1 --data "$scratch/data.bin" --shuffle
join
all_end

# Weights without a manifest.json have no checksums to compare: their bytes are.
ok "other weights" "$scratch/text_one" init --seed 8 --output "$scratch/weights_of_8"
mkdir "$scratch/bare" "$scratch/bare_again" "$scratch/bare_of_8"
for folder in bare bare_again; do ln "$scratch/weights" "$scratch/$folder/model.safetensors"; done
ln "$scratch/weights_of_8" "$scratch/bare_of_8/model.safetensors"
second="--checkpoint $scratch/bare_again"
start text_four eval --data "$scratch/data.bin" --steps 1 --checkpoint "$scratch/bare" --quiet
join
is "a folder without manifest.json is evaluated, wherever each host has it" "$status" " 0 0 0 0"
differs_name="a folder without, of other weights" differs_status=64 differs_pattern="was started with another --checkpoint than rank 0"
second="--checkpoint $scratch/bare_of_8"
start text_four eval --data "$scratch/data.bin" --steps 1 --checkpoint "$scratch/bare" --quiet
join
all_end

said="--init $scratch/weights --prompt ABCD --tokens 20 --samples 2 --seed 3 --end-of-text 32"
ok "one rank generates" sh -c '"$@" >"$0"' "$scratch/one.text" "$scratch/text_one" generate $said
start text_four generate $said
join
is "four hosts generate" "$status" " 0 0 0 0"
ok "one rank's text, where the last stage is" cmp "$scratch/one.text" "$scratch/out.3"
is "and nothing elsewhere" "$(cat "$scratch"/out.0 "$scratch"/out.1 "$scratch"/out.2)" ""
second="--tokens 21"
start text_four generate $said
join
second=
is "a rank that is to write more: all end" "$status" " 64 64 64 64"
is "which is said" "$(complaints "$scratch"/err.? | grep penstock:)" "penstock: rank 2 was started with another --tokens than rank 0"

WORLD_SIZE=4 RANK=1 timeout 300 "$scratch/four" train --steps 1 --quiet 2>"$scratch/twice.1" &
WORLD_SIZE=4 RANK=1 timeout 300 "$scratch/four" train --steps 1 --quiet 2>"$scratch/twice.2" &
WORLD_SIZE=4 RANK=0 timeout 300 "$scratch/four" train --steps 1 --quiet 2>"$scratch/twice.0"
is "a rank that is started twice: status" $? 64
is "is refused" "$(cat "$scratch/twice.0")" "penstock: rank 1 is started by two commands"
wait

# ---- a signal, and a rank that is lost ----
rm -rf "$scratch/four.ckpt" "$scratch/four.log"
together four --steps 1000000
await_steps "$scratch/four.log" 3
kill -TERM $(children "${pids##* }") 2>/dev/null # the command that timeout started last
join
is "SIGTERM to one command ends all" "$status" " 0 0 0 0"
ok "saved" test -f "$scratch/four.ckpt/latest/model.safetensors"

rm -rf "$scratch/four.ckpt" "$scratch/four.log"
PEN_NCCL=send PEN_EMULATED_NCCL_SILENT=3 && export PEN_NCCL PEN_EMULATED_NCCL_SILENT
together four --steps 1 --timeout 1 # 10 s are enough for all ranks to come to the pair that hangs, on a busy machine too
join
unset PEN_NCCL PEN_EMULATED_NCCL_SILENT
is "ranks that cannot connect end all with 75" "$status" " 75 75 75 75"
matches "its own host says what the rank was connecting, and no other" "$(grep -h "cannot connect" "$scratch"/err.?)" \
  "penstock: rank 2 cannot connect to the others by transport nccl, trying a pair of ranks (3>2): NCCL_DEBUG=INFO says more"
is "all say that it is lost, in the same words" "$(grep -h lost: "$scratch"/err.? | same_lines)" 4
matches "and for how long" "$(grep -h lost: "$scratch"/err.0)" \
  "penstock: rank 2 (pid *, host $(uname -n)) lost: no progress in 10 s after start; no rank waits for it"

rm -rf "$scratch/four.ckpt" "$scratch/four.log"
together four --steps 1000000 --timeout 5
await_steps "$scratch/four.log" 3
command_of_2=$(children "${pids##* }")
kill -KILL $(children "$command_of_2")
join
is "a killed rank ends all with 75" "$status" " 75 75 75 75"
is "all say so, in the same words" "$(complaints "$scratch"/err.? | grep penstock: | same_lines)" 4
matches "and which" "$(complaints "$scratch"/err.0)" "*penstock: rank 2 (pid *, host $(uname -n)) lost: signal 9 after *"

rm -rf "$scratch/four.ckpt" "$scratch/four.log"
together four --steps 1000000 --timeout 5
await_steps "$scratch/four.log" 3
kill -KILL $(children "${pids##* }")
for pid in $pids; do wait "$pid"; echo $?; done >"$scratch/statuses"
is "a command that is gone ends the others with 75" "$(grep -c '^75$' "$scratch/statuses")" 3
matches "its rank is said to be lost" "$(complaints "$scratch"/err.?)" "*penstock: rank 2 (pid *) lost: host c lost after *"
finish
