#!/bin/sh
# continued.t: what train finds of a former run: its checkpoints, its log, its data. It goes on, or begins anew on demand; else it refuses.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/train.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 16; heads = 2; ffn = 32; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 100000000; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
make_tokens other.bin 20000 2
ok "a plan" build one model.cfg
ok "with longer windows" build long model.cfg -s model.sequence=24
data=data.bin
sums() { (find "$@" -type f | LC_ALL=C sort | xargs cat; ls -lR "$@") | cksum; }
steps_in() { ls "$1" | tr '\n' ' '; }
# starts OPTION...: trains in the background until three steps are in log.
starts() {
  "./one" train --seed 7 --data data.bin --quiet "$@" 2>run.err &
  run=$!
  await_steps "$log" 3
}
ends() { # NAME STATUS: SIGTERM ends it
  kill -TERM $run
  wait $run
  is "$1" "$?" "$2"
}

# ---- a former run ----
ok "a run" train one --steps 4 --save-every 2 --checkpoint run --log log
before=$(sums run log)
refuses "a folder with steps" 73 "--checkpoint run: holds checkpoints up to step-00000004: --resume *--overwrite *" one --steps 5 --checkpoint run
refuses "a log that is not empty" 73 "--log log: a former run has written there: --resume*--overwrite*" one --steps 5 --checkpoint fresh --log log
refuses "the log alone" 73 "--log log: a former run *" one --steps 5 --log log
is "nothing has changed" "$(sums run log)" "$before"
refuses "to begin anew and to go on" 64 "--overwrite begins anew, --resume continues: give one of them" one --checkpoint run --resume --overwrite
: >empty.log
ok "an empty log is none" train one --steps 1 --log empty.log
log=log
echo '{"step":9}' >log
starts --overwrite --checkpoint run --log log
is "begun anew: the log has the new run alone" "$(log_field log step | head -n 1)" 1
is "latest stays until the first save" "$(readlink run/latest) $(steps_in run)" "step-00000004 latest step-00000002 step-00000004 "
refuses "a second command with this log" 73 "--log log: another command writes there" one --steps 1 --overwrite --log log
ends "it ends" 0
is "then the former run's steps are gone" "$(steps_in run)" "latest $(readlink run/latest) "
ok "it says that they will be" test "$(complaints run.err)" = "one: run: the checkpoints of a former run, up to step-00000004, are removed after the first save"
rm -rf run log
ok "a run that is lost" train one --steps 2 --checkpoint run --log log
# A restart, before and after a save, removes nothing of the run's own.
log=again.log
starts --overwrite --checkpoint run --save-every 1 --restarts 1 --log again.log
kill -KILL "$(children $run | sed -n 2p)"
tries=0
until grep -q '"event":"restart"' again.log || test $tries -ge 2400; do sleep 0.05; tries=$((tries + 1)); done
await_steps again.log 6
ends "and is started again" 0
ok "has all steps since the first" test -d run/step-00000001 -a -d run/step-00000002 -a -d run/step-00000003

# ---- the folder ----
rm -rf run log
ok "a run" train one --steps 2 --save-every 1 --checkpoint run
cp -R run/step-00000001 archive
rm -rf run/step-00000001
ln -s ../archive run/step-00000001
mkdir run/step-00000000 run/latest.old
echo mine >run/step-00000003
echo mine >run/step-00000002/notes
echo mine >run/latest.tmp
ok "names of others stay" train one --steps 8 --resume --save-every 2 --keep 1 --checkpoint run
is "also of folders, files and links that look like steps" "$(steps_in run)" \
  "latest latest.old latest.tmp step-00000000 step-00000001 step-00000002 step-00000003 step-00000008 "
is "what a link leads to is complete" "$(ls archive | tr '\n' ' ')" "config.json manifest.json model.safetensors optimizer.safetensors "
is "of an old checkpoint what others put there is left" "$(ls run/step-00000002)" notes
ok "which hinders no later save" train one --overwrite --steps 2 --checkpoint run
is "and stays" "$(ls run/step-00000002 | tr '\n' ' ')" "config.json manifest.json model.safetensors notes optimizer.safetensors "

rm -rf run archive
ok "a run" train one --steps 3 --save-every 1 --checkpoint run
cp -RL run "copied run"
before=$(sums "copied run")
refuses "latest is a folder" 73 "--checkpoint copied run: latest is no link to a checkpoint, *: mv 'copied run'/latest *" one --steps 4 --resume \
  --checkpoint "copied run"
is "nothing has changed" "$(sums "copied run")" "$before"
sh -c "$(sed 's/.*: mv /mv /' err)"
ok "the command that it names mends that" train one --steps 4 --resume --checkpoint "copied run"
is "the run goes on" "$(readlink "copied run/latest")" step-00000004
rm run/latest
truncate -s -1 run/step-00000003/optimizer.safetensors
mkdir run/step-00000009
ok "without latest" train one --steps 3 --resume --checkpoint run --log from.log
is "the newest complete step is taken" "$(log_field from.log step)" 3
is "which is said" "$(complaints err)" "penstock: --checkpoint run: has no latest: continues from the newest complete checkpoint, run/step-00000002"

rm -rf run moved log
log=log
starts --checkpoint run --save-every 1 --log log
mv run moved && mkdir run
is "a folder that was moved is free for another run" "$(train one --steps 1 --checkpoint run; echo "$? $(readlink run/latest)")" "0 step-00000001"
: >said
"./one" train --seed 7 --data data.bin --quiet --steps 1 --checkpoint moved --resume 2>said
is "where the run is, is not" "$? $(cat said)" "73 penstock: --checkpoint moved: another run saves there"
await_steps log $(($(wc -l <log) + 3))
ends "its run goes on, and ends with 73" 73
is "it has saved nothing there" "$(steps_in run)" "latest step-00000001 "
ok "nor left anything half" test -z "$(ls -d run/*.tmp 2>/dev/null)"

# ---- the log ----
rm -rf run log
ok "a run" train one --steps 2 --checkpoint run --log log
printf '{"step":3,"loss":5.0' >>log
ok "a torn last line" train one --steps 3 --resume --checkpoint run --log log
is "is removed" "$(log_field log step | tr '\n' ' ')" "1 2 3 "
is "which is said" "$(complaints err)" "penstock: --log log: its last line ended after 20 bytes: removed"
printf 'no\nlog' >notes
refuses "what is no log" 73 "--log notes: its last line, without an end, is none of a log" one --steps 4 --resume --checkpoint run --log notes
is "is left as it is" "$(cat notes)" "no
log"
truncate -s -1 log
ok "a line without its end" train one --steps 4 --resume --checkpoint run --log log
is "gets it" "$(log_field log step | tr '\n' ' ')$(complaints err)" "1 2 3 4 "
if command -v strace >/dev/null && strace -o trace true 2>/dev/null; then
  strace -f -y -e trace=fsync,openat -o trace ./one train --data data.bin --quiet --steps 1 --checkpoint traced --log traced.log 2>err
  is "the log is synced before a manifest is written" "$(sed -n 's/.*fsync(.*traced.log.*/log/p; s/.*openat(.*manifest.json".*O_CREAT.*/manifest/p' trace | tr '\n' ' ')" \
    "log manifest "
else
  skip "the log is synced before a manifest is written" "no strace here"
fi

# ---- the data ----
loss_of() { log_field "$1" loss | head -n "${2:-1}"; }
rm -rf run
ok "a run of 640 tokens" train one --steps 5 --checkpoint run
matches "the manifest has their number" "$(tr -d ' \n' <run/latest/manifest.json)" '*"data":{"epoch":1,"tokens":640,"sequence":16,"files":\[{"bytes":41024,*'
cp data.bin renamed.bin
cp -R run copy
data=renamed.bin
ok "the same file by another name" train one --steps 6 --resume --checkpoint copy
is "is the same" "$(complaints err)" ""
make_tokens shorter.bin 19999
for data in other.bin shorter.bin; do
  before=$(sums run)
  refuses "$data" 65 "--data $data: not the file that run/step-00000005 has read: *; --new-data reads it from its beginning" \
    one --steps 6 --resume --checkpoint run
  is "$data: nothing has changed" "$(sums run)" "$before"
done
"$tokens" --bytes --pack 16 --single --end-of-text 10 --quiet -o packed.bin data.bin.text 2>/dev/null ||
  "$tokens" --bytes --pack 16 --single -o packed.bin data.bin.text 2>/dev/null
data=packed.bin
refuses "a packed file in place of a plain one" 65 "--data packed.bin: not the file *: a packed file of * bytes, it was a plain file of 41024; *" \
  one --steps 6 --resume --checkpoint run
# Windows of 24 tokens: the next one is the 26th, from token 624, 16 of which were read. A file that begins there has the same step.
data=data.bin
cp -R run longer
ok "longer windows" train long --steps 6 --resume --checkpoint longer --log longer.log
is "what is read again is said" "$(complaints err)" \
  "penstock: data.bin: windows of 24 tokens, before of 16: continues at token 640 of epoch 1; 16 tokens are read again"
tail -c +625 data.bin.text >tail.text
"$tokens" --bytes -o tail.bin tail.text 2>/dev/null
cp -R run tail
data=tail.bin
ok "other data" train long --steps 6 --resume --new-data --checkpoint tail --log tail.log
is "are read from their beginning, which is said" "$(complaints err)" "penstock: tail.bin: other data than those of tail/step-00000005: read from their beginning"
is "the longer windows went on with the next token" "$(loss_of longer.log)" "$(loss_of tail.log)"
ok "once more with --new-data" train long --steps 7 --resume --new-data --checkpoint tail --log tail.log
is "goes on in the same data" "$(complaints err)" ""
matches "the manifest has the place" "$(tr -d ' \n' <tail/latest/manifest.json)" '*"data":{"epoch":1,"tokens":384,*'
sed -i '/^  "data"/,/^    "checksum"/d' tail/latest/manifest.json
ok "a checkpoint of an older version" train long --steps 8 --resume --checkpoint tail
is "goes by its cursor" "$(complaints err)" "penstock: tail/step-00000007: of a version that did not keep which data were read: continues at window 16 of tail.bin"
head -c 405 data.bin.text >end.text # 25 windows of 16, of which three steps read 24; 16 of 24
"$tokens" --bytes -o end.bin end.text 2>/dev/null
data=end.bin
ok "a run to the last window" train one --steps 3 --checkpoint end
ok "where longer windows end" train long --steps 4 --resume --checkpoint end --log end.log
is "what is left out is said" "$(complaints err)" \
  "penstock: end.bin: windows of 24 tokens, before of 16: continues with epoch 2; the last 20 tokens of the one before fill no window"
is "and the next epoch begins" "$(log_field end.log epoch)" 2
refuses "--new-data without --resume" 64 "--new-data needs --resume*" one --new-data --steps 1

# ---- NumPy arrays ----
{ # as numpy.save("data.npy", ids) writes it
  printf "\\223NUMPY\\001\\000\\166\\000{'descr': '<u2', 'fortran_order': False, 'shape': (20000,), }%56s\\n" ""
  tail -c 40000 data.bin
} >data.npy
data=data.bin
ok "a token file" train one --steps 3 --checkpoint plain_ids --overwrite
data=data.npy
ok "an array of its tokens" train one --steps 2 --checkpoint array
ok "a run goes on in it" train one --steps 3 --resume --checkpoint array
ok "and has the same weights" cmp plain_ids/latest/model.safetensors array/latest/model.safetensors
./one eval --data data.npy --checkpoint array --steps 2 --quiet >array.out 2>err
./one eval --data data.bin --checkpoint array --steps 2 --quiet >plain.out 2>err
is "eval reads it, too" "$(cat array.out)" "$(cat plain.out)"
refuses "in place of the token file" 65 "--data data.npy: not the file that plain_ids/step-00000003 has read: *" \
  one --steps 4 --resume --checkpoint plain_ids

# ---- ids alone ----
tail -c 40000 data.bin >data.ids
data=data.ids
ok "ids without a header" train one --ids 16 --steps 2 --checkpoint ids
ok "a run goes on in them" train one --ids 16 --steps 3 --resume --checkpoint ids
ok "and has the weights of their token file" cmp plain_ids/latest/model.safetensors ids/latest/model.safetensors
./one eval --data data.ids --ids 16 --checkpoint array --steps 2 --quiet >array.out 2>err
is "eval reads them, too" "$(cat array.out)" "$(cat plain.out)"
for file in data.bin data.ids; do ./one score --data $file --ids 16 --checkpoint array --quiet --output - >$file.scores 2>err; done
is "and score" "$(cksum <data.ids.scores)" "$(cksum <data.bin.scores)"
ok "which has scores" test -s data.bin.scores
refuses "of other bits" 65 "--data data.ids: not the file that ids/step-00000003 has read: its checksum is another one; *" \
  one --ids 32 --steps 4 --resume --checkpoint ids
refuses "of bits that no id has" 64 "--ids 8: 16 or 32, the bits of a token id" one --ids 8 --steps 1
refuses "without --ids" 65 "data.ids: not a token file: *" one --steps 1
data=data.bin

# ---- windows that are read again, or not at all ----
head -c 250 data.bin.text >few.text # 15 windows of 16
head -c 33 data.bin.text >two.text
for name in few two; do "$tokens" --bytes -o $name.bin $name.text 2>/dev/null; done
./one train --data few.bin --steps 5 --log epochs.log 2>err
is "each line of the log has the epoch of its last window" "$(log_field epochs.log epoch | tr '\n' ' ')" "1 2 2 3 3 "
is "the first is announced" "$(grep begins err)" "one: epoch 2 begins in step 2: the 15 windows of few.bin are read again"
data=two.bin
train one --steps 1
is "a file that is shorter than a step" "$(complaints err)" "penstock: two.bin: 2 windows, and a step reads 8: it reads windows again"
./one eval --data few.bin --checkpoint run --quiet >out 2>err
is "leaves out what fills no step" "$(complaints err)" "penstock: few.bin: 7 of 15 windows are not read: a step reads 8"
data=data.bin
train one --steps 1 --eval-data few.bin --eval-every 1
is "also one within a run" "$(complaints err)" "penstock: few.bin: 7 of 15 windows are not read: a step reads 8"
./one eval --data few.bin --checkpoint run --steps 3 >out 2>err
is "one of more steps reads windows again" "$(grep again err)" "one: few.bin: its 15 windows end in step 2 of 3: from there on windows are read again"
finish
