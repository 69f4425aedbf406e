#!/bin/sh
# replicas.t: replicas of a pipeline train one model: R of them on 1/R of the microbatches each agree with one on all of them to 1e-5, and have the
# same bits however many ranks and stages a replica has. Checkpoints do not tell how they came about. A lost rank is named by its global rank.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=4
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 8; hidden = 48; heads = 4; kv_heads = 2; ffn = 80; vocab = 256; sequence = 32; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 8; schedule = "1f1b"; };
END
make_tokens "$scratch/data.bin" 20000

# train NAME OPTIONS...: builds and trains.
train() {
  train_name=$1
  shift
  train_model $steps "$train_name" model "$@"
}

ok "one replica trains" train one
ok "two replicas with half the microbatches each train" train two -s data_parallel.replicas=2 -s pipeline.microbatches=4
ok "they agree with one to 1e-5" close_to one two 1e-5
ok "but not in every bit (the test can tell)" other_bits one two
while read -r name options; do
  ok "$name trains" train "$name" -s data_parallel.replicas=2 -s pipeline.microbatches=4 $options
  ok "$name has the same bits as two replicas of one rank" same_bits $steps two "$name"
done <<'END'
ranks2      -s pipeline.ranks=2
ranks4      -s pipeline.ranks=4
looped2     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2
ranks2_zb   -s pipeline.ranks=2 -s pipeline.zero_bubble=true
v2          -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
v4          -s pipeline.ranks=4 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
dual4       -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v
END

# The predicted cost of the collectives is at most their time when they run after everything else.
# fields NAME...: the first value of each in JSON on standard input.
fields() {
  fields_text=$(cat)
  for field; do printf '%s\n' "$fields_text" | sed -n "s/.*\"$field\": *\([^,}]*\).*/\1/p" | head -n 1; done | tr '\n' ' '
}
report() { "$gen" -p report -s data_parallel.replicas=2 -s pipeline.microbatches=4 -s pipeline.ranks=2 "$@" "$scratch/model.cfg"; }
is "the report counts the exchange" "$(report -s costs.forward=1 -s costs.backward_input=1 -s costs.backward_weight=1 -s costs.reduce=0.5 \
  -s costs.gather=0.25 | fields replicas exposed makespan exchanging)" "2 0.75 15.75 0.75 "
ok "and so does info" sh -c "'$scratch/ranks2' info --json | sed 's/.*\"makespan\":\([^,]*\),\"exchanging\":\([^,]*\),\"exposed\":\([^,]*\),.*/\1 \2 \3/' |
  awk '{ exit !(NF == 3 && 0 < \$3 && \$3 <= \$2 && \$2 < \$1) }'"
# Replica 1 is on another host, or cyclic mapping puts both replicas of a rank on one: then only bytes within a host count.
between="-s cluster.hosts=[a,b] -s cluster.port=7000 -s costs.byte=0 -s costs.byte_host=1e-3"
is "bytes within a host cost nothing here" "$(report -s costs.byte=0 -s costs.byte_host=1e-3 | fields exposed)" "0.0 "
ok "bytes between hosts do" test "$(report $between | fields exposed)" != "0.0 "
is "unless both replicas of a rank are on one" "$(report $between -s cluster.mapping=cyclic | fields exposed)" "0.0 "

# Three replicas: tensors cannot be cut evenly, and many have fewer blocks than there are replicas.
ok "three replicas train" train three -s data_parallel.replicas=3 -s pipeline.microbatches=2
ok "three replicas of two ranks train" train three_ranks2 -s data_parallel.replicas=3 -s pipeline.microbatches=2 -s pipeline.ranks=2
ok "with the same bits" same_bits $steps three three_ranks2
# Without clipping no WAIT_NORM parts the steps.
for n in 1 2; do
  ok "two replicas of $n ranks train without clipping" train unclipped$n -s data_parallel.replicas=2 -s pipeline.microbatches=4 \
    -s optimizer.clip_norm=0 -s pipeline.ranks=$n
done
ok "one replica trains without clipping" train unclipped -s optimizer.clip_norm=0
ok "two replicas agree with it to 1e-4" close_to unclipped unclipped1 1e-4
ok "and with each other in every bit" same_bits $steps unclipped1 unclipped2
# A tied matrix: its gradient is whole when the head's has been added. And bf16: what is summed is f32.
for n in 1 2; do
  ok "two replicas of $n ranks train a tied matrix" train tied$n -s data_parallel.replicas=2 -s pipeline.microbatches=4 \
    -s pipeline.ranks=$n -s model.tie_embeddings=true
  ok "two replicas of $n ranks train in bf16" train narrow$n -s data_parallel.replicas=2 -s pipeline.microbatches=4 \
    -s pipeline.ranks=$n -s model.dtype=bf16
done
ok "one replica trains a tied matrix" train tied -s model.tie_embeddings=true
ok "two replicas agree with it to 1e-5" close_to tied tied1 1e-5
ok "and with each other in every bit" same_bits $steps tied1 tied2
ok "two replicas agree in every bit in bf16" same_bits $steps narrow1 narrow2
# An order from a file, or by hand, has no timing: the reductions are at its end.
"$gen" -p actions -o "$scratch/v2.actions" -s data_parallel.replicas=2 -s pipeline.microbatches=4 -s pipeline.ranks=2 \
  -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v "$scratch/model.cfg"
ok "given actions are those of one replica" sh -c "! grep -q GRAD '$scratch/v2.actions' && test \$(wc -l <'$scratch/v2.actions') -eq 2"
ok "they train" train given --actions="$scratch/v2.actions" -s data_parallel.replicas=2 -s pipeline.microbatches=4 -s pipeline.ranks=2 \
  -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
ok "with the same bits" same_bits $steps two given

# Resume across replicas: the file knows nothing of them, and the cursor counts windows.
# go_on NAME FROM: trains NAME on to step 8 from a copy of FROM's checkpoint; leaves NAME.FROM.log.
go_on() {
  cp -r "$scratch/$2.ckpt" "$scratch/$1.$2.ckpt" &&
    "$scratch/$1" train --data "$scratch/data.bin" --seed 7 --quiet --steps 8 --log "$scratch/$1.$2.log" --resume \
      --checkpoint "$scratch/$1.$2.ckpt"
}
ok "two replicas of four ranks go on from those of one rank" go_on ranks4 two
ok "two replicas of one rank go on from those of a V" go_on two v2
is "to the same bits" "$(log_field "$scratch/ranks4.two.log" loss)" "$(log_field "$scratch/two.v2.log" loss)"
ok "and the same files" cmp "$scratch/ranks4.two.ckpt/latest/optimizer.safetensors" "$scratch/two.v2.ckpt/latest/optimizer.safetensors"
ok "one replica resumes from two" go_on one two
ok "two replicas go on from one" go_on two one
ok "to losses that agree to 1e-3" sh -c "paste '$scratch/one.two.log' '$scratch/two.one.log' | sed 's/[^\t]*\"loss\":\\([0-9.]*\\)[^\t]*/\\1/g' |
  awk '{ d = \$1 - \$2; if (d * d > 1e-6 * \$1 * \$1) bad = 1 } END { exit bad || NR != 4 }'"

# Evaluation runs on all replicas: the same windows, the same sum.
loss_of() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/one.ckpt" --steps 2 2>/dev/null | tail -n 1; }
is "eval gives the same bits with two replicas" "$(loss_of ranks4)" "$(loss_of one)"

# Between two steps of training, too.
ok "two replicas train and evaluate in turns" "$scratch/ranks4" train --data "$scratch/data.bin" --steps $steps --seed 7 --quiet \
  --eval-every 2 --eval-steps 2 --eval-data "$scratch/data.bin" --log "$scratch/turns.log"
is "which changes nothing" "$(log_field "$scratch/turns.log" loss)" "$(log_field "$scratch/two.log" loss)"

# A rank that dies is named by its global rank: replica * ranks + rank.
lose_of_replica ranks2 3
finish
