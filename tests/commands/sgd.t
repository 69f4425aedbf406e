#!/bin/sh
# sgd.t: SGD: the same bits whatever replicas share and tensor ranks have, in f32 and bf16; a checkpoint continues on another topology; without
# momentum nothing is kept from step to step; moments of another optimizer are refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 64; heads = 4; kv_heads = 2; ffn = 96; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { name = "sgd"; learning_rate = 0.1; steps = 8; momentum = 0.9; nesterov = true; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000

topology=model.cfg
whole=whole
ok "everything kept" train_plan whole
same_as_whole ranks2 -s pipeline.ranks=2
same_as_whole optimizer -s data_parallel.shard=optimizer
same_as_whole weights -s pipeline.ranks=2 -s data_parallel.shard=weights
same_as_whole layer -s data_parallel.shard=weights -s data_parallel.reduce=step
whole=narrow
ok "bf16, everything kept" train_plan narrow -s model.dtype=bf16
same_as_whole narrow_shards -s model.dtype=bf16 -s data_parallel.shard=weights
whole=splits
ok "splits" train_plan splits -s tensor_parallel.splits=2
same_as_whole tensor -s tensor_parallel.splits=2 -s tensor_parallel.ranks=2

# ---- memory: of elements 4 bytes a moment
ok "without momentum" build plain model.cfg -s optimizer.momentum=0 -s optimizer.nesterov=false
sed 's/name = "sgd"; \(.*\) momentum = .*/\1 };/' model.cfg >adamw.cfg
ok "AdamW" build adamw adamw.cfg
moments() { sed -n 's/.*\.moment_bytes = \([0-9]*\).*/\1/p' "$1.c"; }
is "SGD without momentum has none" "$(moments plain)" ""
is "AdamW has twice as many as momentum" "$(moments adamw)" "$((2 * $(moments whole)))"

# ---- checkpoints
run() { # NAME STEPS FOLDER
  "./$1" train --data data.bin --seed 3 --quiet --checkpoint "$3" --resume --steps "$2" >out 2>err
}
ok "four steps" run whole 4 straight
ok "two steps" run whole 2 moved
ok "two more with shards on two ranks" run weights 4 moved
ok "the same weights" cmp straight/latest/model.safetensors moved/latest/model.safetensors
ok "the same momentum" cmp straight/latest/optimizer.safetensors moved/latest/optimizer.safetensors
is "its name" "$(head -c 20000 moved/latest/optimizer.safetensors | grep -ao 'embed_tokens.weight[a-z._]*')" \
  embed_tokens.weight.momentum_buffer
ok "AdamW" run adamw 2 other
loud() { # NAME STEPS FOLDER
  "./$1" train --data data.bin --seed 3 --quiet --checkpoint "$3" --resume --steps "$2"
}
fails "moments of AdamW" 65 'tensor model.embed_tokens.weight.exp_avg is a moment of adamw, and optimizer.name of this run is "sgd"' loud whole 3 other
fails "moments of SGD" 65 'embed_tokens.weight.momentum_buffer is a moment of sgd' loud adamw 5 moved
ok "momentum is dropped" run plain 5 moved
matches "which is said" "$(complaints err)" "*tensors were saved with another optimizer.momentum*"
ok "it begins at zero" run whole 6 moved
matches "which is said" "$(complaints err)" "*tensors were saved with another optimizer.momentum*"

# ---- settings
fails "momentum of AdamW" 78 'optimizer.momentum = 0.9*not given, with optimizer.name = "adamw"' build wrong model.cfg -s optimizer.name=adamw
fails "even of 0" 78 'optimizer.momentum = 0*not given, with optimizer.name = "adamw"' build wrong adamw.cfg -s optimizer.momentum=0
fails "Nesterov of AdamW" 78 'optimizer.nesterov = false*not given' build wrong adamw.cfg -s optimizer.nesterov=false
for name in beta1 beta2 epsilon; do
  fails "$name of SGD" 78 "optimizer.$name = 0.5*not given, with optimizer.name = \"sgd\"" build wrong model.cfg -s optimizer.$name=0.5
done
ok "both, where tensors have both" "$gen" --check model.cfg -s optimizer.beta1=0.5 -s 'optimizer.groups=[norm.weight: name=adamw]'
fails "Nesterov without momentum" 78 'optimizer.nesterov = true*false, without optimizer.momentum' build wrong model.cfg -s optimizer.momentum=0
finish
