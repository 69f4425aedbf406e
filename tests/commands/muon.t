#!/bin/sh
# muon.t: Muon on the matrices of layers, AdamW on all others: those of a formula in f64, the same bits whatever ranks, threads, replicas, shards and
# tensor ranks there are, in f32 and bf16; a checkpoint continues on another topology; moments of another optimizer, and what it may not go with, are refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { name = "muon"; learning_rate = 0.01; steps = 20; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000

# ---- the formula
formula() { # NAME SETTINGS: the binary's tensors after eleven steps, by muon.py
  "./$1" train --quiet --seed 7 --data data.bin --steps 11 --save-every 1 --keep 20 --checkpoint "$1.steps" &&
    "${PYTHON:-python3}" "$top_srcdir/tests/commands/muon.py" "$1.steps" 0.01 $2
}
ok "by default" build single model.cfg -s data_parallel.replicas=1 -s model.layers=1
ok "momentum .95, Nesterov, 5 iterations" formula single "0.95 true 5 0.1"
ok "other settings, and tensor ranks" build other model.cfg -s data_parallel.replicas=1 -s model.layers=1 -s model.kv_heads=2 -s tensor_parallel.ranks=2 -s optimizer.momentum=0.8 -s optimizer.nesterov=false \
  -s optimizer.ns_steps=3 -s optimizer.weight_decay=0.3
ok "count" formula other "0.8 false 3 0.3"
sent() { # OPTIMIZER: what the two tensor ranks send in a step
  "$gen" -p report model.cfg -s data_parallel.replicas=1 -s model.layers=1 -s model.kv_heads=2 -s tensor_parallel.ranks=2 -s optimizer.name="$1" |
    sed -n '/"kind": "tensor"/,/}/s/"bytes": \([0-9]*\),*/\1/p' | awk '{ sum += $1 } END { print sum + 0 }'
}
# Four matrices of 16 x 16 and three of 16 x 24: half of each goes to its owner, and comes back.
is "the report has what they exchange of the matrices" $(($(sent muon) - $(sent adamw))) $((4 * (4 * 16 * 16 + 3 * 16 * 24)))
ok "q, k and v of one tensor" build joined model.cfg -s data_parallel.replicas=1 -s model.layers=1 -s model.family=gpt2 -s model.kv_heads=2
ok "are three matrices" formula joined "0.95 true 5 0.1"

ok "experts" build experts model.cfg -s data_parallel.replicas=1 -s model.layers=1 -s model.family=dots1 -s model.bias_update=0.01 \
  -s model.experts=3 -s model.experts_per_token=2 -s model.moe_ffn=12 -s model.kv_heads=2 -s tensor_parallel.ranks=2 -s tensor_parallel.sequence=false
ok "are a matrix each, beside a bias and matrices of tensor ranks" formula experts "0.95 true 5 0.1"

# ---- the same bits
topology=model.cfg
whole=whole
ok "one rank" train_plan whole
same_as_whole ranks2 -s pipeline.ranks=2
same_as_whole threads -s cluster.threads_per_rank=2 -s cluster.bind=none
same_as_whole optimizer -s data_parallel.shard=optimizer
moments() { sed -n 's/.*\.moment_bytes = \([0-9]*\).*/\1/p' "$1.c"; }
ok "a replica has the momentum of some matrices" test "$(moments optimizer)" -lt "$(moments whole)"
whole=narrow
pairs="-s model.dtype=bf16 -s data_parallel.replicas=4 -s data_parallel.shard_ranks=2 -s data_parallel.reduce=microbatch"
ok "bf16, pairs of four replicas" train_plan narrow $pairs
same_as_whole gradients $pairs -s data_parallel.shard=gradients -s pipeline.ranks=2
whole=three
three="-s data_parallel.replicas=3 -s data_parallel.reduce=microbatch -s model.family=gpt2 -s model.kv_heads=2 -s tensor_parallel.splits=2"
ok "three replicas of splits, summed by the microbatch" train_plan three $three
ok "two tensor ranks each, audited" build layers model.cfg $three -s tensor_parallel.ranks=2 -s data_parallel.shard=weights -s data_parallel.unit=layer -s memory.audit=true
ok "which finds nothing" train_bits layers --data data.bin --steps 3 --audit 1
ok "and changes nothing" same_bits 3 three layers
whole=whole
same_as_whole weights -s data_parallel.shard=weights

# ---- checkpoints
run() { # NAME STEPS FOLDER
  "./$1" train --data data.bin --seed 3 --quiet --checkpoint "$3" --resume --steps "$2"
}
ok "four steps" run whole 4 straight
ok "two steps" run whole 2 moved
ok "two more, by owners" run weights 4 moved
ok "the same weights" cmp straight/latest/model.safetensors moved/latest/model.safetensors
ok "the same moments" cmp straight/latest/optimizer.safetensors moved/latest/optimizer.safetensors
ok "AdamW" build adamw model.cfg -s optimizer.name=adamw
ok "which trains" run adamw 2 first
fails "moments of AdamW" 65 'exp_avg is a moment of adamw, and optimizer.name of this run is "muon" for it' run whole 3 first
fails "moments of Muon" 65 'momentum_buffer is a moment of sgd or muon, and optimizer.name of this run is "adamw" for it' run adamw 5 moved

# ---- settings
ok "of some matrices" build some model.cfg -s optimizer.name=adamw -s 'optimizer.groups=[mlp.up_proj.weight mlp.gate_proj.weight: name=muon]'
ok "which trains" run some 2 some.steps
is "their moments" "$(head -c 20000 some.steps/latest/optimizer.safetensors | grep -ao '0.mlp[a-z._]*momentum_buffer' | sort | tr '\n' ' ')" \
  "0.mlp.gate_proj.weight.momentum_buffer 0.mlp.up_proj.weight.momentum_buffer "
refuses() { # MESSAGE OPTIONS...
  refuses_message=$1
  shift
  fails "$*" 78 "$refuses_message" "$gen" --check model.cfg "$@"
}
ok "where nothing trains it means nothing" "$gen" --check model.cfg -s pipeline.schedule=inference -s data_parallel.shard=weights
refuses 'optimizer.groups = *name=muon for matrices of the layers alone; model.norm.weight is none' -s 'optimizer.groups=[model.norm.weight: name=muon]'
refuses 'optimizer.groups = *name=muon for matrices of the layers alone; model.embed_tokens.weight is none' -s 'optimizer.groups=[embed_tokens.weight: name=muon]'
refuses 'optimizer.ns_steps = 0*1 to 20' -s optimizer.ns_steps=0
refuses 'optimizer.nesterov = true*false, without optimizer.momentum' -s optimizer.momentum=0 -s optimizer.nesterov=true
refuses 'optimizer.ns_steps = 5*not given, with optimizer.name = "sgd"' -s optimizer.name=sgd -s optimizer.ns_steps=5
finish
