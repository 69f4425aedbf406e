#!/bin/sh
# fallback.t: a run that has lost more hosts than it has spares goes on with a smaller plan, to the bits of an undisturbed one.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
hosts() { timeout 60 sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
make_tokens "$scratch/data.bin" 20000
make_secret "$scratch/secret"
port=$((20000 + $$ % 20000))
steps=60
export steps

# describe_run NAME RANKS HOSTS MODEL FALLBACKS [PIPELINE] [CLUSTER]: $scratch/NAME.cfg and, for one host, NAME_1.cfg.
describe_run() {
  cat >"$scratch/$1_1.cfg" <<END
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 16; $4 };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
pipeline = { ranks = $2; microbatches = 8; schedule = "1f1b"; ${6-} };
END
  cat "$scratch/$1_1.cfg" - >"$scratch/$1.cfg" <<END
cluster = { hosts = $3; port = $port; bind = "none"; ${7-} };
fallback = ( $5 );
END
}
# lose: starts a command on each of so many hosts, and kills some, each when the run has come further.
cat >"$scratch/lose" <<'END'
scratch=$1 name=$2 count=$3 lost=$4
shift 4
if test -n "${watched:-}"; then # Its sockets, when the ranks have started again.
  {
    until grep -qs '"event":"restart"' "$scratch/run.log"; do sleep 0.01; done
    on "$watched" cat /proc/net/tcp >"$scratch/sockets"
  } &
fi
for i in $(seq $count); do
  on "host$i" ip addr add "10.79.0.$i/24" dev net0 label net0:b
  {
    on "host$i" timeout 40 "$scratch/$name" train --data "$scratch/data.bin" --seed 7 --steps $steps --quiet --log "$scratch/run.log" \
      --checkpoint "$scratch/run.ckpt" "$@" >"$scratch/out.$i" 2>"$scratch/err.$i"
    echo $? >"$scratch/status.$i"
  } &
done
losses=0
for host in $lost; do # Each after 10 more steps.
  until test -f "$scratch/run.log" && test "$(grep -c '"event":"restart"' "$scratch/run.log")" -ge $losses &&
    test "$(sed -n '/"event":"restart"/h; /"event"/!H; ${ x; p; }' "$scratch/run.log" | wc -l)" -ge 10; do
    sleep 0.01
  done
  case $host in
    silent-*) unplug "${host#silent-}" ;;
    again-*) # Its command is started again, and waits.
      i=${host#again-host}
      until test -s "$scratch/status.$i"; do sleep 0.01; done
      rm "$scratch/status.$i"
      {
        on "host$i" timeout 40 "$scratch/$name" train --data "$scratch/data.bin" --seed 7 --steps $steps --quiet --log "$scratch/run.log" \
          --checkpoint "$scratch/run.ckpt" "$@" >"$scratch/out.$i" 2>"$scratch/err.$i"
        echo $? >"$scratch/status.$i"
      } &
      sleep 0.5
      ;;
    *) on "$host" sh -c 'kill -9 -1' ;;
  esac
  case $host in again-*) ;; *) losses=$((losses + 1)) ;; esac
done
for i in $(seq $count); do until test -s "$scratch/status.$i"; do sleep 0.05; done; done
END
# lose TEXT NAME HOSTS LOST STATUSES OPTIONS...: $scratch/NAME loses these hosts, one after the other; its commands end so.
lose() {
  lose_text=$1 lose_name=$2 lose_count=$3 lose_hosts=$4 lose_statuses=$5
  shift 5
  rm -rf "$scratch/run.log" "$scratch/run.ckpt" "$scratch"/status.*
  hosts "$lose_count" sh "$scratch/lose" "$scratch" "$lose_name" "$lose_count" "$lose_hosts" "$@"
  matches "$lose_text: the commands end as they should" "$(cat "$scratch"/status.? | tr '\n' ' ')" "$lose_statuses "
}
# recovers TEXT NAME SOURCE FALLBACKS: as the same run on one host, after restarts from there with these fallbacks.
recovers() {
  grep -v '"event"' "$scratch/run.log" >"$scratch/run.steps"
  ok "$1: to the same bits" test "$(log_field "$scratch/run.steps" loss; log_field "$scratch/run.steps" grad_norm)" = "$(cat "$scratch/$2_1.bits")"
  ok "$1: and weights" test "$(cd "$scratch/run.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors)" = "$(cat "$scratch/$2_1.sums")"
  is "$1: with the fallbacks" "$(sed -n "s/.*\"source\":\"$3\".*\"fallback\":\\([0-9]*\\)}/\\1/p" "$scratch/run.log" | tr '\n' ' ')" "$4 "
  grep '"event":"restart"' "$scratch/run.log" | sed 's/^/# /'
}
# build_run NAME: its binary, and the bits of an undisturbed run.
build_run() {
  ok "$1: a plan with fallbacks is built" build "$1" "$scratch/$1.cfg"
  ok "$1: that for one host is built" build "$1_1" "$scratch/$1_1.cfg"
  ok "$1: which trains" train_bits "$1_1" --data "$scratch/data.bin" --steps "$steps"
}

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
matches "which is said" "$(cat "$scratch"/err.3)" "*penstock: *"

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

# model NAME RANKS MODEL FALLBACK [SETTINGS]: two hosts become one.
model() {
  describe_run "$1" "$2" '("host1", "host2")' "$3" "$4"
  for model_file in $1 ${1}_1; do echo "${5-}" >>"$scratch/$model_file.cfg"; done
  build_run "$1"
  lose "$1" "$1" 2 host2 "0 137" --restarts 1 --recover-every 1
  recovers "$1" "$1" memory 1
}
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
on host1 timeout 30 "$scratch/two" train --data "$scratch/data.bin" --steps 1 2>"$scratch/err.1" &
on host2 timeout 30 "$scratch/other" train --data "$scratch/data.bin" --steps 1 2>"$scratch/err.2"
echo $? >"$scratch/status.2"
wait $!
echo $? >"$scratch/status.1"
END
hosts 2 sh "$scratch/differ" "$scratch"
is "a binary with other fallbacks is another one" "$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')" "76 76 "
finish
