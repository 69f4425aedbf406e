#!/bin/sh
# optimizer_groups.t: optimizer.groups: optimizer, rate and weight decay by endings of tensor names: those of a formula in f64, the same bits
# whatever ranks and replicas share, in a checkpoint that continues; and what is refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/plain.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
data_parallel = { replicas = 2; };
optimizer = { learning_rate = 0.01; steps = 20; };
END
{
  sed '/^optimizer/d' "$scratch/plain.cfg"
  cat <<'END'
optimizer = {
  learning_rate = 0.01; steps = 20; momentum = 0.9; weight_decay_groups = ["o_proj.weight=0.3"];
  groups = (
    { endings = ["norm.weight"]; name = "sgd"; rate = 3.0; weight_decay = 0.05; },
    { endings = ["embed_tokens.weight"]; rate = 0.25; },
    { endings = ["up_proj.weight", "o_proj.weight", "norm.weight"]; name = "sgd"; },
    { endings = ["lm_head.weight"]; weight_decay = 0.0; });
};
END
} >"$scratch/groups.cfg"
cd "$scratch" || exit 99
make_tokens data.bin 20000

topology=groups.cfg

# ---- the formula
ok "groups" build groups groups.cfg -s data_parallel.replicas=1
ok "eleven steps" ./groups train --quiet --seed 7 --data data.bin --steps 11 --save-every 1 --keep 20 --checkpoint steps
formula() { "${PYTHON:-python3}" "$top_srcdir/tests/commands/optimizer_groups.py" steps 0.01 "$@"; }
set -- norm.weight=sgd,3,0.05 embed_tokens.weight=adamw,0.25,0.1 up_proj.weight=sgd,1,0.1 o_proj.weight=sgd,1,0.3 lm_head.weight=adamw,1,0
ok "each tensor is that of its group" formula "$@" weight=adamw,1,0.1

# ---- a rate is a factor of the learning rate
ok "half the rate for all" build half plain.cfg -s 'optimizer.groups=[weight: rate=0.5]'
ok "half the learning rate" build slow plain.cfg -s optimizer.learning_rate=0.005
ok "the first trains" train_bits half --data data.bin --steps 3
ok "the second trains" train_bits slow --data data.bin --steps 3
ok "to the same bits" same_bits 3 half slow
is "the log has the scheduled rate" "$(log_field half.log lr | tr '\n' ' ')" "0.01 0.01 0.01 "

# ---- the same bits
whole=whole
ok "everything kept" train_plan whole
same_as_whole ranks2 -s pipeline.ranks=2
ok "groups as texts" build texts plain.cfg -s optimizer.momentum=0.9 -s optimizer.weight_decay_groups=[o_proj.weight=0.3] -s \
  'optimizer.groups=[norm.weight: name=sgd rate=3 weight_decay=0.05, embed_tokens.weight: rate=0.25, up_proj.weight o_proj.weight: name=sgd, lm_head.weight: weight_decay=0]'
ok "which train" train_bits texts --data data.bin --steps 3
ok "to the same bits" same_bits 3 whole texts
same_as_whole optimizer -s data_parallel.shard=optimizer
same_as_whole layer -s pipeline.ranks=2 -s data_parallel.shard=weights -s data_parallel.reduce=step
whole=splits
ok "bf16, splits" train_plan splits -s model.dtype=bf16 -s tensor_parallel.splits=2
same_as_whole tensor -s model.dtype=bf16 -s tensor_parallel.splits=2 -s tensor_parallel.ranks=2
ok "audited" build audited groups.cfg -s memory.audit=true
ok "which finds nothing" train_bits audited --data data.bin --steps 3 --audit 1
ok "and changes nothing" same_bits 3 whole audited

# ---- checkpoints
run() { # NAME STEPS FOLDER
  "./$1" train --data data.bin --seed 7 --quiet --checkpoint "$3" --resume --steps "$2"
}
ok "two steps" run whole 2 moved
ok "one more with shards on two ranks" run layer 3 moved
ok "the same weights" cmp whole.ckpt/latest/model.safetensors moved/latest/model.safetensors
ok "the same moments" cmp whole.ckpt/latest/optimizer.safetensors moved/latest/optimizer.safetensors
ok "without groups" build plain plain.cfg
fails "moments of SGD" 65 'momentum_buffer is a moment of sgd or muon, and optimizer.name of this run is "adamw" for it' run plain 4 moved

# ---- settings
refuses() { # MESSAGE GROUP
  fails "$2" 78 "-s optimizer.groups = *$1" "$gen" --check plain.cfg -s "optimizer.groups=[$2]"
}
refuses 'no endings with a colon' 'bias rate=1'
refuses 'no endings' ': rate=1'
refuses 'no settings' 'norm.weight: '
refuses '"speed=2" is none of rate=, weight_decay= and name=' 'norm.weight: speed=2'
refuses 'rate=-1: a finite number, 0 or more' 'norm.weight: rate=-1'
refuses 'rate is given twice' 'norm.weight: rate=1 rate=2'
refuses 'name=lion: "adamw", "sgd" or "muon"' 'norm.weight: name=lion'
refuses 'endings of the model*no name has the ending of "bias"' 'norm.weight bias: rate=2'
wrong() { # GROUP: in place of the second of the file
  sed "s/{ endings = \[\"embed_tokens.*/$1,/" groups.cfg >wrong.cfg
  "$gen" --check wrong.cfg
}
fails "no endings in the file" 78 'wrong.cfg:7: optimizer.groups = *group 2*: no endings' wrong '{ rate = 0.5; }'
fails "an empty group" 78 'wrong.cfg:7: optimizer.groups = *group 2*: no endings' wrong '{ }'
fails "a number in quotes" 78 'wrong.cfg:9: optimizer.groups = *group 2: a group such as { endings' wrong '{ endings = ["bias"]; rate = "1"; }'
fails "an ending in the file that no tensor has" 78 'wrong.cfg:7: optimizer.groups = *no name has the ending of "bias"' wrong '{ endings = ["bias"]; rate = 1.0; }'
fails "momentum that no tensor has" 78 'optimizer.momentum = 0.9*not given, with optimizer.name = "adamw" and these optimizer.groups' \
  "$gen" --check plain.cfg -s optimizer.momentum=0.9 -s 'optimizer.groups=[weight: rate=2]'
finish
