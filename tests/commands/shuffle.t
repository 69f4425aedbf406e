#!/bin/sh
# shuffle.t: train --shuffle reads every window of its data once an epoch, in an order that depends on seed and epoch alone, on any ranks; a
# run that continues a checkpoint goes on in this order, or says that it was another one.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/train.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; ffn = 32; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 100000000; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens long.bin 20000
head -c 250 long.bin.text >few.text # 15 windows of 16 tokens
"$tokens" --bytes -o few.bin few.text 2>/dev/null
make_tokens other.bin 250 2
awk 'BEGIN { for (w = 0; w < 15; w++) printf "{\"text\": \"%s%d%s\"}\n", (w % 3 ? "some" : "no"), 79 * w, substr("abcdefgh", 1, w % 8) }' |
  "$tokens" --field text --end-of-text 10 --pack 16 --single --quiet -o single.bin - 2>/dev/null
data=few.bin
unlike() { test -s "$1" && test -s "$2" && ! cmp -s "$1" "$2"; }
same_files() { test -f "$1/latest/optimizer.safetensors" && diff -r "$1/latest/" "$2/latest/"; } # DIR OTHER: their latest checkpoints

# ---- every window once an epoch ----
# With weights that stay, a microbatch of one window has the loss of that window. Four a step, 15 an epoch: 15 steps are four epochs.
still() { build "$1" model.cfg -s optimizer.learning_rate=1e-30 -s optimizer.weight_decay=0 ${2-}; }
ok "weights that stay" still still
ok "on two replicas" still replicas "-s data_parallel.replicas=2 -s pipeline.microbatches=2 -s pipeline.ranks=1"
ok "for packed windows" still packed "-s batch.packed=true"
reads() { # NAME OPTION...: the losses of all windows in the order in which they are read, an epoch in each of order.1 to order.4
  rm -f reads.log order.*
  train "$@" --steps 15 --log reads.log --log-microbatches &&
    sed -n 's/.*"microbatch_losses":\[\([^]]*\)\].*/\1/p' reads.log | tr , '\n' | split -l 15 -a 1 --numeric-suffixes=1 - order.
}
once_each() { # in each epoch the windows of the file, which all differ
  test "$(sort -u all | wc -l)" -eq 15 || return 1
  for epoch in 1 2 3 4; do
    sort order.$epoch | cmp all - || return 1
  done
}
orders_differ() { # of any two epochs, and from the file's
  cp file_order order.5
  for a in 1 2 3 4; do
    for b in $(seq $((a + 1)) 5); do unlike order.$a order.$b || return 1; done
  done
}
for name in still replicas packed; do
  data=few.bin
  if test $name = packed; then data=single.bin; fi
  ok "$name: in the order of the file" reads $name
  cp order.1 file_order
  sort order.1 >all
  ok "$name: every window once" once_each
  ok "$name: in the same order in each epoch" cmp order.1 order.4
  ok "$name: shuffled" reads $name --shuffle
  ok "$name: every window once an epoch" once_each
  cat order.? >$name.seven
  ok "$name: each epoch in an order of its own" orders_differ
  ok "$name: with another seed" reads $name --shuffle --shuffle-seed 8
  ok "$name: every window once an epoch" once_each
  cat order.? >$name.eight
  ok "$name: in another order" unlike $name.seven $name.eight
done
ok "replicas read in the same order" cmp still.seven replicas.seven

# ---- the epoch ----
data=few.bin
ok "four epochs" reads still --shuffle
is "each line of the log has the epoch of its last window" "$(log_field reads.log epoch)" "$(awk 'BEGIN { for (s = 1; s <= 15; s++) print 1 + int((4 * s - 1) / 15) }')"
./still train --data few.bin --shuffle --steps 4 2>err
is "and so has progress" "$(sed -n 's|^\(step [14]/4  epoch [0-9]*  loss\) .*|\1|p' err)" "step 1/4  epoch 1  loss
step 4/4  epoch 2  loss"
is "the first that begins is announced" "$(grep begins err)" "still: epoch 2 begins in step 4: the 15 windows of few.bin are read again"

# ---- a run that is resumed ----
data=few.bin
ok "a plan" build two model.cfg
ok "on one rank" build one model.cfg -s pipeline.ranks=1
ok "on four" build four model.cfg -s pipeline.ranks=4 -s pipeline.schedule=zb_h1
ok "with longer windows" build longer model.cfg -s model.sequence=24
ok "a run of three epochs" train two --shuffle --steps 12 --checkpoint whole
ok "one that ends within the first epoch" train two --shuffle --steps 2 --checkpoint parts
ok "goes on on one rank" train one --shuffle --steps 5 --resume --checkpoint parts
is "without a word" "$(complaints err)" ""
ok "then on four" train four --shuffle --shuffle-seed 7 --steps 9 --resume --checkpoint parts
ok "then on two" train two --shuffle --steps 12 --resume --checkpoint parts
ok "has the checkpoint of the run that was not interrupted" same_files whole parts
ok "the order has a seed of its own" train two --shuffle --shuffle-seed 8 --steps 12 --checkpoint eight
ok "which makes another run" unlike whole/latest/model.safetensors eight/latest/model.safetensors
ok "without it" train two --steps 12 --checkpoint plain
ok "is another run, too" unlike whole/latest/model.safetensors plain/latest/model.safetensors
matches "the manifest has the seed" "$(tr -d ' \n' <eight/latest/manifest.json)" '*"sequence":16,"shuffle":"8","files":*'
is "but none without --shuffle" "$(grep -c shuffle plain/latest/manifest.json)" 0
ok "the largest seed" train two --shuffle --shuffle-seed 18446744073709551615 --steps 2 --checkpoint largest
ok "goes on" train two --shuffle --shuffle-seed 18446744073709551615 --steps 3 --resume --checkpoint largest

# ---- another order than the checkpoint's ----
refuses "another seed" 65 "--data few.bin: whole/step-00000012 has read it shuffled by seed 7, this run reads it shuffled by seed 9: \
--shuffle --shuffle-seed 7 continues; --new-data reads it from its beginning" two --shuffle --shuffle-seed 9 --steps 13 --resume --checkpoint whole
refuses "no shuffle" 65 "--data few.bin: whole/step-00000012 has read it shuffled by seed 7, this run reads it in its own order: *" \
  two --steps 13 --resume --checkpoint whole
refuses "shuffled later" 65 "--data few.bin: plain/step-00000012 has read it in its own order, this run reads it shuffled by seed 7: \
without --shuffle it continues; --new-data reads it from its beginning" two --shuffle --steps 13 --resume --checkpoint plain
cp -R plain anew
ok "from the beginning" train two --shuffle --steps 13 --resume --new-data --checkpoint anew
is "which is said" "$(complaints err)" "penstock: few.bin: in another order than that of anew/step-00000012: read from its beginning"
matches "the place is that of the new order" "$(tr -d ' \n' <anew/latest/manifest.json)" '*"epoch":1,"tokens":64,*"shuffle":"7"*'
ok "and goes on there" train two --shuffle --steps 14 --resume --checkpoint anew
data=other.bin
refuses "another file" 65 "--data other.bin: not the file that whole/step-00000012 has read: *" two --shuffle --steps 13 --resume --checkpoint whole
data=few.bin
sed -i 's/"shuffle": "7"/"shuffle": "8"/' anew/latest/manifest.json
refuses "a manifest that was changed" 65 "*manifest.json: data: its checksum does not fit the rest: the file was damaged" \
  two --shuffle --shuffle-seed 8 --steps 15 --resume --checkpoint anew
ok "longer windows" train longer --shuffle --steps 14 --resume --checkpoint parts
is "are read after as many tokens" "$(complaints err)" "penstock: few.bin: windows of 24 tokens, before of 16: continues after 48 tokens of epoch 4; \
shuffled, some are read again or left out in this epoch"

# ---- the command line ----
refuses "a seed of nothing" 64 "--shuffle-seed 3 needs --shuffle*" two --shuffle-seed 3 --steps 1
ok "a model that makes its inputs" build mlp "$topologies/mlp_4.cfg"
refuses "which have one order" 64 "--shuffle: the model makes its own inputs*" mlp --shuffle --steps 1
finish
