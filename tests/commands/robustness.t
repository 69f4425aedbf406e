#!/bin/sh
# robustness.t: how the report says that the makespan spreads under noise of the costs, against draws of the test's own.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 here"

cat >"$scratch/four.cfg" <<'END'
pipeline = { ranks = 4; microbatches = 12; schedule = "1f1b"; };
model = { family = "mlp"; layers = 4; hidden = 8; sequence = 4; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
costs = { forward = 18.5; backward_input = 18; backward_weight = 9.5; send = 0.6; };
END
costs="18.5 18 9.5 0.6"

report() { # NAME [OPTION...]: the report with its rows
  report_name=$1
  shift
  "$gen" -p report --robustness "$scratch/four.cfg" "$@" >"$scratch/$report_name" 2>"$scratch/said"
}
# rows NAME EXPRESSION: of each row, in order; `r` is the row and `report` the report.
rows() {
  python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))
print(*[eval(sys.argv[2]) for r in report["robustness"]], sep="\n")' "$scratch/$1" "$2"
}
# near NAME ORDER.csv KIND NOISE WITHIN: the first row of that kind and noise is that of the reference, within a share of it.
near() {
  reference=$(python3 -B "$top_srcdir/tests/commands/robustness_reference.py" "$2" $costs "$3" "$4" 2000 17)
  rows "$1" "(r['kind'] == '$3' and r['noise'] == $4 and r['order'] == 'chosen') and f\"{r['p50']} {r['p99']}\"" |
    grep -v False | awk -v reference="$reference" -v within="$5" '
      { split(reference, r, " "); if ($1 / r[1] > 1 + within || $1 / r[1] < 1 - within || $2 / r[2] > 1 + within || $2 / r[2] < 1 - within) {
          print "# " $0 ", but the reference has " reference; exit 1 } else found = 1 }
      END { exit !found }'
}

ok "a report" report chosen
is "has a row for each kind and noise, of the order and of the best named schedule" "$(rows chosen "(r['order'], r['kind'], r['noise'])")" "$(
  for order in chosen 1f1b; do
    for kind in action rank; do
      for noise in 0.05 0.1 0.2; do echo "('$order', '$kind', $noise)"; done
    done
  done)"
is "each median is at most its p99" "$(rows chosen "r['p50'] <= r['p99']" | sort -u)" True
is "the p99 is above the makespan of the order" "$(rows chosen \
  "r['p99'] > report['makespan'] if r['order'] == 'chosen' else True" | sort -u)" True
is "it rises with the noise" "$(rows chosen "r['p99']" | awk 'NR % 3 != 1 { print ($1 > last) } { last = $1 }' | sort -u)" 1
report again
ok "again: the same bytes" cmp "$scratch/chosen" "$scratch/again"
report other --search-seed=3
ok "another seed: other draws" sh -c "! cmp -s '$scratch/chosen' '$scratch/other'"
"$gen" -p report "$scratch/four.cfg" >"$scratch/plain" 2>"$scratch/said"
ok "only with --robustness" sh -c "! grep -q robustness '$scratch/plain'"

# ---- the test's own draws ----
"$gen" -p csv "$scratch/four.cfg" >"$scratch/four.csv" 2>"$scratch/said"
ok "by action, 5%: the spread of the test's own draws" near chosen "$scratch/four.csv" action 0.05 0.006
ok "by action, 20%" near chosen "$scratch/four.csv" action 0.2 0.02
ok "by rank, 10%" near chosen "$scratch/four.csv" rank 0.1 0.04
report alone -s pipeline.ranks=1
"$gen" -p csv "$scratch/four.cfg" -s pipeline.ranks=1 >"$scratch/alone.csv" 2>"$scratch/said"
ok "one rank, by action" near alone "$scratch/alone.csv" action 0.1 0.01
ok "one rank, as a whole" near alone "$scratch/alone.csv" rank 0.1 0.04

# ---- pipeline.objective = "p99" ----
# Each stage has the same costs. The limit leaves room for 10 forwards on each of 8 ranks.
search="-s pipeline.ranks=8 -s pipeline.microbatches=24 -s model.layers=8 -s pipeline.schedule=search -s pipeline.live_limit=10
  -s costs.live_weight=0.366 --search-seconds=1"
for objective in makespan p99; do
  "$gen" -p csv "$scratch/four.cfg" $search -s pipeline.objective=$objective >"$scratch/$objective.csv" 2>"$scratch/said"
  report $objective $search -s pipeline.objective=$objective
  python3 -B "$top_srcdir/tests/commands/robustness_reference.py" "$scratch/$objective.csv" $costs action 0.1 500 23 >"$scratch/$objective"_p99
done
# below FILE FILE SHARE: the second number of the first is below that share of the other's.
below() { cat "$1" "$2" | awk -v share="$3" 'NR == 1 { one = $2 } NR == 2 { exit !(one < share * $2) }'; }
p99_of() { # NAME FILE: the row of the chosen order, by action, 10%
  rows "$1" "r['order'] == 'chosen' and r['kind'] == 'action' and r['noise'] == 0.1 and f\"0 {r['p99']}\"" | grep -v False >"$2"
}
ok "its p99 is less than that of the plain search, by draws of the test" below "$scratch/p99_p99" "$scratch/makespan_p99" 0.995
p99_of p99 "$scratch/one"
p99_of makespan "$scratch/other"
ok "and by those of the report, which the search has not used" below "$scratch/one" "$scratch/other" 0.995
is "the report has it, and the bound of the makespan" "$(python3 -c 'import json, sys
d, plain = (json.load(open(name)) for name in sys.argv[1:])
s = d["search"]
print(s["objective"], s["makespan"] < s["p99"] < 1.1 * s["makespan"], s["lower_bound"] == plain["search"]["lower_bound"],
      s["makespan"] == d["makespan"], abs(s["p99"] / s["lower_bound"] - 1 - s["gap"]) < 1e-12, s["trace"][-1][1] == s["gap"])' \
  "$scratch/p99" "$scratch/makespan")" "p99 True True True True True"
ok "the layout is within a limit in bytes too" "$gen" --check "$scratch/four.cfg" -s pipeline.schedule=search -s pipeline.objective=p99 \
  -s memory.limit_mib=1 --search-seconds=0 2>"$scratch/said"

# With partition.balance = "joint" the cut is that of the least makespan, and the order is searched on.
cat >"$scratch/joint.cfg" <<'END'
pipeline = { ranks = 4; stages_per_rank = 2; microbatches = 12; schedule = "search"; };
model = { family = "llama"; layers = 13; hidden = 64; heads = 4; ffn = 160; vocab = 512; sequence = 64; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
partition = { unit = "block"; balance = "joint"; };
END
for objective in makespan p99; do
  "$gen" -p report --robustness "$scratch/joint.cfg" -s pipeline.objective=$objective --search-seconds=1 >"$scratch/joint_$objective" 2>"$scratch/said"
  p99_of joint_$objective "$scratch/joint_$objective.p99"
done
ok "of a joint choice too, by draws that the search has not used" below "$scratch/joint_p99.p99" "$scratch/joint_makespan.p99" 0.995
"$gen" -p report "$scratch/joint.cfg" -s pipeline.objective=p99 --search-seconds=3 >"$scratch/joint_more" 2>"$scratch/said"
is "more effort is not worse" "$(python3 -c 'import json, sys
less, more = (json.load(open(name))["search"] for name in sys.argv[1:])
print(more["p99"] <= less["p99"], more["lower_bound"] == less["lower_bound"])' "$scratch/joint_p99" "$scratch/joint_more")" "True True"
lean=$(python3 -c 'import json, sys
print(int(max(r["placed_bytes"] for r in json.load(open(sys.argv[1]))["rank"]) * 0.97) >> 20)' "$scratch/joint_makespan")
ok "within a limit in bytes" "$gen" --check "$scratch/joint.cfg" -s pipeline.objective=p99 -s memory.limit_mib="$lean" \
  --search-seconds=0 2>"$scratch/said"

# ---- what else there can be ----
ok "pairs, and a V" report pairs -s pipeline.schedule=dual_pipe_v -s pipeline.stages_per_rank=2 -s model.layers=8 -s costs.overlap=30
ok "replicas, with collectives" report replicas -s data_parallel.replicas=2 -s costs.reduce=20 -s costs.gather=10
ok "a forward-only schedule" report forward -s pipeline.schedule=inference
is "is compared with no other" "$(rows forward "r['order']" | sort -u)" chosen
ok "a schedule with settings" report settings -s pipeline.stages_per_rank=2 -s model.layers=8 -s pipeline.placement=loop
is "has them apart from its name" "$(rows settings "r.get('settings')" | sort -u)" "None
warmup 2, zero_bubble"
"$gen" --robustness "$scratch/four.cfg" >"$scratch/c" 2>"$scratch/said"
is "elsewhere it is refused" "$? $(cat "$scratch/said")" "64 penstock-gen: --robustness: only with --print=report"
finish
