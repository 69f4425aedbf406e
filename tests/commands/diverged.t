#!/bin/sh
# diverged.t: a run whose steps diverge ends with status 79 and a line that says so, saves nothing more, and leaves the last good
# checkpoint; a run ends with status 0 only if the loss of its last step is finite.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 30; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000

# The runtime as it is, except that from step FROM on a gradient of rank 1, and with LOSS = 1 a loss too, is no number.
awk '{ print }
  /^static bool measure_norms\(/ {
    print "  if (vm->rank == 1 && vm->optimizer_step >= FROM)"
    print "    ((float *)(vm->arena + vm->plan->weights[vm->weights[0]].gradient_offset))[5] = NAN;"
  }
  /^  double \*losses = own_stats/ { print "  if (LOSS && vm->optimizer_step >= FROM) ((double *)(vm->arena + plan->loss_offset))[1] = NAN;" }
' "$top_srcdir/runtime/exec/handlers.c" >handlers.c
is "the faults are in place" "$(grep -c FROM handlers.c)" 2
spoil() { # NAME FROM LOSS PLAN
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -include math.h -I"$top_srcdir" "-DFROM=$2" "-DLOSS=$3" -o "$scratch/$1" "$scratch/handlers.c" \
    "$scratch/$4.o" libruntime.a $KERNEL_ARCHIVES $RUNTIME_LIBS)
}
ok "a plan is built" build plain model.cfg
ok "one whose ranks do not know the norm in time" build free model.cfg -s optimizer.clip_norm=0
ok "gradients that are no numbers" spoil gradient 5 0 plain
ok "losses, too" spoil loss 5 1 plain
ok "losses, without clipping" spoil free_loss 5 1 free

# ends NAME WANTED_STATUS WANTED_MESSAGES OPTION...: a run that saves every step.
ends() {
  ends_name=$1 ends_status=$2 ends_messages=$3
  shift 3
  rm -rf ckpt log
  "./$ends_name" train --data data.bin --quiet --save-every 1 --checkpoint ckpt --log log "$@" 2>err
  is "$ends_name $*: status" $? "$ends_status"
  is "$ends_name $*: messages" "$(complaints err)" "$ends_messages"
  is "$ends_name $*: nothing half written" "$(ls -d ckpt/*.tmp 2>/dev/null)" ""
}
warns="penstock: step 5 skipped: its gradient norm is not finite"
warns_of_loss="penstock: step 5: its loss is not finite"
diverged() { # STEPS
  echo "penstock: diverged: $1 consecutive steps skipped since step 5"
}
saved() { readlink ckpt/latest; }

ends gradient 79 "$warns
$(diverged 10)"
is "by default after 10 steps" "$(log_field log step | tail -n 1)" 14
is "the last good checkpoint stays" "$(saved)" step-00000004
ok "and can be continued" ./plain train --data data.bin --quiet --checkpoint ckpt --resume --steps 6
ends gradient 79 "$warns
$(diverged 3)" --max-skipped 3
is "after 3 steps" "$(log_field log step | tail -n 1)" 7
ends free_loss 79 "$warns_of_loss
$(diverged 4)" --max-skipped 4
is "without clipping by the loss" "$(log_field log step | tail -n 1)" 8
is "whose last good checkpoint stays" "$(saved)" step-00000004

# A run that ends before it has diverged: with all steps skipped since the last save, or since the start, it has made nothing.
ends gradient 79 "$warns
$(diverged 3)" --steps 7
is "only skipped steps since the last save: that one stays" "$(saved)" step-00000004
./gradient train --data data.bin --quiet --checkpoint ckpt --resume --steps 6 2>err
is "nor after a resume: status" "$? $(saved)" "79 step-00000004"
is "nor after a resume: messages" "$(complaints err)" "$warns
$(diverged 2)"
./gradient train --data data.bin --quiet --init ckpt/latest --steps 4 --checkpoint other 2>err
is "other steps are trained: status" "$? $(readlink other/latest)" "0 step-00000004"
rm -rf ckpt
./gradient train --data data.bin --quiet --save-every 3 --checkpoint ckpt --steps 7 2>err
is "a step after the last save was not skipped: saved" "$? $(saved)" "0 step-00000007"
ok "the plan that copies what it saves" build copied model.cfg -s memory.snapshot=true
ok "with these gradients" spoil copied_gradient 5 0 copied
ends copied_gradient 79 "$warns
$(diverged 3)" --steps 7
is "copies: the last save stays" "$(saved)" step-00000004
rm -rf ckpt && : >err
./gradient train --data data.bin --quiet --save-every 1 --checkpoint ckpt --steps 1000000000 --max-skipped 1000000000 2>err &
pid=$!
tries=0
until grep -q skipped err || test $tries -ge 2400; do sleep 0.1; tries=$((tries + 1)); done
kill -TERM $pid
wait $pid
is "a signal ends it: saved" $? 0
ok "with the skipped steps" test "$(saved | sed 's/^step-0*//')" -gt 4
matches "of which the first was said" "$(complaints err)" "$warns*"
ends loss 79 "$warns
$(diverged 3)" --steps 7
is "a loss that is not: the last good one stays" "$(saved)" step-00000004
ends free_loss 79 "$warns_of_loss
$(diverged 1)" --steps 5
is "without clipping, too" "$(saved)" step-00000004

# A learning rate that is far too high.
for schedule in 1f1b zero_bubble_v; do
  stages=$(test $schedule = 1f1b || echo "-s pipeline.stages_per_rank=2")
  # shellcheck disable=SC2086
  ok "$schedule: a learning rate of 1e30" build wild model.cfg -s optimizer.learning_rate=1e30 -s model.layers=4 -s pipeline.schedule=$schedule $stages
  ./wild train --data data.bin --quiet --max-skipped 2 --overwrite --log log 2>err
  is "$schedule: status" $? 79
  matches "$schedule: message" "$(tail -n 1 err)" "penstock: diverged: 2 consecutive steps skipped since step [2-9]"
done

# Steps without targets are not divergence.
awk 'BEGIN { for (w = 0; w < 40; w++) printf "{\"text\": \"%s\"}\n", w < 8 ? "water" w : "\\n" }' >lines
"$tokens" --field text --end-of-text 10 --pack 16 --single --quiet -o sparse.bin lines 2>/dev/null
ok "a plan for packed data" build packed model.cfg -s batch.packed=true
./packed train --data sparse.bin --quiet --steps 5 --max-skipped 1 --overwrite --log log --log-microbatches --metrics metrics --eval-data sparse.bin --eval-every 5 \
  --eval-steps 2 --checkpoint sparse 2>err
is "steps without targets: status" "$? $(readlink sparse/latest)" "0 step-00000005"
is "steps without targets: counted" "$(log_field log skipped | tail -n 1)" 4
is "steps without targets: nothing is said" "$(complaints err)" ""
is "steps without targets: no updates" "$(sed -n '/"updates"/,/}/s/.*: \([0-9]*\),*$/\1/p' sparse/latest/manifest.json | sort -u)" 1
is "steps without targets: neither loss nor norm" "$(sed -n 's/^{"step":[2-5],\("loss".*\),"lr".*/\1/p' log | sort -u)" '"loss":null,"grad_norm":null'
is "steps without targets: nor losses of microbatches" "$(grep -c '"microbatch_losses":\[null,null,null,null\]' log)" 4
is "steps without targets: the metrics" "$(sed -n 's/^penstock_loss //p' metrics)" NaN
matches "an evaluation has the mean of those that have targets" "$(grep eval_loss log)" '{"step":5,"eval_loss":[1-9]*"eval_tokens":[1-9]*'
tac lines | "$tokens" --field text --end-of-text 10 --pack 16 --single --quiet -o late.bin - 2>/dev/null
./packed train --data late.bin --steps 1 --overwrite --log log --eval-data late.bin --eval-every 1 --eval-steps 1 2>err
matches "progress" "$(complaints err)" "*step 1/1  epoch 1  loss null  norm null *step 1  evaluation loss null"
matches "an evaluation without targets" "$(grep eval_loss log)" '*"eval_loss":null,"eval_perplexity":null,"eval_tokens":0,*'
./packed train --data late.bin --steps 1 --watch 2>err
matches "--watch" "$(complaints err)" "*step 1/1  loss null  norm null *"
./packed eval --data late.bin --init sparse/latest --steps 1 --quiet >found 2>err
is "eval: no loss, which is an error" "$? $(cat found)" '65 {"loss":null,"perplexity":null,"tokens":0}'
matches "and says so" "$(cat err)" "*late.bin: no target in the * of the 1 steps that were made: they have no loss"
finish
