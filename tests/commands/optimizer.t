#!/bin/sh
# optimizer.t: what a step may do besides AdamW: warm-up, stable, decay; weight-decay groups; the norm of the greatest magnitude; and a
# step whose gradients are not finite, which is skipped, counted and logged.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 20; warmup_steps = 4; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
train() { # NAME OPTION...: the log in NAME.log
  train_name=$1
  shift
  anew "$train_name.log" "$@"
  "./$train_name" train --data data.bin --quiet --log "$train_name.log" "$@" 2>err
}
refuses() { # PATTERN SETTING...
  refuses_pattern=$1
  shift
  "$gen" --check model.cfg "$@" 2>err
  is "refused: $*: status" $? 78
  matches "refused: $*: message" "$(complaints err)" "$refuses_pattern"
}

# ---- warm-up, stable, decay ----
ok "wsd" build wsd model.cfg -s optimizer.decay=wsd -s optimizer.decay_steps=5 -s optimizer.minimum_ratio=0.2
ok "wsd: trains" train wsd --steps 22
log_field wsd.log lr >rates
ok "the rate rises, stays, falls to its minimum, and stays there" awk '{
    wanted = NR <= 4 ? 0.01 * NR / 4 : NR <= 15 ? 0.01 : NR < 20 ? 0.01 * (1 - 0.8 * (NR - 15) / 5) : 0.002
    d = $1 - wanted
    if (d > 1e-15 || d < -1e-15) { print "# step " NR ": " $1 ", not " wanted; wrong = 1 }
  } END { exit wrong || NR != 22 }' rates
ok "a run may end within the warm-up" build cut_short model.cfg -s optimizer.steps=3 -s optimizer.decay=wsd -s optimizer.decay_steps=5
ok "which trains" train cut_short
is "up to where the run ends" "$(log_field cut_short.log lr | awk '{ printf "%.9g ", $1 }')" "0.0025 0.005 0.0075 "
matches "by default the decay is a tenth" "$("$gen" model.cfg -s optimizer.decay=wsd)" '*.decay_steps = 2,*PEN_DECAY_WSD*'
refuses "*optimizer.decay_steps = 17*at most optimizer.steps - optimizer.warmup_steps = 16" -s optimizer.decay_steps=17

# ---- weight-decay groups ----
ok "plain" build plain model.cfg -s optimizer.weight_decay=0
ok "a group of all" build all model.cfg -s 'optimizer.weight_decay_groups=[weight=0]'
ok "a group of gains" build gains model.cfg -s 'optimizer.weight_decay_groups=[norm.weight=0.1,layernorm.weight=0.1]'
ok "the first that fits" build first model.cfg -s 'optimizer.weight_decay_groups=[norm.weight=0,weight=0.1]'
ok "by default" build default model.cfg
for name in plain all gains first default; do
  ok "$name: trains" train $name --steps 6 --checkpoint $name.ckpt
done
weights() { echo "$1.ckpt/latest/model.safetensors"; }
ok "decay 0 for all names is no decay" cmp "$(weights plain)" "$(weights all)"
ok "no decay is not the default" test "$(cksum <"$(weights plain)")" != "$(cksum <"$(weights default)")"
ok "gains that decay are not the default" test "$(cksum <"$(weights gains)")" != "$(cksum <"$(weights default)")"
ok "of two groups the first counts, and is the default here" cmp "$(weights first)" "$(weights default)"
refuses '*optimizer.weight_decay_groups*"ENDING=DECAY"*not "norm.weight"' -s 'optimizer.weight_decay_groups=[norm.weight]'
refuses '*optimizer.weight_decay_groups*not "=1"' -s 'optimizer.weight_decay_groups=[=1]'
refuses '*optimizer.weight_decay_groups*not "weight=-1"' -s 'optimizer.weight_decay_groups=[weight=-1]'
refuses '*optimizer.weight_decay_groups*not "weight=1x"' -s 'optimizer.weight_decay_groups=[weight=1x]'
refuses '*optimizer.weight_decay_groups*no name has the ending of "wight=1"' -s 'optimizer.weight_decay_groups=[wight=1]'

# ---- the norm ----
ok "the greatest magnitude" build greatest model.cfg -s optimizer.norm=inf -s optimizer.clip_norm=1e30
ok "the same on one rank" build greatest1 model.cfg -s optimizer.norm=inf -s optimizer.clip_norm=1e30 -s pipeline.ranks=1
ok "the sum of squares" build squares model.cfg -s optimizer.clip_norm=1e30
ok "clipped" build clipped model.cfg -s optimizer.norm=inf -s optimizer.clip_norm=1e-3
for name in greatest greatest1 squares clipped; do
  ok "$name: trains" train $name --steps 4
done
is "any ranks: the same norms" "$(log_field greatest.log grad_norm)" "$(log_field greatest1.log grad_norm)"
is "another norm changes nothing where nothing is clipped" "$(log_field greatest.log loss)" "$(log_field squares.log loss)"
log_field squares.log grad_norm >squares.norm
ok "the greatest is less than the root of all" awk '{ getline root <"squares.norm"; if (!($1 > 0 && $1 < root && $1 > root / 1000)) exit 1 }' <<END
$(log_field greatest.log grad_norm)
END
is "clipping by it leaves the first norm" "$(log_field clipped.log grad_norm | head -n 1)" "$(log_field greatest.log grad_norm | head -n 1)"
refuses '*optimizer.norm = 3*"2" or "inf"*' -s optimizer.norm=3

# ---- a step whose norm is not finite ----
# The runtime as it is, except for a gradient of rank 1 that is corrupted in step 3, before its norm is taken.
sed 's/^static bool measure_norms(struct pen_vm \*vm.*$/#include <math.h>\n&\n  if (vm->rank == 1 \&\& vm->optimizer_step == 3) ((float *)(vm->arena + vm->plan->weights[vm->weights[0]].gradient_offset))[5] = SPOILT;/' \
  "$top_srcdir/runtime/exec/handlers.c" >handlers.c
spoil() { # NAME VALUE [TOPOLOGY]
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -I"$top_srcdir" "-DSPOILT=$2" -o "$scratch/$1" "$scratch/handlers.c" "$scratch/${3:-default}.o" \
    libruntime.a $KERNEL_ARCHIVES $RUNTIME_LIBS)
}
ok "the fault is in place" grep -q SPOILT handlers.c
ok "a gradient that is no number" spoil nan NAN
ok "a gradient that is infinite" spoil infinite -INFINITY
for name in nan infinite; do
  ok "$name: trains on" train $name --steps 6 --save-every 1 --checkpoint $name.ckpt
  is "$name: the norm is logged" "$(log_field $name.log grad_norm | grep -n null)" "3:null"
  is "$name: skipped steps are counted" "$(log_field $name.log skipped | tr '\n' ' ')" "1 1 1 1 "
  is "$name: the step is not saved" "$(echo $name.ckpt/step-*)" \
    "$name.ckpt/step-00000001 $name.ckpt/step-00000002 $name.ckpt/step-00000004 $name.ckpt/step-00000005 $name.ckpt/step-00000006"
  ok "$name: ends with the step" train $name --steps 3 --checkpoint $name.three
  for file in model optimizer; do
    ok "$name: the step leaves $file as it was" cmp $name.ckpt/step-00000002/$file.safetensors $name.three/step-00000003/$file.safetensors
  done
  ok "$name: the next is the third update" updates_are $name.ckpt/step-00000002 $name.ckpt/step-00000004 0.01 3
done
ok "as many steps as --max-skipped allows" ./infinite train --data data.bin --steps 6 --max-skipped 2 --quiet
./infinite train --data data.bin --steps 6 --max-skipped 1 --quiet --save-every 1 --checkpoint ended.ckpt 2>err
is "one more: the status" $? 79
is "one more: the messages" "$(complaints err)" "penstock: step 3 skipped: its gradient norm is not finite
penstock: diverged: 1 consecutive steps skipped since step 3"
is "one more: the last good checkpoint stays" "$(readlink ended.ckpt/latest)" step-00000002
ok "both go on alike" cmp nan.ckpt/latest/model.safetensors infinite.ckpt/latest/model.safetensors
# Where no rank knows the norm in time, the one element stays as it was, and the others take the step as if nothing had been.
ok "free: without clipping" build free model.cfg -s optimizer.clip_norm=0
ok "free: trains" train free --steps 3 --checkpoint free.ckpt
ok "free: a gradient that is no number" spoil free_nan NAN free
ok "free: a gradient that is infinite" spoil free_infinite INFINITY free
for name in free_nan free_infinite; do
  ok "$name: trains on" train $name --steps 4 --save-every 1 --checkpoint $name.ckpt
  is "$name: the step is counted" "$(log_field $name.log skipped | tr '\n' ' ')" "1 1 "
  is "$name: and an update of all" "$(sed -n '/"updates"/,/}/s/.*: \([0-9]*\),*$/\1/p' $name.ckpt/latest/manifest.json | sort -u)" 4
  for file in model optimizer; do
    cmp -l free.ckpt/latest/$file.safetensors $name.ckpt/step-00000003/$file.safetensors | awk '{ print $1 }' >apart
    cmp -l $name.ckpt/step-00000002/$file.safetensors $name.ckpt/step-00000003/$file.safetensors | awk '{ print $1 }' >changed
    matches "$name: $file: one element misses the step" "$(wc -l <apart)" "[1-8]"
    ok "$name: $file: it stays as it was" test -z "$(sort apart changed | uniq -d)"
    ok "$name: $file: the others do not" test "$(wc -l <changed)" -gt 1000
  done
done
is "before, all is as without the fault" "$(log_field nan.log loss | head -n 3)" "$(log_field default.log loss | head -n 3)"
finish
