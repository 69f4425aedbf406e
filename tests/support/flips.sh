# flips.sh: what the tests of train --audit share: runs in which nothing is wrong, and runs in which bits are flipped (flip_bits.c). Sourced after
# lib.sh.
(cd "$top_builddir" && $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" -c -o "$scratch/flip_bits.o" "$top_srcdir/tests/support/flip_bits.c") || exit 99
wrap=-Wl,--wrap=pen_audit_call,--wrap=pen_audit_update_run,--wrap=pen_audit_weights_pass_tied,--wrap=pen_audit_report

# undisturbed NAME MODEL STEPS OPTION...: so many steps of $scratch/MODEL.cfg, each audited, have the bits of steps that are not.
undisturbed() {
  name=$1 model=$2 steps=$3
  shift 3
  build "$name" "$scratch/$model.cfg" "$@" && train_bits "$name" --data "$scratch/data.bin" --steps "$steps" || return 1
  cp "$scratch/$name.bits" "$scratch/plain.bits" && cp "$scratch/$name.sums" "$scratch/plain.sums" && rm -r "$scratch/$name.ckpt" &&
    train_bits "$name" --data "$scratch/data.bin" --steps "$steps" --audit 1 && same_bits "$steps" "$name" plain
}

# flips NAME MODEL OPTION...: a bit is flipped in each step on each rank; all are found, and the tensor named.
flips() {
  name=$1 model=$2
  shift 2
  link_more="$scratch/flip_bits.o $wrap"
  build "$name" "$scratch/$model.cfg" "$@" || return 1
  link_more=
  : >"$scratch/$name.flips"
  FLIP_FILE=$scratch/$name.flips "$scratch/$name" train --quiet --data "$scratch/data.bin" --audit 1 ||
    test $? -eq 79 || return 1 # the last loss may not be finite
  cat "$scratch/$name.flips" >>"$scratch/all.flips"
  grep -v '^flip\|^found' "$scratch/$name.flips" | head -n 10 | sed 's/^/# /'
  flipped=$(grep -c '^flip' "$scratch/$name.flips")
  test "$flipped" -ge 100 && test "$flipped" -eq "$(grep -c '^found' "$scratch/$name.flips")"
}
# count_flips: says how many, by place.
count_flips() { echo "# $(grep -c '^flip' "$scratch/all.flips") bits: $(grep '^flip' "$scratch/all.flips" | cut -d ' ' -f 2 | sort | uniq -c | tr -s '\n ' ' ')"; }

# ends PLACE RANK WRITER BINARY: a bit that is flipped there ends the run; the line names rank, action, tensor and writer (none: computed).
ends() {
  place=$1 rank=$2 writer=$3 seed=0 flipped=
  while test "$flipped" != "$place" && test $seed -lt 20; do # until the drawn action has such a tensor
    seed=$((seed + 1))
    : >"$scratch/flips"
    FLIP_FILE=$scratch/flips FLIP_RANK=$rank FLIP_PLACE=$place "$scratch/$4" train --quiet --seed $seed --data "$scratch/data.bin" \
      --audit 4 --restarts 2 --checkpoint "$scratch/none" --overwrite --log "$scratch/log" >"$scratch/out" 2>"$scratch/err"
    status=$?
    read -r _ flipped _ action tensor element <"$scratch/flips"
  done
  is "a bit flipped on rank $rank, $place: status" $status 80
  ok "... after three steps without a finding" test "$(wc -l <"$scratch/log")" -ge 3
  read=computed
  if test -n "$writer"; then read=read writer=", from rank $writer"; fi
  tensor=$(echo "$tensor" | sed 's/\[/\\[/g') # of a split
  case $place in sent) tensor="s*put*" action="*" ;; tied) tensor=$tensor.bf16 action="*" ;; esac # other names where it is read
  matches "... the line" "$(complaints "$scratch/err")" \
    "penstock: rank $rank (pid [0-9]*, host $(hostname)) $read other bits: $action, $tensor, element $element: [0-9n-]*, then [0-9n-]*$writer"
}
