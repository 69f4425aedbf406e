#!/bin/sh
# field.t: the topologies of topologies/field/, for models and clusters that are too large for this machine: they are planned and verified, within
# 10 s of processor time and 2 GiB, and take the memory that they were written for.
. "${top_srcdir:-.}/tests/support/lib.sh"
python=${PYTHON:-python3}

# plans NAME GIB TABLE LAYER [TENSOR RANKS]: the rank with most memory takes at most GIB, its gradients are its shard and two units, and the report has the collectives.
plans() {
  plans_name=$1 plans_gib=$2 plans_members=${5:-1}
  (
    ulimit -t 10 && ulimit -v 2097152
    "$gen" --print=report --times="$scratch/$plans_name.times" -o "$scratch/$plans_name.json" "$top_srcdir/topologies/field/$plans_name.cfg"
  ) 2>"$scratch/err"
  ok "$plans_name is for GPUs" grep -q 'device = "cuda"' "$top_srcdir/topologies/field/$plans_name.cfg"
  is "$plans_name is planned and verified within 10 s and 2 GiB" "$? $(complaints "$scratch/err")" "0 "
  ok "$plans_name takes at most $plans_gib GiB of a rank" "$python" -c '
import json, sys
report = json.load(open(sys.argv[1]))
placed = max(rank["placed_bytes"] for rank in report["rank"]) / 2**30
print("# %.2f GiB" % placed)
sys.exit(placed > float(sys.argv[2]))' "$scratch/$plans_name.json" "$plans_gib"
  ok "$plans_name: bytes by kind sum to the placed ones; gathered weights and gradients are not whole" "$python" -c '
import json, sys
report = json.load(open(sys.argv[1]))
table, layer = [int(of) / int(sys.argv[4]) for of in sys.argv[2:4]]  # elements of the embedding, or the head, and of a layer, on each tensor rank
for rank in report["rank"]:
    kinds = rank["bytes"]
    assert sum(kinds.values()) == rank["placed_bytes"], rank
    # a shard of the gradients is as large as one of the f32 weights; beside it are the gradients of at most two units
    assert 0 < kinds["gradients"] - kinds["weights"] <= 8 * max(table, layer) * 1.001, kinds
    # the embedding is gathered in f32, layers in bf16
    assert 0 < kinds["gathered"] <= (4 * table + 2 * layer) * 1.001, kinds' "$scratch/$plans_name.json" "$3" "$4" "$plans_members"
  ok "$plans_name: the report has the makespan, the bubble, and what the collectives of each rank send" "$python" -c '
import json, math, sys
report = json.load(open(sys.argv[1]))
assert 0 < report["bubble"] < 1 and report["makespan"] > 0, report["bubble"]
for rank in report["rank"]:
    for kind in ("weights", "gradients") + (("tensor",) if report["tensor_ranks"] > 1 else ()):
        found, = [c for c in report["collectives"] if c["rank"] == rank["rank"] and c["kind"] == kind]
        # with n members a rank sends (n-1)/n of the whole bf16 weights, or f32 gradients, about twice or once a microbatch
        assert found["calls"] >= report["microbatches"] and found["bytes"] > 0, found
        assert 0 <= found["exposed"] < report["makespan"], found
assert len(report["rank"]) == report["ranks"] * int(sys.argv[2]) == report["ranks"] * report["tensor_ranks"]' "$scratch/$plans_name.json" "$plans_members"
}

plans llama3_70b_32 66 $((128256 * 8192)) $((2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672))
plans llama3_405b_512 106 $((128256 * 16384)) $((2 * 16384 * 16384 + 2 * 16384 * 1024 + 3 * 16384 * 53248))
plans qwen3_8b_8 27 $((151936 * 4096)) $((2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288))
plans llama3_70b_32_tp4 49 $((128256 * 8192)) $((2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)) 4
plans llama3_405b_512_tp8 26 $((128256 * 16384)) $((2 * 16384 * 16384 + 2 * 16384 * 1024 + 3 * 16384 * 53248)) 8

# The proof of the largest takes one core: 0.5 s on an idle one.
ok "the plan of 405B has 126 layers, 16 ranks x 4 stages and 128 microbatches, and its proof is a part of the work" "$python" -c '
import json, sys
report, times = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
assert (report["ranks"], report["stages_per_rank"], report["microbatches"]) == (16, 4, 128)
assert report["stages"][-1]["layers"][1] == 126, report["stages"][-1]
verify, = [run for run in times["passes"] if run["name"] == "verify"]
print("# %.3f s of %.3f s" % (verify["seconds"], times["seconds"]))
sys.exit(verify["seconds"] > times["seconds"] / 2)' "$scratch/llama3_405b_512.json" "$scratch/llama3_405b_512.times"

finish
