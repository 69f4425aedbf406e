#!/bin/sh
# print.t: the kinds of --print that draw, as commands: width and colour of a terminal, other programs' readers, the same bytes.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 99
topology=$topologies/pp8_zbv.cfg
unset COLUMNS NO_COLOR

for kind in text svg trace csv-comms memory; do
  "$gen" -p $kind "$topology" >first 2>err
  is "$kind is made" "$?: $(complaints err)" "0: "
  "$gen" -p $kind -o second "$topology"
  ok "$kind has the same bytes in a file" cmp -s first second
  mv first "$kind.out"
done

longest() { awk 'length > most { most = length } END { print most }'; }
ok "text is no wider than 80 where nothing is said" test "$(longest <text.out)" -le 80
for columns in 40 100 237; do
  ok "text fits COLUMNS=$columns" test "$(COLUMNS=$columns "$gen" -p text "$topology" | longest)" -le $columns
done
ok "text fills what it has" test "$(COLUMNS=237 "$gen" -p text "$topology" | longest)" -eq 237
is "COLUMNS that is no number is passed over" "$(COLUMNS=wide "$gen" -p text "$topology" | longest)" "$(longest <text.out)"
is "a pipe has no colours" "$(grep -c "$(printf '\033')" text.out)" 0

# A terminal of 100 columns: script(1) makes one.
if script --version >/dev/null 2>&1; then
  on_terminal() { script -qec "stty cols 100; $* '$gen' -p text '$topology'" /dev/null; }
  on_terminal TERM=xterm >terminal
  escape=$(printf '\033')
  ok "a terminal has colours" grep -q "$escape\[48" terminal
  is "and its own width" "$(sed "s/$escape\[[0-9;]*m//g" terminal | tr -d '\r' | longest)" 100
  on_terminal TERM=xterm NO_COLOR=1 >terminal
  is "but not with NO_COLOR" "$(grep -c "$escape" terminal)" 0
  on_terminal TERM=dumb >terminal
  is "nor when it is dumb" "$(grep -c "$escape" terminal)" 0
else
  skip "a terminal has colours" "script(1) is not here"
fi

# Costs from nothing to what no sum can hold.
for cost in 0 1e-30 1e-9 1e30; do
  for kind in text svg trace memory report; do
    "$gen" -p $kind -s costs.forward=$cost -s costs.backward_input=$cost -s costs.backward_weight=$cost -s costs.send=$cost -o costly "$topology" 2>err
    is "$kind under costs of $cost" "$?: $(complaints err)" "0: "
    is "$kind under costs of $cost shows no odd number" "$(grep -cE '[^a-z](nan|inf)[^a-z]' costly)" 0
  done
done
"$gen" -p svg -s costs.forward=1e308 "$topology" >out 2>err
is "costs beyond all numbers" "$?: $(complaints err)" "78: -s costs.forward = 1e308: 0, or a number from 1e-30 to 1e+30, or a list of such"

"$gen" -p svg --arrows --critical "$topology" >marked.svg
for word in marker-end 'stroke-width="1.4"'; do
  ok "svg has $word when asked" grep -q "$word" marked.svg
  ok "svg has no $word otherwise" test "$(grep -c "$word" svg.out)" -eq 0
done

# A step that would make the chart too wide goes on from row to row.
"$gen" -p svg -s pipeline.microbatches=70 "$topology" >folded.svg
"$gen" -p svg -s pipeline.microbatches=900 "$topology" >plain.svg
is "a short step has one row" "$(grep -c 'href="#step"' svg.out) $(grep -c '>rank<' svg.out)" "0 1"
for chart in "folded 5" "plain 6"; do
  rows=${chart#* } chart=${chart% *}
  is "$chart: $rows rows, each with the ranks" "$(grep -c 'href="#step"' $chart.svg) $(grep -c '>rank<' $chart.svg)" "$rows $rows"
  is "$chart: the step is drawn once" "$(grep -c '<g id="step">' $chart.svg) $(grep -c 'class="bound"' $chart.svg)" "1 1"
  is "$chart: no wider than a page" "$(sed -n 's/.*width="\([0-9]*\)" height.*viewBox.*font-family.*/\1/p' $chart.svg)" 1088
done
is "actions that are wide enough have numbers" "$(grep -c '>number: microbatch' folded.svg) $(grep -c '>69<' folded.svg)" "1 $((8 * 2 * 3))"
is "narrow ones have none" "$(grep -c 'number: microbatch' plain.svg) $(grep -c '>899<' plain.svg)" "0 0"

# What docs/llama3_70b.md shows.
ok "the example of 70B is a plan" "$gen" --check -s pipeline.schedule=interleaved -s partition.balance=time -s memory.limit_mib=0 "$top_srcdir/docs/examples/llama3_70b.cfg"
"$gen" --check "$top_srcdir/docs/examples/llama3_70b_plan.cfg" 2>err
matches "the other is for penstock-plan" "$? $(complaints err)" "78 *llama3_70b_plan.cfg: pipeline.ranks: missing; *penstock-plan*"

if command -v xmllint >/dev/null; then
  ok "xmllint reads the svg" xmllint --noout svg.out marked.svg folded.svg
else
  skip "xmllint reads the svg" "xmllint is not here"
fi

if python3 -c 'import json, csv, xml.dom.minidom' 2>/dev/null; then
  ok "Python reads the svg" python3 -c 'import sys, xml.dom.minidom as m; [m.parse(file) for file in sys.argv[1:]]' marked.svg folded.svg
  ok "Python reads the trace" python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["traceEvents"]' trace.out
  ok "Python reads the report" python3 -c 'import json, subprocess, sys
report = json.loads(subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout)
path = report["critical_path"]
assert abs(path["computing"] + path["exchanging"] + path["sending"] - report["makespan"]) < 1e-9
assert sum(len(leg["actions"].split()) for leg in path["legs"]) == path["actions"]
assert path["legs"][-1]["end"] == report["makespan"]' "$gen" -p report "$topology"
  # Weights of 128 x 128, 3 of them in each of 2 stages: of two replicas each owns 98304 bytes of a stage's in f32, half in bf16.
  ok "the report has each rank's collectives and bytes by kind" python3 -c 'import json, subprocess, sys
report = json.loads(subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout)
rows = {(r["rank"], r["kind"]): r for r in report["collectives"]}
assert sorted(rows) == [(rank, kind) for rank in (0, 1) for kind in ("gradients", "weights")], rows
for (rank, kind), row in rows.items():
    calls = [r for r in report["exchange"]["rows"] if r["rank"] == rank and ("UNSHARD" in r["action"]) == (kind == "weights")]
    assert row["calls"] == len(calls), row
    assert row["bytes"] == len(calls) * (98304 if kind == "gradients" else 49152), row
    assert 0 <= row["exposed"] <= sum(r["end"] - r["start"] for r in calls) + 1e-12, row
kinds = "weights copies gradients moments gathered activations constants window losses outputs snapshot audit muon cache control".split()
for rank, row in enumerate(report["rank"]):
    assert [row["rank"], row["pipeline_rank"], row["tensor_rank"]] == [rank, rank, 0], row
    assert list(row["bytes"]) == kinds and sum(row["bytes"].values()) == row["placed_bytes"], row
    assert row["bytes"]["gathered"] >= 3 * 128 * 128 * 2, row
path = report["critical_path"]
assert path["exchanging"] > 0
assert abs(path["computing"] + path["exchanging"] + path["sending"] - report["makespan"]) < 1e-9
assert report["lower_bound"] <= report["makespan"]' "$gen" -p report -s model.family=mlp -s model.hidden=128 -s model.layers=4 -s model.dtype=bf16 \
    -s pipeline.ranks=2 -s pipeline.microbatches=4 -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.reshard=use "$topology"
else
  skip "Python reads the svg, the trace and the report" "python3 is not here"
fi

# PyTorch's own reader, its check of waits, and its simulator of what can deadlock.
if find_python 'from torch.distributed.pipelining.schedules import _validate_send_waits' python3 /opt/peer/bin/peer-python; then
  cat >read.py <<'END'
import csv, sys
from torch.distributed.pipelining import schedules as s
actions = {}
with open(sys.argv[1], newline="") as file:
    for rank, row in enumerate(csv.reader(file)):
        actions[rank] = [s._Action.from_str(word) for word in row]
s._validate_send_waits(actions)
rank_of = {a.stage_index: r for r in actions for b in actions[r] for a in (b.sub_actions or (b,))}
stages = len(rank_of)
plain = {r: [a for b in actions[r] for a in (b.sub_actions or (b,)) if a.microbatch_index is not None] for r in actions}
s._simulate_comms_compute(plain, lambda stage: rank_of[stage], stages)
compute = {r: [a for a in actions[r] if a.is_compute_op] for r in actions}
theirs = s._add_send_recv({r: list(compute[r]) for r in compute}, lambda stage: rank_of[stage], stages)
for r in actions:  # PyTorch's lowering sends and receives the same, if in another order
    ours = [a for a in actions[r] if a.computation_type in (s.SEND_F, s.SEND_B, s.RECV_F, s.RECV_B)]
    assert sorted(map(str, ours)) == sorted(str(a) for a in theirs[r] if not a.is_compute_op), r
    whole = set()  # as _PipelineScheduleRuntime asserts with FSDP
    for a in [a for b in actions[r] for a in (b.sub_actions or (b,))]:
        if a.computation_type == s.UNSHARD:
            assert a.stage_index not in whole, a
            whole.add(a.stage_index)
        elif a.computation_type == s.RESHARD:
            whole.remove(a.stage_index)
        elif a.is_compute_op and sys.argv[2] == "weights":
            assert a.stage_index in whole, a
    assert not whole, whole
END
  for schedule in 1f1b gpipe looped_bfs zero_bubble_v dual_pipe_v; do
    stages=2
    test $schedule = gpipe && stages=1
    "$gen" -p csv-comms -s pipeline.schedule=$schedule -s pipeline.stages_per_rank=$stages -o comms.csv "$topology"
    ok "PyTorch takes $schedule with its messages" "$python" read.py comms.csv none
  done
  for reshard in step use; do
    "$gen" -p csv-comms -s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.reshard=$reshard -o comms.csv "$topology"
    ok "and weights that are shared out, brought together for each $reshard" "$python" read.py comms.csv weights
  done
else
  skip "PyTorch takes the lowered order" "no Python with torch here: set PEER"
fi

# What the report says of slots and credits is what the tables hold.
# tabled GEN OPTION...: by the emitted C's messages, for each rank how many targets they have there, and how many a credit, and none.
tabled() {
  "$gen" -o tables.c "$@" && awk -F '[{},] *' '
    BEGIN { messages = channels = 0 }
    /\[\] = \{/ { part = $0 }
    part ~ / train_channels\[/ && /^  \[/ { sub(/.*= /, "", $3); to[channels++] = $3; if ($3 > last) last = $3 }
    part ~ / train_messages\[/ && /^  \{/ { channel[messages] = $5; credit[messages] = $7; target[messages++] = $9 }
    END {
      for (m = 0; m < messages; m++) {
        rank = to[channel[m]]
        slots[rank] += !((rank, target[m]) in seen)
        seen[rank, target[m]] = 1
        given[rank] += credit[m] >= 0
        elided[rank] += credit[m] < 0
      }
      for (rank = 0; rank <= last; rank++) print rank, slots[rank] + 0, given[rank] + 0, elided[rank] + 0
    }' tables.c
}
# reported GEN OPTION...: the same by the report.
reported() {
  "$gen" -p report "$@" | awk '
    /"rank": \[/ { inside = 1 }
    { number = $2 + 0 }
    inside && /"rank": [0-9]/ { rank = number }
    inside && /"receive_slots"/ { slots = number }
    inside && /"credits"/ { given = number }
    inside && /"credits_elided"/ { print rank, slots, given, number }'
}
# same_figures RANKS GEN OPTION...: there are so many ranks, all have slots, and table and report agree.
same_figures() {
  figure_ranks=$1
  shift
  tabled "$@" >tabled && reported "$@" >reported && cmp tabled reported && awk -v ranks="$figure_ranks" '
    { slots += $2 > 0; credits += $3 + $4 } END { exit !(NR == ranks && slots == ranks && credits > 0) }' tabled
}
# The bytes of each pair of ranks, by the emitted C's messages and by the report.
tabled_pairs() {
  "$gen" -o tables.c "$@" && awk -F '[{},] *' '
    BEGIN { channels = 0 }
    /\[\] = \{/ { part = $0 }
    part ~ / train_channels\[/ && /^  \[/ { sub(/.*= /, "", $2); sub(/.*= /, "", $3); pair[channels++] = $2 " " $3 }
    part ~ / train_messages\[/ && /^  \{/ { bytes[$5] += $10 }
    END { for (c in bytes) print pair[c], bytes[c] }' tables.c | sort
}
reported_pairs() {
  "$gen" -p report "$@" | awk '
    /"pairs": \[/ { inside = 1 }
    { number = $2 + 0 }
    inside && /"from"/ { from = number }
    inside && /"to"/ { to = number }
    inside && /"bytes"/ { print from, to, number }' | sort
}
same_pairs() { tabled_pairs "$@" >tabled && reported_pairs "$@" >reported && test -s tabled && cmp tabled reported; }

while read -r schedule ranks stages settings; do
  options="-s pipeline.schedule=$schedule -s pipeline.ranks=$ranks -s pipeline.stages_per_rank=$stages"
  for setting in $settings; do options="$options -s $setting"; done
  # shellcheck disable=SC2086 # words are meant to part here
  ok "the report's slots and credits of $schedule $settings are the tables'" same_figures "$ranks" $options "$topology"
  # shellcheck disable=SC2086 # words are meant to part here
  ok "the report's bytes by pair of $schedule $settings are the tables'" same_pairs $options "$topology"
done <<'END'
1f1b 8 2 pipeline.microbatches=16
1f1b 4 1 pipeline.microbatches=64 optimizer.clip_norm=0
gpipe 4 1 pipeline.microbatches=12
zb_h2 4 1 pipeline.microbatches=12
zero_bubble_v 8 2
dual_pipe_v 4 2
v_min 4 2 optimizer.clip_norm=0
END
ok "the messages of a tied weight count" same_pairs -s pipeline.schedule=1f1b -s pipeline.ranks=4 -s pipeline.stages_per_rank=1 -s model.tie_embeddings=true "$topology"
ok "from the head to the embedding" grep -q "^3 0 " reported

# Of replicas the model for SPIN holds one, and says so.
"$gen" -p promela -s pipeline.ranks=2 -s pipeline.microbatches=4 "$topology" >alone.pml
"$gen" -p promela -s pipeline.ranks=2 -s pipeline.microbatches=4 -s data_parallel.replicas=3 "$topology" >three.pml
is "one replica's model says nothing of replicas" "$(grep -c replica alone.pml)" 0
is "that of three says that it is of one" "$(sed '/\*\//q' three.pml | grep 'replica')" \
  " * One of 3 replicas is modelled: they run the same actions. Their data-parallel collectives are left out."
sed '/^ \* One of 3 replicas/d' three.pml >one.pml
ok "and it is the same model" cmp one.pml alone.pml
ok "no rank idles for less than no time, by rounding" sh -c "! '$gen' -p report '$topologies/bench_r2.cfg' | grep -q '\"idle\": -'"
finish
