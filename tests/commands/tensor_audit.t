#!/bin/sh
# tensor_audit.t: train --audit with tensor ranks: audits change no bit and find nothing where nothing is wrong; a bit that is flipped on any
# tensor rank is found, and named by its global rank and the action.
. "${top_srcdir:-.}/tests/support/lib.sh"

make_tokens "$scratch/data.bin" 20000
describe llama 4 ''
describe qwen3 4 'head_dim = 12;'
sed -i 's/vocab = 200/vocab = 257/' "$scratch"/*.cfg # the last tensor rank has fewer tokens
echo 'tensor_parallel = { partials = 4; sequence = false; }; memory = { audit = true; };' | tee -a "$scratch/llama.cfg" >>"$scratch/qwen3.cfg"
sed 's/layers = 4/dtype = "bf16"; &/' "$scratch/llama.cfg" >"$scratch/bf16.cfg"
(cd "$top_builddir" && $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" -c -o "$scratch/flip_bits.o" "$top_srcdir/tests/support/flip_bits.c") || exit 99
T2='-s tensor_parallel.ranks=2'
T4='-s tensor_parallel.ranks=4'
v='-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block'
cube='-s pipeline.ranks=2 -s tensor_parallel.partials=2 -s data_parallel.replicas=2 -s data_parallel.reduce=microbatch -s pipeline.microbatches=4'

# ---- nothing wrong ----

# undisturbed NAME MODEL OPTION...: 20 steps, each audited, have the bits of steps that are not.
undisturbed() {
  name=$1 model=$2
  shift 2
  build "$name" "$scratch/$model.cfg" "$@" && train_bits "$name" --data "$scratch/data.bin" --steps 20 || return 1
  cp "$scratch/$name.bits" "$scratch/plain.bits" && cp "$scratch/$name.sums" "$scratch/plain.sums" && rm -r "$scratch/$name.ckpt" &&
    train_bits "$name" --data "$scratch/data.bin" --steps 20 --audit 1 && same_bits 20 "$name" plain
}
while read -r model name options; do
  ok "audits find nothing: $model, $name" undisturbed "$name" "$model" $options
done <<END
llama two        $T2
llama four       $T4
llama two_v      $T2 $v
llama layers     $T4 -s memory.recompute=layer
qwen3 packed     $T2 -s batch.packed=true -s optimizer.clip_norm=0
bf16 bf16        $T2 -s pipeline.ranks=2
llama optimizer  $T2 $cube -s data_parallel.shard=optimizer
llama units      $T2 $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
END

# ---- flipped bits ----

wrap=-Wl,--wrap=pen_audit_call,--wrap=pen_audit_update_run,--wrap=pen_audit_weights_pass_tied,--wrap=pen_audit_report
# flips NAME MODEL OPTION...: a bit is flipped in each of 25 steps on each tensor rank; all are found, and the tensor named.
flips() {
  name=$1 model=$2
  shift 2
  link_more="$scratch/flip_bits.o $wrap"
  build "$name" "$scratch/$model.cfg" -s optimizer.steps=25 "$@" || return 1
  link_more=
  : >"$scratch/$name.flips"
  FLIP_FILE=$scratch/$name.flips "$scratch/$name" train --quiet --data "$scratch/data.bin" --audit 1 ||
    test $? -eq 79 || return 1 # the last loss may not be finite
  cat "$scratch/$name.flips" >>"$scratch/all.flips"
  grep -v '^flip\|^found' "$scratch/$name.flips" | head -n 10 | sed 's/^/# /'
  flipped=$(grep -c '^flip' "$scratch/$name.flips")
  test "$flipped" -ge 100 && test "$flipped" -eq "$(grep -c '^found' "$scratch/$name.flips")"
}
ok "bits flipped on four tensor ranks are found" flips flip_four llama $T4
ok "... on two, with two ranks of two stages" flips flip_v llama $T2 $v
ok "... with bf16, replicas, and gathered weights" flips flip_units bf16 $T2 $cube -s data_parallel.shard=weights -s data_parallel.unit=layer
echo "# $(grep -c '^flip' "$scratch/all.flips") bits: $(grep '^flip' "$scratch/all.flips" | cut -d ' ' -f 2 | sort | uniq -c | tr -s '\n ' ' ')"
for rank in 0 1 2 3; do
  ok "those of tensor rank $rank of four" test "$(grep -c "^found [a-z]* $rank " "$scratch/flip_four.flips")" -ge 25
done

# ---- the end of a run ----

# ends PLACE RANK WRITER BINARY: a bit that is flipped there ends the run with 80; the line names rank, action, tensor and writer (none: computed).
ends() {
  place=$1 rank=$2 writer=$3 seed=0 flipped=
  while test "$flipped" != "$place" && test $seed -lt 20; do # until the drawn action has such a tensor
    seed=$((seed + 1))
    : >"$scratch/flips"
    FLIP_FILE=$scratch/flips FLIP_RANK=$rank FLIP_PLACE=$place "$scratch/$4" train --quiet --seed $seed --data "$scratch/data.bin" \
      --audit 4 --restarts 2 --checkpoint "$scratch/none" --log "$scratch/log" >"$scratch/out" 2>"$scratch/err"
    status=$?
    read -r _ flipped _ action tensor element <"$scratch/flips"
  done
  is "a bit flipped on rank $rank, $place: status" $status 80
  ok "... after three steps without a finding" test "$(wc -l <"$scratch/log")" -ge 3
  read=computed
  if test -n "$writer"; then read=read writer=", from rank $writer"; fi
  tensor=$(echo "$tensor" | sed 's/\[/\\[/g')
  case $place in sent) tensor="s*put*" action="*" ;; esac # another name where it is read
  matches "... the line" "$(cat "$scratch/err")" \
    "penstock: rank $rank (pid [0-9]*, host $(hostname)) $read other bits: $action, $tensor, element $element: [0-9n-]*, then [0-9n-]*$writer"
}
ends output 1 "" flip_four
ends weight 1 1 flip_four
ends within 3 3 flip_four
ends updated 2 "" flip_four
ends sent 3 1 flip_units
ok "nothing was saved" test ! -e "$scratch/none/latest"
finish
