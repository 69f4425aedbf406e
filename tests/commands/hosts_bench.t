#!/bin/sh
# hosts_bench.t: tools/bench/hosts.py measures steps of small models over two emulated hosts beside one host, and beside a peer program,
# whose ranks it starts on the same hosts with the same work.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 here"
tools=$(cd "$top_srcdir/tools/bench" && pwd)
hosts=$(cd "$top_srcdir/tests/support" && pwd)/hosts.sh
test -n "$OFI_ARCHIVES" && sh "$hosts" 2 true 2>/dev/null || skip_all "no libfabric or no network namespaces here"
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 4096; sequence = 32; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
over_hosts="-s cluster.hosts=[host1,host2] -s cluster.bind=none -s cluster.port=$((20000 + $$ % 12000))"
replicas='-s pipeline.ranks=1 -s data_parallel.replicas=2'
build penstock-bench_1f1b model.cfg && build penstock-bench_1f1b_hosts model.cfg $over_hosts &&
  build penstock-bench_r2 model.cfg $replicas && build penstock-bench_r2_hosts model.cfg $replicas $over_hosts
is "the plans are built" $? 0

# A peer whose ranks meet at MASTER_ADDR, from GLOO_SOCKET_IFNAME's address, and report our own losses.
mkdir peer
cat >peer/torch_llama.py <<'END'
import json, os, socket, sys
rank, options = int(os.environ["RANK"]), dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert socket.gethostname() == "host%d" % (rank + 1) and os.environ["GLOO_SOCKET_IFNAME"] == "net0"
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        connection, address = server.accept()
    assert address[0] == "10.78.0.2"
else:
    while True:
        try:
            connection = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            pass
shape = {name: options["--" + name] for name in ("schedule", "hidden", "heads", "kv-heads", "ffn", "layers", "vocab")}
assert shape == {"schedule": "1f1b", "hidden": "32", "heads": "4", "kv-heads": "2", "ffn": "48", "layers": "2", "vocab": "4096"}, shape
assert os.path.getsize(options["--init"]) > 2 * 4096 * 32 * 4 and os.path.exists(options["--data"])
losses = [float(os.environ.get("PEER_FACTOR", 1)) * json.loads(line)["loss"] for line in open("bench/hosts.json") if "loss" in line]
with open(os.environ["PEER_REPORT"], "w") as out:
    json.dump({"step_end_s": [10 * rank, 11, 13], "losses": losses if rank == 1 else []}, out)
END
measure() {
  timeout 300 sh "$hosts" 2 python3 -B "$tools/hosts.py" --starts 0 --pairs 2 --steps 3 --peer python3 --peer-folder peer "$@" >out 2>err
  measured=$?
  sed 's/^/# /' out err
  return $measured
}
number='[0-9][0-9.]*'
ok "steps are measured" measure --peer-runs 1
for plan in bench_1f1b bench_r2; do
  ok "$plan has a line of shared memory and two hosts" grep -Eq "^$plan +$number +$number +$number +$number +$number +1\.[01][60] +2 +$number\$" out
done
ok "the peer has a line, of the steps after the first one" grep -Eq "^bench_1f1b +$number +1500\.0 +$number +$number +$number +- +1 +$number\$" out
is "pairs are shown as they are measured" "$(grep -c 'pair [12] of 2: shm' err)" 4
ok "all is in a file" python3 -c 'import json
pairs = json.load(open("bench-hosts.json"))["steps"]["bench_1f1b"]
assert pairs[0]["gloo_ms"] == 1500 and "gloo_ms" not in pairs[1]'
fails() { ! "$@"; }
ok "a peer with other losses is refused" fails env PEER_FACTOR=1.01 timeout 300 sh "$hosts" 2 python3 -B "$tools/hosts.py" \
  --starts 0 --pairs 1 --steps 3 --peer python3 --peer-folder peer
finish
