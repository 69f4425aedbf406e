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
