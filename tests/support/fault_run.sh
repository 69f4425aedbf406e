#!/bin/sh
# fault_run.sh: a run over emulated hosts meets faults; inside hosts.sh: fault_run.sh FOLDER COUNT BINARY FAULTS START OPTION...
#
# Trains FOLDER/BINARY on hosts 1 to COUNT. START seconds after the second step was logged the FAULTS happen, separated by blanks:
#
#   rank:HOST:INDEX    SIGKILL to a rank of the host        stop_rank:HOST:INDEX   SIGSTOP
#   host:HOST          SIGKILL to all its processes         stop:HOST    SIGSTOP to all; they continue when the other commands have ended
#   unplug:HOST        its link is cut                      cut:HOST:HOST   packets between the two are lost; only once in a run
#   part:HOST          its link joins another bridge: hosts that are parted reach each other alone
#   loss:HOST:PERCENT  from the beginning: its link loses packets (LOSSY_LINK is lossy_link.c's program)
#
# Leaves in FOLDER, for host I: status.I; err.I, standard error with the seconds since the fault before each line; end.I, the
# seconds until the command ended, and left, what remains on the hosts that live. A command that does not end in 120 s, or is of
# HANGS, a list of hosts that are not awaited, has the status "hangs". COMMAND_I, if set, is put before the command of host I;
# FOLDER/BINARY.I, if it exists, is its program.
set -u
folder=$1 count=$2 binary=$3 faults=$4 start=$5
shift 5
hosts=$(seq "$count")
awaited=$(for i in $hosts; do case " ${HANGS:-} " in *" host$i "*) ;; *) echo "$i" ;; esac; done)
world=$(dirname "$(dirname "$(command -v on)")") # of hosts.sh: a file host1 ... with each host's process

now() { date +%s.%N; }

lossy() {
  ip link delete "port$1"
  mkfifo "$folder/ready"
  "$LOSSY_LINK" "port$1" "$(cat "$world/host$1")" "$2" "${SEED:-1}" >"$folder/ready" &
  read -r _ <"$folder/ready"
  ip link set "port$1" master bridge0 up
  on "host$1" sh -c "ip addr add 10.78.0.$1/24 dev net0 && ip link set net0 up"
}

# processes HOST [PROCESS]: its processes, except the first and those of fault_run.sh, or the one that is this process there, as seen from here.
processes() {
  space=$(readlink "/proc/$(cat "$world/$1")/ns/pid")
  for process in $(ps -e -o pid= -o comm= | sed -n "s/^ *\([0-9]*\) $binary.*/\1/p"); do
    if test "$(readlink "/proc/$process/ns/pid")" = "$space"; then
      inner=$(sed -n 's/^NSpid:.*[^0-9]//p' "/proc/$process/status")
      if test "${2:-$inner}" = "$inner"; then echo "$process"; fi
    fi
  done
}
# rank HOST INDEX
rank() { processes "$1" "$(on "$1" sh -c "pgrep -P \$(cat $folder/pid.${1#host})" | sed -n "$(($2 + 1))p")"; }

# What the faults do, found out before they happen: so they happen at one time.
killed= stopped= unplugged= parted= isolated=
add_fault() {
  case $1 in
    rank) killed="$killed $(rank "$2" "$3")" ;;
    stop_rank) stopped="$stopped $(rank "$2" "$3")" ;;
    host) killed="$killed $(processes "$2")" ;;
    stop) stopped="$stopped $(processes "$2")" ;;
    unplug) unplugged="$unplugged port${2#host}" ;;
    part) parted="$parted port${2#host}" ;;
    cut) isolated="port${2#host} port${3#host}" ;;
  esac
}
prepare_faults() {
  for words in $faults; do
    case $words in loss:*) ;; *) add_fault $(echo "$words" | tr : ' ') ;; esac
  done
}
happen() {
  for port in $parted; do ip link set "$port" master bridge1 & done
  for port in $isolated; do bridge link set dev "$port" isolated on & done
  for port in $unplugged; do ip link set "$port" down & done
  test -z "$killed" || kill -KILL $killed
  test -z "$stopped" || kill -STOP $stopped
}

ended() {
  for ended_host; do test -s "$folder/status.$ended_host" || return 1; done
}
# await HOST...: until their commands have ended.
await() {
  await_end=$(($(date +%s) + 120))
  until ended "$@" || test "$(date +%s)" -gt $await_end; do sleep 0.02; done
}

ip link add bridge1 type bridge && ip link set bridge1 up
for words in $faults; do
  case $words in loss:host*) words=${words#loss:host}; lossy "${words%:*}" "${words#*:}" ;; esac
done
for i in $hosts; do
  eval "before=\${COMMAND_$i:-}"
  program=$folder/$binary
  test ! -x "$program.$i" || program=$program.$i
  {
    {
      on "host$i" sh -c "echo \$\$ >'$folder/pid.$i'; exec $before \"\$@\"" sh "$program" train --quiet --log "$folder/log" "$@" 2>&1 >"$folder/out.$i"
      echo "$?" >"$folder/status.new.$i"
      now >"$folder/end.$i"
      mv "$folder/status.new.$i" "$folder/status.$i"
    } | while IFS= read -r line; do echo "$(now) $line"; done >"$folder/err.$i"
  } &
done
until ended $hosts || { test -f "$folder/log" && test "$(wc -l <"$folder/log")" -ge 2; }; do sleep 0.01; done
sleep "$start"
prepare_faults
at=$(now)
happen
case $faults in
  *stop:*)
    live=
    for i in $awaited; do case " $faults " in *" stop:host$i "*) ;; *) live="$live $i" ;; esac; done
    await $live
    kill -CONT -1 # nsenter stops with its child, too
    ;;
esac
await $awaited

sleep 0.1
: >"$folder/left"
for i in $hosts; do
  test -s "$folder/status.$i" || { echo hangs >"$folder/status.$i"; now >"$folder/end.$i"; }
  on "host$i" sh -c 'all=$(ps -e -o pid=,args=); echo "$all" | grep -v -e "^ *1 sleep" -e "ps -e" -e "<defunct>"; ls -A /dev/shm' | sed "s/^/host$i: /" >>"$folder/left"
  awk -v at="$at" '{ $1 = sprintf("%.3f", $1 - at); print }' "$folder/err.$i" >"$folder/err.new" && mv "$folder/err.new" "$folder/err.$i"
  awk -v at="$at" '{ printf "%.3f\n", $1 - at }' "$folder/end.$i" >"$folder/err.new" && mv "$folder/err.new" "$folder/end.$i"
done
