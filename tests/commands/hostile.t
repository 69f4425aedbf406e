#!/bin/sh
# hostile.t: text from outside is data: in comments and strings of the generated C, in make's rules, SVG and JSON, in what programs say.
. "${top_srcdir:-.}/tests/support/lib.sh"
cat >"$scratch/small.cfg" <<'END'
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
model = { family = "llama"; layers = 2; hidden = 16; heads = 2; ffn = 32; vocab = 64; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 4; };
END
"$gen" --print=csv -o "$scratch/order.csv" "$scratch/small.cfg"
"$gen" --print=actions -o "$scratch/order" "$scratch/small.cfg"
newline='
'
hostile="*/ int INJECTED = 1; /* ??/ \\ \" </text>&amp; %s %n ??/"
mark='*//**/ int INJECTED; /*\'

# compiles FILE: as C17 with trigraphs, no warning, and nothing is defined but the plan.
compiles() {
  $CC -std=c17 -trigraphs -Wall -Wextra -Werror -I"$top_srcdir" -c -o "$scratch/plan.o" "$1" 2>"$scratch/err" || { head -n 5 "$scratch/err" | sed 's/^/# /'; return 1; }
  test "$(nm -g --defined-only "$scratch/plan.o" | awk '{ print $3 }')" = pen_plan
}
# emits NAME ARGUMENT...: the plan compiles, or the generator refuses the text with 78.
emits() {
  what=$1 status=0
  shift
  "$gen" -o "$scratch/plan.c" "$@" 2>"$scratch/said" || status=$?
  case $status in
    0) ok "$what: the plan compiles" compiles "$scratch/plan.c"; taken="$taken $what" ;;
    *) is "$what: refused" $status 78 ;;
  esac
}

taken=
for path in $(sed -n 's/^PEN_SETTING(\([a-z_]*\), \([a-z0-9_]*\), \(STRINGS*\|CHOICES*\), .*/\1.\2/p' "$top_srcdir/gen/topology/settings.def"); do
  for text in "$hostile" "$mark" "a${newline}b"; do
    emits "$path" -s "$path=$text" "$scratch/small.cfg"
  done
done
case $taken in *cluster.interface*cluster.interface*cluster.interface*) passed=0 ;; *) passed=1 ;; esac
result $passed "an interface may have any name"
for name in '*' '??' "a${newline}b" '"; int INJECTED; "' "$(printf 'esc\033[2J\377')" '<&>' '$(x)`x`' '/ab/..*'; do
  name=$(echo "$name" | tr / _)
  cp "$scratch/small.cfg" "$scratch/$name.cfg"
  cp "$scratch/order.csv" "$scratch/$name.csv"
  cp "$scratch/order" "$scratch/$name"
  emits "a topology's name" "$scratch/$name.cfg"
  emits "a schedule's name" -s pipeline.schedule=file -s "pipeline.schedule_file=$scratch/$name.csv" "$scratch/small.cfg"
  emits "the actions' name" "--actions=$scratch/$name" "$scratch/small.cfg"
  for view in svg report trace promela shapes text; do
    "$gen" --print=$view -o "$scratch/view.$view" "$scratch/$name.cfg" || result 1 "$view of a topology with that name"
  done
  is "promela has one comment at its start" "$(grep -c 'its communication, one step' "$scratch/view.promela")" 1
  is "the chart has no control character" "$(LC_ALL=C tr -d '\n\t -~\200-\376' <"$scratch/view.text" | wc -c | tr -d ' ')" 0
  if find_python 'import json, xml.dom.minidom' python3; then
    ok "JSON and SVG of a topology with that name" "$python" -c '
import json, sys, xml.dom.minidom
xml.dom.minidom.parse(sys.argv[1] + ".svg")
assert json.load(open(sys.argv[1] + ".report"))["name"]
json.load(open(sys.argv[1] + ".trace"))
json.load(open(sys.argv[1] + ".shapes"))' "$scratch/view"
  else
    skip "JSON and SVG of a topology with that name" "no python3"
  fi
done
is "all names are taken" "$(echo "$taken" | grep -o "topology's\|schedule's\|actions'" | wc -l | tr -d ' ')" 24

# ---- what each program says of its arguments ----
wild=$(printf '\033[2J\002\302\2331m\377\303\251%s' "$(yes ab | head -n 2000 | tr -d '\n')")
# is_plain FILE: lines of UTF-8 of at most 1500 bytes, without control characters.
is_plain() {
  test -s "$1" && iconv -f UTF-8 -t UTF-8 "$1" >"$scratch/utf8" && test "$(LC_ALL=C tr -d '\n\040-\176\200-\377' <"$1" | wc -c)" -eq 0 &&
    test "$(LC_ALL=C grep -c "$(printf '\302')[$(printf '\200')-$(printf '\237')]" "$1")" -eq 0 &&
    test "$(LC_ALL=C awk '{ if (length > most) most = length } END { print most }' "$1")" -le 1500
}
for program in "$gen" "$tokens" "$top_builddir/penstock-convert" "$top_builddir/penstock-plan" "$top_builddir/penstock-report" "$top_builddir/penstock-log" "$top_builddir/penstock-chat" "$top_builddir/penstock-import" \
  "$top_builddir/penstock-build" \
  "$top_srcdir/tools/penstock-launch"; do
  if ! test -x "$program"; then
    skip "$(basename "$program")" "not built here"
    continue
  fi
  for argument in "--$wild" "$wild"; do
    "$program" "$argument" train </dev/null >"$scratch/out" 2>"$scratch/err"
    ok "$(basename "$program"): a ${argument%"$wild"} of any bytes is plain text: $?" is_plain "$scratch/err"
  done
done
finish
