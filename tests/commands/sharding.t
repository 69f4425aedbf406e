#!/bin/sh
# sharding.t: what replicas share out among them (data_parallel.shard) changes memory, and no bit: losses, norms and checkpoints are those of
# replicas that keep everything, on any number of ranks; any of them resumes from any other's checkpoint.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=4
kinds="optimizer weights use"
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 128; heads = 4; kv_heads = 2; ffn = 208; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
END
make_tokens "$scratch/data.bin" 20000

# train NAME OPTIONS...: builds and trains.
train() {
  train_name=$1
  shift
  build "$train_name" "$scratch/model.cfg" "$@" && train_bits "$train_name" --data "$scratch/data.bin" --steps $steps
}

# sharing KIND: its settings. "use": weights that are brought together for each run of uses.
sharing() {
  case $1 in
    use) echo "-s data_parallel.shard=weights -s data_parallel.reshard=use" ;;
    *) echo "-s data_parallel.shard=$1" ;;
  esac
}

# all NAME OPTIONS...: as NAME_none without sharding, then with each kind of it: the same bits.
all() {
  all_name=$1
  shift
  ok "$all_name, everything kept" train "${all_name}_none" "$@"
  for kind in $kinds; do
    ok "$all_name, shard = $kind" train "${all_name}_$kind" "$@" $(sharing $kind)
    ok "$all_name, shard = $kind: the same bits" same_bits $steps "${all_name}_none" "${all_name}_$kind"
  done
}

while read -r name options; do all "$name" $options; done <<'END'
ranks1
ranks2      -s pipeline.ranks=2
ranks4      -s pipeline.ranks=4
looped2     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2
v2          -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
three       -s pipeline.ranks=2 -s data_parallel.replicas=3
unclipped   -s pipeline.ranks=2 -s optimizer.clip_norm=0
tied2       -s pipeline.ranks=2 -s model.tie_embeddings=true
tied_v      -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s model.tie_embeddings=true
narrow      -s pipeline.ranks=2 -s model.dtype=bf16
narrow_tied -s pipeline.ranks=2 -s model.dtype=bf16 -s model.tie_embeddings=true
frozen      -s pipeline.ranks=2 -s model.frozen=["q_proj.weight","embed_tokens.weight"]
frozen_bf16 -s pipeline.ranks=2 -s model.dtype=bf16 -s model.frozen=["q_proj.weight","norm.weight"]
groups      -s pipeline.ranks=2 -s optimizer.weight_decay_groups=["norm.weight=0.2","up_proj.weight=0"]
inf_norm    -s pipeline.ranks=2 -s optimizer.norm=inf
recomputed  -s pipeline.ranks=2 -s memory.recompute=full
by_layer    -s pipeline.ranks=2 -s memory.recompute=layer
snapshot    -s pipeline.ranks=2 -s memory.snapshot=true
chunks      -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s model.sequence=48 -s model.loss_rows=32
END
ok "one rank and four have the same bits" same_bits $steps ranks1_none ranks4_optimizer
ok "a loop and a V have the same bits" same_bits $steps ranks1_none v2_optimizer

# Memory is really smaller: the moments of each replica are half, except for rounding up to blocks of 4096 elements.
bytes_of() { "$scratch/$1" info --json | sed "s/.*\"rank\":\\[{[^}]*\"$2\":\\([0-9]*\\).*/\\1/"; }
moments=$(bytes_of ranks1_none moment_bytes)
ok "moments are less than 0.6 of what they were" test $((10 * $(bytes_of ranks1_optimizer moment_bytes))) -lt $((6 * moments))
ok "so is the arena smaller" test "$(bytes_of ranks1_optimizer arena_bytes)" -lt "$(bytes_of ranks1_none arena_bytes)"
ok "f32 weights of which products read copies are cut, too" \
  test $((10 * $(bytes_of narrow_optimizer weight_bytes))) -lt $((8 * $(bytes_of narrow_none weight_bytes)))
ok "of shared weights a replica keeps half" test $((10 * $(bytes_of ranks1_weights weight_bytes))) -lt $((6 * $(bytes_of ranks1_none weight_bytes)))
ok "with two stages a rank, whole only where they are used, the arena is smaller yet" \
  test "$(bytes_of looped2_use arena_bytes)" -lt "$(bytes_of looped2_weights arena_bytes)"
# kinds: the bytes of each rank by kind in JSON.
kinds() { tr -d ' \n' | grep -o '"bytes":{[^}]*}'; }
for kind in none use; do
  case $kind in none) settings= ;; *) settings=$(sharing $kind) ;; esac
  # shellcheck disable=SC2086 # words are meant to part here
  is "the report's bytes by kind are info's, with shard = $kind" "$("$scratch/looped2_$kind" info --json | kinds)" \
    "$("$gen" -p report -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 $settings "$scratch/model.cfg" | kinds)"
done
is "info names what some rank has" "$("$scratch/looped2_use" info | grep '^ *rank ' | tr -s ' ')" \
  " rank arena weights gradients moments gathered activations constants window losses live slots"
ok "the report knows" sh -c "'$gen' -p report -s data_parallel.shard=optimizer '$scratch/model.cfg' | grep -q '\"placed_bytes\": $(bytes_of ranks1_optimizer arena_bytes),'"

# go_on NAME FROM: trains NAME on to step 8 from a copy of FROM's checkpoint; leaves NAME.FROM.log and its checkpoint.
go_on() {
  cp -r "$scratch/$2.ckpt" "$scratch/$1.$2.ckpt" &&
    "$scratch/$1" train --data "$scratch/data.bin" --seed 7 --quiet --steps 8 --log "$scratch/$1.$2.log" --resume \
      --checkpoint "$scratch/$1.$2.ckpt"
}
same_end() {
  test "$(log_field "$scratch/$1.log" loss)" = "$(log_field "$scratch/$2.log" loss)" &&
    cmp "$scratch/$1.ckpt/latest/model.safetensors" "$scratch/$2.ckpt/latest/model.safetensors" &&
    cmp "$scratch/$1.ckpt/latest/optimizer.safetensors" "$scratch/$2.ckpt/latest/optimizer.safetensors"
}
ok "no sharding resumes from no sharding" go_on ranks1_none ranks2_none
for kind in $kinds; do
  ok "shard = $kind resumes from no sharding, on other ranks" go_on ranks4_$kind ranks2_none
  ok "to the same bits" same_end ranks1_none.ranks2_none ranks4_$kind.ranks2_none
  ok "no sharding resumes from shard = $kind" go_on ranks1_none v2_$kind
  ok "to the same bits" same_end ranks1_none.ranks2_none ranks1_none.v2_$kind
  ok "three replicas go on from two, with shard = $kind" go_on three_$kind ranks2_$kind
done
ok "one replica trains on from shards" train one -s data_parallel.replicas=1 -s pipeline.microbatches=8 -s data_parallel.shard=optimizer
ok "and resumes from two" go_on one ranks2_optimizer
ok "checksums are those of the files" sh -c "grep -q $(sha256sum "$scratch/ranks1_none.ckpt/latest/model.safetensors" | cut -c1-64) '$scratch/ranks1_none.sums'"
ok "the manifests agree in all checksums" cmp "$scratch/ranks1_none.ckpt/latest/manifest.json" "$scratch/ranks1_optimizer.ckpt/latest/manifest.json"

# Evaluation, scores, texts: as without sharding, though score and generate then run on all replicas instead of one. The file has windows
# over after a step of one replica, and of all.
eval_of() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/ranks2_none.ckpt" --steps 2 2>/dev/null | tail -n 1; }
score_of() {
  "$scratch/$1" score --data "$scratch/data.bin" --output "$scratch/$1.scores" --checkpoint "$scratch/ranks2_none.ckpt" --quiet >/dev/null 2>&1 &&
    cat "$scratch/$1.scores"
}
text_of() { # BINARY: longer than the window, so that it slides
  "$scratch/$1" generate --prompt ABC --tokens 40 --samples 2 --top-k 50 --seed 3 --checkpoint "$scratch/ranks2_none.ckpt" 2>/dev/null
}
for dtype in ranks2 narrow; do
  wanted=$(score_of ${dtype}_none | sha256sum) text=$(text_of ${dtype}_none | sha256sum)
  for kind in $kinds; do
    is "$dtype, shard = $kind: eval has the same bits" "$(eval_of ${dtype}_$kind)" "$(eval_of ${dtype}_none)"
    is "$dtype, shard = $kind: generate writes the same texts" "$(text_of ${dtype}_$kind | sha256sum)" "$text"
    is "$dtype, shard = $kind: score has the same bits" "$(score_of ${dtype}_$kind | sha256sum)" "$wanted"
  done
done
for kind in $kinds; do
  ok "$kind: training and evaluating in turns" "$scratch/ranks2_$kind" train --data "$scratch/data.bin" --steps $steps --seed 7 --quiet --overwrite --eval-every 2 \
    --eval-steps 2 --eval-data "$scratch/data.bin" --log "$scratch/turns.log"
  is "changes nothing" "$(log_field "$scratch/turns.log" loss)" "$(log_field "$scratch/ranks2_none.log" loss)"
  # A rank that dies is named by its global rank.
  lose_of_replica ranks2_$kind 2
done
finish
