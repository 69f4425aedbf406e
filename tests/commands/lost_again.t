#!/bin/sh
# lost_again.t: a host is lost while the commands start the ranks again after another loss: one more loss, from which the run recovers like from
# any other.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
support=$top_srcdir/tests/support
case $support in /*) ;; *) support=$PWD/$support ;; esac
prepare_hosts
cat "$scratch/llama.cfg" - >"$scratch/four.cfg" <<END
cluster = { hosts = ("host1", "host2", "host3", "host4"); port = $port; bind = "none"; };
fallback = ( { pipeline = { ranks = 3; }; }, { pipeline = { ranks = 2; }; } );
END
steps=150
ok "a plan for one host is built" build one "$scratch/llama.cfg"
ok "which trains" train_bits one --data "$scratch/data.bin" --steps $steps
ok "for four, with fallbacks" build four "$scratch/four.cfg"
ok "for three, with a spare and a fallback" build three "$scratch/four.cfg" -s pipeline.ranks=3 -s cluster.hosts=[host1,host2,host3] \
  -s cluster.spares=[host4]
ok "a command that ends at a message is built" $CC $CFLAGS $PEN_CFLAGS -shared -fPIC -I"$top_srcdir" -o "$scratch/end_at.so" "$support/end_at.c" -ldl
run=$scratch/run

# lose NAME BINARY HOST OTHER MESSAGES STATUSES OPTION...: the host is lost, then, when it sends the last of these messages, the other one.
lose() {
  lose_name=$1 lose_binary=$2 lose_host=$3 lose_other=$4 lose_at=$5 lose_statuses=$6
  shift 6
  rm -rf "$run"
  mkdir "$run"
  cp "$scratch/$lose_binary" "$run/binary"
  # The list of messages is one word there.
  printf '#!/bin/sh\nLD_PRELOAD=%s END_AT="%s" END_SIGNAL=%s exec "$@"\n' "$scratch/end_at.so" "$lose_at" "${end_signal:-9}" >"$scratch/ends"
  chmod +x "$scratch/ends"
  export "COMMAND_${lose_other#host}=$scratch/ends"
  cd "$scratch" || exit 1
  timeout 300 sh "$support/hosts.sh" 4 sh "$support/fault_run.sh" "$run" 4 binary "host:$lose_host" 0 --data data.bin --seed 7 --steps $steps \
    --timeout 3 --checkpoint "$run/ckpt" "$@"
  cd "$OLDPWD" || exit 1
  unset "COMMAND_${lose_other#host}"
  is "$lose_name: the commands end as they should" "$(cat "$run"/status.? | tr '\n' ' ')" "$lose_statuses "
}
# recovers SOURCE [FALLBACK]: to the bits of one host, by one start from there, whose event names both hosts.
recovers() {
  grep -v '"event"' "$run/log" >"$run/steps"
  ok "$lose_name: to the same bits" test "$(log_field "$run/steps" loss; log_field "$run/steps" grad_norm)" = "$(cat "$scratch/one.bits")"
  ok "$lose_name: and weights" test "$(cd "$run/ckpt/latest" && sha256sum model.safetensors optimizer.safetensors)" = "$(cat "$scratch/one.sums")"
  grep '"event":"restart"' "$run/log" >"$run/restarts"
  is "$lose_name: from there" "$(sed -n 's/.*"source":"\([a-z]*\)".*"seconds":[^,}]*\(.*\)}/\1\2/p' "$run/restarts")" "$1${2:+,\"fallback\":$2}"
  matches "$lose_name: both are named" "$(cat "$run/restarts")" "*host $lose_host lost after *host $lose_other lost after *"
  sed 's/^/# /' "$run/restarts"
}

# ---- while they connect, agree on a state, and convert it ----
# Of four hosts in a ring, each with the copies of the one before, those that are left have all.
memory="--restarts 2 --recover-every 1"
for at in "HEARTBEAT PLACE" "HEARTBEAT START" "HEARTBEAT START 203"; do # 202, 203: PART and DONE of redistribute.c
  lose "a second host, at $at" four host4 host2 "$at" "0 137 0 137" $memory
  recovers memory 2
done
for at in "HEARTBEAT PLACES" "HEARTBEAT START" "HEARTBEAT START 202" "HEARTBEAT START 203"; do
  lose "the host that serves, at $at" four host3 host1 "$at" "137 0 137 0" $memory
  recovers memory 2
done
lose "the only host with a state, at HEARTBEAT START 202" four host3 host2 "HEARTBEAT START 202" "0 137 137 0" $memory --save-every 4
recovers checkpoint 2
lose "from a checkpoint" four host4 host2 "HEARTBEAT START" "0 137 0 137" --restarts 2 --save-every 4
recovers checkpoint 2
lose "a host that does not come again" four host4 host2 "HEARTBEAT CONNECT" "0 137 0 137" --restarts 1 --save-every 4
recovers checkpoint 2
lose "the first host does not serve again" four host4 host1 "HEARTBEAT LISTEN" "137 0 0 137" --restarts 1 --save-every 4
recovers checkpoint 2
lose "no restart is left" four host4 host2 "HEARTBEAT START" "75 137 75 137" --restarts 1 --recover-every 1
matches "no restart is left: the line" "$(cut -d' ' -f2- "$run/err.1")" "*
penstock: rank * lost: host host2 lost after start; *"
end_signal=19 HANGS=host2
export HANGS
lose "a second host, stopped" four host4 host2 "HEARTBEAT START" "0 hangs 0 137" $memory
recovers memory 2
unset end_signal HANGS

# ---- a spare, and the host that has the states of the lost one ----
# The third host knows of the second loss before the first one, which still listens for spares.
export COMMAND_1="env LD_PRELOAD=$scratch/end_at.so DELAY_MS=500"
lose "a spare" three host2 host4 "HEARTBEAT START" "0 137 0 137" $memory
recovers memory 2
unset COMMAND_1
lose "the host with the copies" three host2 host3 "HEARTBEAT START 101" "0 137 137 0" $memory --save-every 4 # 101: STEP of mirror.c
recovers checkpoint 2
finish
