#!/bin/sh
# spares.t: a spare host takes the place of a lost one, also of the first, and the run ends with the bits of an undisturbed one.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
hosts() { timeout 300 sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
prepare_hosts
make_tokens "$scratch/data.bin" 20000 1 550 # The first two steps are skipped: the others' updates are numbered from 1.

# ---- settings ----
"$gen" --check "$scratch/llama.cfg" -s cluster.spares=[host2] 2>"$scratch/err"
is "spares need several hosts" $? 78
matches "which is said" "$(complaints "$scratch/err")" '*cluster.spares = *: an empty list where cluster.hosts has one host*'
"$gen" --check "$scratch/llama.cfg" -s cluster.hosts=[host1,host2] -s cluster.port=$port -s cluster.spares=[host2] 2>"$scratch/err"
is "a spare is no host" $? 78
matches "which is said" "$(complaints "$scratch/err")" '*cluster.spares = *: hosts that no list has a second time, not host2 twice*'

# ---- runs ----
ok "a plan for one host is built" build one "$scratch/llama.cfg"
ok "which trains" train_bits one --data "$scratch/data.bin" --steps 60
ok "a plan for two hosts and two spares is built" build two "$scratch/llama.cfg" -s cluster.hosts=[host1,host2] -s cluster.port=$port \
  -s cluster.spares=[host3,host4] -s cluster.bind=none # All hosts are this machine's cores.
matches "info lists them" "$("$scratch/two" info)" "*hosts         host1 host2
spares        host3 host4
*"
cat >"$scratch/lose" <<'END'
scratch=$1 lost=$2
shift 2
for i in 1 2 3 4; do
  test -z "${only_host1:-}" || test $i = 1 || on "host$i" mount -t tmpfs tmpfs "$scratch/own"
  {
    on "host$i" timeout 300 "$scratch/two" train --data "$scratch/data.bin" --seed 7 --steps 60 --quiet --log "$scratch/${only_host1:-two.log}" \
      --checkpoint "$scratch/two.ckpt" "$@" >"$scratch/out.$i" 2>"$scratch/err.$i"
    echo $? >"$scratch/status.$i"
  } &
done
lines=10
for host in $lost; do
  until test -f "$scratch/two.log" && test "$(wc -l <"$scratch/two.log")" -ge $lines; do sleep 0.01; done
  case $host in
    silent-*) unplug "${host#silent-}" ;;
    stopped-*) on "${host#stopped-}" sh -c 'kill -STOP -1' ;;
    spare) # The one that has ranks now.
      host=host3
      if test "$(on host4 pgrep -cf "$scratch/two train")" -gt 2; then host=host4; fi
      on $host sh -c 'kill -9 -1'
      ;;
    *) on "$host" sh -c 'kill -9 -1' ;;
  esac
  lines=$((lines + 15))
done
case $lost in stopped-host2)
  until test -s "$scratch/status.1"; do sleep 0.05; done
  on host2 sh -c 'kill -9 -1'
  pkill -CONT nsenter ;; # It has stopped together with what it has started.
esac
for i in 1 2 3 4; do until test -s "$scratch/status.$i"; do sleep 0.05; done; done
END
# lose NAME LOST STATUSES OPTIONS...: the run loses these hosts, one after the other; its commands end so.
lose() {
  lose_name=$1 lose_hosts=$2 lose_statuses=$3
  shift 3
  test -n "${only_host1:-}" || rm -rf "$scratch/two.log"
  rm -rf "$scratch/two.ckpt" "$scratch"/status.*
  hosts 4 sh "$scratch/lose" "$scratch" "$lose_hosts" "$@"
  sed 's/^/# /' "$scratch"/err.?
  matches "$lose_name: the commands end as they should" "$(cat "$scratch"/status.? | tr '\n' ' ')" "$lose_statuses "
}
# recovers NAME LOSSES [SOURCE]: with the bits of one host, after so many restarts, from there.
recovers() {
  grep -v '"event"' "$scratch/two.log" >"$scratch/two.steps"
  ok "$1: to the same bits" test "$(log_field "$scratch/two.steps" loss; log_field "$scratch/two.steps" grad_norm)" = "$(cat "$scratch/one.bits")"
  ok "$1: and weights" test "$(cd "$scratch/two.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors)" = "$(cat "$scratch/one.sums")"
  is "$1: each loss makes a restart" "$(grep -c "\"source\":\"${3-}" "$scratch/two.log")" "$2"
  is "$1: each event has the rank of its line" "$(grep '"event":"restart"' "$scratch/two.log" |
    sed 's/"rank":\([0-9]*\),"host":"[^"]*","cause":"penstock: rank \1 /same/g' | grep '"rank":')" ""
  grep '"event"' "$scratch/two.log" | sed 's/^/# /'
}
# What --seed 7 begins from, as a folder of a model to serve.
mkdir "$scratch/begin"
"$scratch/one" init --seed 7 --output "$scratch/begin/model.safetensors"
sed 's/"eos_token_id": null/"eos_token_id": 3/' "$scratch/one.ckpt/latest/config.json" >"$scratch/begin/config.json"
echo a tokenizer >"$scratch/begin/tokenizer.json"
lose "an undisturbed run" "" "0 0 0 0" --restarts 1
recovers "an undisturbed run" 0
for from in checkpoint memory; do
  options=$(test $from = memory && echo --recover-every 1 || echo --save-every 4)
  lose "the second host is killed, from $from" host2 "0 137 0 0" --restarts 2 $options
  recovers "the second host is killed, from $from" 1 $from
  lose "the first, then its spare, from $from" "host1 spare" "137 0 * *" --restarts 2 --init "$scratch/begin" $options
  recovers "the first, then its spare, from $from" 2 $from
  for file in config.json tokenizer.json; do
    ok "the first, then its spare, from $from: it keeps $file of its beginning" cmp "$scratch/begin/$file" "$scratch/two.ckpt/latest/$file"
  done
done
lose "the link of the second host is cut" silent-host2 "0 75 0 0" --restarts 2 --save-every 4
recovers "the link of the second host is cut" 1
lose "the second host is stopped" stopped-host2 "0 137 0 0" --restarts 2 --recover-every 1 --timeout 2
recovers "the second host is stopped" 1 memory
matches "the second host is stopped: it is named" "$(complaints "$scratch/err.1" | sed -n 1p)" "penstock: rank [23] (*, host host2) lost: *"
mkdir -p "$scratch/own/folder"
ln -sf own/folder/log "$scratch/two.log"
only_host1=own/folder/log && export only_host1
lose "the folder of the log and the metrics is on the first host alone" host1 "137 0 0 0" --restarts 1 --recover-every 1 \
  --metrics "$scratch/own/folder/metrics"
unset only_host1
ok "it goes on without them, to the same weights" \
  test "$(cd "$scratch/two.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors)" = "$(cat "$scratch/one.sums")"
for option in log metrics; do
  is "which is said of --$option" "$(grep -c "penstock: --$option .*: No such file or directory; training continues without it" "$scratch"/err.[34] |
    sed 's/.*://' | sort | tr '\n' ' ')" "0 1 "
done
lose "without restarts" host2 "75 137 75 75" --save-every 4
lose "more hosts than spares" "host1 host3 host4" "137 75 137 137" --restarts 9 --save-every 4
matches "which is said" "$(complaints "$scratch/err.2")" "*no restart: no spare is left for a lost host*"
finish
