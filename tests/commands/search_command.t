#!/bin/sh
# search_command.t: the schedule "search" on the command line: what it prints, its limits, the same bytes again, and what it refuses.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/zb.cfg" <<'END'
pipeline = { ranks = 8; microbatches = 24; schedule = "search"; objective = "span"; live_limit = 12; };
model = { family = "mlp"; layers = 8; hidden = 8; sequence = 4; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
costs = { forward = 18.522; backward_input = 18.086; backward_weight = 9.337; send = 0.601; live_weight = 0.366; };
END
cat >"$scratch/llama.cfg" <<'END'
pipeline = { ranks = 4; microbatches = 8; schedule = "search"; };
model = { family = "llama"; layers = 8; hidden = 64; heads = 4; ffn = 160; vocab = 256; sequence = 64; };
batch = { microbatch = 4; };
optimizer = { learning_rate = 1e-3; steps = 10; };
END

# field REPORT NAME: the first number of that name in a report.
field() { sed -n "s/^ *\"$2\": \\([-0-9.e]*\\),*$/\\1/p" "$1" | head -1; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }

# ---- what it says ----
"$gen" -p report "$scratch/zb.cfg" >"$scratch/report" 2>"$scratch/said"
ok "a published case meets its bound: bubble .0524" at_most "$(field "$scratch/report" bubble)" 0.05237
matches "the line on standard error" "$(cat "$scratch/said")" "penstock-gen: search: makespan *, span 1163.61 in the file's unit; the span\
 is 0.000% above the bound 1163.61; from list schedule, placement loop"
ok "the report describes the search" grep -q '"objective": "span"' "$scratch/report"

"$gen" --search-seconds=0 "$scratch/zb.cfg" -s pipeline.live_limit=9 >"$scratch/one.c" 2>"$scratch/said"
"$gen" --search-seconds=0 "$scratch/zb.cfg" -s pipeline.live_limit=9 >"$scratch/two.c" 2>>"$scratch/said"
ok "the same again is the same bytes" cmp "$scratch/one.c" "$scratch/two.c"
"$gen" -p actions --search-seconds=0 --search-seed=1 "$scratch/zb.cfg" -s pipeline.live_limit=16 >"$scratch/three" 2>>"$scratch/said"
"$gen" -p actions --search-seconds=0 "$scratch/zb.cfg" -s pipeline.live_limit=16 >"$scratch/four" 2>>"$scratch/said"
ok "another seed is another search" sh -c "! cmp -s '$scratch/three' '$scratch/four'"
ok "its actions are taken back" "$gen" --check --actions="$scratch/four" "$scratch/zb.cfg"

# ---- the other objective breaks ties ----
# both REPORT: makespan and span.
both() { echo "$(field "$1" makespan) $(field "$1" span)"; }
for seconds in 0 1; do
  for objective in makespan span; do
    "$gen" -p report --search-seconds=$seconds "$scratch/zb.cfg" -s pipeline.objective=$objective >"$scratch/$objective" 2>"$scratch/said"
  done
  is "of the least makespan the least span, in $seconds s" "$(both "$scratch/makespan")" "$(both "$scratch/span")"
done

# ---- close to the bound within the memory of v_half and v_min ----
# vee LIMIT MICROBATCHES: the makespan and its bound of 8 ranks with two stages each, in units of 500.
vee() {
  "$gen" -p report --search-seconds=0 "$scratch/zb.cfg" -s pipeline.stages_per_rank=2 -s model.layers=16 -s pipeline.objective=makespan \
    -s pipeline.live_limit="$1" -s pipeline.microbatches="$2" -s costs.forward=500 -s costs.backward_input=500 -s costs.backward_weight=500 \
    -s costs.send=0 -s costs.live_weight=1 2>&1 >/dev/null | sed 's/.*makespan \([0-9]*\),.* above the bound \([0-9]*\);.*/\1 \2/'
}
is "in the memory of v_half, v_half is the best" "$(vee 10 32)" "104500 104500"
set -- $(vee 8 32)
ok "in that of v_min, no worse than v_min" at_most "${1-none}" 108500
ok "and within 1% of the bound" at_most "${1-none}" "$(awk -v bound="${2-0}" 'BEGIN { print 1.01 * bound }')"
set -- $(vee 12 16)
ok "between v_half and zero_bubble_v, better than both" at_most "${1-none}" 55000

# ---- replicas ----
# Rank 0 reduces and gathers for 16 of the 40 that it is busy, so its backwards must be early: zb_h1 ends at 44.2.
"$gen" -p report --search-seconds=1 "$scratch/llama.cfg" -s data_parallel.replicas=2 -s costs.forward=1 -s costs.backward_input=1 \
  -s costs.backward_weight=1 -s costs.send=0.1 -s costs.reduce=[8,1,1,1] -s costs.gather=[8,1,1,1] >"$scratch/report" 2>"$scratch/said"
is "the search hides the collectives, up to its bound" "$(field "$scratch/report" makespan) $(field "$scratch/report" lower_bound)" "40.0 40.0"
ok "and says so" grep -q 'search: makespan 40, .* 0.000% above the bound 40;' "$scratch/said"

# ---- placements ----
"$gen" -p report --search-seconds=0 "$scratch/zb.cfg" -s pipeline.stages_per_rank=2 -s model.layers=16 -s pipeline.live_limit=8 \
  >"$scratch/report" 2>"$scratch/said"
ok "half a pipeline's memory: a V" grep -q '"placement": "v"' "$scratch/report"
"$gen" -p report --search-seconds=0 "$scratch/zb.cfg" -s pipeline.stages_per_rank=2 -s model.layers=16 -s pipeline.live_limit=8 \
  -s pipeline.placement=loop >"$scratch/loop" 2>"$scratch/said"
ok "the V is the better" at_most "$(field "$scratch/report" span)" "$(field "$scratch/loop" span)"
matches "a placement that is asked for is kept" "$(cat "$scratch/said")" "*placement loop"

several="-s pipeline.stages_per_rank=4 -s model.layers=32 -s pipeline.microbatches=8 -s pipeline.live_limit=12"
"$gen" -p report --search-seconds=0 "$scratch/zb.cfg" $several >"$scratch/report" 2>"$scratch/said"
"$gen" -p report --search-seconds=0 "$scratch/zb.cfg" $several -s pipeline.placement=loop >"$scratch/loop" 2>"$scratch/said"
ok "a zigzag of four stages a rank is tried" grep -q '"placement": "v"' "$scratch/report"
ok "and is the better" at_most "$(field "$scratch/report" span)" "$(field "$scratch/loop" span)"

# On one rank a loop is a V: what a V's schedule can do, the search can.
for placement in loop v; do
  "$gen" -p report --search-seconds=0 "$scratch/zb.cfg" -s pipeline.ranks=1 -s pipeline.stages_per_rank=2 -s costs.overlap=20 \
    -s pipeline.placement=$placement >"$scratch/report" 2>"$scratch/said"
  ok "pairs on one rank, placed as a $placement" grep -q '"from": "dual_pipe_v"' "$scratch/report"
done

# ---- limits ----
# arena REPORT: the largest arena.
arena() { sed -n 's/^ *"placed_bytes": \([0-9]*\),*$/\1/p' "$1" | sort -n | tail -1; }
"$gen" -p report --search-seconds=0 "$scratch/llama.cfg" >"$scratch/free" 2>"$scratch/said"
free_mib=$(($(arena "$scratch/free") / 1048576))
"$gen" -p report --search-seconds=0 -s memory.limit_mib=$free_mib "$scratch/llama.cfg" >"$scratch/limited" 2>"$scratch/said"
ok "a limit in MiB is kept" at_most "$(arena "$scratch/limited")" $((free_mib * 1048576))
"$gen" -p report -s pipeline.schedule=1f1b "$scratch/llama.cfg" >"$scratch/named" 2>"$scratch/said"
ok "no limit: no worse than 1f1b" at_most "$(field "$scratch/free" makespan)" "$(field "$scratch/named" makespan)"
named_mib=$((($(arena "$scratch/named") + 1048575) / 1048576))
"$gen" -p report -s memory.limit_mib=$named_mib "$scratch/llama.cfg" >"$scratch/limited" 2>"$scratch/said"
ok "in the memory of 1f1b" at_most "$(arena "$scratch/limited")" $((named_mib * 1048576))
ok "no worse than 1f1b" at_most "$(field "$scratch/limited" makespan)" "$(field "$scratch/named" makespan)"
"$gen" -p report --search-seconds=0 -s pipeline.live_limit=4 "$scratch/llama.cfg" >"$scratch/shares" 2>"$scratch/said"
"$gen" -p report --search-seconds=0 -s pipeline.live_limit=4 -s costs.live_weight=0 "$scratch/llama.cfg" >"$scratch/nothing" 2>"$scratch/said"
ok "what a stage keeps for W counts, as its tensors say" test "$(field "$scratch/shares" makespan)" != "$(field "$scratch/nothing" makespan)"

# Whatever a named schedule needs in bytes, the search does as well in.
# as_well NAME ARGUMENTS...: in the memory that the schedule takes with these.
as_well() {
  as_well_name=$1
  shift
  "$gen" -p report "$scratch/llama.cfg" -s pipeline.schedule="$as_well_name" "$@" >"$scratch/named" 2>"$scratch/said" || return 1
  as_well_mib=$((($(arena "$scratch/named") + 1048575) / 1048576))
  "$gen" -p report --search-seconds=0 "$scratch/llama.cfg" -s memory.limit_mib=$as_well_mib "$@" >"$scratch/found" 2>"$scratch/said" || return 1
  at_most "$(arena "$scratch/found")" $((as_well_mib * 1048576)) && at_most "$(field "$scratch/found" makespan)" "$(field "$scratch/named" makespan)"
}
large="-s model.hidden=128 -s model.sequence=256 -s model.ffn=320 -s batch.microbatch=8"
ok "as well as zb_h1 in its bytes" as_well zb_h1 $large
ok "as well as interleaved in its bytes, on loop or V" as_well interleaved -s pipeline.stages_per_rank=2 $large
ok "as well as 1f1b in its bytes, all run again" as_well 1f1b -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s memory.recompute=full $large
ok "as well as zb_h2 in its bytes, all run again" as_well zb_h2 -s memory.recompute=full $large

# A whole backward needs no more than its forward left: what one microbatch holds is enough, and twice that gets more.
"$gen" -p report --search-seconds=0 "$scratch/zb.cfg" -s pipeline.live_limit=1 -s costs.live_weight=3 >"$scratch/one" 2>"$scratch/said"
"$gen" -p report --search-seconds=0 "$scratch/zb.cfg" -s pipeline.live_limit=2 -s costs.live_weight=3 >"$scratch/two" 2>>"$scratch/said"
ok "one microbatch at a time, all backwards whole" at_most "$(field "$scratch/two" span)" "$(field "$scratch/one" span)"
matches "which its bound says is the best" "$(head -n 1 "$scratch/said")" "*the span is 0.000% above the bound*"

# A tied matrix between two ranks: its messages are in the makespan, and the search does no worse by them.
tied="-s pipeline.ranks=3 -s model.tie_embeddings=true -s model.layers=6 -s costs.forward=1 -s costs.backward_input=1 -s costs.backward_weight=1 -s costs.send=0.25"
for clip in 0 1; do
  "$gen" -p report --search-seconds=0 "$scratch/llama.cfg" $tied -s optimizer.clip_norm=$clip >"$scratch/found" 2>"$scratch/said"
  "$gen" -p report "$scratch/llama.cfg" $tied -s optimizer.clip_norm=$clip -s pipeline.schedule=zb_h1 >"$scratch/named" 2>"$scratch/said"
  "$gen" -p report "$scratch/llama.cfg" $tied -s model.tie_embeddings=false -s pipeline.schedule=zb_h1 >"$scratch/untied" 2>"$scratch/said"
  ok "clip_norm $clip, tied: no worse than zb_h1" at_most "$(field "$scratch/found" makespan)" "$(field "$scratch/named" makespan)"
  ok "clip_norm $clip: tied takes longer" at_most "$(field "$scratch/untied" makespan)" "$(awk -v m="$(field "$scratch/named" makespan)" 'BEGIN { print m - 0.25 }')"
done

# ---- refusals ----
# refused NAME STATUS MESSAGE ARGUMENT...
refused() {
  refused_name=$1 refused_status=$2 refused_message=$3
  shift 3
  "$gen" --check "$@" >"$scratch/out" 2>"$scratch/said"
  is "$refused_name" "$? $(cat "$scratch/said")" "$refused_status $refused_message"
}
refused "less than one microbatch" 78 \
  "-s pipeline.live_limit = 0.5: at least 1, which one microbatch needs on rank 0" -s pipeline.live_limit=0.5 "$scratch/zb.cfg"
refused "less than a rank's two stages" 78 \
  "-s pipeline.live_limit = 1.5: at least 2, which one microbatch needs on rank 0" -s pipeline.live_limit=1.5 \
  -s pipeline.stages_per_rank=2 -s model.layers=16 "$scratch/zb.cfg"
refused "another objective" 78 "-s pipeline.objective = bubble: \"makespan\", \"span\" or \"p99\"" -s pipeline.objective=bubble "$scratch/zb.cfg"
refused "seconds that are none" 64 "penstock-gen: --search-seconds -1: a whole number from 0 to 1000000" --search-seconds=-1 \
  "$scratch/zb.cfg"
"$gen" --check -s memory.limit_mib=1 "$scratch/llama.cfg" >"$scratch/out" 2>"$scratch/said"
is "a limit that nothing keeps" "$?" 78
matches "names what is needed and where" "$(cat "$scratch/said")" \
  "-s memory.limit_mib = 1: 0 (none) or at least *, which one microbatch needs on rank *"

# needed ARGUMENTS...: the MiB that a refusal names.
needed() { "$gen" --check -s memory.limit_mib=1 "$scratch/llama.cfg" -s model.hidden=256 "$@" 2>&1 | sed 's/.*at least \([0-9]*\),.*/\1/'; }
plain_mib=$(needed) copied_mib=$(needed -s memory.snapshot=true)
ok "a snapshot of weights and moments counts" test "$copied_mib" -gt $((plain_mib + plain_mib / 3))
ok "one more than the refusal names is enough: the estimate leaves small things out" "$gen" --check --search-seconds=0 "$scratch/llama.cfg" -s model.hidden=256 -s memory.snapshot=true -s memory.limit_mib=$((copied_mib + 1))
audited_mib=$(needed -s memory.audit=true)
ok "what an audit computes counts" test "$audited_mib" -gt "$plain_mib"
ok "one more than the refusal names is enough, with audits" "$gen" --check --search-seconds=0 "$scratch/llama.cfg" -s model.hidden=256 -s memory.audit=true -s memory.limit_mib=$((audited_mib + 1))
for reshard in step use; do
  shared="-s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.reshard=$reshard -s model.sequence=16"
  shared_mib=$(needed $shared)
  ok "weights that replicas share out count while they are whole (reshard = $reshard)" \
    "$gen" --check --search-seconds=0 "$scratch/llama.cfg" -s model.hidden=256 $shared -s memory.limit_mib=$((shared_mib + 1))
done
finish
