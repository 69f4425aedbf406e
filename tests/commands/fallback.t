#!/bin/sh
# fallback.t: a run that has lost more hosts than it has spares goes on with a smaller plan, to the bits of an undisturbed one.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/lose_hosts.sh"

describe_run two 4 '("host1", "host2")' "" '{ pipeline = { ranks = 2; }; }'
build_run two
for from in checkpoint memory; do
  options=$(test $from = memory && echo --recover-every 1 || echo --save-every 4)
  lose "the second of two, from $from" two 2 host2 "0 137" --restarts 1 $options
  recovers "the second of two, from $from" two $from 1
  lose "the first of two, from $from" two 2 host1 "137 0" --restarts 1 $options
  recovers "the first of two, from $from" two $from 1
done
lose "a link is cut" two 2 silent-host2 "0 75" --restarts 1 --recover-every 1
recovers "a link is cut" two memory 1

# Three hosts, then two, then one; with a spare, and with hosts that wait.
describe_run three 3 '("host1", "host2", "host3")' "" '{ pipeline = { ranks = 2; }; }, { pipeline = { ranks = 1; stages_per_rank = 2; schedule = "zero_bubble_v"; }; }'
build_run three
for from in checkpoint memory; do
  options=$(test $from = memory && echo --recover-every 1 || echo --save-every 4)
  lose "two of three, from $from" three 3 "host2 host1" "137 137 0" --restarts 2 $options
  recovers "two of three, from $from" three $from "1 2"
done
lose "no fallback is left" three 3 "host2 host1" "137 137 75" --restarts 1 --save-every 4
matches "which is said" "$(complaints "$scratch"/err.3)" "*penstock: *"

# A fallback that leaves hosts over: they wait, and take the place of the next one.
describe_run wait 3 '("host1", "host2", "host3")' "" '{ pipeline = { ranks = 1; }; }'
build_run wait
lose "a host waits" wait 3 "host2 host1" "137 137 0" --restarts 2 --save-every 4
recovers "a host waits" wait checkpoint "1 1"
lose "its states are in three places" wait 3 "host3" "0 0 137" --restarts 1 --recover-every 1
recovers "its states are in three places" wait memory 1

steps=1500
describe_run back 4 '("host1", "host2")' "" '{ pipeline = { ranks = 2; }; }'
build_run back
lose "a host comes back" back 2 "host2 again-host2 host1" "137 0" --restarts 3 --save-every 20
recovers "a host comes back" back checkpoint "1 1"
steps=60

# A network of its own for the messages between its ranks, 10.79.0.0: 4F0A in the kernel's list.
steps=200 watched=host1
export watched
describe_run other 3 '("host1", "host2", "host3")' "" '{ pipeline = { ranks = 2; }; cluster = { interface = "net0:b"; }; }'
build_run other
lose "another network" other 3 host3 "0 0 137" --restarts 1 --recover-every 1
recovers "another network" other memory 1
ok "which has its connections" grep -q ': 01004F0A:.* 02004F0A:' "$scratch/sockets"
steps=60 watched=

# More ranks on the hosts that are left, and ranks that do not fill them.
describe_run more 4 '("host1", "host2")' "" '{ cluster = { ranks_per_host = 4; }; }'
build_run more
lose "the same ranks on one host" more 2 host1 "137 0" --restarts 1 --recover-every 1
recovers "the same ranks on one host" more memory 1
describe_run uneven 4 '("host1", "host2", "host3", "host4")' "" '{ pipeline = { ranks = 3; }; cluster = { ranks_per_host = 2; }; }'
build_run uneven
lose "a host with one rank less" uneven 4 "host3" "0 0 137 0" --restarts 1 --recover-every 1
recovers "a host with one rank less" uneven memory 1

half='{ pipeline = { ranks = 2; }; }' one='{ pipeline = { ranks = 1; stages_per_rank = 2; schedule = "zero_bubble_v"; }; }'
model tied_bf16 4 'dtype = "bf16"; tie_embeddings = true' "$half"
model tied 2 'tie_embeddings = true' "$one"
model replicas 2 '' "$one" 'data_parallel = { replicas = 2; };'
model optimizer_shards 2 'dtype = "bf16"' "$one" 'data_parallel = { replicas = 2; shard = "optimizer"; };'
model weight_shards 2 'dtype = "bf16"; tie_embeddings = true' "$one" 'data_parallel = { replicas = 2; shard = "weights"; };'
model shapes 2 '' "$one" 'shapes = ( { sequence = 8; microbatches = 8; } ); memory = { recompute = "full"; };'

# ---- commands that do not fit ----
build other "$scratch/two_1.cfg" -s 'cluster.hosts=[host1,host2]' -s cluster.port=$port -s cluster.bind=none
cat >"$scratch/differ" <<'END'
scratch=$1
on host1 timeout 300 "$scratch/two" train --data "$scratch/data.bin" --steps 1 2>"$scratch/err.1" &
on host2 timeout 300 "$scratch/other" train --data "$scratch/data.bin" --steps 1 2>"$scratch/err.2"
echo $? >"$scratch/status.2"
wait $!
echo $? >"$scratch/status.1"
END
hosts 2 sh "$scratch/differ" "$scratch"
is "a binary with other fallbacks is another one" "$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')" "76 76 "
finish
