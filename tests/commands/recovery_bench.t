#!/bin/sh
# recovery_bench.t: tools/bench/recovery.py kills ranks and hosts of a small model, and states how long each run stood still, from which state.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 here"
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 32; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
tools=$(cd "$top_srcdir/tools/bench" && pwd)
hosts=$(cd "$top_srcdir/tests/support" && pwd)/hosts.sh
port=$((20000 + $$ % 12000))
cd "$scratch" || exit 99
measure() {
  set -- timeout 300 "$@" python3 -B "$tools/recovery.py" --kills 2 --pairs 1 --steps 30 --one ./one --hosts ./two --spares ./spares --spare-count 2
  "$@" $host_option >out 2>err
  measured=$?
  sed 's/^/# /' out err
  return $measured
}
# states PLACE SOURCE: two losses, each with a restart from there.
states() { grep -Eq "^$1 +$2 +2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.-]+ +0\$" out; }

ok "a plan for one host is built" build one model.cfg
host_option=--one-host
ok "losses of ranks are measured" measure
ok "restarts from memory are stated" states "one host" memory
ok "restarts from a checkpoint are stated" states "one host" checkpoint
ok "what copies cost is stated" grep -Eq '^one host +[0-9.]+ +[0-9.]+ +[0-9.]+ .* 1\.02 +1 ' out
ok "all is in a file" python3 -c 'import json; d = json.load(open("bench-recovery.json")); assert len(d["losses"]["one host"]["memory"]) == 2'

host_option=
test -n "$OFI_ARCHIVES" && sh "$hosts" 4 true 2>/dev/null
if test $? -ne 0; then
  skip "losses of hosts are measured" "no libfabric or no network namespaces here"
  finish
fi
build two model.cfg -s cluster.hosts=[host1,host2] -s cluster.port=$port -s cluster.bind=none &&
  build spares model.cfg -s cluster.hosts=[host1,host2] -s cluster.spares=[host3,host4] -s cluster.port=$((port + 1)) -s cluster.bind=none
is "plans for two hosts are built" $? 0
ok "losses of hosts are measured" measure sh "$hosts" 4
ok "restarts of hosts from memory are stated" states "two hosts" memory
ok "restarts of hosts from a checkpoint are stated" states "two hosts" checkpoint
finish
