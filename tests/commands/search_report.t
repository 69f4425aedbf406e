#!/bin/sh
# search_report.t: what the report says of a search, and the lower bound in the charts.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 here"

cat >"$scratch/zb.cfg" <<'END'
pipeline = { ranks = 8; microbatches = 24; schedule = "search"; live_limit = 7; };
model = { family = "mlp"; layers = 8; hidden = 8; sequence = 4; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
costs = { forward = 18.522; backward_input = 18.086; backward_weight = 9.337; send = 0.601; live_weight = 0.366; };
END
search() { # NAME [OPTION...]: the report of a search
  search_name=$1
  shift
  "$gen" -p report "$scratch/zb.cfg" "$@" >"$scratch/$search_name" 2>"$scratch/said"
}
says() { # NAME EXPRESSION: of the report, `d`, and its search, `s`
  python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
s = d["search"]
trace = s["trace"]
print(eval(sys.argv[2]))' "$scratch/$1" "$2"
}
check() { # TEXT EXPRESSION: it is true of all reports
  for check_name in makespan span named replicas; do says $check_name "$2"; done >"$scratch/checked"
  is "$1" "$(sort -u "$scratch/checked")" True
}

search makespan --search-seconds=1
search span --search-seconds=1 -s pipeline.objective=span
search named --search-seconds=0 -s pipeline.microbatches=2
search replicas --search-seconds=0 -s data_parallel.replicas=2 -s costs.reduce=9 -s costs.gather=9
check "the work of the trace rises, and its last is all" "[w for w, g in trace] == sorted({w for w, g in trace}) and trace[-1][0] == s['actions_timed']"
check "the gap never rises, and its last is the search's" "all(a[1] >= b[1] for a, b in zip(trace, trace[1:])) and trace[-1][1] == s['gap']"
check "the result is no worse than the warm start" "s['makespan'] <= s['warm_start']['makespan'] or s['objective'] == 'span'"
check "the first gap is no less than that of the warm start" \
  "s['objective'] == 'span' or trace[0][1] >= s['warm_start']['makespan'] / s['lower_bound'] - 1 - 1e-9"
check "orders and moves are counted" "0 < s['candidates'] <= s['starts'] + 40 and s['actions_timed'] > s['moves'] >= 0"
is "the search improved on its start" "$(says makespan "len(trace) > 2 and s['moves'] > 1000 and trace[0][1] > trace[-1][1] > 0")" True
is "keys of before are kept" "$(says makespan "all(k in s for k in
  ('objective', 'makespan', 'span', 'lower_bound', 'gap', 'from', 'placement', 'starts', 'actions_timed'))")" True
search again --search-seconds=1
ok "again: the same bytes" cmp "$scratch/makespan" "$scratch/again"

# ---- charts ----
# mark FILE: where the lower bound is marked in a text chart, in its columns, and in words: COLUMN COLUMNS
mark() {
  python3 -c 'import sys
lines = open(sys.argv[1]).read().split("\n")
lane = next(line for line in lines if line.startswith("0 |"))
mark = next(line for line in lines if "lower bound" in line and "^" in line)
print(mark.index("^") - 3, len(lane) - 4, mark.replace("^", "").split()[-1])' "$1"
}
chart() { # COLUMNS [OPTION...]: the text chart of zero_bubble_v-like costs: is the mark at bound / makespan, and by its value?
  chart_columns=$1
  shift
  COLUMNS=$chart_columns "$gen" -p text "$scratch/zb.cfg" "$@" >"$scratch/text" 2>"$scratch/said" || return 1
  "$gen" -p report "$scratch/zb.cfg" "$@" >"$scratch/report" 2>"$scratch/said" || return 1
  mark "$scratch/text" >"$scratch/mark" || return 1
  python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
column, columns, value = map(float, open(sys.argv[2]).read().split())
b = d["bounds"]["makespan"]
bound = max(v for v in (b["work"], b["ends"], b["chain"], b["memory"]) if v is not None)
if bound > d["makespan"]: bound = d["lower_bound"] # 1f1b does not keep within the limit
unit = d["makespan"] / columns
assert abs(value / bound - 1) < 1e-5, (value, bound)
assert abs(column - bound / unit) <= 1.5, (column, bound / unit)' "$scratch/report" "$scratch/mark"
}
for columns in 40 80 200; do
  ok "the text chart of $columns columns marks the bound" chart $columns -s pipeline.schedule=1f1b
  ok "with a search and its limit" chart $columns --search-seconds=0
done
ok "where the bound is the makespan, at its end" chart 80 -s pipeline.schedule=gpipe -s pipeline.ranks=1
ok "with replicas" chart 80 -s pipeline.schedule=1f1b -s data_parallel.replicas=2 -s costs.reduce=40 -s costs.gather=40
"$gen" -p svg "$scratch/zb.cfg" -s pipeline.schedule=1f1b >"$scratch/svg" 2>"$scratch/said"
"$gen" -p report "$scratch/zb.cfg" -s pipeline.schedule=1f1b >"$scratch/report" 2>"$scratch/said"
ok "the svg has a line at the bound, and names it" python3 -c 'import json, re, sys
svg, d = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
left, width = map(float, re.search(r"<g fill=\"#f1f2f4\">\s*<rect x=\"([0-9.]*)\" y=\"[0-9.]*\" width=\"([0-9.]*)\"", svg).groups())
x1, x2 = map(float, re.search(r"<g class=\"bound\"[^>]*><line x1=\"([0-9.]*)\" y1=\"[0-9.]*\" x2=\"([0-9.]*)\"", svg).groups())
assert x1 == x2 and abs((x1 - left) / width - d["lower_bound"] / d["makespan"]) < 1e-3 and d["gap"] > 0.01
assert float(re.search(r">lower bound ([0-9.]*)<", svg).group(1)) == float("%.6g" % d["lower_bound"])' "$scratch/svg" "$scratch/report"
finish
