#!/bin/sh
# library_hosts.t: a library on two emulated hosts, each with its caller: the losses, norms and checkpoints of train on one host; callers that do
# not ask for the same are told so on both hosts.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
support=$top_srcdir/tests/support
case $support in /*) ;; *) support=$PWD/$support ;; esac
. "$top_srcdir/tests/support/library.sh"

prepare_hosts 2 32 48 16
cd "$scratch" || exit 99
sed -i 's/ranks = 4; microbatches = 8/ranks = 2; microbatches = 4/; s/vocab = [0-9]*/vocab = 9001/' llama.cfg # weights in several parts
make_tokens data.bin 1000
{ head -c 1024 data.bin && printf 'A\0' && tail -c +1027 data.bin; } >other.bin # another token in the first step
ok "one host: a plan" build one llama.cfg
ok "one host: train" train_bits one --data data.bin --steps 3
ok "one host: a library" library one loop
./one.loop data.bin 16 tokens:I32 targets:I32 3egsw one.saved --seed 7 >one.found 2>one.evaluated
ok "two hosts: a plan" build two llama.cfg -s cluster.hosts=[host1,host2] -s cluster.port=$port -s cluster.bind=none -s 'model.outputs=["logits"]'
ok "two hosts: a library" library two loop

cat >callers <<'END'
cd "$1" || exit 99
for i in 1 2; do
  shift
  {
    on "host$i" sh -c "exec timeout 300 ${TRACED:+$TRACED.$i} ./two.loop $1 --seed 7" >"out.$i" 2>"err.$i"
    echo $? >"status.$i"
  } &
done
wait
END
# callers ARGUMENTS ARGUMENTS: the program on both hosts; leaves out.N, err.N and status.N, and the statuses in `statuses`.
callers() {
  rm -f status.*
  sh "$support/hosts.sh" 2 sh "$scratch/callers" "$scratch" "$@"
  statuses=$(cat status.1 status.2 | tr '\n' ' ')
}
inputs='16 tokens:I32 targets:I32'
callers "data.bin $inputs 3egsw two.saved" "data.bin $inputs 3egsow two.saved"
is "both end" "$statuses" "0 0 "
cat err.1 err.2 | grep -v -e '^evaluated' -e '^text' -e '^scores' -e '^weight' | sed 's/^/# /'
for host in 1 2; do
  is "host$host: losses and norms of one host" "$(cat out.$host)" "$(cat one.found)"
  ok "host$host: evaluations, texts, scores and weights of one host" cmp err.$host one.evaluated
done
for file in model.safetensors optimizer.safetensors; do
  ok "the $file of one host" cmp one.saved/latest/$file two.saved/latest/$file
  ok "the $file of train" cmp one.ckpt/latest/$file two.saved/latest/$file
done
if has_strace; then
  TRACED="strace -f -o trace" callers "data.bin $inputs 10esg ''" "data.bin $inputs 10esgo ''"
  is "both end under strace" "$statuses" "0 0 "
  for host in 1 2; do no_memory "host$host" trace.$host 10; done
else
  skip "no memory in steps, evaluations, scores and texts" "no strace here"
fi
callers "data.bin $inputs 1l two.again" "data.bin $inputs 1l two.again"
is "both load" "$statuses" "0 0 "
matches "and have the same state" "$(cat err.1)" "evaluated $(sed -n 's/^evaluated //p' err.2)"

# both_say NAME STATUS MESSAGE: what the last callers have ended with.
both_say() {
  is "$1: statuses" "$statuses" "$2 $2 "
  for host in 1 2; do is "$1: host$host says" "$(tail -n 1 err.$host)" "penstock: $3"; done
}
callers "data.bin $inputs 2c ''" "other.bin $inputs 2c ''"
both_say "other samples" 0 "step 1: host host2 gives other samples than host host1"
is "other samples: the sessions go on" "$(wc -l <out.1) $(cat out.1)" "1 $(cat out.2)"
callers "data.bin $inputs 2 x" "data.bin $inputs 2r x"
both_say "another learning rate" 65 "step 2: host host2 has another learning rate than host host1"
callers "data.bin $inputs 2 x" "data.bin $inputs 1 x"
both_say "another call" 64 "after step 1: host host2 makes another call than host host1"
callers "data.bin $inputs 2d x" "data.bin $inputs 2D x"
both_say "other weights" 65 "after step 1: host host2 sets another weight, or other values than host host1"
callers "data.bin $inputs 2 ''" "data.bin $inputs 1 ''"
is "a session that is closed: statuses" "$statuses" "75 0 "
is "a session that is closed: host1 says" "$(tail -n 1 err.1)" "penstock: host host2 has closed its session"
callers "data.bin $inputs 2 ''" "data.bin $inputs 1q ''"
is "a caller that ends without closing is a lost rank" "$statuses" "75 64 "
callers "data.bin $inputs 1 data.bin" "data.bin $inputs 1 data.bin"
is "a folder that cannot be: statuses" "$statuses" "73 73 "
is "a folder that cannot be: host1 says" "$(tail -n 1 err.1)" "penstock: $scratch/data.bin: cannot create: Not a directory; step 1 is not saved, training continues"
is "a folder that cannot be: host2 says" "$(tail -n 1 err.2)" "penstock: step 1 is not saved, training continues: another host says why"
finish
