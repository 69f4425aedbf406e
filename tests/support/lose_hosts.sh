# lose_hosts.sh: what the tests of runs that lose hosts, and go on with a fallback, share. Sourced after lib.sh; ends the test where there are no
# emulated hosts.
need_hosts
hosts() { timeout 300 sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
make_tokens "$scratch/data.bin" 20000 1 550 # The first two steps are skipped: the others' updates are numbered from 1.
make_secret "$scratch/secret"
port=$((20000 + $$ % 12000))
steps=60
export steps

# describe_run NAME RANKS HOSTS MODEL FALLBACKS [PIPELINE] [CLUSTER]: $scratch/NAME.cfg and, for one host, NAME_1.cfg; of a model with $kv_heads
# and $vocab.
kv_heads=2 vocab=256
describe_run() {
  cat >"$scratch/$1_1.cfg" <<END
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; kv_heads = $kv_heads; ffn = 48; vocab = $vocab; sequence = 16; $4 };
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
    on "host$i" timeout 300 "$scratch/$name" train --data "$scratch/data.bin" --seed 7 --steps $steps --quiet --log "$scratch/run.log" \
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
        on "host$i" timeout 300 "$scratch/$name" train --data "$scratch/data.bin" --seed 7 --steps $steps --quiet --log "$scratch/run.log" \
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

# model NAME RANKS MODEL FALLBACK [SETTINGS]: two hosts become one.
model() {
  describe_run "$1" "$2" '("host1", "host2")' "$3" "$4"
  for model_file in $1 ${1}_1; do echo "${5-}" >>"$scratch/$model_file.cfg"; done
  build_run "$1"
  lose "$1" "$1" 2 host2 "0 137" --restarts 1 --recover-every 1
  recovers "$1" "$1" memory 1
}
