#!/bin/sh
# host_faults.t: what ranks, hosts and links do to a run over several hosts: it survives, or all commands end in time, each with a line
# for each culprit, in the same words, and nothing is left.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
support=$top_srcdir/tests/support
case $support in /*) ;; *) support=$PWD/$support ;; esac
prepare_hosts
all="-s cluster.port=$port -s cluster.bind=none" # All hosts are this machine's cores.
ok "a plan for one host is built" build one "$scratch/llama.cfg"
ok "for two" build two "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2]
ok "for three" build three "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2,host3] -s pipeline.ranks=3
ok "for four" build four "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2,host3,host4]
run=$scratch/run

# meet COUNT FAULTS OPTION...: a run over so many hosts meets them (fault_run.sh).
meet() {
  meet_count=$1 meet_faults=$2
  shift 2
  rm -rf "$run"
  mkdir "$run"
  cp "$scratch/$(echo "one two three four" | cut -d' ' -f"$meet_count")" "$run/binary"
  test ! -f "$scratch/binary.2" || mv "$scratch/binary.2" "$run"
  cd "$scratch" || exit 1
  ${in_mounts:-} timeout 300 sh "$support/hosts.sh" "$meet_count" sh "$support/fault_run.sh" "$run" "$meet_count" binary "$meet_faults" 0.2 \
    --data data.bin --seed 7 --timeout 3 "$@"
  cd "$OLDPWD" || exit 1
}
lost_lines() { cut -d' ' -f2- "$run/err.$1" | grep '^penstock: rank .* lost: ' | sort; }

# Commands that have lost the first host do not reach each other: they may know different actions of its ranks, and of those that wait.
same_words() { lost_lines "$1" | sed '/host host1)/s/ after .*//'; }

# ends NAME STATUSES: so end the commands, and nothing is left.
ends() {
  is "$1: the commands end as they should" "$(cat "$run"/status.? | tr '\n' ' ')" "$2 "
  is "$1: nothing is left" "$(cat "$run/left")" ""
}
# names NAME HOSTS PATTERN...: the commands of these hosts print a line for each pattern, in the order of ranks.
names() {
  names_what=$1 names_hosts=$2
  shift 2
  names_pattern=$(printf '%s\n' "$@")
  for names_host in $names_hosts; do
    matches "$names_what: host$names_host says so" "$(lost_lines "$names_host")" "$names_pattern"
    is "$names_what: with a line for each" "$(lost_lines "$names_host" | wc -l | tr -d ' ')" $#
    is "$names_what: in the same words" "$(same_words "$names_host")" "$(same_words "${names_hosts%% *}")"
  done
  names_first=$(complaints "$run"/err.* | grep ' lost: ' | sort -n | sed 's/ .*//;q')
  names_last=$(for names_host in $names_hosts; do cat "$run/end.$names_host"; done | sort -n | tail -n 1)
  echo "# $names_what: named after $names_first s, the commands ended after $names_last s"
}
lost() { echo "penstock: rank $1 (pid *, host $2) lost: $3 after *"; }

# ---- a death on a host that lives, and the loss of a host ----
meet 2 rank:host2:1
ends "a killed rank on another host" "75 75"
names "a killed rank on another host" "1 2" "$(lost 3 host2 "signal 9")"
meet 3 host:host3
ends "a killed host" "75 75 137"
names "a killed host" "1 2" "$(lost 2 host3 "host host3 lost")"
meet 3 host:host1
ends "the first host, killed" "137 75 75"
names "the first host, killed" "2 3" "$(lost 0 host1 "host host1 lost")"
meet 3 "stop_rank:host2:0 rank:host3:0"
ends "a stopped rank and a killed one" "75 75 75"
meet 4 "host:host2 host:host4"
ends "two killed hosts" "75 137 75 137"
names "two killed hosts" "1 3" "$(lost 1 host2 "host host2 lost")" "$(lost 3 host4 "host host4 lost")"
meet 4 "rank:host2:0 rank:host3:0"
ends "two killed ranks" "75 75 75 75"
names "two killed ranks" "1 2 3 4" "$(lost 1 host2 "signal 9")" "$(lost 2 host3 "signal 9")"

# ---- links ----
meet 3 cut:host1:host3
ends "a link between two of three hosts" "75 75 75"
names "a link between two of three hosts" "1 2" "$(lost 2 host3 "link to host host3 lost")"
matches "a link between two of three hosts: the other end" "$(lost_lines 3)" "$(lost 0 host1 "link to host host1 lost")"
meet 3 cut:host2:host3
ends "a link between two others" "75 75 75"
names "a link between two others" "1 2 3" "$(lost 1 host2 "link to host host3 lost")"
meet 4 "part:host3 part:host4"
ends "a partition" "75 75 75 75"
names "a partition" "1 2" "$(lost 2 host3 "link to host host3 lost")" "$(lost 3 host4 "link to host host4 lost")"
matches "a partition: the other part" "$(lost_lines 3)" "$(lost 0 host1 "link to host host1 lost")"
is "a partition: in the same words" "$(lost_lines 4 | sed 's/ after.*//')" "$(lost_lines 3 | sed 's/ after.*//')"

# ---- hosts whose processes are stopped: lost after --timeout, which is 3 s in these runs ----
meet 3 stop:host2
ends "a stopped host" "75 75 75"
names "a stopped host" "1 3" "$(lost 1 host2 "host host2 lost")"
meet 3 stop:host1
ends "the first host, stopped" "75 75 75"
names "the first host, stopped" "2 3" "$(lost 0 host1 "host host1 lost")"
meet 4 "stop:host2 stop:host4"
ends "two stopped hosts" "75 75 75 75"
names "two stopped hosts" "1 3" "$(lost 1 host2 "host host2 lost")" "$(lost 3 host4 "host host4 lost")"

# ---- what a run survives ----
ok "an undisturbed run on one host" train_bits one --data "$scratch/data.bin" --steps 20
# survives NAME: a rank or link may be slow meanwhile, on a busy machine also without the fault, and is then named.
survives() {
  ends "$1" "0 0"
  cat "$run"/err.? >"$run/err"
  is "$1: nothing else is said" "$(complaints "$run/err")" ""
  { log_field "$run/log" loss; log_field "$run/log" grad_norm; } >"$scratch/bits"
  ok "$1: to the same bits" cmp "$scratch/bits" "$scratch/one.bits"
  is "$1: and weights" "$(cd "$run/ckpt/latest" && sha256sum model.safetensors optimizer.safetensors)" "$(cat "$scratch/one.sums")"
}
# Where the link loses packets, a connection that is closed with words on their way is reset, and they do not arrive.
ok "a library that watches closes is built" $CC $CFLAGS $PEN_CFLAGS -shared -fPIC -I"$top_srcdir" -o "$scratch/close_order.so" \
  "$support/close_order.c" -ldl
COMMAND_1="env LD_PRELOAD=$scratch/close_order.so CLOSE_ORDER=$scratch/order" && export COMMAND_1
meet 3 "" --steps 5
unset COMMAND_1
ends "a short run" "0 0 0"
is "a short run: the host with the last word closes its connections after the others" "$(tr '\n' ' ' <"$scratch/order")" "last last "
if test -c /dev/net/tun && $CC $CFLAGS -o "$scratch/lossy_link" "$support/lossy_link.c"; then
  LOSSY_LINK=$scratch/lossy_link && export LOSSY_LINK
  meet 2 loss:host2:5 --steps 20 --checkpoint "$run/ckpt"
  survives "a link that loses 5 % of its packets"
else
  skip "a link that loses 5 % of its packets" "no TAP devices here"
fi
faketime=$(ls /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
if test -n "$faketime"; then
  for hour in +3600 -3600; do
    export COMMAND_2="env LD_PRELOAD=$faketime FAKETIME=$hour DONT_FAKE_MONOTONIC=1"
    meet 2 "" --steps 20 --checkpoint "$run/ckpt"
    unset COMMAND_2
    survives "a clock that is $hour s apart"
  done
else
  skip "clocks that are an hour apart" "no libfaketime here"
fi

# ---- errors of one host ----
mkdir "$scratch/disk"
in_mounts="$(test "$(id -u)" -eq 0 && echo unshare --mount || echo unshare --user --map-root-user --mount) sh $scratch/with_disk"
cat >"$scratch/with_disk" <<END_OF_FILE
mount -t tmpfs -o size=100k tmpfs "$scratch/disk" && exec "\$@"
END_OF_FILE
meet 2 "" --steps 100 --save-every 5 --checkpoint "$scratch/disk/ckpt"
in_mounts=
ends "a full disk" "74 74"
matches "a full disk: the message" "$(complaints "$run"/err.?)" "*$scratch/disk/ckpt*No space left on device*"
ok "a full disk: no rank is lost" test -z "$(grep -h 'lost:' "$run"/err.?)"
# missing HOST: its command does not find the file.
missing() {
  export "COMMAND_$1=env -C /"
  meet 2 "" --steps 20
  unset "COMMAND_$1"
  ends "a file that host$1 does not have" "66 66"
  matches "a file that host$1 does not have: the message" "$(complaints "$run/err.$1")" "*penstock: *data.bin: No such file or directory"
  matches "a file that host$1 does not have: the other's" "$(complaints "$run/err.$((3 - $1))")" \
    "*penstock: the command of host host$1 ended with status 66 before the ranks were started"
}
missing 1
missing 2
meet 2 "" --steps 20 --metrics "$scratch/absent/metrics"
ends "metrics in no folder" "73 73"
matches "metrics in no folder: the message" "$(complaints "$run/err.1")" "*penstock: --metrics $scratch/absent/metrics: No such file or directory"
matches "metrics in no folder: the other's" "$(complaints "$run/err.2")" "*penstock: the command of host host1 ended with status 73 before the ranks were started"
# A folder of the name of rank 0's that host2 alone sees.
mkdir "$scratch/own"
echo "mount -t tmpfs tmpfs '$scratch/own' && exec \"\$@\"" >"$scratch/with_own"
COMMAND_2="sh $scratch/with_own" && export COMMAND_2
meet 2 "" --steps 20 --checkpoint "$scratch/own"
unset COMMAND_2
ends "a folder for checkpoints on each host" "65 65"
matches "a folder for checkpoints on each host: the message" "$(complaints "$run/err.2")" \
  "*penstock: --checkpoint $scratch/own: host host2, of rank [23], and host host1, of rank 0, have a folder each: name a folder that all hosts see"
ok "another binary is built" build binary.2 "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2] -s optimizer.learning_rate=1e-2
meet 2 "" --steps 20
ends "another binary" "76 76"
matches "another binary: the message" "$(complaints "$run/err.2")" "*penstock: rank [23] runs another plan than rank 0: their digests differ"
finish
