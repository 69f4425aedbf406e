#!/bin/sh
# microbatch_losses.t: train --log-microbatches logs the loss of each microbatch: means whose weighted mean is the step's loss, the same
# on any ranks; null for a microbatch without targets; nothing else of the log changes. With cluster.peak_tflops it has mfu.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 6; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
train() { # NAME DATA OPTION...: the log in NAME.log
  train_name=$1 train_data=$2
  shift 2
  anew "$train_name.log" "$@"
  "./$train_name" train --data "$train_data" --seed 5 --quiet --log "$train_name.log" "$@" 2>err
}
losses() { # NAME: a line of microbatch losses a step
  sed -n 's/.*"microbatch_losses":\[\([^]]*\)\].*/\1/p' "$1.log"
}
# mean_is_the_loss NAME: without masks all microbatches have as many targets.
mean_is_the_loss() {
  losses "$1" >of_microbatches
  log_field "$1.log" loss | paste -d, - of_microbatches | awk -F, -v name="$1" '
    { sum = 0; for (i = 2; i <= NF; i++) sum += $i; apart = sum / (NF - 1) - $1
      if (NF < 3 || apart > 1e-12 || apart < -1e-12) { print "# " name ", step " NR ": " $0; wrong = 1 } }
    END { exit wrong || NR != 6 }'
}

ok "a plan is built" build two model.cfg
ok "one of a V" build v model.cfg -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
ok "one of two replicas" build replicas model.cfg -s data_parallel.replicas=2 -s pipeline.microbatches=2
ok "train" train two data.bin --log-microbatches
is "the step line ends with them" "$(grep -c '"microbatch_losses":\[[0-9.,e-]*\]}$' two.log)" 6
is "four a step" "$(losses two | awk -F, '{ print NF }' | sort -u)" 4
ok "their mean is the loss" mean_is_the_loss two
ok "train a V" train v data.bin --log-microbatches
is "the same bits" "$(losses v)" "$(losses two)"
ok "train two replicas" train replicas data.bin --log-microbatches
ok "whose mean is the loss" mean_is_the_loss replicas
is "replica after replica, as the windows are read" "$(losses replicas | head -n 1)" "$(losses two | head -n 1)"
cp two.log with.log
ok "train without" train two data.bin
sed 's/,"step_ms".*//' with.log >with
sed 's/,"step_ms".*//' two.log >without
ok "the rest of the log is the same" cmp with without
ok "and is there" test -s without
is "which has none" "$(grep -c microbatch_losses two.log)" 0

# Steps may be reported later than they end; a resumed run goes on.
ok "no step waits for the norm" build free model.cfg -s optimizer.clip_norm=0
ok "train it" train free data.bin --log-microbatches --steps 3 --checkpoint ckpt
ok "and go on" train free data.bin --log-microbatches --checkpoint ckpt --resume
ok "their mean is the loss" mean_is_the_loss free

# Packed windows of several lengths, with two microbatches that have no targets.
awk 'BEGIN { for (w = 0; w < 48; w++) printf "{\"text\": \"%s\"}\n", (w % 8 >= 4 ? "\\n" : w % 8 ? "some water " w : "w" w) }' |
  "$tokens" --field text --end-of-text 10 --pack 16 --single --quiet -o packed.bin - 2>/dev/null
ok "a plan for packed data" build packed model.cfg -s batch.packed=true
ok "train it" train packed packed.bin --log-microbatches
is "microbatches without targets have no loss" "$(losses packed | awk -F, '{ print ($1 > 0) ($2 > 0) $3 $4 }' | sort -u)" "11nullnull"
ok "the others' mean by targets is the loss" sh -c '
  losses=$(sed -n "1s/.*\"microbatch_losses\":\[\([^]]*\)\].*/\1/p" packed.log)
  loss=$(sed -n "1s/.*\"loss\":\([^,]*\).*/\1/p" packed.log)
  # documents of w0, some water 1: 3 and 13 tokens with their ends, so 2 + 12 targets; then 12 + 12
  awk -v l="$losses" -v loss="$loss" "BEGIN { split(l, m, \",\"); d = (14 * m[1] + 24 * m[2]) / 38 - loss; exit !(loss > 1 && d < 1e-9 && d > -1e-9) }"'

# ---- the share of the peak ----
# The operations of a step are mfu x its time x the peak of all ranks: about 6 for each parameter of a matrix and token, and those of attention.
ok "a plan with a peak" build peak model.cfg -s cluster.peak_tflops=0.001
ok "with two" build peaks model.cfg -s cluster.peak_tflops=0.002 -s pipeline.ranks=4 -s memory.recompute=full
digest() { "./$1" info | sed -n 's/^digest *//p'; }
is "which is no part of the digest" "$(digest peak)" "$(digest two)"
operations() { # NAME TFLOPS OF ALL RANKS
  log_field "$1.log" mfu >of_mfu
  log_field "$1.log" step_ms | paste -d ' ' of_mfu - | awk -v peak="$2" '{ printf "%.4e\n", $1 * $2 * 1e-3 * peak * 1e12 }' | sort -u
}
ok "train" train peak data.bin
ok "train on four ranks" train peaks data.bin
is "the log has mfu, of the same operations in each step" "$(operations peak 0.002 | wc -l) $(grep -c '"mfu"' peak.log)" "1 6"
is "on any ranks, without those that are made again" "$(operations peaks 0.008)" "$(operations peak 0.002)"
ok "as many as the model has" awk -v got="$(operations peak 0.002)" 'BEGIN {
  weights = 4 * (4 * 32 * 32 + 3 * 32 * 48) + 32 * 256
  wanted = (6 * weights + 6 * 4 * 32 * 16) * 16 * 2 * 4
  exit !(got > wanted && got < 1.15 * wanted) }'
is "not without a peak" "$(grep -c mfu two.log)" 0

"./two" train --data data.bin --log-microbatches 2>err
is "without --log: status" $? 64
matches "without --log: message" "$(complaints err)" "penstock: --log-microbatches needs --log FILE*"
finish
