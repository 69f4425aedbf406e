#!/bin/sh
# promela.t: the verifier's verdict on deadlock against SPIN's, in all three models of communication: on plans of ours, and on orders
# that were changed at random until some can deadlock.
. "${top_srcdir:-.}/tests/support/lib.sh"
: "${CC:=cc}"
command -v spin >/dev/null || skip_all "spin is not installed (Debian package spin)"

# search FILE MODEL: 0: no deadlock; 1: SPIN reached an invalid end state; 2: something else.
search() {
  rm -rf "$scratch/pan" && mkdir "$scratch/pan" && (
    cd "$scratch/pan" && spin -DMODEL="$2" -a "$1" >spin.log 2>&1 &&
      $CC -O0 -w -DSAFETY -DMEMLIM=2048 -o pan pan.c >>spin.log 2>&1 && ./pan -m1000000 >pan.log 2>&1
  ) || { sed 's/^/# /' "$scratch"/pan/*.log; return 2; }
  grep -q 'error:.*too\|max search depth too small' "$scratch/pan/pan.log" && return 2
  grep -q 'errors: 0$' "$scratch/pan/pan.log" && return 0
  grep -q 'pan:.*invalid end state' "$scratch/pan/pan.log" && return 1
  return 2
}

# verdicts FILE: what our verifier says of models 1, 2 and 3: one digit each, 1 for a deadlock.
verdicts() {
  sed -n 's/^ \*   [123]  .*: deadlock$/1/p; s/^ \*   [123]  .*: no deadlock$/0/p' "$1" | tr -d '\n'
}

# agrees FILE VERDICTS: SPIN says the same of each model.
agrees() {
  said=
  for model in 1 2 3; do
    search "$1" $model
    said=$said$?
  done
  test "$said" = "$2" || { echo "# SPIN says $said, we say $2"; return 1; }
}

# ---- plans of ours: credits elided, and sends that hold up what overwrites them ----

while read -r name settings; do
  options=
  for setting in $settings; do options="$options -s $setting"; done
  # shellcheck disable=SC2086 # words are meant to part here
  "$gen" --print=promela -o "$scratch/$name.pml" $options "$topologies/scale.cfg" 2>"$scratch/errors"
  ok "$name: no deadlock, says SPIN too" agrees "$scratch/$name.pml" 000
done <<'END'
gpipe pipeline.schedule=gpipe pipeline.ranks=3 pipeline.stages_per_rank=1 pipeline.microbatches=3
1f1b pipeline.ranks=3 pipeline.stages_per_rank=1 pipeline.microbatches=4
interleaved pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.microbatches=4
zero_bubble_v pipeline.schedule=zero_bubble_v pipeline.ranks=2 pipeline.microbatches=4 optimizer.clip_norm=0
tied pipeline.ranks=3 pipeline.stages_per_rank=1 pipeline.microbatches=3 model.tie_embeddings=true
tied_free pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.microbatches=2 model.tie_embeddings=true optimizer.clip_norm=0
END

# ---- orders changed at random ----

settings="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.microbatches=2 -s model.layers=4"
# shellcheck disable=SC2086
"$gen" --print=actions $settings "$topologies/scale.cfg" >"$scratch/good" 2>/dev/null

# change SEED: one to three times, moves one to three neighbouring actions by up to twelve places within their rank.
change() {
  awk -v seed="$1" '
    function draw(n) { state = (state * 16807) % 2147483647; return state % n }
    function move(from, to,   kept, i) {
      kept = word[from]
      for (i = from; i < to; i++) word[i] = word[i + 1]
      for (i = from; i > to; i--) word[i] = word[i - 1]
      word[to] = kept
    }
    { line[NR] = $0 }
    END {
      state = seed * 7919 + 1; draw(2); draw(2)
      for (moves = 1 + draw(3); moves > 0; moves--) {
        row = 1 + draw(NR); count = split(line[row], word, " "); many = 1 + draw(3)
        from = 2 + draw(count - many); distance = draw(25) - 12
        if (from + distance < 2) distance = 2 - from
        if (from + many - 1 + distance > count) distance = count - many + 1 - from
        for (i = 0; i < many; i++)
          if (distance > 0) move(from, from + many - 1 + distance)
          else move(from + i, from + i + distance)
        line[row] = word[1]
        for (i = 2; i <= count; i++) line[row] = line[row] " " word[i]
      }
      for (row = 1; row <= NR; row++) print line[row]
    }' "$scratch/good" >"$scratch/changed"
}

# Two of each combination of verdicts that turns up.
seed=0 found1=0 found2=0 found3=0
while test $seed -lt 300; do
  seed=$((seed + 1))
  change $seed
  rm -f "$scratch/changed.pml"
  # shellcheck disable=SC2086
  "$gen" --print=promela -o "$scratch/changed.pml" --actions="$scratch/changed" $settings "$topologies/scale.cfg" 2>"$scratch/said"
  status=$?
  test -f "$scratch/changed.pml" || continue
  says=$(verdicts "$scratch/changed.pml")
  eval "times=\${times$says:-0}"
  test "$times" -lt 2 || continue
  eval "times$says=$((times + 1))"
  ok "seed $seed: of the three models $says deadlock, says SPIN too" agrees "$scratch/changed.pml" "$says"
  case $says in
    000) is "seed $seed: such an order is taken" $status 0 ;;
    *) is "seed $seed: such an order is refused" "$status $(grep -c 'deadlock with' "$scratch/said")" "65 1" ;;
  esac
  case $says in 1??) found1=$((found1 + 1)) ;; esac
  case $says in ?1?) found2=$((found2 + 1)) ;; esac
  case $says in ??1) found3=$((found3 + 1)) ;; esac
done
ok "there were deadlocks in each model ($found1, $found2, $found3) and in none (${times000:-0})" \
  test "$found1" -gt 0 -a "$found2" -gt 0 -a "$found3" -gt 0 -a "${times000:-0}" -gt 0
finish
