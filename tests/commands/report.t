#!/bin/sh
# report.t: penstock-report draws what a log has: every step, the marks, the bytes; it refuses what is no log, by file and line.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 here"
report=$top_builddir/penstock-report
test -x "$report" || skip_all "penstock-report is not built"
page() { python3 -B "$top_srcdir/tests/commands/report_page.py" "$1"; }
count_of() { sed -n "s/^$2 \([0-9]*\)\$/\1/p" "$1.counts"; } # PAGE NAME
says() { grep -qF -- "$2" "$scratch/$1.html"; } # PAGE TEXT
draws() { # PAGE LOG [OPTION...]
  draws_page=$1
  shift
  "$report" "$@" -o "$scratch/$draws_page.html" && page "$scratch/$draws_page.html" >"$scratch/$draws_page.counts"
}
cd "$scratch" || exit

# ---- of a run ----
build two "$topologies/mlp_4.cfg" -s pipeline.ranks=2
ok "a run" ./two train --quiet --steps 12 --log run.log --eval-every 4 --eval-steps 1
printf '{"event":"sample","step":3,"prompt":"a <b>","text":"c"}\n' >>run.log
is "the first line alone has the plan" "$(grep -n '"plan":{"name":"two"' run.log | cut -d : -f 1)" 1
ok "is drawn" draws run run.log
is "five charts, without scripts" "$(count_of run chart) $(count_of run script)" "5 0"
for curve in Loss Gradient Learning Throughput; do
  is "$curve: every step, with its values under the pointer" "$(count_of run "$curve.point") $(count_of run "$curve.point with title")" "12 12"
done
is "the evaluations" "$(count_of run Loss.evaluated)" 3
is "nothing was skipped" "$(count_of run Loss.skipped)" ""
ok "a sample" says run "sample: a &lt;b&gt; … c"
./two info --json >info.json
kinds() { # the bytes of each rank by kind, as info has them: "rank 0: weights N bytes"
  python3 -c 'import json
for rank in json.load(open("info.json"))["rank"]:
  for kind, count in rank["bytes"].items():
    if count: print(rank["rank"], kind, count)' | sort
}
is "memory by kind and rank is that of info" \
  "$(grep -o 'rank [0-9]*: [a-z]* [^<(]*([0-9]* bytes)' run.html | sed 's/rank \([0-9]*\): \([a-z]*\) .*(\([0-9]*\) bytes)/\1 \2 \3/' | sort)" "$(kinds)"
matches "a value is that of the log" "$(grep -o 'step 7: loss [0-9.]*' run.html)" "step 7: loss $(sed -n 's/^{"step":7,"loss":\([0-9]*\.[0-9]\{2\}\).*/\1/p' run.log)*"
is "without -o it goes to standard output" "$("$report" run.log | sha256sum)" "$(sha256sum <run.html)"

# ---- a step beside the planned one ----
ok "a run with a trace" ./two train --quiet --steps 5 --log traced.log --trace trace.json
ok "is drawn" draws traced traced.log --trace trace.json
is "one chart more" "$(count_of traced chart)" 6
cat >planned.py <<'END'
import json
trace, simulated = json.load(open("trace.json")), json.load(open("simulated.json"))["traceEvents"]
lists = trace["otherData"]["plan"]["times"]
for rank, actions in enumerate(lists):
  made = [e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == rank and e["cat"] in "FBIW"]
  assert made == 5 * [name for name, start, end in actions], (rank, made)
  same = [e for e in simulated if e["ph"] == "X" and e["pid"] == rank]
  assert [e["name"] for e in same] == [name for name, start, end in actions] and len(same) == 16
  for e, (name, start, end) in zip(same, actions):
    assert abs(start * 1000 - e["ts"]) < 0.002 and abs((end - start) * 1000 - e["dur"]) < 0.002, (e, start, end)
END
"$gen" -s pipeline.ranks=2 --print=trace "$topologies/mlp_4.cfg" >simulated.json
ok "a trace has the planned actions of each rank, in the order of each step, with the times of --print=trace" python3 -B planned.py
ok "the step is one of five" says traced "of the 5 complete steps in the trace"
# Times that are made up: the forwards of rank 1 take twice as long as planned, which is named first.
python3 -c 'import json
trace = json.load(open("trace.json"))
plan = trace["otherData"]["plan"]
plan["unit"], plan["makespan"] = "in ms", 200
trace["traceEvents"] = events = []
for step in range(3):
  for rank, actions in enumerate(plan["times"]):
    for i, (name, start, end) in enumerate(actions):
      start, length = 10 * i + 2 * rank, 4
      actions[i][1:] = start, start + length
      events.append({"name": name, "cat": name.strip("0123456789"), "ph": "X", "pid": rank, "ts": 1e6 * step + 1e3 * start,
                     "dur": 1e3 * length * (2 if rank == 1 and "F" in name else 1)})
print(json.dumps(trace))' >slow.json
ok "costs in ms are drawn" draws slow traced.log --trace slow.json
matches "as they are, and what is slower is named first" "$(grep -o '<tr class="difference">.*' slow.html | sed 's/<[^>]*>/ /g; s/  */ /g')" \
  " 1 F of stage 1 32.00 64.00 +32.00 2 1 waiting and sending*"
titled() { grep -o "<title>rank [01], $1: [0-9]*[FB][0-9]* [^<]*" slow.html | wc -l; }
is "each planned and each measured action has its times under the pointer" "$(titled planned) $(titled measured)" "32 32"
is "each kind of each stage, and the waiting of each rank, is in the table" "$(grep -o '<tr class="difference">' slow.html | wc -l)" 6
ok "the step ends with its last action" says slow "of the 3 complete steps in the trace: 156 ms"

# ---- a resumed run: the log has the plan twice, and a step may be there twice ----
./two train --quiet --steps 4 --log again.log --checkpoint ckpt
./two train --quiet --steps 6 --log again.log --checkpoint ckpt --resume
is "a resumed run has the plan again" "$(grep -c '"plan":' again.log)" 2
sed -n '4p' again.log >>again.log
sed -i '$s/"loss":[^,]*/"loss":77/' again.log
ok "a log of several commands is drawn" draws again again.log
is "each step once" "$(count_of again Loss.point)" 6
is "the step that was made last counts" "$(grep -c 'step 4: loss 77' again.html)" 1
is "a line where the run was resumed" "$(count_of again Loss.break)" 1
ok "steps that are there twice are counted" says again "1 step in the log twice"

# ---- what a run can write besides ----
step() { # STEP LOSS NORM [TARGETS]
  printf '{"step":%s,"loss":%s,"grad_norm":%s,"lr":0.001,"tokens":%s,"step_ms":2.5,"tokens_per_second":25600}\n' "$1" "$2" "$3" "${4-64}"
}
{
  step 1 3.5 1.25
  step 2 null null
  step 3 3 1
  echo '{"event":"restart","lost":[{"rank":1,"host":"a","cause":"penstock: rank 1 lost: signal 9 <b>"}],"from_step":3,"source":"memory","seconds":0.2}'
  echo '{"event":"slow","kind":"compute","rank":1,"host":"b","peer":null,"ratio":0.62,"since_step":3}'
  step 4 2.5 1
  printf '{"step":5,"lo'
} >odd.log
ok "a log with all of it is drawn" draws odd odd.log
is "the skipped step is marked in each chart" "$(count_of odd Loss.skipped) $(count_of odd Gradient.skipped)" "2 2"
is "a restart is marked" "$(count_of odd Loss.break)" 1
is "the curve is interrupted" "$(count_of odd Loss.line) $(count_of odd Learning.line)" "2 1"
is "the incomplete last line is left out" "$(count_of odd Loss.point)" 4
ok "which is said" says odd "The last line of the log is not complete"
ok "the restart is listed, as text" says odd "restart from the state in memory, 0.2 s after the loss: penstock: rank 1 lost: signal 9 &lt;b&gt;"
{ step 1 3 1; step 2 null null 0; step 3 0 0 0; step 4 null 1; echo '{"step":4,"eval_loss":null,"eval_tokens":0}'; } >empty.log
ok "steps without targets are drawn" draws empty empty.log
is "as such, also if an older version wrote 0" "$(grep -o 'step [0-9]: [a-z ]*norm [^<]*\|step [0-9]: loss [^<]*' empty.html | tr '\n' ' ')" \
  "step 1: loss 3 step 2: loss none: no targets step 3: loss none: no targets step 4: loss not finite \
step 1: gradient norm 1 step 2: gradient norm none: no targets step 3: gradient norm none: no targets step 4: gradient norm 1 "
ok "the last loss is that of the last step" says empty "<b>not finite</b><span>last loss"
ok "an evaluation without a loss is counted" says empty "1 evaluation without a loss, or with one that is not finite"
{ printf '\357\273\277'; step 1 3 1; printf '{"step":2,\n\000\000\377\n'; step 3 2 1; } >damaged.log
ok "a log with lines that are no JSON, and a byte order mark, is drawn" draws damaged damaged.log 2>err
is "without these" "$(count_of damaged Loss.point) $(complaints err)" "2 penstock-report: damaged.log: lines that are no JSON are left out: 2"
ok "which is said" says damaged "2 lines of the log that are no JSON are left out"
ok "and the slow rank" says odd "rank 1 (host b) computes at 0.62 of its plan"

awk 'BEGIN { for (s = 1; s <= 4000; s++) printf "{\"step\":%d,\"loss\":%g,\"grad_norm\":%g,\"lr\":%g,\"tokens\":8,\"step_ms\":1,\"tokens_per_second\":8000}\n",
  s, 2 + s % 2, s == 1000 ? 500 : 1, s / 1e6 }' | sed '11,12s/"loss":[23]/"loss":null/' >long.log
ok "a long run is drawn" draws long long.log
is "as at most 500 points, on one line" "$(count_of long Loss.point) $(count_of long Loss.line\ places)" "500 499"
ok "with means and extremes" says long "steps 1 to 8: loss 2.5, from 2 to 3<"
ok "and what they leave out" says long "steps 9 to 16: loss 2.5, from 2 to 3; of 2 not finite<"
is "with a band" "$(count_of long Loss.band)" 1
ok "on a logarithmic axis where values differ much" says long "Gradient norm, logarithmic"

# ---- several runs, other axes, smoothing ----
steps() { # LOG FIRST LAST LOSS NAME MORE: a run whose loss begins there, 8 tokens and 100 ms a step
  awk -v first="$2" -v last="$3" -v loss="$4" -v name="$5" -v more="${6-}" 'BEGIN { for (s = first; s <= last; s++)
    printf "{\"step\":%d,\"loss\":%g,\"grad_norm\":1,\"lr\":0.1,\"tokens\":8,\"step_ms\":100,\"tokens_per_second\":80%s%s}\n", s, loss - s, more,
      s == first ? ",\"plan\":{\"name\":\"" name "\",\"digest\":\"d\",\"schedule\":\"1f1b\",\"unit\":\"in ms\",\"ranks\":2,\"stages_per_rank\":1,\"microbatches\":2,\"replicas\":1,\"bytes\":{}}" : "" }' >"$1"
}
steps left.log 1 10 20 left ',"mfu":0.25'
steps right.log 1 5 30 right
printf '{"step":5,"eval_loss":26.5}\n' >>right.log
ok "two runs are drawn" draws two_runs left.log right.log --title 'Left <and> right'
is "in five charts, of mfu, too, beside those of memory" "$(count_of two_runs chart)" 7
is "with a curve each" "$(count_of two_runs Loss.line\ run) $(count_of two_runs Model.line\ run)" "2 1"
ok "under the title" says two_runs '<h1>Left &lt;and&gt; right</h1>'
ok "a point tells its run" says two_runs "<title>right, step 3: loss 27</title>"
is "the marks of both kinds of curves are explained" "$(count_of two_runs Loss.axis\ dashed) $(count_of two_runs Model.axis\ dashed)" "1 "
ok "and an evaluation" says two_runs "<title>right, step 5: evaluation loss 26.5</title>"
matches "their figures are side by side" "$(grep -o '<th>run</th>.*</table>' two_runs.html | sed 's/<[^>]*>/ /g; s/  */ /g')" \
  "*MFU, median left 1 to 10 10 none 80 80 1.0 s 0 0 0.25 right 1 to 5 25 26.5 80 40 0.5 s 0 0 none *"
cp left.log twin.log
ok "runs of one name" draws same_name left.log twin.log
ok "have those of their files" says same_name "<title>twin.log, step 3: loss 17</title>"
circle() { grep -o "<circle class=\"point\" cx=\"[0-9.]*\" cy=\"[0-9.]*\" r=\"5\"><title>$2</title>" "$1.html" | sed 's/.*cx="\([0-9.]*\)".*/\1/'; }
ok "over tokens" draws over_tokens left.log right.log --x tokens
ok "which the axis says" says over_tokens 'aria-label="Loss over tokens"'
ok "over time" draws over_time left.log right.log --x time
ok "which is that of the steps" says over_time '>s in steps</text>'
sed -i 's/"tokens":8/"tokens":16/; s/"step_ms":100/"step_ms":50/' right.log
ok "twice the tokens" draws over_tokens left.log right.log --x tokens
is "are twice as far" "$(circle over_tokens 'right, step 3: loss 27')" "$(circle over_tokens 'left, step 6: loss 14')"
ok "half the time" draws over_time left.log right.log --x time
is "is half as far" "$(circle over_time 'right, step 4: loss 26')" "$(circle over_time 'left, step 2: loss 18')"
ok "smoothed" draws smooth left.log --smooth 0.5
is "the values stay behind the curve" "$(count_of smooth Loss.raw) $(count_of smooth Loss.line) $(count_of smooth Learning.raw)" "1 1 "
wanted=$(awk 'BEGIN { for (s = 1; s <= 3; s++) { sum = 0.5 * sum + 0.5 * (20 - s); weight = 0.5 * weight + 0.5 } printf "%.4g", sum / weight }')
ok "by the moving average of the steps" says smooth "step 3: loss 17, smoothed $wanted<"

# ---- what is no log ----
refuses() { # STATUS MESSAGE ARGUMENT...
  refuses_status=$1 refuses_message=$2
  shift 2
  rm -f none.html
  "$report" "$@" -o none.html >out 2>err
  matches "refused: $refuses_message" "$? $(complaints err)" "$refuses_status penstock-report: $refuses_message"
  test ! -e none.html || result 1 "no page is written"
}
refuses 66 "absent.log: No such file or directory" absent.log
refuses 64 "*required: LOG*"
refuses 64 "unrecognized arguments: --traces*" run.log --traces
echo 'step 1 loss 3' >text.log
refuses 65 "*text.log: no complete line of a step (1 that are no JSON); expected the file of train --log" text.log
python3 -c "print('['*200000)" >deep.log
refuses 65 "*deep.log: no complete line of a step (1 that are no JSON); expected the file of train --log" deep.log
refuses 65 "--trace deep.log:1: not JSON (nested too deeply); *" run.log --trace deep.log
refuses 64 "-o: given twice; *" run.log -o none.html
refuses 64 "--trace: given twice; *" run.log --trace a --trace b
refuses 64 "argument --x: invalid choice: 'epochs'*" run.log --x epochs
refuses 64 "argument --smooth: 1: a number from 0 to below 1; *" run.log --smooth 1
refuses 64 "--trace needs one LOG: it is of one run; *" run.log again.log --trace trace.json
refuses 64 "9 logs: at most 8; *" 1 2 3 4 5 6 7 8 9
printf '{"step":1}\n' >short.log
refuses 65 'short.log:1: "loss": no such field; expected a number or null' short.log
step 1.5 3 1 >half.log
refuses 65 'half.log:1: "step": 1.5; expected a whole number' half.log
{ step 1 3 1; step 2 '"3"' 1; } >typed.log
refuses 65 'typed.log:2: "loss": "3"; expected a number or null' typed.log
{ step 1 3 1; echo '{"event":"moved"}'; } >event.log
refuses 65 'event.log:2: "event": "moved"; expected one of restart, slow, sample' event.log
{ step 1 3 1; echo '{"event":"slow","kind":"late","rank":0,"ratio":2,"since_step":1}'; } >event.log
refuses 65 'event.log:2: "kind": "late"; expected one of compute, data, link' event.log
{ step 1 3 1; echo '[1]'; } >list.log
refuses 65 'list.log:2: expected an object with "step", "eval_loss" or "event", as train --log writes' list.log
sed '1s/"ranks":2/"ranks":0/' run.log >plan.log
refuses 65 'plan.log:1: "plan": "ranks": 0; expected a whole number, 1 or more' plan.log
sed '1s/"weights":\[/"weights":[1,/' run.log >plan.log
refuses 65 'plan.log:1: "plan": "bytes": "weights": expected the bytes of 2 ranks' plan.log
: >empty.log
refuses 65 "empty.log: no complete line of a step; expected the file of train --log" empty.log
printf '\377\376' >bytes.log
refuses 65 "*bytes.log: no complete line of a step*" bytes.log
sed '1s/"ranks":2/"ranks":1000000000000/; 1s/"bytes":{[^}]*}/"bytes":{}/' run.log >huge.log
refuses 65 'huge.log:1: "plan": 1000000000000 ranks, 1 replicas; expected at most 65536 in all' huge.log
python3 -c 'print("{\"event\":\"%s\"}" % ("x" * (1 << 20)))' >long.log
refuses 65 'long.log:1: "event": "xxx*xxx...; expected one of restart, slow, sample' long.log
for same in run.log ./run.log; do
  cp run.log kept.log
  "$report" run.log -o $same 2>err
  matches "the log is not written over" "$? $(complaints err) $(cmp run.log kept.log)" "64 penstock-report: -o $same: the same file as run.log "
done
refuses 66 "--trace absent.json: No such file or directory" run.log --trace absent.json
build other "$topologies/mlp_4.cfg" -s pipeline.ranks=2 -s pipeline.schedule=gpipe
./other train --quiet --steps 1 --log other.log
refuses 65 "--trace trace.json:2: of the plan two with digest *; expected that of the log, other with digest *" other.log --trace trace.json
refuses 65 "--trace simulated.json:1: a simulated step of penstock-gen --print=trace; expected the file of train --trace, *" run.log --trace simulated.json
refuses 65 "--trace run.log:2: not JSON (Extra data); expected the file of train --trace" traced.log --trace run.log
head -n 20 trace.json >cut.json
refuses 65 "--trace cut.json:*: not JSON (*); expected the file of train --trace" traced.log --trace cut.json
sed '/"pid":1,"tid":0,"ts"/d' trace.json >one.json
refuses 65 "--trace one.json: no step that is complete on all 2 ranks; expected one at least" traced.log --trace one.json
sed '20s/"pid":[01]/"pid":7/' trace.json >strange.json
refuses 65 '--trace strange.json:20: "pid": 7; the plan has processes 0 to 1' traced.log --trace strange.json
sed 's/"name":"0F1"/"name":"F"/' trace.json >strange.json
refuses 65 '--trace strange.json:*: "name": "F"; expected that of an action of kind F' traced.log --trace strange.json
sed '20s/"dur":[0-9.]*/"dur":"x"/' trace.json >strange.json
refuses 65 '--trace strange.json:20: expected "name", "pid", "ts" and "dur" of an action' traced.log --trace strange.json
sed '4s/\["/[7,"/' trace.json >strange.json
refuses 65 '--trace strange.json:2: "times": expected \[action, start, end\] of the actions of 2 ranks' traced.log --trace strange.json
"$report" run.log -o absent/page.html 2>err
matches "a folder that is absent" "$? $(complaints err)" "73 penstock-report: -o absent/page.html: No such file or directory"
"$report" run.log -o /dev/full 2>err
matches "a full disk" "$? $(complaints err)" "74 penstock-report: *No space left on device"
ok "200 damaged logs and traces are drawn or refused, without a traceback" python3 -B "$top_srcdir/tests/commands/report_damage.py" "$report" traced.log trace.json
finish
