#!/bin/sh
# held.t: a command that is stopped in front of, or in the middle of, a message to another one holds up none that is not: what it is to a run
# is found in time, whether it has ranks or not.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
support=$top_srcdir/tests/support
case $support in /*) ;; *) support=$PWD/$support ;; esac
prepare_hosts
ok "a plan for two hosts and a spare is built" build two "$scratch/llama.cfg" -s cluster.hosts=[host1,host2] -s cluster.port=$port \
  -s cluster.spares=[host3] -s cluster.bind=none
ok "a command that stops at a message is built" $CC $CFLAGS $PEN_CFLAGS -shared -fPIC -I"$top_srcdir" -o "$scratch/end_at.so" \
  "$support/end_at.c" -ldl

# Starts two hosts, then the third one; the held one stops at the last of these messages. Once the first host has said the words, and they have
# run on, or ended, ends all.
cat >"$scratch/hold" <<'END'
scratch=$1 held=$2 at=$3 words=$4
start() {
  test "$1" != "$held" || export LD_PRELOAD="$scratch/end_at.so" END_AT="$at" END_SIGNAL=19
  on "$1" "$scratch/two" train --data "$scratch/data.bin" --steps 100000000 --quiet --timeout 3 --restarts 1 --log "$scratch/log" 2>"$scratch/err.$1"
  echo $? >"$scratch/status.$1"
}
reach() { until test -s "$scratch/log" && test "$(wc -l <"$scratch/log")" -ge "$1"; do sleep 0.05; done; }
start host1 &
start host2 &
test "$held" != host3 || reach 1
start host3 &
teller=host$((1 + (${held#host} == 1)))
until grep -q "$words" "$scratch/err.$teller"; do sleep 0.05; done
reach $(($(wc -l <"$scratch/log") + 5))
for host in host1 host2 host3; do test $host = "$held" || on $host pkill -TERM -o -x two; done
END
# holds NAME HOST MESSAGES WORDS: another host says that it is lost, and the run goes on; END_HALF as in end_at.c.
holds() {
  rm -f "$scratch"/status.* "$scratch"/err.* "$scratch/log"
  timeout 300 sh "$support/hosts.sh" 3 sh "$scratch/hold" "$scratch" "$2" "$3" "$4"
  is "$1: the run goes on" $? 0
  sed 's/^/# /' "$scratch"/err.host?
}
for half in "" 1; do
  test -z "$half" || export END_HALF=1
  holds "a spare before its first message${half:+, half sent}" host3 PLACE "^penstock: host host3 lost: it has no ranks, and the run goes on"
  holds "a host with ranks${half:+, half sent}" host2 "HEARTBEAT HEARTBEAT HEARTBEAT" "^penstock: rank . (.*host host2) lost: "
done
holds "the one that serves, half sent" host1 "HEARTBEAT HEARTBEAT HEARTBEAT" "^penstock: rank . (.*host host1) lost: "

# ---- no signal is held, either ----
cat >"$scratch/wait" <<'END'
on host1 "$1/two" train --data "$1/data.bin" 2>"$1/err" &
until on host1 grep -q ":$(printf %04X "$2") 00000000" /proc/net/tcp; do sleep 0.05; done
on host1 pkill -TERM -o -x two
wait $!
END
timeout 300 sh "$support/hosts.sh" 2 sh "$scratch/wait" "$scratch" $port
is "a command that waits for other hosts ends at SIGTERM" $? 143
finish
