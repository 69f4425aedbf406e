#!/bin/sh
# default_cut.t: without the group partition the stages have equal times, by blocks; how far that is from partition.balance = "joint"; a limit
# that only equal numbers of layers keep; the hint to a topology that asks for those.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/cuts.sh"
demo=$top_srcdir/topologies/demo.cfg

# report OUTPUT ARGUMENT...: the report of a plan of the demo; what the generator says is in $scratch/said.
report() {
  report_to=$1
  shift
  "$gen" -p report -o "$report_to" "$@" "$demo" 2>"$scratch/said"
}
makespan() { sed -n 's/^ *"makespan": \([-0-9.e+]*\),*$/\1/p' "$1" | head -1; }

# near_joint NAME ARGUMENT...: the default is what "time" by blocks makes, and takes at most 3% longer than the joint choice.
near_joint() {
  near_name=$1
  shift
  report "$scratch/default" "$@"
  is "$near_name: no hint" "$(grep partition "$scratch/said")" ""
  report "$scratch/time" "$@" -s partition.balance=time -s partition.unit=block
  is "$near_name: the default is by time" "$(grep -v digest "$scratch/default")" "$(grep -v digest "$scratch/time")"
  report "$scratch/joint" "$@" -s partition.balance=joint -s partition.unit=block
  ok "$near_name: within 3% of joint" awk -v a="$(makespan "$scratch/default")" -v b="$(makespan "$scratch/joint")" \
    'BEGIN { print a, b; exit !(b > 0 && a <= 1.03 * b) }'
}
near_joint "the demo"
for ranks in 2 4; do
  large="-s model.vocab=32000 -s pipeline.ranks=$ranks"
  near_joint "a large vocabulary on $ranks ranks, 1f1b" $large -s pipeline.stages_per_rank=1 -s pipeline.schedule=1f1b
  near_joint "a large vocabulary on $ranks ranks, interleaved" $large -s pipeline.schedule=1f1b
  near_joint "a large vocabulary on $ranks ranks, zero_bubble_v" $large
done

# ---- memory.limit_mib ----
one="-s pipeline.stages_per_rank=1 -s pipeline.schedule=1f1b -s model.vocab=4096 -s batch.microbatch=8"
report "$scratch/default" $one
report "$scratch/count" $one -s partition.balance=count
least=$(($(arena "$scratch/count") / 1048576 + 1))
ok "the cut by count needs less" test $((least << 20)) -lt "$(arena "$scratch/default")"
report "$scratch/limited" $one -s memory.limit_mib=$least
is "a limit that only the cut by count keeps" "$(arena "$scratch/limited")" "$(arena "$scratch/count")"
is "it is said" "$(grep hint "$scratch/said")" "-s memory.limit_mib = $least: hint: less than the default partition, of equal times, needs; this \
plan has stages of equal numbers of layers, partition.balance = \"count\""
report "$scratch/limited" $one -s memory.limit_mib=$((least - 1))
is "a limit that none keeps" "$?" 78

# ---- the hint ----
report "$scratch/count" $one -s partition.balance=count
matches "a cut by count that takes longer" "$(cat "$scratch/said")" \
  '-s partition.balance = count: hint: "time" with partition.unit = "block" makes the step [0-9]*% shorter'
report "$scratch/count" -s partition.balance=count
is "one that does not" "$(grep partition "$scratch/said")" ""
report "$scratch/count" $one -s partition.layers=[2,2,2,2]
is "a list" "$(grep partition "$scratch/said")" ""

finish
