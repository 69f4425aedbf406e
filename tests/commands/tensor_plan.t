#!/bin/sh
# tensor_plan.t: what plans say of tensor ranks (tensor_parallel.ranks): report and info have a row for each; exchanges cost their bytes; measured
# costs count only for their number of tensor ranks; memory limits hold.
. "${top_srcdir:-.}/tests/support/lib.sh"
python=${PYTHON:-python3}
cd "$scratch" || exit 99

describe llama 4 ''
describe qwen3 4 'head_dim = 8;'
sed -i 's/vocab = 200/vocab = 257/' llama.cfg qwen3.cfg
echo 'tensor_parallel = { ranks = 2; sequence = false; }; partition = { balance = "count"; };' | tee -a llama.cfg >>qwen3.cfg

# report FILE GEN OPTION...: writes the report of llama.cfg.
report() {
  report_file=$1
  shift
  "$gen" -p report -o "$report_file" "$@" llama.cfg 2>err
}
# shows FILE NAME CODE...: the code holds for the report as `r`; `tensor` has the rows of that kind.
shows() {
  shows_file=$1 shows_name=$2
  ok "$shows_name" "$python" -c '
import json, sys
r = json.load(open(sys.argv[1]))
tensor = [c for c in r["collectives"] if c["kind"] == "tensor"]
exec(sys.argv[2])' "$shows_file" "$3"
}

# ---- rows ----
report two.json -s pipeline.ranks=2
shows two.json "a row for each tensor rank of replica 0" '
assert r["tensor_ranks"] == 2
assert [(k["rank"], k["pipeline_rank"], k["tensor_rank"]) for k in r["rank"]] == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]
assert all(sum(k["bytes"].values()) == k["placed_bytes"] for k in r["rank"])'
shows two.json "tensor ranks send to their like" '
assert {(p["from"], p["to"]) for p in r["pairs"]} == {(0, 2), (1, 3), (2, 0), (3, 1)}
assert {p["bytes"] for p in r["pairs"]} == {4 * 32 * 32 * 4}'
# A sum of 32 tokens has 32 x 32 f32. In each layer there are two in F (o, down) and two in I (q k v, gate up). The embedding has one; the head
# has the maximum (f32) and the sum (f64) of each token, the loss (f64), and one in I. A tensor rank sends to T - 1 others.
exchanges='
def exchanges(layers, ends, tensor_ranks, again=0):
    whole = 32 * 32 * 4
    calls = (4 + again) * layers + {"first": 1, "last": 4, "both": 5}[ends]
    bytes = (4 + again) * layers * whole + {"first": whole, "last": whole + 32 * (4 + 8) + 8, "both": 2 * whole + 32 * (4 + 8) + 8}[ends]
    return 4 * calls, 4 * bytes * (tensor_ranks - 1)
'
shows two.json "calls and bytes of the exchanges, in a step of four microbatches" "$exchanges"'
assert [(c["rank"], c["calls"], c["bytes"]) for c in tensor] == [(0, *exchanges(2, "first", 2)), (1, *exchanges(2, "first", 2)),
                                                                 (2, *exchanges(2, "last", 2)), (3, *exchanges(2, "last", 2))], tensor'
report four.json -s tensor_parallel.ranks=4
shows four.json "each of four sends to three" "$exchanges"'
assert [(c["calls"], c["bytes"]) for c in tensor] == [exchanges(4, "both", 4)] * 4, tensor'
report again.json -s memory.recompute=layer -s pipeline.ranks=2
shows again.json "the sum of o is exchanged again where a layer is recomputed" "$exchanges"'
assert (tensor[0]["calls"], tensor[0]["bytes"]) == exchanges(2, "first", 2, again=1), tensor[0]'
# Where they share the tokens, an exchange has 1/T of that. In each layer F gathers before q k v and before gate up, as B does again; B gathers
# the gradients of what o and down make, too, and exchanges the sums for the gain of each norm. So do the ends, but for their matrices by rows.
for tensor_ranks in 2 4; do
  report shared.json -s tensor_parallel.sequence=true -s tensor_parallel.ranks=$tensor_ranks
  shows shared.json "the exchanges of $tensor_ranks that share the tokens" "tensor_ranks = $tensor_ranks"'
part, gain = 32 * 32 * 4 // tensor_ranks, 32 * 4
calls = 12 * 4 + 2 + 3 + 3 + 1
bytes = 4 * (10 * part + 2 * gain) + 2 * part + 3 * part + gain + 32 * (4 + 8) + 8
assert [(c["calls"], c["bytes"]) for c in tensor] == [(4 * calls, 4 * bytes * (tensor_ranks - 1))] * tensor_ranks, (tensor, 4 * calls, 4 * bytes * (tensor_ranks - 1))'
done
report norms.json -s model.family=qwen3 -s model.head_dim=8
shows norms.json "and the gradients of q_norm and k_norm, in each layer 2 x 8 f32" "$exchanges"'
calls, bytes = exchanges(4, "both", 2)
assert (tensor[0]["calls"], tensor[0]["bytes"]) == (calls + 4 * 4 * 2, bytes + 4 * 4 * 2 * 8 * 4), tensor[0]'

ok "a binary of 2 x 2 ranks" build two llama.cfg -s pipeline.ranks=2
./two info --json >info.json
ok "info has the rows of the report" "$python" -c '
import json
info, report = json.load(open("info.json")), json.load(open("two.json"))
keys = "rank", "pipeline_rank", "tensor_rank", "bytes"
rows = [[{key: rank[key] for key in keys} for rank in of["rank"]] for of in (info, report)]
assert rows[0] == rows[1], rows
assert [rank["arena_bytes"] for rank in info["rank"]] == [rank["placed_bytes"] for rank in report["rank"]]'

# ---- costs ----
# One rank computes F, I and W of each of four microbatches, one after the other: the exchanges lengthen the step by what they take.
given='-s costs.forward=10 -s costs.backward_input=12 -s costs.backward_weight=9'
report free.json $given -s costs.byte=0
report paid.json $given -s costs.byte=0.001
shows free.json "costs that are given are those of a tensor rank's action" 'assert abs(r["makespan"] - 4 * 31) < 1e-9 and r["gap"] == 0, r["makespan"]'
shows paid.json "exchanges lengthen the actions by their bytes" '
bytes = tensor[0]["bytes"]
assert abs(r["makespan"] - (4 * 31 + bytes / 1000)) < 1e-6, (r["makespan"], bytes)
assert all(abs(c["exposed"] - bytes / 1000) < 1e-6 for c in tensor)
assert abs(r["rank"][1]["exchanging"] - bytes / 1000) < 1e-6 and abs(r["rank"][1]["busy"] - 4 * 31) < 1e-6
stage = r["stages"][0]
assert abs(stage["forward"] + stage["backward_input"] + stage["backward_weight"] - 31 - bytes / 4000) < 1e-6'
shows paid.json "the bound and the critical path have them too" '
assert abs(r["gap"]) < 1e-9 and abs(r["critical_path"]["legs"][0]["end"] - r["makespan"]) < 1e-6, r["critical_path"]
assert abs(r["utilisation"] - 4 * 31 / r["makespan"]) < 1e-9'
report both.json $given -s costs.byte=0.001 -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer
shows both.json "with replicas the collectives of both kinds add up" '
one = {c["kind"]: c for c in r["collectives"] if c["rank"] == 1}
within = one["weights"]["exposed"] + one["gradients"]["exposed"] + one["tensor"]["exposed"]
assert set(one) == {"weights", "gradients", "tensor"} and one["weights"]["exposed"] > 0
assert abs(one["tensor"]["exposed"] - one["tensor"]["bytes"] / 1000) < 1e-6
assert abs(r["makespan"] - 4 * 31 - within) < 1e-6, (r["makespan"], within)'
# By flops: what is split is divided by the tensor ranks, norms are not.
report whole.json -s tensor_parallel.ranks=1 -s tensor_parallel.splits=2
report half.json -s costs.byte=0
shows half.json "flops of split weights are shared" '
whole = json.load(open("whole.json"))
for key in "forward", "backward_input", "backward_weight":
    of, all = r["stages"][0][key], whole["stages"][0][key]
    assert all / 2 <= of < 0.6 * all, (key, of, all)'
report found.json -s pipeline.ranks=2 -s pipeline.schedule=search -s costs.byte=0.001 $given
shows found.json "a searched order is timed with them, and is not below its bound" '
base = 4 * 31
assert r["search"]["makespan"] == r["makespan"] > base + min(c["bytes"] for c in tensor) / 1000 and r["search"]["gap"] >= 0'

# ---- measured costs ----
# measured TENSOR: a file of blocks that were measured with so many tensor ranks.
measured() {
  measured_comma=
  printf '{"version":2,"device":"cpu","dtype":"f32","sequence":16,"messages":[],"collectives":[],"optimizer":{"ms_per_element":0},"blocks":['
  for measured_block in model.embed_tokens model.layers.0.self_attn model.layers.0.mlp model.norm lm_head; do
    printf '%s{"block":"%s","microbatch":2,"tensor":%s,"forward":1,"backward_input":1,"backward_weight":1,"backward":2,"recompute":1}' \
      "$measured_comma" $measured_block "$1"
    measured_comma=,
  done
  printf ']}\n'
}
measured 1 >one.costs
measured 2 >two.costs
"$gen" --check --costs=one.costs llama.cfg 2>err
is "blocks of one tensor rank are not those of two" "$? $(complaints err)" \
  "65 one.costs: blocks: model.embed_tokens was not measured with tensor_parallel.ranks = 2 and splits = 2, but with tensor_parallel.ranks = 1"
"$gen" --check --costs=two.costs -s tensor_parallel.ranks=1 llama.cfg 2>err
is "nor the other way round" "$? $(complaints err)" "65 two.costs: blocks: model.embed_tokens was not measured, but with tensor_parallel.ranks = 2"
report measured.json --costs=two.costs
shows measured.json "blocks of two are taken, and exchanges are added" '
# 2 x 4 + 3 blocks, of 3 ms each
assert abs(r["makespan"] - sum(c["exposed"] for c in tensor if c["rank"] == 0) - 4 * 11 * 3) < 1e-6 and r["makespan"] > 4 * 11 * 3, r["makespan"]'

# ---- memory ----
# limit FILE: the least limit, in MiB, under which the report's plan is placed.
limit() { "$python" -c 'import json, sys; print(max(-(-k["placed_bytes"] // 2**20) for k in json.load(open(sys.argv[1]))["rank"]))' "$1"; }
wide='-s pipeline.ranks=2 -s model.sequence=1024 -s model.hidden=64 -s pipeline.microbatches=8'
report none.json $wide
report full.json $wide -s memory.recompute=full
none=$(limit none.json) full=$(limit full.json)
ok "recomputation needs less: $full MiB instead of $none" test "$full" -lt $((none - 2))
"$gen" --check $wide -s memory.limit_mib=$((none - 1)) llama.cfg 2>err
is "a limit of 1 MiB less is refused" "$? $(complaints err)" \
  "78 -s memory.limit_mib = $((none - 1)): 0 (none) or at least $none, which rank 0 needs"
for middle in $none $(((none + full) / 2)) "$full"; do
  report auto.json $wide -s memory.recompute=auto -s memory.limit_mib="$middle"
  is "recompute auto within $middle MiB" "$? $(complaints err)" "0 "
  shows auto.json "keeps the limit, and recomputes no more than it must" "
assert max(k['placed_bytes'] for k in r['rank']) <= $middle * 2**20
most, least = json.load(open('full.json'))['makespan'], json.load(open('none.json'))['makespan']
assert least <= r['makespan'] <= most and ($middle < $none or r['makespan'] == least)"
done
report joint.json $wide -s partition.balance=joint -s memory.recompute=auto -s memory.limit_mib="$full"
is "cut and recomputation together within $full MiB" "$? $(complaints err)" "0 "
shows joint.json "keep the limit, and are not slower" "
assert max(k['placed_bytes'] for k in r['rank']) <= $full * 2**20
assert r['makespan'] <= json.load(open('auto.json'))['makespan'] * (1 + 1e-9)"
report searched.json $wide -s pipeline.schedule=search -s memory.limit_mib=$((none - 1))
is "a search under the limit" $? 0
shows searched.json "keeps it" "assert max(k['placed_bytes'] for k in r['rank']) < $none * 2**20"

finish
