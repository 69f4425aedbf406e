#!/bin/sh
# limits.t: settings at their limits, alone and in random combinations: penstock-gen and penstock-plan end with 0, or with 78 and the name of
# a setting. `make check-limits` does the same with sanitizers, for each limit and 1,500 combinations.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'import os; os.waitstatus_to_exitcode' python3 || skip_all "no python3"
# limited NAME ARGUMENT...: what is wrong is shown.
limited() {
  what=$1
  shift
  "$python" "$top_srcdir/tests/fuzz/limits.py" --plan "$top_builddir/penstock-plan" "$@" "$gen" "$top_srcdir" >"$scratch/found" 2>&1
  result $? "$what: $(tail -n 1 "$scratch/found")"
  sed '$d; s/^/# /' "$scratch/found"
}
limited "each setting alone" --alone 1 --without model.layers
limited "random combinations" --alone 0 --random 60 --seed 3 --plans 8 --without model.layers
# Where memory ends, too.
(ulimit -v 400000 && exec "$gen" --check -s model.layers=8192 "$top_srcdir/tests/fuzz/small.cfg") >"$scratch/found" 2>&1
matches "a plan without memory names what makes it large" "$? $(complaints "$scratch/found")" "78 penstock-gen: out of memory *: *model.layers*"
finish
