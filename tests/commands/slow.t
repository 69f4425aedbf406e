#!/bin/sh
# slow.t: a rank that computes slower than its plan, and a link that is slower than before or than the others, are named while the run goes on.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 128; heads = 4; kv_heads = 2; ffn = 256; vocab = 256; sequence = 128; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 100000; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000

# until_found SECONDS PATTERN FILE: passes as soon as a line matches.
until_found() {
  found_tries=$(($1 * 20))
  until grep -q "$2" "$3" 2>/dev/null; do
    found_tries=$((found_tries - 1))
    test $found_tries -gt 0 || return 1
    sleep 0.05
  done
}

# ---- a rank ----
# Busy loops on the core of rank 1 alone take most of its time, from some step on.
ok "a plan" build two model.cfg
slow='"event".*"kind":"compute","rank":1,'
./two train --data data.bin --watch --overwrite --log log --metrics metrics 2>err &
run=$!
await_steps log 40
core=$(taskset -cp "$(children $run | sed -n 2p)" | sed 's/.*: //')
loops=
for i in 1 2 3 4; do
  timeout 900 taskset -c "$core" sh -c 'while :; do :; done' &
  loops="$loops $!"
done
ok "a rank whose core does other work, too, is named" until_found 300 "$slow" err
event=$(grep "$slow" err | head -n 1)
matches "by an event" "$event" '{"event":"slow","kind":"compute","rank":1,"host":"*","peer":null,"ratio":0.*,"since_step":*}'
since=$(echo "$event" | sed 's/.*"since_step":\([0-9]*\)}/\1/')
matches "and in words" "$(grep -m 1 '^penstock: rank 1 .* computes' err)" "penstock: rank 1 (host *) computes at 0.* of its plan since step $since"
ok "the metrics count it" until_found 300 '^penstock_slow_ranks [12]$' metrics
ok "--watch shows it" until_found 300 '^   1  .*; slow: at 0\.' err
kill $loops
kill -TERM $run
wait $run
is "the run ends in order" $? 0
is "the log has no event: there is one host" "$(grep -c event log)" 0

# ---- a link ----
hosts() { sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
if test -z "$OFI_ARCHIVES"; then
  skip "a slow link is named" "no libfabric here"
  finish
fi
hosts 2 sh -c 'command -v tc >/dev/null && on host1 tc qdisc add dev net0 root tbf rate 1gbit burst 64kb latency 50ms 2>/dev/null'
if test $? -ne 0; then
  skip "a slow link is named" "no network namespaces or no tc here"
  finish
fi
ok "a plan for two hosts" build apart model.cfg -s 'cluster.hosts=[host1,host2]' -s cluster.port=$((20000 + $$ % 12000))
(umask 077 && head -c 32 /dev/urandom >secret)
cat >slow_link <<'END'
for i in 1 2; do
  on host$i timeout 300 ./apart train --data data.bin --quiet --secret-file secret --log link.log 2>link.err$i &
  runs="${runs:-} $!"
done
tries=0
until test -f link.log && test "$(wc -l <link.log)" -ge 40 || test $tries -ge 2400; do sleep 0.05; tries=$((tries + 1)); done
on host1 tc qdisc add dev net0 root tbf rate 100mbit burst 32kb latency 400ms
tries=0
until grep -q 'messages of rank 0 .* their plan' link.err1 || test $tries -ge 2400; do sleep 0.05; tries=$((tries + 1)); done
kill -TERM $runs
wait
END
hosts 2 sh slow_link
event=$(grep '"kind":"link","rank":0,' link.log | tail -n 1)
matches "a link whose rate falls is named in the log" "$event" \
  '{"event":"slow","kind":"link","rank":0,"host":"host1","peer":1,"ratio":*,"since_step":*}'
matches "and in words" "$(cat link.err1)" '*penstock: messages of rank 0 to rank 1 (host host2) take *.* times their plan since step *'
ok "step lines have no key event" test "$(grep -c '^{"step":[^}]*}$' link.log)" -ge 15

# ---- a link that is slow from the start ----
ok "a plan for three hosts" build three model.cfg -s pipeline.ranks=3 -s batch.microbatch=8 \
  -s 'cluster.hosts=[host1,host2,host3]' -s cluster.bind=none -s cluster.port=$((20000 + $$ % 12000))
cat >slow_start <<'END'
on host1 tc qdisc add dev net0 root tbf rate 100mbit burst 32kb latency 400ms
for i in 1 2 3; do
  on host$i timeout 300 ./three train --data data.bin --quiet --steps 20 --secret-file secret --log start.log 2>start.err$i &
done
wait
END
hosts 3 sh slow_start
event=$(grep '"kind":"link"' start.log | head -n 1)
matches "a link that is slow from the start is named in the log" "$event" \
  '{"event":"slow","kind":"link","rank":0,"host":"host1","peer":1,"ratio":*,"since_step":1}'
matches "and in words" "$(cat start.err1)" '*penstock: messages of rank 0 to rank 1 (host host2) take *.* times what they take on other links since step 1*'
ok "within five steps after the first one" test "$(sed '/"kind":"link"/,$d' start.log | grep -c '^{"step"')" -le 6
finish
