#!/bin/sh
# joint.t: partition.balance = "joint": the least makespan of all cuts of small models, never worse than the other cuts, limits of memory,
# ranks of different speed, what it refuses, and what the report says of it.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/cuts.sh"

cat >"$scratch/small.cfg" <<'END'
pipeline = { ranks = 3; microbatches = 6; schedule = "1f1b"; };
model = { family = "llama"; layers = 6; hidden = 64; heads = 4; ffn = 160; vocab = 512; sequence = 64; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
END
small=$scratch/small.cfg

# report OUTPUT ARGUMENT...: the report of a plan.
report() {
  report_to=$1
  shift
  "$gen" -p report -o "$report_to" "$@" 2>"$scratch/said"
}
# field REPORT NAME: the first number of that name in a report.
field() { sed -n "s/^ *\"$2\": \\([-0-9.e+]*\\),*$/\\1/p" "$1" | head -1; }
makespan() { field "$1" makespan; }
time_of() { makespan "$1"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d * d <= 1e-18 * b * b) }'; }

product() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.15g\n", a * b }'; }

# ---- the least of all cuts ----
# least LIMIT_BYTES LAYERS STAGES ARGUMENT...: the least makespan of the cuts whose arenas are within the limit (0: none).
least() {
  least_limit=$1
  for list in $(lists "$2" "$3"); do
    (
      shift 3
      report "$scratch/one" "$small" "$@" -s "partition.layers=[$list]" || exit
      echo "$(arena "$scratch/one") $(makespan "$scratch/one")"
    )
  done | awk -v limit="$least_limit" '(!limit || $1 <= limit) && (best == "" || $2 < best) { best = $2 } END { print best }'
}
report "$scratch/joint" "$small" -s partition.balance=joint
is "1f1b: the least makespan of all cuts" "$(makespan "$scratch/joint")" "$(least 0 6 3)"
four="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=interleaved -s model.layers=5"
report "$scratch/joint" "$small" $four -s partition.balance=joint
is "two stages a rank: the least makespan of all cuts" "$(makespan "$scratch/joint")" "$(least 0 5 4 $four)"
vee="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s model.layers=5 -s cluster.speed=[1,1.5]"
report "$scratch/joint" "$small" $vee -s partition.balance=joint
is "a V with ranks of two speeds: the least makespan of all cuts" "$(makespan "$scratch/joint")" "$(least 0 5 4 $vee)"
wide="-s model.vocab=4096 -s model.tie_embeddings=true"
report "$scratch/free" "$small" $wide -s partition.balance=joint
free=$(arena "$scratch/free")
limit=$(((free >> 20) - 1))
if report "$scratch/joint" "$small" $wide -s partition.balance=joint -s memory.limit_mib=$limit; then
  ok "within a limit" test "$(arena "$scratch/joint")" -le $((limit << 20))
  is "within it the least makespan of all cuts" "$(makespan "$scratch/joint")" "$(least $((limit << 20)) 6 3 $wide)"
else
  result 1 "within a limit: $(cat "$scratch/said")"
fi

# ---- with memory.recompute = "auto" ----
pair="-s pipeline.ranks=2 -s model.layers=4 -s model.sequence=256"
try_cuts $pair
for more in 0 1 3; do
  finds_least $(($(least_mib) + more)) $pair
done

# ---- never worse than the other cuts; the same again; more effort is not worse ----
for shape in "4 1 8 gpipe 9" "2 3 6 interleaved 11" "4 2 8 zero_bubble_v 12" "3 2 7 looped_bfs 14" "2 1 3 zb_h1 5" "3 1 5 inference 7"; do
  set -- $shape
  arguments="-s pipeline.ranks=$1 -s pipeline.stages_per_rank=$2 -s pipeline.microbatches=$3 -s pipeline.schedule=$4 -s model.layers=$5"
  for unit in layer block; do
    not_worse "$shape by $unit" $arguments -s partition.unit=$unit
    cp "$scratch/joint" "$scratch/before"
    report "$scratch/joint" "$small" $arguments -s partition.unit=$unit -s partition.balance=joint --search-seconds=0
    ok "$shape by $unit: the same again" cmp "$scratch/before" "$scratch/joint"
  done
done
large="-s pipeline.ranks=4 -s pipeline.stages_per_rank=4 -s pipeline.schedule=interleaved -s model.layers=37 -s partition.unit=block -s pipeline.microbatches=8"
previous=
for seconds in 0 1 3; do
  report "$scratch/effort" "$small" $large -s partition.balance=joint --search-seconds=$seconds
  test -n "$previous" && ok "an effort of $seconds is not worse than less" at_most "$(makespan "$scratch/effort")" "$previous"
  previous=$(makespan "$scratch/effort")
done

# ---- with the search ----
searched="-s pipeline.ranks=3 -s pipeline.stages_per_rank=2 -s pipeline.schedule=search -s model.layers=11 -s partition.unit=block -s pipeline.microbatches=9"
not_worse searched $searched
matches "it says what it found" "$(cat "$scratch/said.joint")" "penstock-gen: search: makespan *, span * in Gflop; the makespan is *% above the bound *"
cp "$scratch/joint" "$scratch/before"
report "$scratch/joint" "$small" $searched -s partition.balance=joint --search-seconds=0
ok "searched: the same again" cmp "$scratch/before" "$scratch/joint"
report "$scratch/more" "$small" $searched -s partition.balance=joint --search-seconds=2
ok "searched: more effort is not worse" at_most "$(makespan "$scratch/more")" "$(makespan "$scratch/joint")"
"$gen" "$small" $searched -s partition.balance=joint -o "$scratch/plan.c" 2>"$scratch/said"
ok "its plan is verified and written" grep -q '_Static_assert' "$scratch/plan.c"
report "$scratch/lean" "$small" $searched -s model.hidden=128 -s partition.balance=joint --search-seconds=0
lean=$(($(arena "$scratch/lean") * 95 / 100 >> 20))
report "$scratch/joint" "$small" $searched -s model.hidden=128 -s partition.balance=joint -s memory.limit_mib=$lean --search-seconds=1
ok "searched: within a limit" test "$(arena "$scratch/joint")" -le $((lean << 20))
report "$scratch/time" "$small" $searched -s model.hidden=128 -s partition.balance=time -s memory.limit_mib=$lean --search-seconds=1 &&
  ok "searched: within it not worse than by time" at_most "$(makespan "$scratch/joint")" "$(makespan "$scratch/time")"
report "$scratch/slow" "$small" $searched -s partition.balance=joint -s cluster.speed=[1,0.5,1] --search-seconds=1
ok "half the speed of one of three ranks costs less than half again" at_most "$(makespan "$scratch/slow")" \
  "$(product 1.35 "$(makespan "$scratch/more")")"
"$gen" --check "$small" $searched -s partition.balance=joint -s pipeline.live_limit=0.5 2>"$scratch/said"
is "refused: a limit below one microbatch" "$? $(cat "$scratch/said")" \
  "78 -s pipeline.live_limit = 0.5: at least what one microbatch needs on each rank"

# ---- the report ----
# sum REPORT: F + I + W of all stages.
sum() { awk -F'[:,]' '/"(forward|backward_input|backward_weight)":/ { sum += $2 } END { printf "%.15g\n", sum }' "$1"; }
# work REPORT SPEEDS: the work that its utilisation states.
work() { awk -v u="$(field "$1" utilisation)" -v m="$(makespan "$1")" -v s="$2" 'BEGIN { printf "%.15g\n", u * m * s }'; }
report "$scratch/plain" "$small" -s partition.balance=count
ok "utilisation is work over makespan x ranks" near "$(work "$scratch/plain" 3)" "$(product 6 "$(sum "$scratch/plain")")"
report "$scratch/again" "$small" -s partition.balance=count -s memory.recompute=full
ok "it does not count what is recomputed" near "$(work "$scratch/again" 3)" "$(work "$scratch/plain" 3)"
report "$scratch/rows" "$small" -s partition.balance=count -s model.loss_rows=32
ok "nor logits that are computed again" near "$(work "$scratch/rows" 3)" "$(work "$scratch/plain" 3)"
report "$scratch/fast" "$small" -s partition.balance=count -s cluster.speed=[1,1,4]
ok "nor does it depend on the speeds" near "$(work "$scratch/fast" 6)" "$(work "$scratch/plain" 3)"
cost() { sed -n "s/^ *\"$2\": \\([-0-9.e+]*\\),*$/\\1/p" "$1" | sed -n "$3p"; }
ok "a rank of speed 4 takes a quarter" near "$(product 4 "$(cost "$scratch/fast" forward 3)")" "$(cost "$scratch/plain" forward 3)"
is "first and last block of each stage" "$(sed -n 's/^ *"\(first_block\|last_block\)": "\(.*\)",*$/\2/p' "$scratch/plain" | tr '\n' ' ')" \
  "model.embed_tokens model.layers.1.mlp model.layers.2.self_attn model.layers.3.mlp model.layers.4.self_attn lm_head "

# ---- refusals ----
# refuses NAME MESSAGE ARGUMENT...
refuses() {
  refuses_name=$1 refuses_message=$2
  shift 2
  "$gen" --check "$@" >"$scratch/out" 2>"$scratch/said"
  is "refused: $refuses_name" "$? $(cat "$scratch/said")" "78 $refuses_message"
}
refuses "a list of layers" '-s partition.balance = joint: "count", together with partition.layers, which leaves nothing to balance' \
  "$small" -s partition.balance=joint -s partition.layers=[2,2,2]
refuses "named blocks" '-s partition.balance = joint: "count", together with partition.before, which leaves nothing to balance' \
  "$small" -s partition.balance=joint -s "partition.before=[layers.2,layers.4]"
"$gen" -p csv "$small" -o "$scratch/order.csv"
refuses "a schedule file" '-s partition.balance = joint: "count" or "time", with the schedule file: its order is for one cut' \
  "$small" -s partition.balance=joint -s pipeline.schedule=file -s pipeline.schedule_file="$scratch/order.csv"
"$gen" -p actions "$small" -o "$scratch/actions"
refuses "given actions" '-s partition.balance = joint: "count" or "time", with --actions: its order is for one cut' \
  "$small" -s partition.balance=joint --actions="$scratch/actions"
refuses "speeds of some ranks" '-s cluster.speed = [1,2]: a list of 3 factors, one for each of pipeline.ranks' "$small" -s cluster.speed=[1,2]
finish
