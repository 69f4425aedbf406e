#!/bin/sh
# units.t: what replicas share out (data_parallel.shard), when they sum gradients (reduce), what they gather at a time (unit) and what is
# recomputed: of these the number of replicas and `reduce` alone change a bit, and so the schedule's order of backwards.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=3
# model NAME SETTINGS SETTINGS: $scratch/NAME.cfg, of the groups model and batch.
model() {
  cat >"$scratch/$1.cfg" <<END_OF_MODEL
model = { layers = 4; hidden = 32; heads = 4; ffn = 48; vocab = 200; sequence = 16; $2 };
batch = { microbatch = 1; ${3:-} };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
END_OF_MODEL
}
model llama 'family = "llama"; kv_heads = 2;'
model tied 'family = "qwen3"; kv_heads = 2; head_dim = 8; dtype = "bf16"; tie_embeddings = true;'
model packed 'family = "gpt2"; tie_embeddings = true;' 'packed = true;'
model frozen 'family = "qwen2"; kv_heads = 2; frozen = ["q_proj.weight", "embed_tokens.weight", "layers.2.mlp.up_proj.weight"];'
models="llama tied packed frozen"
make_tokens "$scratch/data.bin" 4000
cp "$scratch/data.bin" "$scratch/llama.bin"
ln -s llama.bin "$scratch/tied.bin"
ln -s llama.bin "$scratch/frozen.bin"
awk 'BEGIN { for (n = 0; n < 200; n++) printf "%*s\n", 3 + n * 7 % 11, "" }' | tr ' ' 'x' >"$scratch/lines"
"$tokens" --bytes --end-of-text 10 --pack 16 -o "$scratch/packed.bin" "$scratch/lines" 2>/dev/null

# train NAME MODEL SETTING...: builds and trains.
train() {
  train_name=$1 train_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$train_name" "$scratch/$train_model.cfg" "$@" && train_bits "$train_name" --data "$scratch/$train_model.bin" --steps $steps
}

# as REFERENCE NAME MODEL SETTING...: trains to the bits of REFERENCE.
as() {
  as_reference=$1 as_name=$2
  shift
  ok "$as_name trains" train "$@"
  ok "$as_name has the bits of $as_reference" same_bits $steps "$as_reference" "$as_name"
}

# ---- five schedules, what is shared out, what is recomputed ----
for model in $models; do
  for reduce in step microbatch; do
    ok "$model, reduce = $reduce: one rank, everything kept" train ${model}_$reduce $model data_parallel.reduce=$reduce
  done
  ok "$model: reduce changes bits (the test can tell)" sh -c "! cmp -s '$scratch/${model}_step.sums' '$scratch/${model}_microbatch.sums'"
done

# All pairs of a schedule and of what is shared out; each row of the latter has all models and all recomputations, and so has each schedule.
schedule() {
  case $1 in
    0) echo "1f1b pipeline.ranks=2" ;;
    1) echo "interleaved pipeline.ranks=2 pipeline.stages_per_rank=2" ;;
    2) echo "zb_h1 pipeline.ranks=2 pipeline.zero_bubble=true" ;;
    3) echo "zbv pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v" ;;
    4) echo "dual pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=dual_pipe_v" ;;
  esac
}
row=0
while read -r name reduce settings; do
  for number in 0 1 2 3 4; do
    model=$(echo $models | cut -d' ' -f$(((row + number) % 4 + 1)))
    recompute=$(echo none layer attention full | cut -d' ' -f$(((row + number * 2 + number / 2) % 4 + 1)))
    set -- $(schedule $number)
    schedule=$1
    shift
    as ${model}_$reduce ${model}_${schedule}_${name}_$recompute $model "$@" memory.recompute=$recompute $settings
  done
  row=$((row + 1))
done <<'END_OF_ROWS'
none            microbatch data_parallel.reduce=microbatch
optimizer       microbatch data_parallel.reduce=microbatch data_parallel.shard=optimizer
gradients       microbatch data_parallel.shard=gradients
weights         microbatch data_parallel.reduce=microbatch data_parallel.shard=weights
weights_use     microbatch data_parallel.reduce=microbatch data_parallel.shard=weights data_parallel.reshard=use
weights_unit    microbatch data_parallel.shard=weights data_parallel.unit=layer
weights_by_step step       data_parallel.reduce=step data_parallel.shard=weights data_parallel.unit=layer
END_OF_ROWS

# ---- other models and numbers ----
ok "three replicas train" train three llama data_parallel.replicas=3 data_parallel.reduce=microbatch
as three three_units llama data_parallel.replicas=3 data_parallel.shard=weights data_parallel.unit=layer pipeline.ranks=2 memory.recompute=layer
as three three_gradients llama data_parallel.replicas=3 data_parallel.shard=gradients optimizer.clip_norm=1.0
ok "without clipping, one rank" train free llama data_parallel.reduce=microbatch optimizer.clip_norm=0
as free free_units llama data_parallel.shard=weights data_parallel.unit=layer optimizer.clip_norm=0 pipeline.ranks=2
as free free_gradients llama data_parallel.shard=gradients optimizer.clip_norm=0 pipeline.ranks=4
ok "gpipe, whose order of backwards is another, trains" train gpipe llama data_parallel.reduce=microbatch pipeline.schedule=gpipe
as gpipe gpipe_units llama data_parallel.shard=weights data_parallel.unit=layer pipeline.schedule=gpipe pipeline.ranks=2 memory.recompute=full
ok "rising and falling orders differ (the test can tell)" sh -c "! cmp -s '$scratch/gpipe.sums' '$scratch/llama_microbatch.sums'"
ok "one replica sums by microbatch" train single llama data_parallel.replicas=1 data_parallel.reduce=microbatch
as single single_zbv llama data_parallel.replicas=1 data_parallel.reduce=microbatch pipeline.ranks=2 pipeline.stages_per_rank=2 \
  pipeline.schedule=zero_bubble_v memory.recompute=layer
as single single_shared llama data_parallel.replicas=1 data_parallel.shard=weights data_parallel.unit=layer

# Groups of replicas that shard among themselves: their sums are added once a step, which is a class of bits of its own for each `reduce`.
four="data_parallel.replicas=4 data_parallel.shard_ranks=2"
ok "four replicas in two groups, by step" train groups_step llama $four
as groups_step groups_optimizer llama $four data_parallel.shard=optimizer
as groups_step groups_weights llama $four data_parallel.shard=weights pipeline.ranks=2
as groups_step groups_units llama $four data_parallel.shard=weights data_parallel.unit=layer data_parallel.reduce=step
ok "four replicas in two groups, by microbatch" train groups_microbatch tied $four data_parallel.reduce=microbatch
as groups_microbatch groups_gradients tied $four data_parallel.shard=gradients pipeline.ranks=2
as groups_microbatch groups_layer tied $four data_parallel.shard=weights data_parallel.unit=layer memory.recompute=layer
ok "one group of four has other bits (the test can tell)" train four llama data_parallel.replicas=4
ok "than two of two" sh -c "! cmp -s '$scratch/four.sums' '$scratch/groups_step.sums'"
ok "groups of one, which share nothing out, train" train alone llama data_parallel.replicas=2 data_parallel.shard_ranks=1 data_parallel.reduce=microbatch
as alone alone_units llama data_parallel.replicas=2 data_parallel.shard_ranks=1 data_parallel.shard=weights data_parallel.unit=layer pipeline.ranks=2

# Steps of two shapes by turns.
cat "$scratch/packed.cfg" - >"$scratch/shapes.cfg" <<'END'
shapes = ({ sequence = 8; microbatches = 6; });
END
awk 'BEGIN { for (n = 0; n < 200; n++) printf "%*s\n", n % 40 < 24 ? 6 : 14, "" }' | tr ' ' x >"$scratch/lines"
"$tokens" --bytes --end-of-text 10 --pack 16 --pad-to 2 --single -o "$scratch/shapes.bin" "$scratch/lines" 2>/dev/null
ok "two shapes train" train shapes shapes data_parallel.reduce=microbatch
as shapes shapes_units shapes data_parallel.shard=weights data_parallel.unit=layer pipeline.ranks=2 memory.recompute=layer
as shapes shapes_gradients shapes data_parallel.shard=gradients pipeline.ranks=2 pipeline.stages_per_rank=2
ok "both are used" test "$(log_field "$scratch/shapes.log" tokens | sort -u | wc -l)" -ge 2

# ---- the order of the sums ----
# Replicas rise within a microbatch. With one microbatch each, this is the order of one replica, whose microbatches read the same windows.
ok "one replica, two microbatches" train sums_one llama data_parallel.replicas=1 data_parallel.reduce=microbatch pipeline.microbatches=2
as sums_one sums_two llama data_parallel.replicas=2 data_parallel.shard=gradients pipeline.microbatches=1
# With two microbatches each, replica d's microbatch j reads window 2d + j of a step and is added as number 2j + d: one replica adds in this order
# when windows 1 and 2 of each step are exchanged. All begin with the same token, the last target of the window before. The losses are added in
# the order of the windows, and may differ.
awk 'BEGIN { state = 7; for (w = 0; w < 41; w++) { printf "A"; for (i = 1; i < 16; i++) { state = state * 16807 % 2147483647
  printf "%c", 97 + state % 26 } printf "\n" } }' >"$scratch/windows"
awk '{ kept[NR % 4] = $0 } NR % 4 == 0 { print kept[1]; print kept[3]; print kept[2]; print kept[0] } END { if (NR % 4) print }' "$scratch/windows" \
  >"$scratch/exchanged"
for order in windows exchanged; do
  tr -d '\n' <"$scratch/$order" >"$scratch/$order.text"
  "$tokens" --bytes -o "$scratch/$order.bin" "$scratch/$order.text" 2>/dev/null
  cp "$scratch/llama.cfg" "$scratch/$order.cfg"
done
same_sums() { # REFERENCE NAME: norms and checkpoints
  tail -n $steps "$scratch/$1.bits" >"$scratch/norms" && tail -n $steps "$scratch/$2.bits" | cmp - "$scratch/norms" && cmp "$scratch/$1.sums" "$scratch/$2.sums"
}
ok "two replicas with two microbatches" train order_two windows data_parallel.shard=weights data_parallel.unit=layer pipeline.microbatches=2
ok "one replica with four" train order_one windows data_parallel.replicas=1 data_parallel.reduce=microbatch
ok "one replica with four, exchanged" train order_exchanged exchanged data_parallel.replicas=1 data_parallel.reduce=microbatch
ok "exchanged, they have the bits of two replicas" same_sums order_two order_exchanged
ok "but not as they are (the test can tell)" sh -c "! cmp -s '$scratch/order_two.sums' '$scratch/order_one.sums'"

# ---- other commands, and checkpoints of other settings ----
whole="$scratch/llama_microbatch"
ok "weights by unit" train units llama data_parallel.shard=weights data_parallel.unit=layer pipeline.ranks=2
ok "gradients shared out" train gradients llama data_parallel.shard=gradients pipeline.ranks=4
evaluate() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$whole.ckpt" --steps 2 2>/dev/null | tail -n 1; }
write_text() { "$scratch/$1" generate --prompt ABC --tokens 20 --samples 2 --top-k 50 --seed 3 --checkpoint "$whole.ckpt" 2>/dev/null; }
score() {
  "$scratch/$1" score --data "$scratch/data.bin" --output "$scratch/$1.scores" --checkpoint "$whole.ckpt" --quiet >/dev/null 2>&1 && sha256sum <"$scratch/$1.scores"
}
for name in units gradients; do
  is "$name: eval has the same bits" "$(evaluate $name)" "$(evaluate llama_microbatch)"
  is "$name: score has the same bits" "$(score $name)" "$(score llama_microbatch)"
  is "$name: generate writes the same texts" "$(write_text $name)" "$(write_text llama_microbatch)"
done
ok "there are texts" test -n "$(write_text units)"
# go_on NAME FROM: trains NAME on to step 6 from a copy of FROM's checkpoint.
go_on() {
  cp -r "$scratch/$2.ckpt" "$scratch/$1.$2.ckpt" &&
    "$scratch/$1" train --data "$scratch/data.bin" --seed 7 --quiet --steps 6 --log "$scratch/$1.$2.log" --resume --checkpoint "$scratch/$1.$2.ckpt" &&
    (cd "$scratch/$1.$2.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/$1.$2.sums"
}
ok "everything kept goes on from its own checkpoint" go_on llama_microbatch llama_microbatch
for pair in "units gradients" "gradients units" "units llama_microbatch" "llama_microbatch units"; do
  set -- $pair
  ok "$1 goes on from $2" go_on $1 $2
  ok "$1 from $2: to the same bits" cmp "$scratch/llama_microbatch.llama_microbatch.sums" "$scratch/$1.$2.sums"
done
ok "training and evaluating in turns" "$scratch/units" train --data "$scratch/data.bin" --steps $steps --seed 7 --quiet --eval-every 1 \
  --eval-steps 2 --eval-data "$scratch/data.bin" --log "$scratch/turns.log"
is "changes nothing" "$(log_field "$scratch/turns.log" loss)" "$(log_field "$scratch/units.log" loss)"
lose_of_replica units 2

# ---- settings ----
while read -r options; do
  read -r wanted
  "$gen" --check $options "$scratch/llama.cfg" 2>"$scratch/err"
  is "$options: refused" $? 78
  matches "$options: the message" "$(complaints "$scratch/err")" "$wanted"
done <<'END'
-s data_parallel.shard=gradients -s data_parallel.reduce=step
-s data_parallel.reduce = step: "microbatch", with data_parallel.shard = "gradients":*
-s data_parallel.shard=weights -s data_parallel.unit=layer -s data_parallel.reshard=step
-s data_parallel.reshard = step: "use", with data_parallel.unit = "layer":*
-s data_parallel.shard=weights -s data_parallel.replicas=4 -s data_parallel.shard_ranks=3
-s data_parallel.shard_ranks = 3: a divisor of data_parallel.replicas = 4
END
sed 's/replicas = 2;/replicas = 2; shard = "gradients";\n  reduce = "step";/' "$scratch/llama.cfg" >"$scratch/wrong.cfg"
"$gen" --check "$scratch/wrong.cfg" 2>"$scratch/err"
matches "a file's line is named" "$(complaints "$scratch/err")" '*wrong.cfg:6: data_parallel.reduce = "step": "microbatch", with *'
finish
