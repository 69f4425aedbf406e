#!/bin/sh
# recompute.t: stages that run F again give the same losses, norms and checkpoints, bit for bit, in less memory and more time.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=3
cat >"$scratch/llama.cfg" <<'END'
model = { family = "llama"; layers = 8; hidden = 48; heads = 4; kv_heads = 2; ffn = 80; vocab = 256; sequence = 32; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 8; schedule = "1f1b"; };
END
sed 's/^model.*/model = { family = "mlp"; layers = 8; hidden = 24; sequence = 4; };/' "$scratch/llama.cfg" >"$scratch/mlp.cfg"
make_tokens "$scratch/data.bin" 40000

# train NAME FAMILY OPTIONS...: builds and trains.
train() {
  train_name=$1 family=$2
  shift 2
  data=
  test "$family" = mlp || data="--data $scratch/data.bin"
  build "$train_name" "$scratch/$family.cfg" "$@" && train_bits "$train_name" $data --steps $steps
}

same() { same_bits $steps "$1" "$2"; }

# figures NAME FAMILY OPTIONS...: every figure of that name in the report, one a line.
figures() {
  field=$1 family=$2
  shift 2
  "$gen" -p report "$@" "$scratch/$family.cfg" 2>/dev/null | sed -n "s/^ *\"$field\": \\([^,]*\\),*\$/\\1/p"
}

# less FIELD FAMILY OPTIONS...: no rank needs more with recompute = full, and the first needs less than 3/4.
less() {
  figures "$@" >"$scratch/plain"
  figures "$@" -s memory.recompute=full >"$scratch/again"
  paste "$scratch/plain" "$scratch/again" |
    awk '{ if ($2 > $1) bad = 1; if (NR == 1 && $2 > 0.75 * $1) bad = 1 } END { exit bad || NR == 0 }'
}

ok "llama trains on one rank and keeps all" train llama llama
ok "mlp trains on one rank and keeps all" train mlp mlp
while read -r name family options; do
  ok "$name trains" train "$name" "$family" $options
  ok "$name has the same bits as one rank that keeps all" same "$family" "$name"
done <<'LIST'
one        llama -s memory.recompute=full
one_zb     llama -s memory.recompute=full -s pipeline.zero_bubble=true
two_list   llama -s pipeline.ranks=2 -s memory.recompute=[full,none]
four       llama -s pipeline.ranks=4 -s memory.recompute=full
four_last  llama -s pipeline.ranks=4 -s memory.recompute=[none,none,none,full]
four_loop  llama -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s memory.recompute=full
four_v     llama -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s memory.recompute=full
layer      llama -s memory.recompute=layer
layer_zb   llama -s memory.recompute=layer -s pipeline.zero_bubble=true
attention  llama -s memory.recompute=attention
att_zb     llama -s memory.recompute=attention -s pipeline.zero_bubble=true
four_layer llama -s pipeline.ranks=4 -s memory.recompute=layer
four_list  llama -s pipeline.ranks=4 -s memory.recompute=[layer,attention,full,none]
v_layer    llama -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s memory.recompute=layer
v_att      llama -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s memory.recompute=attention
cut_layer  llama -s pipeline.ranks=4 -s partition.before=[model.layers.0,model.layers.3.mlp,lm_head] -s memory.recompute=layer
cut_att    llama -s pipeline.ranks=4 -s partition.before=[model.layers.0,model.layers.3.mlp,lm_head] -s memory.recompute=attention
four_cut   llama -s pipeline.ranks=4 -s partition.before=[model.layers.0,model.layers.3.mlp,lm_head] -s memory.recompute=full
mlp_four   mlp   -s pipeline.ranks=4 -s memory.recompute=full
mlp_v      mlp   -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s memory.recompute=full
mlp_cut    mlp   -s pipeline.ranks=4 -s partition.before=[layers.0.w1,layers.3.w2,loss] -s memory.recompute=[none,full,full,none]
mlp_layer  mlp   -s pipeline.ranks=4 -s memory.recompute=layer
mlp_cut_l  mlp   -s pipeline.ranks=4 -s partition.before=[layers.0.w1,layers.3.w2,loss] -s memory.recompute=layer
mlp_zb     mlp   -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s memory.recompute=full
LIST

ok "gpipe on two ranks trains" train gpipe llama -s pipeline.ranks=2 -s pipeline.schedule=gpipe
ok "gpipe trains and recomputes" train gpipe_again llama -s pipeline.ranks=2 -s pipeline.schedule=gpipe -s memory.recompute=full
ok "gpipe has the same bits when it recomputes" same gpipe gpipe_again

for schedule in gpipe 1f1b; do
  ok "$schedule places fewer bytes" less placed_bytes llama -s pipeline.ranks=4 -s pipeline.schedule=$schedule
  ok "$schedule has fewer bytes live" less live_bytes llama -s pipeline.ranks=4 -s pipeline.schedule=$schedule
done
v="-s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v"
ok "zero_bubble_v places fewer bytes" less placed_bytes llama $v

# Stages with several layers: one at a time takes less memory than the whole stage; without attention alone, less than nothing.
placed() { figures placed_bytes llama -s pipeline.ranks=2 -s model.sequence=64 -s memory.recompute="$1" | head -n 1; }
is "a unit at a time takes least memory, then the stage, then all but the attention, then none" \
  "$(for choice in layer full attention none; do echo "$(placed $choice) $choice"; done | sort -n | cut -d' ' -f2 | tr '\n' ' ')" \
  "layer full attention none "
makespan() { figures makespan llama -s pipeline.ranks=2 -s memory.recompute="$1" | head -n 1; }
is "the attention alone takes least time, then a unit at a time, then the stage" \
  "$(for choice in none attention layer full; do echo "$(makespan $choice) $choice"; done | sort -n | cut -d' ' -f2 | tr '\n' ' ')" \
  "none attention layer full "

is "the report lists the stages that recompute" \
  "$(figures recompute llama -s pipeline.ranks=4 -s memory.recompute=[none,full,layer,attention] | tr '\n' ' ')" '"none" "full" "layer" "attention" '

# "auto": of all choices within a limit the one with the least makespan, found here by trying all of two stages.
two="-s pipeline.ranks=2 -s model.sequence=256 -s partition.balance=count"
all="$scratch/all"
for first in none attention layer full; do
  for second in none attention layer full; do
    "$gen" -p report $two -s "memory.recompute=[$first,$second]" "$scratch/llama.cfg" 2>/dev/null >"$scratch/report"
    echo "$first $second" \
      $(sed -n 's/^  "makespan": \([^,{]*\),*$/\1/p' "$scratch/report") \
      $(sed -n 's/^ *"placed_bytes": \([^,]*\),*$/\1/p' "$scratch/report")
  done
done >"$all"
is "all choices are tried" "$(awk 'NF == 5' "$all" | wc -l)" 16
least=$(awk '{ most = $4 > $5 ? $4 : $5; if (NR == 1 || most < least) least = most } END { print least }' "$all")
greatest=$(awk '$1 == "none" && $2 == "none" { print ($4 > $5 ? $4 : $5) }' "$all")
limited=
for mib in $(awk -v least="$least" -v greatest="$greatest" \
  'BEGIN { for (m = 1; m * 1048576 < greatest + 1048576; m++) if (m * 1048576 >= least) print m }' |
  awk '{ line[NR] = $1 } END { step = NR > 12 ? NR / 12 : 1; for (n = 1; n <= NR; n += step) print line[int(n)] }'); do
  limited="$limited $mib"
  best=$(awk -v limit=$((mib * 1048576)) '$4 <= limit && $5 <= limit && (!found || $3 < best) { best = $3; found = 1 }
    END { printf "%.9g", best }' "$all")
  chosen=$("$gen" -p report $two -s memory.recompute=auto -s memory.limit_mib=$mib "$scratch/llama.cfg" 2>/dev/null |
    sed -n 's/^  "makespan": \([^,{]*\),*$/\1/p' | awk '{ printf "%.9g", $1 }')
  is "auto is the best of all choices within $mib MiB" "$chosen" "$best"
done
ok "several limits are tried" test "$(echo $limited | wc -w)" -ge 5
is "auto recomputes nothing without a limit" "$(figures recompute llama $two -s memory.recompute=auto | tr '\n' ' ')" '"none" "none" '
is "auto in a list leaves the other stages" \
  "$(figures recompute llama $two -s memory.recompute=[layer,auto] | tr '\n' ' ')" '"layer" "none" '
"$gen" --check $two -s memory.recompute=auto -s memory.limit_mib=1 "$scratch/llama.cfg" 2>"$scratch/errors"
is "auto cannot do the impossible" "$?" 78
ok "and names the limit" grep -q 'memory.limit_mib = 1: 0 (none) or at least ' "$scratch/errors"

# With the search: within a limit that "none" exceeds, not slower than any one choice for all stages.
searched="$two -s pipeline.schedule=search"
# searched_makespan RECOMPUTE: the makespan, or nothing where it does not fit.
searched_makespan() {
  "$gen" -p report $searched -s memory.recompute=$1 -s memory.limit_mib=$searched_mib "$scratch/llama.cfg" 2>/dev/null |
    sed -n 's/^ *"makespan": \([-0-9.e+]*\),*$/\1/p' | head -1
}
searched_mib=$(($(figures placed_bytes llama $searched -s memory.recompute=attention | sort -n | tail -n 1) * 90 / 100 >> 20))
searched_auto=$(searched_makespan auto)
for choice in none attention layer full; do
  ok "with the search, auto within $searched_mib MiB is not slower than $choice" \
    awk -v a="$searched_auto" -v b="$(searched_makespan $choice)" 'BEGIN { exit !(a > 0 && (b == "" || a <= b * (1 + 1e-12))) }'
done
v_auto="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s model.sequence=64"
v_none=$(figures placed_bytes llama $v_auto | sort -n | tail -n 1)
v_mib=$((v_none / 1048576))
ok "several stages a rank: auto keeps the limit of $v_mib MiB" \
  "$gen" --check $v_auto -s memory.recompute=auto -s memory.limit_mib=$v_mib "$scratch/llama.cfg"
is "which none does not" "$("$gen" --check $v_auto -s memory.limit_mib=$v_mib "$scratch/llama.cfg" 2>/dev/null; echo $?)" 78
ok "auto trains" train auto llama $v_auto -s memory.recompute=auto -s memory.limit_mib=$v_mib
ok "without a limit too" train auto_none llama $v_auto
ok "to the same bits" same auto auto_none

computes() { "$gen" -p actions $v "$@" "$scratch/llama.cfg" | sed 's/ [0-9]*\(SEND\|RECV\)_[FB][0-9]*//g'; }
is "the order of computing is the same" "$(computes -s memory.recompute=full)" "$(computes)"
"$gen" $v -s memory.recompute=[none,none,none,none,none,full,none,none] "$scratch/llama.cfg" >"$scratch/plan.c"
is "the plan shows the programs that begin with F, in one stage" \
  "$(sed -n 's/.*{\.stage = \([0-9]*\), .*recompute_op_count = [1-9].*/\1/p' "$scratch/plan.c" | sort -u)" 5
"$gen" -p memory -s pipeline.ranks=2 -s memory.recompute=[none,full] "$scratch/llama.cfg" >"$scratch/memory"
is "the map of memory has nothing saved in the other stage" \
  "$(sed -n 's/^ *saved_[iw] *stage \([0-9]*\) .*/\1/p' "$scratch/memory" | sort -u)" 0

# What runs again costs, with given costs too: here F = I = W = 1 for 8 microbatches.
busy() { figures busy llama -s costs.forward=1 -s costs.backward_input=1 -s costs.backward_weight=1 -s pipeline.ranks=2 "$@" | head -n 1; }
is "a step of a stage that keeps all" "$(busy | awk '{ print $1 + 0 }')" 24
is "a step of a stage that recomputes costs most of another F, and no more" \
  "$(busy -s memory.recompute=full | awk '{ print ($1 > 24 + 8 * 0.8 && $1 < 32) }')" 1
finish
