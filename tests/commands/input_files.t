#!/bin/sh
# input_files.t: what is read is a regular file of a bounded size: pipes and devices in its place are refused, and nothing waits for them; prompts may
# come from a pipe. A file of tokens that becomes shorter while a run reads it ends the run, which saves what it has.
. "${top_srcdir:-.}/tests/support/lib.sh"
describe_ranks llama 4 32 48 16
make_tokens "$scratch/data.bin" 20000
convert=$(cd "$top_builddir" && pwd)/penstock-convert
cd "$scratch" || exit 99
ok "a plan is built" build llama llama.cfg
ok "a plan of two hosts, too" build two llama.cfg -s cluster.hosts=[host1,host2] -s cluster.port=23456
ok "a checkpoint is made" ./llama train --data data.bin --steps 2 --quiet --checkpoint ckpt
mkfifo pipe
mkdir folder odd
ln -s "$scratch/pipe" odd/model.safetensors.index.json

# refused NAME STATUS MESSAGE COMMAND...
refused() {
  refused_name=$1 refused_status=$2 refused_message=$3
  shift 3
  timeout 300 "$@" >out 2>err </dev/null
  is "$refused_name: status" $? "$refused_status"
  matches "$refused_name: the message" "$(complaints err)" "*$refused_message*"
}
for input in pipe /dev/zero folder; do
  no="$input: not a regular file"
  refused "tokens, $input" 66 "$no" ./llama train --data $input
  test $input = folder || refused "weights, $input" 66 "$no" ./llama eval --init $input --data data.bin
  test $input = pipe || refused "the secret, $input" 66 "$no or a pipe" ./two train --data data.bin --secret-file $input --host host1
  refused "actions, $input" 66 "$no" "$gen" --actions=$input llama.cfg
  refused "CSV, $input" 66 "$no" "$gen" llama.cfg -s pipeline.schedule=file -s pipeline.schedule_file=$input
done
chmod 600 pipe
refused "the secret, a pipe that nobody writes" 66 "the secret, pipe: a pipe that did not end within 5 s" ./two train --data data.bin --secret-file pipe --host host1
refused "prompts" 66 "/dev/zero: not a regular file or a pipe" ./llama generate --checkpoint ckpt --prompts /dev/zero
refused "an index" 66 "index.json: not a regular file" ./llama eval --init odd --data data.bin
refused "config.json" 66 "pipe: not a regular file" "$convert" pipe

# ---- limits ----
truncate -s 17M large.json
truncate -s 65M large.csv
truncate -s 1025M large.jsonl
truncate -s 2M large.cfg
mkdir large
ln -s ../large.json large/model.safetensors.index.json
refused "a large index" 65 "index.json: more than 16 MiB" ./llama eval --init large --data data.bin
refused "a large config.json" 65 "large.json: more than 16 MiB" "$convert" large.json
refused "a large CSV" 65 "large.csv: more than 64 MiB" "$gen" llama.cfg -s pipeline.schedule=file -s pipeline.schedule_file=large.csv
truncate -s 257M large.actions
refused "large actions" 65 "large.actions: more than 256 MiB" "$gen" --actions=large.actions llama.cfg
refused "large prompts" 65 "large.jsonl: more than 1 GiB" ./llama generate --checkpoint ckpt --prompts large.jsonl
refused "a large topology" 78 "large.cfg: a topology and its includes have at most 1048576 bytes" "$gen" large.cfg

echo '{"prompt": "abc"}' >prompts
generate() { ./llama generate --checkpoint ckpt --prompts "$1" --tokens 5 --seed 1 --quiet; }
generate prompts >expected
cat prompts >pipe &
is "prompts may come from a pipe" "$(generate pipe)" "$(cat expected)"
is "and from standard input" "$(generate /dev/stdin <prompts)" "$(cat expected)"

# ---- a file that becomes shorter ----
# shorten NAME OPTION...: after some steps; sets status.
shorten() {
  make_tokens data.bin 20000
  rm -rf log run
  ./llama train --data data.bin --steps 100000000 --quiet --log log --checkpoint run "$@" 2>err &
  await_steps log 5
  truncate -s 4096 data.bin
  wait $!
  status=$?
}
shorten --restarts 5
is "a file that becomes shorter ends the run" "$status" 65
matches "which is said, once" "$(complaints err)" "penstock: data.bin: byte * of * is gone: it was shortened while it was read"
shorten --restarts 5 --recover-every 1 --save-every 1000000
is "with copies in memory, too" "$status" 65
is "no restart is made" "$(grep -c '"event":"restart"' log)" 0
saved=$(readlink run/latest | sed 's/step-0*//')
matches "they are saved, which is said" "$(complaints err)" "penstock: data.bin: byte * is gone: *
penstock: the state after step $saved, which was in memory, is saved"
make_tokens data.bin 20000
./llama train --data data.bin --steps "$saved" --quiet --checkpoint whole
is "with the bits of a run that ends there" "$(cd run/latest && sha256sum model.safetensors optimizer.safetensors)" \
  "$(cd whole/latest && sha256sum model.safetensors optimizer.safetensors)"
finish
