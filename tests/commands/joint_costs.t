#!/bin/sh
# joint_costs.t: partition.balance = "joint" by measured costs: the shortest step of all cuts of small models, never worse than the other
# cuts by the same file, the same step for what it chose, and what it refuses.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/costs.sh"
. "$top_srcdir/tests/support/cuts.sh"

cat >"$scratch/small.cfg" <<'END'
pipeline = { ranks = 3; microbatches = 6; schedule = "1f1b"; };
model = { family = "llama"; layers = 6; hidden = 64; heads = 4; kv_heads = 2; ffn = 160; vocab = 256; sequence = 48; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 10; };
cluster = { device = "cpu"; };
END
small=$scratch/small.cfg
links >"$scratch/links.json"
costs '' '' >"$scratch/blocks.json"
file=$scratch/links.json

# report OUTPUT ARGUMENT...: the report of a plan, by the costs of $file.
report() {
  report_to=$1
  shift
  "$gen" -p report --costs="$file" -o "$report_to" "$@" 2>"$scratch/said"
}
step() { sed -n 's/^  "step": \(.*\),$/\1/p' "$1"; } # with norm and optimizer, which another cut gives to other ranks
time_of() { step "$1"; }

# ---- the least of all cuts ----
# least LAYERS STAGES ARGUMENT...: the shortest step of the cuts.
least() {
  for list in $(lists "$1" "$2"); do
    (
      shift 2
      report "$scratch/one" "$small" "$@" -s "partition.layers=[$list]" && step "$scratch/one"
    )
  done | sort -g | head -1
}
# finds NAME LAYERS STAGES ARGUMENT...: the joint choice has the shortest step.
finds() {
  finds_name=$1 finds_layers=$2 finds_stages=$3
  shift 3
  report "$scratch/joint" "$small" "$@" -s model.layers="$finds_layers" -s partition.balance=joint
  is "$finds_name: the shortest step of all cuts" "$(step "$scratch/joint")" \
    "$(least "$finds_layers" "$finds_stages" "$@" -s model.layers="$finds_layers")"
}
finds 1f1b 6 3
vee="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v"
finds "two stages a rank" 5 4 -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=interleaved
finds "a V, whose middle sends nothing" 5 4 $vee
finds "a V with ranks of two speeds" 5 4 $vee -s cluster.speed=[1,1.5]
finds "two replicas" 6 3 -s data_parallel.replicas=2
finds "replicas that do not shard together" 6 3 -s data_parallel.replicas=2 -s data_parallel.shard_ranks=1
finds "another microbatch" 6 3 -s batch.microbatch=4
file=$scratch/blocks.json
finds "without messages" 6 3
file=$scratch/links.json

# ---- with memory.recompute = "auto" ----
pair="-s pipeline.ranks=2 -s model.layers=4"
try_cuts $pair
for more in 0 1; do
  mib=$(($(least_mib) + more))
  finds_least $mib $pair
  report "$scratch/given" "$small" $pair -s partition.balance=count -s memory.recompute=auto -s memory.limit_mib=$mib
  ok "for a given cut it is at most as good, and fits in $mib MiB" at_most "$(step "$scratch/joint")" "$(step "$scratch/given")"
done

# ---- never worse than the other cuts; what it chose has its step ----
# keeps NAME PLACEMENT ARGUMENT...: the choice of $scratch/joint as a cut by name, with its order, has its step. A search states its placement.
keeps() {
  keeps_name=$1 placement=$2
  shift 2
  before=$(sed -n 's/^ *"first_block": "\(.*\)",*$/\1/p' "$scratch/joint" | sed 1d | tr '\n' , | sed 's/,$//')
  test "$placement" || placement=$(sed -n 's/^ *"placement": "\(.*\)",*$/\1/p' "$scratch/joint" | head -1)
  "$gen" -p csv --costs="$file" -o "$scratch/order.csv" "$small" "$@" -s partition.balance=joint 2>"$scratch/said"
  report "$scratch/again" "$small" "$@" -s "partition.before=[$before]" -s pipeline.schedule=file \
    -s pipeline.schedule_file="$scratch/order.csv" -s pipeline.placement="$placement"
  is "$keeps_name: the same step for its cut and order" "$(step "$scratch/again")" "$(step "$scratch/joint")"
}
for shape in "4 1 8 gpipe 9 loop" "2 3 6 interleaved 11 loop" "4 2 8 zero_bubble_v 12 v" "2 1 3 zb_h1 5 loop" "3 2 6 search 11"; do
  set -- $shape
  arguments="-s pipeline.ranks=$1 -s pipeline.stages_per_rank=$2 -s pipeline.microbatches=$3 -s pipeline.schedule=$4 -s model.layers=$5"
  for unit in layer block; do
    not_worse "$shape by $unit" $arguments -s partition.unit=$unit
    keeps "$shape by $unit" "${6-}" $arguments -s partition.unit=$unit --search-seconds=0
  done
  cp "$scratch/joint" "$scratch/before"
  report "$scratch/joint" "$small" $arguments -s partition.unit=block -s partition.balance=joint --search-seconds=0
  ok "$shape: the same again" cmp "$scratch/before" "$scratch/joint"
done
"$gen" --costs="$file" "$small" $vee -s partition.balance=joint -o "$scratch/plan.c" 2>"$scratch/said"
ok "its plan is verified and written" grep -q '_Static_assert' "$scratch/plan.c"

"$gen" --check --costs="$file" "$small" -s partition.balance=joint -s batch.microbatch=3 2>"$scratch/said"
is "refused: a microbatch that was not measured" "$? $(cat "$scratch/said")" \
  "65 $file: blocks: model.embed_tokens was measured with microbatches of 2, 4, the topology has 3"
finish
