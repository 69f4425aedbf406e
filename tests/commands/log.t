#!/bin/sh
# log.t: penstock-log writes what logs have, while they grow, by the libraries of TensorBoard and of Weights & Biases, which it needs for that alone.
. "${top_srcdir:-.}/tests/support/lib.sh"
log=$top_builddir/penstock-log
test -x "$log" || skip_all "penstock-log is not built"
cd "$scratch" || exit
mkdir without
for name in tensorboard wandb; do echo 'raise ImportError("none here")' >without/$name.py; done
cat >first.log <<'END'
{"step":1,"loss":5.5,"grad_norm":2.0,"lr":0.1,"tokens":64,"step_ms":10,"tokens_per_second":6400,"plan":{"name":"two","digest":"d","schedule":"1f1b","ranks":2,"stages_per_rank":1,"microbatches":4,"replicas":1,"unit":"in ms","makespan":9,"bytes":{"weights":[1048576,2097152],"cache":[0,1048576]}}}
{"step":2,"loss":null,"grad_norm":null,"lr":0.1,"tokens":0,"step_ms":10,"tokens_per_second":0,"skipped":1}
{"step":2,"eval_loss":4.5,"eval_perplexity":90.0,"eval_tokens":32,"eval_ms":5}
{"event":"sample","step":2,"prompt":"The ","text":"old"}
{"step":3,"loss":4.0,"grad_norm":2.0,"lr":0.1,"tokens":64,"step_ms":10,"tokens_per_second":6400,"mfu":0.25}
{"step":4,"loss":3.9,"grad_norm":2.0,"lr":0.1,"tokens":64,"step_ms":10,"tokens_per_second":6400}
{"step":4,"eval_loss":9.5,"eval_perplexity":9.0,"eval_tokens":32,"eval_ms":5}
END
cat >second.log <<'END'
{"step":3,"loss":3.5,"grad_norm":2.0,"lr":0.1,"tokens":64,"step_ms":10,"tokens_per_second":6400,"epoch":2}
{"event":"slow","kind":"compute","rank":1,"host":"b","peer":0,"ratio":0.5,"since_step":3}
{"event":"restart","lost":[{"rank":1,"host":"b","cause":"rank 1 lost"}],"from_step":3,"source":"memory","seconds":0.5}
{"step":4,"loss":3.0,"grad_norm":2.0,"lr":0.1,"tokens":64,"step_ms":10,"tokens_per_second":6400}
END
touch -d '1 hour ago' first.log second.log

# ---- the command line, without the libraries ----
bare() { PYTHONPATH=$scratch/without "$log" "$@"; }
fails "no place" 64 "choose one of --tensorboard DIR and --wandb PROJECT" bare first.log
fails "two places" 64 "choose one of --tensorboard DIR and --wandb PROJECT" bare first.log --tensorboard d --wandb p
fails "a name of nothing" 64 "--name needs --wandb PROJECT" bare first.log --tensorboard d --name n
fails "given twice" 64 "--tensorboard: given twice" bare first.log --tensorboard d --tensorboard e
fails "no time" 64 "a number of seconds from 0 to 1000000" bare first.log --tensorboard d --wait x
fails "without the package tensorboard" 69 "--tensorboard needs Python's package tensorboard (pip install tensorboard): none here" bare first.log --tensorboard d
fails "without the package wandb" 69 "--wandb needs Python's package wandb (pip install wandb): none here" bare first.log --wandb p

# ---- TensorBoard ----
to() { "$python" -B "$log" "$@"; }
read_back() { # DIR: every value, as TensorBoard reads it
  "$python" -B - "$1" <<'END'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    values = [f"{e.step}:{e.value:.6g}" for e in events.Scalars(tag)]
    print(*[tag] + values) if values else None  # none: they were made again
for tag in sorted(events.Tags()["tensors"]):
    print(tag, *(f"{e.step}:{e.tensor_proto.string_val[0].decode()!r}" for e in events.Tensors(tag)))
END
}
cat >wanted <<'END'
eval/loss 2:4.5
eval/perplexity 2:90
memory/rank 0 MiB 1:1
memory/rank 1 MiB 1:3
restarts/seconds 3:0.5
slow/rank 1 compute 3:0.5
train/epoch 3:2
train/grad_norm 1:2 3:2 4:2
train/loss 1:5.5 3:3.5 4:3
train/lr 1:0.1 2:0.1 3:0.1 4:0.1
train/skipped 2:1
train/step_ms 1:10 2:10 3:10 4:10
train/tokens 1:64 2:64 3:128 4:192
train/tokens_per_second 1:6400 2:0 3:6400 4:6400
events 3:'    rank 1 (host b) computes slowly since step 3, ratio 0.5' 3:'    restart: rank 1 lost'
memory 1:'| rank | weights | cache |\n|---|---|---|\n| 0 | 1.00 MiB | 0.00 MiB |\n| 1 | 2.00 MiB | 1.00 MiB |'
samples/The 2:'    The old'
END
await_values() { # DIR PATTERN FILE: until what TensorBoard reads has the pattern, or is the file; two minutes at most
  await_tries=0
  until read_back "$1" >got 2>/dev/null && { grep -q "$2" got || cmp -s got "$3"; } || test $await_tries -ge 240; do
    sleep 0.3
    await_tries=$((await_tries + 1))
  done
}
if find_python 'import tensorboard' /opt/peer/bin/peer-python python3; then
  fails "a log that is not there" 66 "absent.log: No such file" to absent.log --tensorboard t --wait 0
  : >empty.log
  fails "one without a line" 66 "empty.log: no complete line" to empty.log --tensorboard t --wait 0
  printf '{"step":1}\n' >bad.log
  fails "a line that is none of a log" 65 'bad.log:1: "loss": no such field' to bad.log --tensorboard t
  ok "two logs of a resumed run" to first.log second.log --tensorboard both
  read_back both >got
  ok "are one curve" cmp wanted got
  # A run that goes on: its command holds a lock on the log.
  cp first.log grows.log
  flock grows.log sh -c "until test -e enough; do sleep 0.1; done; cat second.log >>grows.log; until test -e end; do sleep 0.1; done" &
  to grows.log --tensorboard grown &
  pid=$!
  await_values grown '^train/mfu ' wanted
  touch enough
  await_values grown 'no such value' wanted
  ok "a log that grows: steps that are made again replace those before" cmp wanted got
  ok "it follows the run" lives $pid
  touch end
  wait $pid
  is "and ends with it: status" $? 0
  rm -f end
  flock grows.log sh -c "until test -e end; do sleep 0.1; done" &
  "$python" -B -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.executable, [sys.executable, "-B"] + sys.argv[1:])' "$log" grows.log --tensorboard interrupted &
  pid=$!
  await_values interrupted 'no such value' wanted
  kill -INT $pid
  wait $pid
  is "SIGINT ends it: status" $? 0
  touch end
  read_back interrupted >got
  ok "with all values" cmp wanted got
  touch file
  fails "no folder" 73 "--tensorboard file/in: " to first.log --tensorboard file/in
else
  skip "TensorBoard" "no Python with the package tensorboard: set PEER"
fi

# ---- Weights & Biases ----
if find_python 'import wandb' /opt/peer/bin/peer-python python3; then
  ok "a run of Weights & Biases, offline" sh -c "'$python' -B '$log' first.log second.log --wandb project --offline >out 2>&1"
  cat >read_run.py <<'END'
import glob, json, struct
from wandb.proto import wandb_internal_pb2
data, at, curve, parts = open(glob.glob("wandb/offline-run-*/run-*.wandb")[0], "rb").read(), 7, {}, b""
while at < len(data):  # LevelDB's log: blocks of 32 KiB, of parts with a checksum, a length and a kind
    left = 32768 - at % 32768
    if left < 7:
        at += left
        continue
    length, kind = struct.unpack_from("<HB", data, at + 4)
    parts += data[at + 7:at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        record, parts = wandb_internal_pb2.Record.FromString(parts), b""
        row = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        if "train/loss" in row:
            curve[row["step"]] = row["train/loss"]
        if record.HasField("run"):
            name = record.run.display_name
print(name, curve)
END
  is "has the curve" "$("$python" -B read_run.py)" "two {1: 5.5, 3: 3.5, 4: 3}"
else
  skip "Weights & Biases" "no Python with the package wandb: set PEER"
fi
finish
