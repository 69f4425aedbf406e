#!/bin/sh
# dashboard.t: train --watch draws every rank live on a terminal, and changes nothing of what is trained.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 8; hidden = 64; heads = 2; ffn = 96; vocab = 256; sequence = 64; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 30; };
pipeline = { ranks = 4; stages_per_rank = 2; microbatches = 8; schedule = "zero_bubble_v"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
ok "a plan" build four model.cfg
./four train --data data.bin --quiet --log plain.log --steps 30
is "a run" $? 0
./four train --data data.bin --watch --overwrite --log watched.log --steps 30 2>err
is "a run that is watched, not on a terminal: status" $? 0
matches "it ends with the last step" "$(tail -n 1 err)" "step 30/30  loss *tokens/s  0:00 left"
is "before the first has ended nothing is said of one" "$(grep -c '^step 0/30.' err)" 0
is "and has the same losses" "$(log_field watched.log loss)" "$(log_field plain.log loss)"
./four eval --watch 2>err
is "only training is watched" $? 64

if command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1; then
  script -qec "./four train --data data.bin --watch --overwrite --log watched.log --steps 200" /dev/null >screen </dev/null
  tr '\r' '\n' <screen | sed 's/\x1b\[K//g' >lines
  for rank in 0 1 2 3; do
    ok "rank $rank is drawn with action, progress and memory" \
      grep -Eq "^   $rank  ([0-9]+[A-Z_]+[0-9]+|[A-Z]+) +\[[#.]{20}\] +[0-9]+ % +[0-9]+ MiB  (computes|waits for rank [0-3]|starts)" lines
  done
  ok "more than once" test "$(grep -c '^rank  action' lines)" -ge 3
  ok "a rank is seen waiting" grep -q 'waits for rank' lines
  ok "several actions are seen" test "$(awk '/^   [0-3]  / { print $2 }' lines | sort -u | wc -l)" -ge 5
  ok "each drawing goes back over the one before" test "$(grep -c "$(printf '\033\\[6A')" screen)" -ge 2
  is "the losses are the same still" "$(log_field watched.log loss | head -n 30)" "$(log_field plain.log loss)"
else
  skip "every rank is drawn on a terminal" "no script(1) here"
fi
finish
