#!/bin/sh
# metrics.t: train --metrics replaces a file by the state of the run, in Prometheus's text format.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 32; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 100000; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
ok "a plan" build two model.cfg
value() { sed -n "s/^$2 //p" "$1"; }
same_number() { echo "$1 $2" | awk '{ d = $1 - $2; exit !(NF == 2 && d * d <= 1e-18 * $1 * $1) }'; }
names='penstock_step penstock_loss penstock_tokens_per_second penstock_step_seconds penstock_expert_load penstock_sent_bytes_total penstock_restarts_total penstock_slow_ranks'

mkdir out
ok "a run" ./two train --data data.bin --quiet --steps 5 --log log --metrics out/metrics
is "the file has the metrics of the contract" "$(sed '/^#/d; s/ .*//' out/metrics | tr '\n' ' ')" "$names "
for name in $names; do
  ok "$name has a help and a type" sh -c "grep -q '^# HELP $name [A-Z]' out/metrics && grep -Eq '^# TYPE $name (gauge|counter)\$' out/metrics"
done
is "of the last step" "$(value out/metrics penstock_step)" 5
ok "its loss" same_number "$(value out/metrics penstock_loss)" "$(log_field log loss | tail -n 1)"
ok "its speed" same_number "$(value out/metrics penstock_tokens_per_second)" "$(log_field log tokens_per_second | tail -n 1)"
ok "its time" same_number "$(value out/metrics penstock_step_seconds)" "$(log_field log step_ms | tail -n 1 | awk '{ print $1 / 1000 }' CONVFMT=%.17g OFMT=%.17g)"
# 4 activations and 4 gradients of 2 x 32 x 32 numbers.
is "the bytes of the messages of 5 steps" "$(value out/metrics penstock_sent_bytes_total)" $((5 * 8 * 2 * 32 * 32 * 4))
is "no restart" "$(value out/metrics penstock_restarts_total)" 0
# Tensors of 128 x 128 are cut evenly, so that both replicas send what the report says of replica 0: messages and collectives.
cat >mlp.cfg <<'END'
model = { family = "mlp"; layers = 4; hidden = 128; sequence = 8; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 10; };
pipeline = { ranks = 2; stages_per_rank = 2; microbatches = 2; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
END
for sharing in none "optimizer -s model.dtype=bf16" "weights -s data_parallel.reshard=use -s model.dtype=bf16"; do
  # shellcheck disable=SC2086 # words are meant to part here
  ok "two replicas, shard = $sharing" build shared mlp.cfg -s data_parallel.shard=$sharing
  ok "train" ./shared train --quiet --steps 3 --metrics shared.metrics
  # shellcheck disable=SC2086 # words are meant to part here
  is "they have sent what the report says" "$(value shared.metrics penstock_sent_bytes_total)" "$("$gen" -p report mlp.cfg \
    -s data_parallel.shard=$sharing | awk '/"bytes": [0-9]/ { sum += $2 } END { printf "%d\n", 3 * 2 * sum }')"
done
is "no temporary file remains" "$(ls out)" metrics

# ---- while it runs ----
ln -s out/metrics link
./two train --data data.bin --quiet --metrics link &
run=$!
whole() { test "$(wc -l <out/metrics)" -eq 24; }
rises() { # the step rises, and each reading is whole
  rises_first=$(value out/metrics penstock_step) rises_tries=0
  while test $rises_tries -lt 2400 && whole && test "$(value out/metrics penstock_step)" -le $((rises_first + 3)); do
    sleep 0.05
    rises_tries=$((rises_tries + 1))
  done
  whole && test "$(value out/metrics penstock_step)" -gt $((rises_first + 3))
}
tries=0
while test $tries -lt 2400 && test "$(value out/metrics penstock_step)" = 5; do sleep 0.05; tries=$((tries + 1)); done
ok "the file follows the steps" rises
is "a symbolic link stays" "$(readlink link)" out/metrics
kill -TERM $run
wait $run
is "the run ends" $? 0

# ---- replicas: what peers read counts ----
ok "a plan of two replicas" build replicas model.cfg -s pipeline.ranks=1 -s data_parallel.replicas=2 -s pipeline.microbatches=2
ok "is trained" ./replicas train --data data.bin --quiet --steps 2 --metrics out/replicas
parameters=$(./replicas info --json | sed -n 's/.*"parameters": *\([0-9]*\).*/\1/p')
is "in each step all ranks together reduce and gather each gradient once" "$(value out/replicas penstock_sent_bytes_total)" $((2 * 2 * 4 * parameters))

# ---- a file that cannot be written ----
./two train --data data.bin --quiet --steps 1 --metrics out 2>err
is "a folder is refused" $? 73
is "by name" "$(complaints err)" "penstock: --metrics out: not a regular file"
./two train --data data.bin --quiet --steps 3000 --metrics out/metrics 2>err &
run=$!
rm -f out/metrics
tries=0
while test $tries -lt 2400 && ! grep -qs '^penstock_step [1-9]' out/metrics; do sleep 0.05; tries=$((tries + 1)); done
mv out gone
tries=0
while test $tries -lt 2400 && ! grep -q -e --metrics err; do sleep 0.05; tries=$((tries + 1)); done
wait $run
is "a file that cannot be written later ends no run" $? 0
is "one warning says so" "$(grep -e --metrics err)" "penstock: --metrics out/metrics: No such file or directory; training continues without it"

# ---- nor at a restart ----
mkdir out
./two train --data data.bin --quiet --steps 3000 --restarts 1 --log again.log --metrics out/metrics 2>err &
run=$!
await_steps again.log 5
tries=0
until mkdir out/metrics 2>/dev/null || test $tries -eq 100; do rm -f out/metrics && tries=$((tries + 1)); done
kill -9 "$(children $run | sed -n 1p)"
wait $run
is "a folder in its place ends no run that is started again" $? 0
is "which is said" "$(grep -e '--metrics.*regular' err)" "penstock: --metrics out/metrics: not a regular file; training continues without it"
finish
