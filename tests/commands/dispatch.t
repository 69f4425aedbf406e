#!/bin/sh
# dispatch.t: the program that measures the runtime's own cost (make bench) replaces all kernels that the runtime calls, and runs every action.
. "${top_srcdir:-.}/tests/support/lib.sh"

link_dispatch() { # NAME: $scratch/NAME.dispatch, the walk of that plan
  (cd "$top_builddir" &&
    $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" -o "$scratch/$1.dispatch" "$top_srcdir/tools/bench/dispatch.c" \
      "$scratch/$1.o" libruntime.a $RUNTIME_LIBS)
}
field() { # FIELD
  sed "s/.*\"$1\":\([^,}]*\).*/\1/" "$scratch/said"
}
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 64; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
END
for schedule in 1f1b zero_bubble_v; do
  ok "$schedule: the plan" build $schedule "$scratch/model.cfg" -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.microbatches=4 \
    -s pipeline.schedule=$schedule
  ok "$schedule: it links without kernels" link_dispatch $schedule
  "$scratch/$schedule.dispatch" >"$scratch/said"
  is "$schedule: status" $? 0
  is "$schedule: it walks every row" "$(field rows)" "$("$scratch/$schedule" info --json | tr ',{' '\n\n' |
    awk -F: '$1 == "\"actions\"" { n += $2 } END { print n }')"
  ok "$schedule: each takes some time, and less than a millisecond" awk -v ns="$(field row_ns)" 'BEGIN { exit !(ns > 0 && ns < 1e6) }'
done
finish
