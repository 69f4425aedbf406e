#!/bin/sh
# bench.t: make bench measures each of its plans, with the programs that it needs: briefly, of some plans, on this host alone.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'import sys; assert sys.version_info >= (3, 9)' python3 || skip_all "no Python here"
plans='bench_1 bench_r2 bench_1f1b_layer bench_1f1b_bf16'
cd "$top_builddir" || exit 1
# Figures that somebody measured here are put back.
for name in bench bench.json; do test ! -e $name || mv $name "$scratch/"; done
(unset MAKEFLAGS MFLAGS MAKELEVEL && make bench-here BENCH_PLANS="$plans" BENCH_OPTIONS=--brief) >"$scratch/out" 2>&1 || { sed 's/^/# /' "$scratch/out" | tail -n 20; }
is "its table has a column for each plan" "$(sed -n 's/ *target$//p' "$scratch/out" | tr -s ' ' | sed 's/^ //')" "$plans"
ok "each trains" "$python" -c '
import json, sys
plans = json.load(open("bench.json"))["plans"]
assert list(plans) == sys.argv[1:], list(plans)
for name, plan in plans.items():
    assert len(plan["rounds"]) == 1 and plan["tokens_per_s"] > 0 and len(plan["rounds"][0]["ours"]["losses"]) == 4, name
    alone = plan["info"]["replicas"] * plan["info"]["tensor_ranks"] == 1
    assert ("dispatch_of_an_action_ns" in plan) == alone, name
' $plans
rm -rf bench bench.json
for name in bench bench.json; do test ! -e "$scratch/$name" || mv "$scratch/$name" .; done
finish
