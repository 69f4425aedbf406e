#!/bin/sh
# tensor_measure.t: measure with tensor ranks: a tensor rank's blocks without exchanges, and exchanges by their bytes; penstock-gen --costs takes
# them for the same numbers of tensor ranks and splits; penstock-plan chooses among those that were measured.
. "${top_srcdir:-.}/tests/support/lib.sh"
plan=$top_builddir/penstock-plan
cd "$scratch" || exit 99

cat >two.cfg <<'END'
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
model = { family = "llama"; layers = 4; hidden = 64; heads = 4; ffn = 160; vocab = 256; sequence = 64; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 100; };
tensor_parallel = { ranks = 2; };
END
python=${PYTHON:-python3}
# shows FILE NAME CODE: the code holds for the JSON as `r`.
shows() { ok "$2" "$python" -c 'import json, sys; r = json.load(open(sys.argv[1])); exec(sys.argv[2])' "$1" "$3"; }

# ---- costs that are made up ----

# costs KEYS EXCHANGES: a file of version 2; each block has the keys ("tensor":2,...) and takes 1 ms in F, I and W, and 2 in B.
costs() {
  costs_comma=
  printf '{"version":2,"device":"cpu","dtype":"f32","sequence":64,"messages":[],"optimizer":{"ms_per_element":0},"collectives":[%s],"blocks":[' "$2"
  for keys in $1; do
    for block in model.embed_tokens model.layers.0.self_attn model.layers.0.mlp model.norm lm_head; do
      printf '%s{"block":"%s","microbatch":2,%s,"forward":1,"backward_input":1,"backward_weight":1,"backward":2,"recompute":1}' \
        "$costs_comma" $block "$keys"
      costs_comma=,
    done
  done
  printf ']}\n'
}
# exchange RANKS BYTES MS
exchange() { printf '{"kind":"exchange","ranks":%s,"bytes":%s,"ms":%s}' "$@"; }
# report FILE GEN OPTION...
report() {
  report_file=$1
  shift
  "$gen" -p report -o "$report_file" "$@" two.cfg
}
costs '"tensor":2,"partials":2' "$(exchange 2 4096 7),$(exchange 2 1048576 7),$(exchange 4 4096 100)" >flat.json
report flat.report --costs=flat.json
tensor='tensor = [c for c in r["collectives"] if c["kind"] == "tensor" and c["rank"] == 0][0]
blocks = 4 * 11 * 3'
shows flat.report "an exchange of two takes what was measured for two, whatever its bytes" "$tensor"'
assert tensor["calls"] > 4 * 4 * 2 and abs(tensor["exposed"] - 7 * tensor["calls"]) < 1e-6, tensor
assert abs(r["makespan"] - blocks - tensor["exposed"]) < 1e-6, r["makespan"]'
costs '"tensor":2,"partials":2' "$(exchange 2 0 0),$(exchange 2 1048576 1048.576)" >steep.json
report steep.report --costs=steep.json
shows steep.report "or what is in proportion between two sizes" "$tensor"'
assert abs(tensor["exposed"] - tensor["bytes"] / 1000) < 1e-6 * tensor["bytes"], tensor'
costs '"tensor":2' '' >none.json
report none.report --costs=none.json
report paid.report --costs=none.json -s costs.byte=0.002
shows none.report "without measured exchanges those of the topology count" "$tensor"'
assert tensor["exposed"] > 0 and abs(r["makespan"] - blocks - tensor["exposed"]) < 1e-6'
shows paid.report "... its costs.byte" "$tensor"'
assert abs(tensor["exposed"] - tensor["bytes"] * 0.002) < 1e-6 * tensor["bytes"]'

# refuses NAME MESSAGE GEN OPTION...: with 65.
refuses() {
  refuses_name=$1 refuses_message=$2
  shift 2
  "$gen" --check "$@" two.cfg >out 2>err
  is "$refuses_name" "$? $(complaints err)" "65 $refuses_message"
}
refuses "costs of two tensor ranks are not those of one" \
  "flat.json: blocks: model.embed_tokens was not measured, but with tensor_parallel.ranks = 2 and splits = 2" --costs=flat.json -s tensor_parallel.ranks=1
refuses "nor of two with four splits" \
  "flat.json: blocks: model.embed_tokens was not measured with tensor_parallel.ranks = 2 and splits = 4, but with tensor_parallel.ranks = 2 and splits = 2" \
  --costs=flat.json -s tensor_parallel.splits=4
refuses "nor of another microbatch" \
  "flat.json: blocks: model.embed_tokens was measured with tensor_parallel.ranks = 2 and splits = 2 with microbatches of 2, the topology has 1" \
  --costs=flat.json -s batch.microbatch=1
sed 's/"partials":2/"partials":0.5/' flat.json >bad.json
refuses "partials are a number" "bad.json: blocks[0].partials = 0.5: a whole number from 1 to 256" --costs=bad.json

# ---- what a machine measures ----

ok "a binary is built" build two two.cfg --blocks
./two measure --seconds 2 --output costs.json 2>err
is "it measures; no step is skipped" "$? $(complaints err)" "0 "
shows costs.json "blocks of two tensor ranks with two splits, of four sizes, in four times" '
assert len(r["blocks"]) == 20 and all((b["tensor"], b["partials"]) == (2, 2) for b in r["blocks"])
assert sorted({b["microbatch"] for b in r["blocks"]}) == [1, 2, 4, 8]
assert all(b[k] > 0 for b in r["blocks"] for k in ("forward", "backward_input", "backward_weight", "backward") if b["block"] != "model.embed_tokens")'
shows costs.json "parameters of a tensor rank" '
has = {b["block"]: b["parameters"] for b in r["blocks"]}
assert has["lm_head"] == 128 * 64 and has["model.norm"] == 64 and has["model.layers.0.mlp"] == 64 + 3 * 64 * 80, has'
shows costs.json "exchanges of two, of six sizes" '
rows = [c for c in r["collectives"] if c["kind"] == "exchange"]
assert len(rows) == 6 and all(c["ranks"] == 2 and c["ms"] > 0 for c in rows)
assert rows[-1]["bytes"] == 4 << 20 and rows[-1]["ms"] > 3 * rows[0]["ms"], rows'
report measured.report --costs=costs.json
shows measured.report "the step is that of blocks and exchanges" "$tensor"'
assert r["step"] > r["makespan"] > tensor["exposed"] > 0'
ok "another schedule and cut has costs" "$gen" --check --costs=costs.json -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s batch.microbatch=8 two.cfg
refuses "one tensor rank was not measured" \
  "costs.json: blocks: model.embed_tokens was not measured with tensor_parallel.ranks = 1 and splits = 2, but with tensor_parallel.ranks = 2 and splits = 2" \
  --costs=costs.json -s tensor_parallel.ranks=1 -s tensor_parallel.splits=2
refuses "nor this model" "costs.json: blocks[5].parameters: 8192 were measured, the topology's model.embed_tokens has 4096" --costs=costs.json -s model.hidden=32
ok "four tensor ranks of another model are built" build four two.cfg --blocks -s model.family=gpt2 -s model.tie_embeddings=false -s model.dtype=bf16 -s tensor_parallel.ranks=4 \
  -s model.vocab=257
./four measure --seconds 1 --output four.json 2>err
is "they are measured, whatever the number of cores" "$? $(complaints err)" "0 "
shows four.json "all of them" '
assert all((b["tensor"], b["partials"]) == (4, 4) for b in r["blocks"])
assert [c["ranks"] for c in r["collectives"] if c["kind"] == "exchange"] == [4] * 6'
ok "a binary with splits on one rank is built" build splits two.cfg --blocks -s tensor_parallel.ranks=1 -s tensor_parallel.splits=2
ok "it measures" ./splits measure --seconds 1 --output splits.json
shows splits.json "one tensor rank with two splits, which exchange nothing" '
assert all((b["tensor"], b["partials"]) == (1, 2) for b in r["blocks"])
assert not [c for c in r["collectives"] if c["kind"] == "exchange"]'

# ---- penstock-plan ----

cat >cluster.cfg <<'END'
plan = { ranks = 4; sequences = 16; memory_mib = 64; microbatch = [2]; tensor = [1, 2]; recompute = ["none"]; };
model = { family = "llama"; layers = 4; hidden = 64; heads = 4; ffn = 160; vocab = 256; sequence = 64; };
optimizer = { learning_rate = 1e-3; steps = 100; };
tensor_parallel = { };
END
# chosen FILE: the numbers of tensor ranks of the candidates.
chosen() { sed -n 's/.*"tensor_parallel.ranks": \([0-9]*\),*/\1/p' "$1" | sort -u | tr '\n' ' '; }
# planned FILE OPTION...: writes FILE.pruned by bounds, and FILE.all by all candidates, without their numbers.
planned() {
  planned_file=$1
  shift
  for way in "--refine=0 pruned" "--exhaustive all"; do
    "$plan" ${way% *} --top=1000 -p json "$@" cluster.cfg 2>err | grep -v -e candidates_evaluated -e candidates_pruned >"$planned_file.${way#* }"
  done
}
costs '"tensor":1,"partials":1 "tensor":2,"partials":2' "$(exchange 2 4096 0.5),$(exchange 2 1048576 30)" >both.json
planned both --costs=both.json
is "one and two tensor ranks are candidates" "$(chosen both.pruned)" "1 2 "
ok "bounds leave out nothing" cmp both.pruned both.all
costs '"tensor":1,"partials":1 "tensor":2,"partials":2' "$(exchange 2 4096 0.5),$(exchange 2 1048576 30),$(
  for kind in reduce_scatter all_gather; do printf '{"kind":"%s","ranks":2,"bytes":1000,"ms":1},{"kind":"%s","ranks":2,"bytes":1000000,"ms":90}' $kind $kind; test $kind = all_gather || printf ,; done)" >links.json
planned links --costs=links.json
ok "... with collectives of replicas, too" cmp links.pruned links.all
costs '"tensor":1,"partials":1' '' >one.json
"$plan" --refine=0 --costs=one.json cluster.cfg >out 2>err
is "a listed number that was not measured is refused" "$? $(complaints err)" "65 one.json: blocks: none was measured with tensor_parallel.ranks = 2, of plan.tensor"
"$plan" --refine=0 --costs=both.json -s tensor_parallel.splits=2 cluster.cfg >out 2>err
is "... or with other splits alone" "$? $(complaints err)" \
  "65 both.json: blocks: none was measured with tensor_parallel.ranks = 1, of plan.tensor, and splits = 2"
"$plan" --refine=0 --costs=one.json -p json -s plan.tensor=[1] cluster.cfg >out 2>err
is "it need not be listed" "$? $(chosen out)" "0 1 "
sed -i 's/ tensor = \[1, 2\];//' cluster.cfg
"$plan" --refine=0 --top=1000 --costs=both.json -p json cluster.cfg >out 2>err
is "without a list those that were measured are candidates" "$? $(chosen out)" "0 1 2 "
sed -i 's/microbatch = \[2\];/& tensor = [1, 2, 3];/' cluster.cfg
ok "a binary that measures alone is built" build cluster cluster.cfg --blocks
ok "it measures" ./cluster measure --seconds 1 --output cluster.json
shows cluster.json "the numbers of the list that the model can have, with as many splits" '
assert sorted({(b["tensor"], b["partials"]) for b in r["blocks"]}) == [(1, 1), (2, 2)]'
"$plan" --refine=0 --top=1000 --costs=cluster.json -p json cluster.cfg >out 2>err
is "which are candidates" "$? $(chosen out)" "0 1 2 "
finish
