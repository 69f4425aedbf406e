#!/bin/sh
# hosts.t: CPU ranks on several emulated hosts train, over libfabric between hosts, with the bits of one host.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
hosts() { sh "$top_srcdir/tests/support/hosts.sh" "$@"; }

prepare_hosts 8 64 96 32
# All hosts are the cores of this machine.
two="-s cluster.hosts=[host1,host2] -s cluster.port=$port -s cluster.bind=none"
four="-s cluster.hosts=[host1,host2,host3,host4] -s cluster.port=$port -s cluster.bind=none"

# train_on COUNT NAME OPTION...: trains $scratch/NAME on so many hosts.
train_on() {
  on_count=$1 on_name=$2
  shift 2
  anew "$scratch/$on_name.log $scratch/$on_name.ckpt" "$@"
  on_hosts "$on_count" "$on_name" train --data "$scratch/data.bin" --seed 7 --quiet --steps 4 \
    --log "$scratch/$on_name.log" --checkpoint "$scratch/$on_name.ckpt" "$@" || { cat "$scratch"/err.* | sed 's/^/# /'; return 1; }
  log_field "$scratch/$on_name.log" loss >"$scratch/$on_name.bits"
  log_field "$scratch/$on_name.log" grad_norm >>"$scratch/$on_name.bits"
  (cd "$scratch/$on_name.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$on_name.sums"
}

# case_of NAME PLACES GEN OPTION...: the plan on one host by shared memory, and in these places: ofi, on one host by libfabric; two, on two hosts; four.
case_of() {
  case_name=$1 case_places=$2
  shift 2
  ok "$case_name: a plan is built" build "$case_name.shm" "$scratch/llama.cfg" "$@" -s cluster.transport=shm
  ok "$case_name: trains by shared memory" train_bits "$case_name.shm" --data "$scratch/data.bin" --steps 4
  for place in $case_places; do
    case $place in
      ofi) set -- "$@" -s cluster.transport=ofi ;;
      two) set -- "$@" -s cluster.transport=auto $two ;;
      four) set -- "$@" -s cluster.transport=ofi $four ;;
    esac
    ok "$case_name, $place: a plan is built" build "$case_name.$place" "$scratch/llama.cfg" "$@"
    case $place in
      ofi) ok "$case_name: trains by libfabric on one host" train_bits "$case_name.ofi" --data "$scratch/data.bin" --steps 4 ;;
      two) ok "$case_name: on two hosts" train_on 2 "$case_name.two" ;;
      four) ok "$case_name: on four hosts" train_on 4 "$case_name.four" ;;
    esac
    ok "$case_name: to the same bits" same_bits 4 "$case_name.shm" "$case_name.$place"
  done
}
case_of 1f1b "ofi two four"
case_of zbv four -s pipeline.schedule=zero_bubble_v -s pipeline.stages_per_rank=2
case_of dual_pipe_v two -s pipeline.schedule=dual_pipe_v -s pipeline.stages_per_rank=2
case_of bf16 ofi -s model.dtype=bf16 -s pipeline.schedule=gpipe
case_of tied two -s model.tie_embeddings=true -s pipeline.schedule=looped_bfs -s pipeline.stages_per_rank=2
replicas="-s pipeline.ranks=2 -s data_parallel.replicas=2 -s pipeline.microbatches=4"
case_of replicas "two four" $replicas
case_of experts two $replicas -s model.family=qwen3_moe -s model.experts=4 -s model.experts_per_token=2 -s model.moe_ffn=24
is "and the same load of experts" "$(log_field "$scratch/experts.two.log" expert_load)" "$(log_field "$scratch/experts.shm.log" expert_load)"
case_of optimizer ofi $replicas -s data_parallel.shard=optimizer
case_of weights "two four" $replicas -s data_parallel.shard=weights -s pipeline.schedule=zero_bubble_v -s pipeline.stages_per_rank=2
case_of weights16 four $replicas -s data_parallel.shard=weights -s model.dtype=bf16
by_unit="$replicas -s data_parallel.shard=weights -s data_parallel.unit=layer"
case_of units four $by_unit -s pipeline.schedule=zero_bubble_v -s pipeline.stages_per_rank=2 -s memory.recompute=layer
case_of gradients two $replicas -s data_parallel.shard=gradients
for name in gradients.shm gradients.two; do ok "units and gradients have the same bits: $name" same_bits 4 units.four $name; done
case_of units16 ofi $by_unit -s model.dtype=bf16 -s model.tie_embeddings=true
case_of groups four -s pipeline.ranks=1 -s data_parallel.replicas=4 -s data_parallel.shard_ranks=2 -s data_parallel.shard=weights -s data_parallel.unit=layer \
  -s pipeline.microbatches=2
case_of four_replicas two -s pipeline.ranks=1 -s data_parallel.replicas=4 -s data_parallel.shard=optimizer -s pipeline.microbatches=2

# ---- tensor ranks, those of a rank on one host ----
# members_of NAME GEN OPTION...: one tensor rank; two by libfabric on one host; two on two hosts.
members_of() {
  members_name=$1
  shift
  set -- -s tensor_parallel.splits=2 "$@"
  two_members="-s tensor_parallel.ranks=2"
  ok "$members_name: one tensor rank trains" train_model 4 "$members_name.one" llama "$@"
  ok "$members_name: two by libfabric" train_model 4 "$members_name.ofi" llama "$@" $two_members -s cluster.transport=ofi
  ok "$members_name: to the same bits" same_bits 4 "$members_name.one" "$members_name.ofi"
  ok "$members_name, two hosts: a plan is built" build "$members_name.two" "$scratch/llama.cfg" "$@" $two_members -s cluster.transport=auto $two
  ok "$members_name: on two hosts" train_on 2 "$members_name.two"
  ok "$members_name: to the same bits" same_bits 4 "$members_name.one" "$members_name.two"
}
members_of members -s pipeline.ranks=2
members_of members_units -s tensor_parallel.sequence=false -s pipeline.ranks=1 -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer

# ---- which rank is on which host ----
map_case() {
  ok "mapping $2: a plan is built" build "$1" "$scratch/llama.cfg" -s cluster.transport=auto $two -s cluster.mapping="$2"
  ok "mapping $2: trains" train_on 2 "$1"
  ok "mapping $2: to the same bits" same_bits 4 1f1b.shm "$1"
}
map_case cyclic cyclic
map_case list '[1,1,0,0]'
is "rank 0's host writes the checkpoint and listens" "$(complaints "$scratch/err.1" "$scratch/err.2")" ""
is "info --bindings has the host of each rank" "$("$scratch/list" info --bindings | cut -d' ' -f1,2 | tr '\n' ' ')" "0 host2 1 host2 2 host1 3 host1 "

# ---- other commands ----
eval_one() { "$scratch/1f1b.shm" eval --data "$scratch/data.bin" --checkpoint "$scratch/1f1b.shm.ckpt" >"$scratch/eval" 2>"$scratch/err"; }
ok "eval on one host" eval_one
ok "eval on two hosts" on_hosts 2 1f1b.two eval --data "$scratch/data.bin" --checkpoint "$scratch/1f1b.shm.ckpt"
is "gives the same result" "$(cat "$scratch/out.1")" "$(cat "$scratch/eval")"

# Samples of training: rank 0 logs what the host of the last stage draws.
ok "samples on two hosts" train_on 2 1f1b.two --sample-every 4 --prompt Once --tokens 20
ok "change no bit" same_bits 4 1f1b.shm 1f1b.two
echo '{"prompt": "Once"}' >"$scratch/prompts.json"
is "they are generate's" "$(sed -n 's/^{"event":"sample","step":4,"prompt":"Once","text":\(".*"\)}$/{"prompt": "Once", "text": \1}/p' "$scratch/1f1b.two.log")" \
  "$("$scratch/1f1b.shm" generate --seed 7 --prompts "$scratch/prompts.json" --tokens 20 --checkpoint "$scratch/1f1b.shm.ckpt" 2>/dev/null)"

# Lines are read where texts are printed.
cat >"$scratch/streams" <<'END'
#!/bin/sh
{ printf '79 110 99 101\n'; seq -s ' ' 1 200; } | exec "$@" --stream --tokens 20 --quiet
END
chmod +x "$scratch/streams"
"$scratch/streams" "$scratch/1f1b.shm" generate --checkpoint "$scratch/1f1b.shm.ckpt" >"$scratch/lines"
ok "lines on two hosts" on_hosts 2 streams "$scratch/1f1b.two" generate --checkpoint "$scratch/1f1b.shm.ckpt"
is "have the texts of one" "$(cat "$scratch"/out.[12])" "$(cat "$scratch/lines")"
is "one each" "$(wc -lw <"$scratch/lines" | tr -s ' ')" " 2 40"

# One replica scores and generates, two groups of texts in flight: hosts without its ranks wait.
"$scratch/replicas.shm" score --data "$scratch/data.bin" --checkpoint "$scratch/replicas.shm.ckpt" --output "$scratch/scores.one" >"$scratch/score"
"$scratch/replicas.shm" generate --prompt Once --tokens 20 --samples 3 --checkpoint "$scratch/replicas.shm.ckpt" >"$scratch/text"
for name in replicas.two replicas.four; do
  count=$(test $name = replicas.two && echo 2 || echo 4)
  ok "$name: scores on $count hosts" on_hosts $count $name score --data "$scratch/data.bin" \
    --checkpoint "$scratch/replicas.shm.ckpt" --output "$scratch/scores.$name"
  ok "$name: the same" cmp "$scratch/scores.one" "$scratch/scores.$name"
  is "$name: one host prints the result" "$(cat "$scratch"/out.[1-$count])" "$(cat "$scratch/score")"
  ok "$name: generates on $count hosts" on_hosts $count $name generate --prompt Once --tokens 20 --samples 3 \
    --checkpoint "$scratch/replicas.shm.ckpt"
  is "$name: the same" "$(cat "$scratch"/out.[1-$count])" "$(cat "$scratch/text")"
done
ok "weights.two: generates on 2 hosts" on_hosts 2 weights.two generate --prompt Once --tokens 20 --samples 3 \
  --checkpoint "$scratch/replicas.shm.ckpt"
is "weights.two: the same" "$(cat "$scratch"/out.[12])" "$(cat "$scratch/text")"
# Replicas that shard their weights all score; each on its own windows, whose results come to the first one's host.
ok "weights.cyclic: a plan is built" build weights.cyclic "$scratch/llama.cfg" $replicas -s data_parallel.shard=weights -s cluster.transport=auto $two \
  -s cluster.mapping=cyclic
ok "weights.apart: a plan is built" build weights.apart "$scratch/llama.cfg" $replicas -s data_parallel.shard=weights -s cluster.transport=auto $two \
  -s cluster.mapping=[1,0,0,1]
"$tokens" --bytes --end-of-text 10 --pack 32 --single -o "$scratch/packed.bin" "$top_srcdir/README.md" 2>/dev/null
"$scratch/weights.shm" score --data "$scratch/packed.bin" --checkpoint "$scratch/replicas.shm.ckpt" --output "$scratch/scores.packed" >"$scratch/score.packed"
for name in weights.two weights.four weights.cyclic weights.apart weights16.four; do
  count=$(case $name in *.four) echo 4 ;; *) echo 2 ;; esac)
  for data in data packed; do
    one=$scratch/scores.$(test $data = data && echo one || echo packed) result=$scratch/score$(test $data = data || echo .packed)
    if test $name = weights16.four; then
      one=$scratch/scores.16 result=$scratch/score.16
      "$scratch/weights16.shm" score --data "$scratch/$data.bin" --checkpoint "$scratch/replicas.shm.ckpt" --output "$one" >"$result"
    fi
    rm -f "$scratch/scores.$name"
    ok "$name: scores $data.bin on $count hosts" on_hosts $count $name score --data "$scratch/$data.bin" \
      --checkpoint "$scratch/replicas.shm.ckpt" --output "$scratch/scores.$name"
    ok "$name: the same" cmp "$one" "$scratch/scores.$name"
    is "$name: one host prints the result" "$(cat "$scratch"/out.[1-$count])" "$(cat "$result")"
  done
done

# ---- a link that is cut, a host whose processes are killed ----
# lose WHAT: trains without end on two hosts; after the third step of the log, loses host2. Leaves the statuses in status.N.
cat >"$scratch/lose" <<'END'
scratch=$1 what=$2
rm -f "$scratch/lose.log"
for i in 1 2; do
  {
    on "host$i" timeout 300 "$scratch/1f1b.two" train --data "$scratch/data.bin" --steps 1000000 --quiet --log "$scratch/lose.log" --timeout 60 \
      >"$scratch/out.$i" 2>"$scratch/err.$i"
    echo $? >"$scratch/status.$i"
  } &
done
until test -f "$scratch/lose.log" && test "$(wc -l <"$scratch/lose.log")" -ge 3; do sleep 0.05; done
case $what in
  link) unplug host2 ;;
  host) for process in $(pgrep -f "$scratch/1f1b.two"); do
      if test "$(nsenter -t "$process" -u hostname)" = host2; then kill -KILL "$process"; fi
    done ;;
esac
wait
END
lose() { hosts 2 sh "$scratch/lose" "$scratch" "$1"; }
lose link
is "a link that is cut ends both hosts with 75" "$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')" "75 75 "
matches "and the one says so" "$(complaints "$scratch/err.1")" "penstock: rank [23] (pid *, host host2) lost: link to host host2 lost after *"
matches "and the other" "$(complaints "$scratch/err.2")" "penstock: rank [01] (pid *, host host1) lost: link to host host1 lost after *"
lose host 2>/dev/null
is "a host that is lost ends the other with 75" "$(cat "$scratch/status.1")" 75
matches "which says so" "$(complaints "$scratch/err.1")" "penstock: rank [23] (pid *, host host2) lost: host host2 lost after *"

# ---- a rank that is lost, and started again ----
steps=40
ok "what ends a rank is built" $CC $CFLAGS $PEN_CFLAGS -shared -fPIC -o "$scratch/end_rank.so" "$top_srcdir/tests/support/end_rank.c" -ldl
cat >"$scratch/again" <<'END'
scratch=$1 name=$2 steps=$3
shift 3
rm -rf "$scratch/again.log" "$scratch/again.ckpt" "$scratch"/ended*
for i in 1 2; do
  {
    on "host$i" timeout 300 env END_RANK_AT="30 2 $scratch/ended" $(test $i = 1 || echo "LD_PRELOAD=$scratch/end_rank.so") "$scratch/$name" train --data "$scratch/data.bin" \
      --seed 7 --steps "$steps" --quiet --log "$scratch/again.log" --checkpoint "$scratch/again.ckpt" --restarts 3 "$@" >"$scratch/out.$i" 2>"$scratch/err.$i"
    echo $? >"$scratch/status.$i"
  } &
done
wait
END
# again_case NAME: its plan for two hosts loses a rank of the second host twice.
again_case() {
  again=$1
  ok "$again: trains on one host" train_bits "$again.shm" --data "$scratch/data.bin" --steps $steps
  for again_from in memory checkpoint; do
    again_options=$(test $again_from = memory && echo --recover-every 1 || echo --save-every 4)
    hosts 2 sh "$scratch/again" "$scratch" "$again.two" $steps $again_options
    is "$again: two hosts survive the loss of a rank, from $again_from" "$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')" "0 0 "
    grep -v '"event"' "$scratch/again.log" >"$scratch/again.steps"
    ok "$again: to the same bits" test "$(log_field "$scratch/again.steps" loss; log_field "$scratch/again.steps" grad_norm)" = "$(cat "$scratch/$again.shm.bits")"
    ok "$again: and weights" test "$(cd "$scratch/again.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors)" = "$(cat "$scratch/$again.shm.sums")"
    is "$again: two restarts are logged" "$(grep -c "\"source\":\"$again_from\"" "$scratch/again.log")" 2
    is "$again: both commands name the lost ranks, in the same words" "$(grep -h lost: "$scratch/err.1")" "$(grep -h lost: "$scratch/err.2")"
    sed 's/^/# /' "$scratch/err.1"
  done
}
again_case 1f1b
again_case weights

# ---- other kernels ----
cat >"$scratch/other_set" <<'END'
scratch=$1
for i in 1 2; do
  {
    on "host$i" timeout 300 env PEN_ISA="$(test $i = 1 || echo baseline)" PEN_PRODUCTS=own "$scratch/1f1b.two" train --data "$scratch/data.bin" \
      --seed 7 --steps 2 --quiet 2>"$scratch/err.$i"
    echo $? >"$scratch/status.$i"
  } &
done
wait
END
hosts 2 sh "$scratch/other_set" "$scratch"
case $(PEN_PRODUCTS=own "$scratch/1f1b.two" info 2>/dev/null) in
  *baseline*) skip "a host with other kernels is refused" "this processor has one set" ;;
  *)
    is "a host with other kernels is refused" "$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')" "64 64 "
    matches "which names both" "$(complaints "$scratch/err.2")" \
      '*penstock: rank [23] (host host2) computes with baseline; *, rank 0 (host host1) with avx*: their bits differ; set PEN_ISA*'
    ;;
esac

# ---- a network interface with two addresses, of which the names of the hosts have the second ----
cat >"$scratch/second_address" <<'END'
scratch=$1
for i in 1 2; do
  sed 's/ *10\.78\.0\.\([12]\) /10.79.0.\1 /' /etc/hosts >"$scratch/hosts.$i"
  on "host$i" ip addr add "10.79.0.$i/24" dev net0 && on "host$i" mount --bind "$scratch/hosts.$i" /etc/hosts || exit
done
exec sh "$scratch/on_hosts" "$@"
END
ok "a plan that names a network interface is built" build interface "$scratch/llama.cfg" $two -s cluster.interface=net0
hosts 2 sh "$scratch/second_address" "$scratch" 2 interface train --data "$scratch/data.bin" --seed 7 --steps 1 --quiet
is "its hosts meet at the address that the first one's name has" $? 0

# ---- settings ----
"$gen" --check "$scratch/llama.cfg" -s cluster.transport=shm $two 2>"$scratch/err"
is "shared memory does not reach another host" $? 78
matches "which is said" "$(complaints "$scratch/err")" '*cluster.hosts = *: one host, with cluster.transport = "shm"*ofi*'
finish
