#!/bin/sh
# csv.t: what --print=csv writes is read back to the same plan, and by PyTorch to the same actions; what is wrong in a CSV is refused with
# file, row and column; its content belongs to the plan's digest, its path does not.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 1

cat >base.cfg <<'EOF'
model = { family = "mlp"; layers = 8; hidden = 8; sequence = 4; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
pipeline = { ranks = 4; microbatches = 8; schedule = "1f1b"; };
EOF

# ---- there and back, every schedule that has a rule ----
sed -n 's/^PEN_SCHEDULE([a-z0-9_]*, [a-z0-9_]*, [a-z0-9_]*, "\([^"]*\)",.*/\1/p' "$top_srcdir/gen/topology/schedules.def" >names
case_of() { # NAME: the settings of its plan
  case $1 in
    zero_bubble_v | dual_pipe_v | v_half | v_min | interleaved | looped*) # a file shows by itself that it is a V
      echo "-s pipeline.stages_per_rank=2" ;;
  esac
}
# back NAME: prints both ways; the lowered order is the same.
back() {
  settings=$(case_of "$1")
  "$gen" -s pipeline.schedule="$1" $settings -p csv -o "$1.csv" base.cfg &&
    "$gen" -s pipeline.schedule="$1" $settings -p actions -o "$1.actions" base.cfg &&
    "$gen" -s pipeline.schedule=file -s pipeline.schedule_file="$1.csv" $settings -p csv -o "$1.again.csv" base.cfg &&
    "$gen" -s pipeline.schedule=file -s pipeline.schedule_file="$1.csv" $settings -p actions -o "$1.again" base.cfg &&
    cmp "$1.csv" "$1.again.csv" && cmp "$1.actions" "$1.again" && test -s "$1.actions"
}
: >ruled
while read -r name; do
  case $name in file | search) continue ;; esac
  ok "$name reads back to the same plan" back "$name"
  echo "$name" >>ruled
done <names
matches "a pair is written as PyTorch writes it" "$(head -n 1 dual_pipe_v.csv)" '*,7F3,(0F7;7B3)OVERLAP_F_B,*'

# ---- how PyTorch writes: bubbles as empty cells, rows that end in CR LF, and pairs with blanks ----
sed 's/,/,,/g; s/;/; /g; s/$/,,\r/' dual_pipe_v.csv >pytorch.csv
"$gen" -s pipeline.schedule=file -s pipeline.schedule_file=pytorch.csv $(case_of dual_pipe_v) -p csv -o bare.csv base.cfg
ok "empty cells, blanks and CR LF change nothing" cmp bare.csv dual_pipe_v.csv
sed 's/[^,;()]*/"&"/' 1f1b.csv >quoted.csv
"$gen" -s pipeline.schedule=file -s pipeline.schedule_file=quoted.csv -p csv -o bare.csv base.cfg
ok "nor do quotes" cmp bare.csv 1f1b.csv

# ---- refused ----
# refused NAME STATUS MESSAGE [SETTING...]: of bad.csv.
refused() {
  refused_name=$1 refused_status=$2 refused_message=$3
  shift 3
  "$gen" -s pipeline.schedule=file -s pipeline.schedule_file=bad.csv "$@" --check base.cfg >out 2>&1
  is "$refused_name" "$? $(complaints out)" "$refused_status $refused_message"
}
edit() { sed "$1" 1f1b.csv >bad.csv; }
edit '2s/1F3/1F9/' && refused "no such microbatch" 65 "bad.csv: row 2 (rank 1), column 5 (1F9): there is no microbatch 9, the topology has 8"
edit '1s/0B0/8B0/' && refused "no such stage" 65 "bad.csv: row 1 (rank 0), column 5 (8B0): there is no stage 8, the topology has 4"
edit '1s/0B0/1B0/' &&
  refused "a stage of another rank" 65 "bad.csv: row 1 (rank 0), column 5 (1B0): stage 1 is on rank 1, with pipeline.placement = \"loop\""
cp zero_bubble_v.csv bad.csv && refused "another placement" 65 \
  "bad.csv: row 1 (rank 0), column 8 (7F0): stage 7 is on rank 3, with pipeline.placement = \"loop\"" -s pipeline.stages_per_rank=2 \
  -s pipeline.placement=loop
cp dual_pipe_v.csv bad.csv && refused "the first row shows a V" 0 "" -s pipeline.stages_per_rank=2
sed '2s/^1F0/0F0/' zero_bubble_v.csv >bad.csv && refused "of which the other rows are held to" 65 \
  "bad.csv: row 2 (rank 1), column 1 (0F0): stage 0 is on rank 0, with pipeline.placement = \"v\"" -s pipeline.stages_per_rank=2
edit '3s/2F1/2G1/' && refused "no such kind" 65 \
  "bad.csv: row 3 (rank 2), column 2 (2G1): no action such as 3F1, 3B1, 3I1, 3W1 or (3F1;4B0)OVERLAP_F_B, and not empty"
edit '3s/2F1/2F/' && refused "no microbatch" 65 \
  "bad.csv: row 3 (rank 2), column 2 (2F): no action such as 3F1, 3B1, 3I1, 3W1 or (3F1;4B0)OVERLAP_F_B, and not empty"
edit '3s/2F1/2SEND_F1/' && refused "a send" 65 "bad.csv: row 3 (rank 2), column 2 (2SEND_F1): a compute-only CSV has no sends and receives"
edit '3s/2F1/(2F1;2B0)/' && refused "a pair without its name" 65 \
  "bad.csv: row 3 (rank 2), column 2 ((2F1;2B0)): a pair that overlaps is written (3F1;4B0)OVERLAP_F_B"
edit '4s/3B1/3B0/' && refused "an action twice" 65 "bad.csv: row 4 (rank 3), column 4 (3B0): 3B0 is in this row already"
edit '4s/3B1/3W1/' && refused "a backward in part" 65 "bad.csv: row 4 (rank 3): 3I1 is missing"
edit '4s/3B1/3B1,3W1/' && refused "a backward whole and in part" 65 \
  "bad.csv: row 4 (rank 3), column 5 (3W1): a backward is either B, or I and W: 3B1 is in this row already"
edit '4s/,3B1//' && refused "an action is missing" 65 "bad.csv: row 4 (rank 3): 3B1 is missing"
edit 4d && refused "a row is missing" 65 "bad.csv: row 4 (rank 3) is missing: there are 4 ranks, and a row for each"
edit '$s/$/\n0F0/' && refused "a row too many" 65 "bad.csv: row 5 (rank 4), column 1 (0F0): there are 4 ranks, and a row for each"
edit '4s/3F0,3B0/3B0,3F0/' && refused "a backward before its forward" 65 \
  "bad.csv: row 4 (rank 3), column 1 (3B0): needs 3F0, which has not run by then: row 4 stops at column 1"
edit '1s/0F3,0B0/0B0,0F3/; 4s/3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3/3F0,3F1,3F2,3F3,3B0,3B1,3B2,3B3/' &&
  refused "rows that wait for each other" 65 \
    "bad.csv: row 1 (rank 0), column 4 (0B0): needs 1B0, which has not run by then: row 2 stops at column 4"
edit '4s/3F1,3B1,3F2,3B2/3F1,3F2,(3B1;3B2)OVERLAP_F_B/' && refused "a pair that adds to one gradient" 65 \
  "bad.csv: row 4 (rank 3), column 5 ((3B1;3B2)OVERLAP_F_B): both add to the gradients of stage 3, and so cannot overlap"
edit '4s/3F1,3B1/(3F1;3B1)OVERLAP_F_B/' && refused "a pair in need of itself" 65 \
  "bad.csv: row 4 (rank 3), column 3 (3F1): needs 3F1, which has not run by then: row 4 stops at column 3"
printf '0F0,\000,0F1\n' >bad.csv
refused "a zero byte" 65 "bad.csv: row 1 (rank 0), column 2 (?): no action, and not empty"
: >bad.csv
refused "an empty file" 65 "bad.csv: row 1 (rank 0) is missing: there are 4 ranks, and a row for each" -s optimizer.steps=1
rm bad.csv
refused "no file" 66 "bad.csv: No such file or directory"
mkdir bad.csv
refused "a folder" 66 "bad.csv: not a regular file"
"$gen" -s pipeline.schedule=file --check base.cfg >out 2>&1
is "no schedule_file" "$? $(cat out)" \
  "78 base.cfg: pipeline.schedule_file: missing; schedule file needs it: the path of a CSV, a string in quotes"

# ---- paths, dependencies, digest ----
mkdir fragments orders elsewhere
cp 1f1b.csv fragments/order.csv
cp gpipe.csv orders/order.csv
echo 'pipeline = { ranks = 4; microbatches = 8; schedule = "file"; schedule_file = "order.csv"; };' >fragments/pipeline.cfg
{ grep -v pipeline base.cfg; echo '@include "fragments/pipeline.cfg"'; } >top.cfg
"$gen" -p csv -o out.csv --depend=out.d --target=out.c top.cfg
ok "the path is relative to the fragment that names it" cmp out.csv 1f1b.csv
matches "make knows of the file" "$(cat out.d)" '*fragments/order.csv*'
digest() { "$gen" -o plan.c "$@" && sed -n 's/^  \.digest = //p' plan.c; }
first=$(digest top.cfg)
cp fragments/order.csv orders/same.csv
"$gen" -o here.c -s pipeline.schedule=file -s pipeline.schedule_file=orders/same.csv base.cfg
"$gen" -o there.c -s pipeline.schedule=file -s "pipeline.schedule_file=$PWD/orders/same.csv" base.cfg
ok "nor its folder the C" cmp here.c there.c
is "its path does not enter the digest" "$(digest -s pipeline.schedule_file=orders/same.csv top.cfg)" "$first"
cp gpipe.csv fragments/order.csv
ok "its content does" test "$(digest top.cfg)" != "$first"
is "a file that the schedule does not use does not" "$(digest -s pipeline.schedule=1f1b top.cfg)" "$(digest base.cfg --name=top)"

# ---- PyTorch ----
if ! find_python 'import torch.distributed.pipelining.schedules' /opt/peer/bin/peer-python; then
  skip "PyTorch reads our orders, and we its" "no Python with torch here: set PEER"
  finish
fi
"$python" "$top_srcdir/tests/commands/csv_torch.py" read 4 8 $(sed 's/$/.csv/' ruled) >torch.out 2>&1 || sed 's/^/# /' torch.out
while read -r name; do
  sed -n "s/^$name.csv: //p" torch.out >torch.rows
  awk -F, '{ printf "%d:", NR - 1; for (i = 1; i <= NF; i++) printf " %s", $i; print "" }' "$name.csv" >our.rows
  ok "PyTorch reads the same actions of $name" cmp torch.rows our.rows
done <ruled

# PyTorch's own schedules, bubbles and all: those whose rule is ours give our order, another is good too.
"$python" "$top_srcdir/tests/commands/csv_torch.py" dump 4 8 ScheduleLoopedBFS ScheduleInterleaved1F1B ScheduleInterleavedZeroBubble \
  ScheduleZBVZeroBubble ScheduleDualPipeV >torch.out 2>&1 || sed 's/^/# /' torch.out
while read -r class name; do
  "$gen" -s pipeline.schedule=file -s pipeline.schedule_file="$class.csv" $(case_of "$name") -p csv -o theirs.csv base.cfg
  case $name in
    looped) ok "$class of PyTorch is a good order" test -s theirs.csv ;;
    *) ok "$class of PyTorch is our $name" cmp theirs.csv "$name.csv" ;;
  esac
  rm -f theirs.csv
done <<'EOF'
ScheduleLoopedBFS looped_bfs
ScheduleInterleaved1F1B interleaved
ScheduleInterleavedZeroBubble looped
ScheduleZBVZeroBubble zero_bubble_v
ScheduleDualPipeV dual_pipe_v
EOF
finish
