#!/bin/sh
# layers.t: the folders depend one way only, every export is declared in one place, and every name is defined once.
#
#   layers.t          the test
#   layers.t --list   what is wrong with the tree, one line each
#
# The rules (layers.awk judges):
#   - An include leads from a folder to itself or to one before it in `order`. gen/ sees of runtime/ only runtime/plan/, and of kernels/
#     only the op lists; runtime/ sees kernels/ by its main header; base/ is for all; tools/ may see all of these, and tests/ everything.
#   - Within a folder, files do not form a cycle of calls, except through functions that internal.h declares; nor do headers of includes.
#   - What a .c exports is declared in the header of its name, in internal.h or the main header (FOLDER/FOLDER.h) of its folder, or the
#     main header of the folder above, or is made of a list by a macro of such a header. main() and emitted C are exempt.
#   - A tag of a struct, union or enum is defined once in the tree, and so is an external function. stand_ins may define functions
#     again: a test or a benchmark links its own in place of the library's.
. "${top_srcdir:-.}/tests/support/lib.sh"

# Lower folders first.
order='
  base kernels kernels/cpu kernels/cpu/vector kernels/cuda
  runtime/plan runtime/base runtime/library runtime/data runtime/storage runtime/comm runtime/observe runtime/exec runtime/device runtime/control
  runtime/rank runtime/supervise runtime/commands runtime
  gen/base gen/topology gen/model gen/families gen/partition gen/schedule gen/timing gen/lower gen/layout gen/search gen/joint
  gen/verify gen/emit gen/views gen/pipeline gen gen/planner
  tools/bench tools/convert tools/tokens tools'
# Folders that see less than what is before them, or each other: FOLDER=PREFIX,PREFIX...
only='
  base=base/
  gen/verify=gen/base/,gen/model/op_signature.h,gen/model/gradient_rules.h,runtime/plan/,kernels/ops.,kernels/steps.
  kernels/cpu=kernels/
  kernels/cpu/vector=kernels/kernels.h,kernels/steps.,kernels/cpu/
  runtime/plan=kernels/ops.
  runtime/control=runtime/plan/,runtime/base/,runtime/storage/,runtime/comm/shared_control.,runtime/comm/step_stats.h,runtime/comm/failure_text.h'
stand_ins='^(tests/|tools/bench/dispatch.c$)'

# layers ROOT [exports]: the findings in a tree, or with `exports` the names that its sources define.
layers() {
  (cd "$1" && find $(ls -d base gen runtime kernels tools tests 2>/dev/null) -name golden -prune -o \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.def' \) -print | LC_ALL=C sort |
    LC_ALL=C xargs awk -v order="$order" -v only="$only" -v stand_ins="$stand_ins" -v mode="${2-}" -f "$awk_file") | LC_ALL=C sort
}
awk_file=$(cd "$top_srcdir" && pwd)/tests/support/layers.awk
if test "${1-}" = --list; then
  layers "$top_srcdir" | cut -f1
  exit
fi

# ---- this tree ----
layers "$top_srcdir" >"$scratch/found"
is "the tree keeps to its layers" "$(tr '\t' '\n' <"$scratch/found")" ""

# The scan of the sources found all that the linker sees in the archives, except names that a macro makes.
if command -v nm >/dev/null 2>&1; then
  layers "$top_srcdir" exports >"$scratch/exports"
  is "the scan of the sources finds every symbol of the archives" "$(
    for archive in libgen libruntime libkernels libkernels_cuda libnccl_calls libofi; do
      test -f "$top_builddir/$archive.a" && nm -g --defined-only "$top_builddir/$archive.a" 2>/dev/null
    done | awk '
      FILENAME != "-" { if ($1 ~ /##/) made[$1]; else seen[$1]; next }
      NF != 3 || $3 ~ /^_Z|^DW\.|^main$/ || $3 in seen { next }
      { for (m in made) {
          split(m, affix, "##")
          if (affix[1] != "pen_" && index($3, affix[1]) == 1) next
        }
        print $3 }' "$scratch/exports" -)" ""
else
  skip "the scan of the sources finds every symbol of the archives" "no nm"
fi

# ---- small trees with one fault each ----
tree=$scratch/tree
# file PATH: takes the contents from standard input.
file() { mkdir -p "$tree/$(dirname "$1")" && cat >"$tree/$1"; }
clean_tree() {
  rm -rf "$tree"
  file kernels/ops.h <<'END'
struct pen_call { int dim; };
END
  file runtime/plan/plan.h <<'END'
#include "kernels/ops.h"
struct pen_plan { int ranks; };
END
  file runtime/base/check.h <<'END'
void pen_check_failed(const char *text);
END
  file runtime/base/check.c <<'END'
#include "runtime/base/check.h"
void pen_check_failed(const char *text) { (void)text; }
END
  file gen/base/arena.h <<'END'
void *pen_new(unsigned long bytes);
END
  file gen/base/arena.c <<'END'
#include "gen/base/arena.h"
static char arena[10]; /* struct pen_plan { in a comment is no definition */
void *pen_new(unsigned long bytes) { return bytes ? arena : "struct pen_plan {"; }
END
  file gen/timing/rules.def <<'END'
RULE(first)
RULE(last)
END
  file gen/timing/timing.h <<'END'
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"
struct pen_timing { double end; };
struct pen_timing *pen_simulate(const struct pen_plan *plan);
extern const int pen_costs[];
#define RULE(name) int pen_rule_##name(int x);
#include "gen/timing/rules.def"
#undef RULE
END
  file gen/timing/simulate.c <<'END'
#include "gen/timing/timing.h"
const int pen_costs[] = {1, 2};
static int cost(int stage) { return pen_costs[stage]; }
struct pen_timing *pen_simulate(const struct pen_plan *plan) {
  return cost(plan->ranks) ? (struct pen_timing *)pen_new(8) : 0;
}
int pen_rule_first(int x) { return x; }
END
  file gen/main.c <<'END'
#include "gen/timing/timing.h"
int main(void) { return pen_simulate(0) != 0; }
END
}
# add PATH: appends standard input to a file of the tree.
add() { mkdir -p "$tree/$(dirname "$1")" && cat >>"$tree/$1"; }
# refuses NAME FINDINGS: the changed tree has these findings; then the tree is clean again.
refuses() {
  is "refused: $1" "$(layers "$tree" | tr '\t' '\n')" "$2"
  clean_tree
}
clean_tree
is "a clean tree has no findings" "$(layers "$tree")" ""

add gen/base/arena.h <<'END'
#include "gen/timing/timing.h"
END
refuses "an include of a later folder" "include that points up: gen/base/arena.h gen/timing/timing.h"

add gen/timing/simulate.c <<'END'
#include "runtime/base/check.h"
END
refuses "an include of the runtime by the generator" "include that points up: gen/timing/simulate.c runtime/base/check.h"

add runtime/base/check.c <<'END'
#include "gen/base/arena.h"
END
refuses "an include of the generator by the runtime" "include that points up: runtime/base/check.c gen/base/arena.h"

add kernels/open.c <<'END'
#include "runtime/plan/plan.h"
END
refuses "an include of the runtime by the kernels" "include that points up: kernels/open.c runtime/plan/plan.h"

add gen/verify/verify.c <<'END'
#include "gen/base/arena.h"
#include "gen/timing/timing.h"
END
refuses "an include of a pass by the verifier" "include that points up: gen/verify/verify.c gen/timing/timing.h"

add runtime/comm/transport.h <<'END'
struct pen_transport;
END
add runtime/control/rendezvous.c <<'END'
#include "runtime/base/check.h"
#include "runtime/comm/transport.h"
END
refuses "an include of a transport by the control connection" \
  "include that points up: runtime/control/rendezvous.c runtime/comm/transport.h"

add runtime/comm/shared_control.h <<'END'
#include "runtime/control/membership.h"
END
add runtime/control/membership.h <<'END'
struct pen_membership;
END
refuses "an include of the control connection by the shared memory" \
  "include that points up: runtime/comm/shared_control.h runtime/control/membership.h"

add gen/timing/simulate.c <<'END'
int pen_forgotten(int (*function)(void)) { return function(); }
END
refuses "a function that no header declares" "export without a declaration in its header: pen_forgotten gen/timing/simulate.c"

add gen/timing/simulate.c <<'END'
const struct pen_timing pen_table[2] = {{.end = 1}};
END
refuses "an object that no header declares" "export without a declaration in its header: pen_table gen/timing/simulate.c"

add gen/timing/simulate.c <<'END'
int pen_rule_middle(int x) { return x; }
END
refuses "a function whose name is not in the list" "export without a declaration in its header: pen_rule_middle gen/timing/simulate.c"

add gen/base/arena.h <<'END'
int pen_other(void);
END
add gen/timing/simulate.c <<'END'
int pen_other(void) { return 0; }
END
refuses "a function that only another folder's header declares" "declared outside of its folder: pen_other gen/base/arena.h
export without a declaration in its header: pen_other gen/timing/simulate.c"

add gen/new/new.h <<'END'
struct pen_new_folder;
END
refuses "a folder that the order does not list" "folder without a place in the order: gen/new"

add gen/main.c <<'END'
extern void *pen_new(unsigned long bytes);
END
refuses "a declaration in a .c" "declared by hand in a .c: pen_new gen/main.c"

add gen/timing/simulate.c <<'END'
static struct pen_plan {
  int other;
} plan;
END
refuses "a struct tag that is defined twice" "tag defined twice: struct pen_plan: gen/timing/simulate.c runtime/plan/plan.h"

add gen/base/sort.h <<'END'
void *pen_new(unsigned long bytes);
END
add gen/base/sort.c <<'END'
void *pen_new(unsigned long bytes) { return (void *)bytes; }
END
refuses "an external function that is defined twice" "function defined twice: pen_new: gen/base/arena.c gen/base/sort.c"

add gen/base/sort.h <<'END'
void pen_sort(void);
END
add gen/base/sort.c <<'END'
void pen_sort(void) { pen_new(1); }
END
add gen/base/arena.c <<'END'
static void call_sort(void) { pen_sort(); }
END
refuses "a cycle of calls" "cycle in gen/base: arena sort
arena -> sort (pen_sort)
sort -> arena (pen_new)"

add gen/base/arena.h <<'END'
#include "gen/base/sort.h"
END
add gen/base/sort.h <<'END'
#include "gen/base/arena.h"
END
refuses "a cycle of includes" "cycle in gen/base: arena.h sort.h
arena.h -> sort.h (#include)
sort.h -> arena.h (#include)"

add tests/gen/simulate.c <<'END'
struct pen_plan { int ranks; };
END
refuses "a struct tag of a test that the sources define" "tag defined twice: struct pen_plan: runtime/plan/plan.h tests/gen/simulate.c"

add base/text.c <<'END'
#include "runtime/base/check.h"
END
refuses "an include by base/" "include that points up: base/text.c runtime/base/check.h"

add tools/tokens/pack.h <<'END'
int pen_pack_other(void);
END
add tools/tokens/pack.c <<'END'
int pen_pack(void) { return 0; }
END
refuses "a function of tools/ that no header declares" "export without a declaration in its header: pen_pack tools/tokens/pack.c"

add gen/base/arena.h <<'END'
int pen_one(void), pen_two(void);
extern int pen_three, pen_four;
END
add gen/base/arena.c <<'END'
int pen_three, pen_four;
END
is "each name of a list of declarations is read" "$(layers "$tree")" ""
clean_tree

add gen/base/internal.h <<'END'
void pen_sort(void);
END
add gen/base/sort.c <<'END'
void pen_sort(void) { pen_new(1); }
END
add gen/base/arena.c <<'END'
static void call_sort(void) { pen_sort(); }
END
is "a cycle of calls through internal.h is allowed" "$(layers "$tree")" ""
finish
