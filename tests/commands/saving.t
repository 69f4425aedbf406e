#!/bin/sh
# saving.t: saves that fail during a run, saves that remove old checkpoints first, and kill -9 at hundreds of instants.
# SAVING_KILLS: how many [100].
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 12; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
ok "a plan" build plain model.cfg
ok "a plan with room for a snapshot" build snapshot model.cfg -s memory.snapshot=true
names="plain snapshot"
train() { # NAME OPTION...
  train_name=$1
  shift
  "./$train_name" train --data data.bin --quiet "$@" 2>err
}

# ---- a full disk ----
# NO_SPACE names the folders without space, NO_SPACE_CALL the call that fails; `half`: half of a write succeeds.
cat >full.c <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int full(const char *call, int fd) {
  char link[64], path[4096], folder[64];
  const char *where = getenv("NO_SPACE"), *which = getenv("NO_SPACE_CALL");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = readlink(link, path, sizeof path - 1);
  if (length < 0 || where == NULL || which == NULL || strcmp(which, call) != 0) return 0;
  path[length] = 0;
  const char *name = strstr(path, "/step-");
  if (name == NULL) return 0;
  snprintf(folder, sizeof folder, "%.13s", name + 1);
  if (strstr(where, folder) == NULL) return 0;
  errno = ENOSPC;
  return 1;
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return full("fallocate", fd) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  const char *file = getenv("AWAITED"); /* the disk is full of other work until this file exists */
  while (file != NULL && access(file, F_OK) != 0) usleep(1000);
  return full("pwrite", fd) ? -1 : syscall(SYS_pwrite64, fd, from, bytes, offset);
}
ssize_t write(int fd, const void *from, size_t bytes) {
  if (full("half", fd)) return syscall(SYS_write, fd, from, bytes / 2);
  return full("write", fd) ? -1 : syscall(SYS_write, fd, from, bytes);
}
int fsync(int fd) { return full("fsync", fd) ? -1 : (int)syscall(SYS_fsync, fd); }
END
ok "a full disk, made" ${CC:-cc} -shared -fPIC -o full.so full.c
train plain --steps 12 --save-every 2 --checkpoint whole
is "a run on a disk with room" $? 0
for name in $names; do
  for call in fallocate pwrite write fsync; do
    NO_SPACE="step-00000004 step-00000006" NO_SPACE_CALL=$call LD_PRELOAD=$scratch/full.so \
      "./$name" train --data data.bin --quiet --steps 12 --save-every 2 --checkpoint "$name.$call" --log "$name.$call.log" 2>err
    is "$name, $call: status" $? 0
    is "$name, $call: the steps before and after are saved" "$(ls "$name.$call" | tr '\n' ' ')" \
      "latest step-00000002 step-00000008 step-00000010 step-00000012 "
    matches "$name, $call: step 4 is reported" "$(head -n 1 err)" \
      "penstock: $name.$call/step-00000004.tmp*: cannot write: No space left on device; step 4 is not saved, training continues"
    matches "$name, $call: and step 6, once each" "$(sed 1d err)" "penstock: *; step 6 is not saved, training continues"
    is "$name, $call: all steps are made" "$(wc -l <"$name.$call.log" | tr -d ' ')" 12
    ok "$name, $call: to the same end" cmp "$name.$call/latest/model.safetensors" whole/latest/model.safetensors
  done
  mkdir -p step-00000log
  for call in write half; do
    NO_SPACE="step-00000log" NO_SPACE_CALL=$call LD_PRELOAD=$scratch/full.so \
      "./$name" train --data data.bin --quiet --steps 12 --log step-00000log/log --checkpoint "$name.$call.log.kept" 2>err
    is "$name, no room for the log, $call: status" $? 74
    matches "$name, $call: it is reported at once, and the amount at the end" "$(complaints err)" "penstock: --log step-00000log/log: No space left on device; \
training continues without the lines that do not fit
penstock: --log step-00000log/log: 12 lines could not be written"
    is "$name, $call: no half line stays" "$(cat step-00000log/log)" ""
    ok "$name, $call: training came to the same end" cmp "$name.$call.log.kept/latest/model.safetensors" whole/latest/model.safetensors
  done
  NO_SPACE="step-00000012" NO_SPACE_CALL=pwrite LD_PRELOAD=$scratch/full.so \
    "./$name" train --data data.bin --quiet --steps 12 --save-every 10 --checkpoint "$name.last" 2>err
  is "$name: when the last save fails: status" $? 74
  matches "$name: when the last save fails: message" "$(complaints err)" "penstock: *: cannot write: No space left on device; step 12 is not saved"
  is "$name: the one before stays" "$(ls "$name.last" | tr '\n' ' ')" "latest step-00000010 "
  ok "$name: and the run resumes from it" train $name --steps 12 --checkpoint "$name.last" --resume
  ok "$name: to the same end" cmp "$name.last/latest/optimizer.safetensors" whole/latest/optimizer.safetensors
done

# ---- memory.snapshot: a slow disk delays no rank ----
train plain --steps 9 --save-every 4 --checkpoint plain.slow
AWAITED=$scratch/written LD_PRELOAD=$scratch/full.so \
  ./snapshot train --data data.bin --quiet --steps 9 --save-every 4 --checkpoint snapshot.slow --log snapshot.slow.log &
run=$!
await_steps snapshot.slow.log 7
ok "with a snapshot training continues while the disk takes nothing" test "$(wc -l <snapshot.slow.log)" -ge 7
is "of which nothing is saved" "$(ls snapshot.slow | grep -v '[.]')" ""
touch written
wait $run
is "and ends well when it does" $? 0
is "both saved the same steps" "$(ls snapshot.slow | tr '\n' ' ')" "$(ls plain.slow | tr '\n' ' ')"
for file in model optimizer; do
  ok "$file: and the same bytes, in step 4" cmp plain.slow/step-00000004/$file.safetensors snapshot.slow/step-00000004/$file.safetensors
  ok "$file: in step 8" cmp plain.slow/step-00000008/$file.safetensors snapshot.slow/step-00000008/$file.safetensors
done
copies=$(./snapshot info --json | grep -o '"snapshot_bytes":[0-9]*' | sed 's/.*://' | awk '{ sum += $1 } END { print sum }')
files=$(wc -c plain.slow/latest/*.safetensors | awk 'END { print $1 }')
ok "the copy is counted: as large as the files, except headers and alignment" test "$copies" -gt $((files * 9 / 10)) -a "$copies" -lt $((files * 11 / 10))

# ---- --keep ----
for name in $names; do
  ok "$name: --keep 2" train $name --steps 12 --save-every 2 --keep 2 --checkpoint $name.keep
  is "$name: the two newest are left" "$(ls $name.keep | tr '\n' ' ')" "latest step-00000010 step-00000012 "
  ok "$name: and go on" train $name --steps 14 --save-every 1 --keep 1 --resume --checkpoint $name.keep
  is "$name: --keep 1" "$(ls $name.keep | tr '\n' ' ')" "latest step-00000014 "
done
# What is read stays: for as long as it is read, and while it is looked for.
ok "what is being read stays" flock -s plain.keep/step-00000014 "./plain" train --data data.bin --quiet --resume --steps 16 --save-every 1 --keep 1 \
  --checkpoint plain.keep
is "and the newest" "$(ls plain.keep | tr '\n' ' ')" "latest step-00000014 step-00000016 "
ok "later" train plain --steps 17 --resume --keep 1 --checkpoint plain.keep
is "it goes" "$(ls plain.keep | tr '\n' ' ')" "latest step-00000017 "
"./plain" train --data data.bin --quiet --steps 100000 --save-every 1 --keep 1 --resume --checkpoint plain.keep 2>err &
writer=$! lost=0 n=0 before=$(readlink plain.keep/latest)
while test $n -lt 12; do
  n=$((n + 1))
  "./plain" eval --data data.bin --checkpoint plain.keep --steps 1 --quiet >/dev/null 2>eval.err || { lost=$((lost + 1)); sed 's/^/# /' eval.err; }
done
kill $writer
wait $writer
is "a run that saves each step: status" $? 0
ok "it has saved" test "$(readlink plain.keep/latest)" != "$before"
is "what is read while a run saves and prunes is there" "$lost" 0
train plain --keep 2
is "--keep without a folder: status" $? 64
matches "--keep without a folder: message" "$(complaints err)" "penstock: --keep 2 needs --checkpoint DIR*"

# ---- kill -9 at any instant ----
# The whole group is killed, at instants spread over start, steps and saves: over as long as three saved steps take here, and now.
for name in $names; do
  begun=$(date +%s%3N)
  train $name --steps 3 --save-every 1 --checkpoint $name.timed
  spread=$(($(date +%s%3N) - begun))
  test $spread -ge 180 || spread=180
  kills=${SAVING_KILLS:-100} torn=0 last=0 backwards=0 n=0
  while test $n -lt "$kills"; do
    n=$((n + 1))
    "./$name" train --data data.bin --quiet --steps 100000 --save-every 1 --keep 3 --resume --checkpoint $name.killed 2>/dev/null &
    victim=$!
    after=$((20 + n * 37 % kills * spread / kills))
    sleep "$((after / 1000)).$(printf '%03d' $((after % 1000)))"
    kill -9 $victim
    wait $victim 2>/dev/null
    test -e $name.killed/latest || continue
    step=$(readlink $name.killed/latest | sed 's/step-0*//')
    test "$step" -ge "$last" || backwards=$((backwards + 1))
    last=$step
    "./$name" eval --data data.bin --checkpoint $name.killed --steps 1 --quiet >/dev/null 2>eval.err || { torn=$((torn + 1)); sed 's/^/# /' eval.err; }
  done
  is "$name: $kills times killed, $last steps saved: no checkpoint is torn" "$torn" 0
  is "$name: nor older than one before" "$backwards" 0
  ok "$name: there were steps" test "$last" -ge 3
  sleep 0.2
  ok "$name: it resumes from there" train $name --resume --checkpoint $name.killed --keep 3 --steps $((last + 2))
  is "$name: and tidies up" "$(ls $name.killed | wc -l | tr -d ' ') $(ls -d $name.killed/*.tmp 2>/dev/null)" "4 "
done
finish
