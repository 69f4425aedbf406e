#!/bin/sh
# actions.t: what --print=actions writes is taken back by --actions as the same rows, pairs that overlap included; what is wrong with a
# pair is refused with file, rank and action.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 1

cat >base.cfg <<'EOF'
model = { family = "mlp"; layers = 4; hidden = 8; sequence = 4; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
pipeline = { ranks = 2; stages_per_rank = 2; microbatches = 4; schedule = "dual_pipe_v"; };
EOF

# rows FILE: of the action rows of a plan's C the first two columns, kind and overlaps, and the comment: stage, kind and microbatch.
rows() {
  sed -n '/_actions\[\] = {/,/^};/ s/^  {\(PEN_[A-Z_]*\), \([01]\),.*\/\* [0-9]*: \([^ ]*\) \*\/$/\1 \2 \3/p' "$1"
}
back() { # SETTING...
  for setting; do set -- "$@" -s "$setting"; shift; done
  "$gen" "$@" -p actions -o written base.cfg && "$gen" "$@" -p actions --actions=written -o again base.cfg && cmp written again &&
    "$gen" "$@" -o own.c base.cfg && "$gen" "$@" -o given.c --actions=written base.cfg && rows own.c >own && rows given.c >given &&
    test -s own && cmp own given
}
for schedule in dual_pipe_v zero_bubble_v v_half v_min interleaved looped_bfs; do
  ok "$schedule there and back" back pipeline.schedule=$schedule
done
for schedule in inference gpipe 1f1b zb_h1 zb_h2; do
  ok "$schedule there and back" back pipeline.schedule=$schedule pipeline.stages_per_rank=1
done

"$gen" -p actions -o pairs base.cfg
matches "a pair is one word" "$(head -n 1 pairs)" '* 0F3|3B1 *'
"$gen" -o pairs.c --actions=pairs base.cfg
overlapping() { grep -c '^  {PEN_F, \([^,]*, \)\{6\}1}' "$1"; } # rows whose last column, overlaps, is there
is "and the last column of the first row" "$(overlapping pairs.c)" "$(tr ' ' '\n' <pairs | grep -c '|')"
tr '|' ' ' <pairs >alone
"$gen" -o alone.c --actions=alone base.cfg
is "two words are no pair" "$(overlapping alone.c)" 0

refused() { # NAME EDIT MESSAGE: of what the edit makes of the pairs
  sed "$2" pairs >bad
  "$gen" --check --actions=bad base.cfg >out 2>&1
  is "$1" "$? $(cat out)" "65 bad: $3"
}
place() { sed -n "1s/ $1.*//p" pairs | tr '|' ' ' | wc -w | awk '{ print $1 - 1 }'; } # of a word among the actions of rank 0
refused "one that needs the other" 's/ 3I0 \(.*\)3W0/ 3I0|3W0 \1/' \
  "rank 0, action $(place 3I0) (3I0): 3I0 cannot overlap 3W0: one needs what the other makes, or both add to one gradient"
refused "a send" 's/0F0 0SEND_F0/0F0|0SEND_F0/' "rank 0, action 0 (0F0): 0F0 overlaps the next action, but no F, B, I or W comes next"
refused "three" 's/ 0F3|3B1 / 0F3|3B1|/' \
  "rank 0, action $(place 0F3) (0F3): 0F3 is the first of more than two that overlap"
refused "nothing after the bar" '1s/$/|/' \
  "rank 0, action $(head -n 1 pairs | tr '|' ' ' | wc -w | awk '{ print $1 - 1 }') (): no action such as 3F1, 3SEND_F1 or 3F1|4B0"
refused "a space after the bar" 's/ 0F3|3B1 / 0F3| 3B1 /' \
  "rank 0, action $(($(place 0F3) + 1)) (): no action such as 3F1, 3SEND_F1 or 3F1|4B0"

# The order of a search may lie in a V, which the topology then has to say.
placed() {
  "$gen" "$@" -s pipeline.schedule=search -s pipeline.placement=v -p actions -o searched base.cfg 2>err || return 1
  "$gen" --check --actions=searched -s pipeline.placement=v -s pipeline.schedule=search base.cfg &&
    ! "$gen" --check --actions=searched -s pipeline.schedule=search base.cfg 2>err && grep -q 'is on rank' err
}
ok "what a search finds is taken back with its placement" placed
finish
