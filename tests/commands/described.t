#!/bin/sh
# described.t: family described: models of tests/models/, which are descriptions, have the bits of the families that they describe.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=3
models=$(cd "$top_srcdir/tests/models" && pwd)
make_tokens "$scratch/data.bin" 4000
"${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$scratch/samples.safetensors" 0 200 "$scratch/data.bin" 16 tokens:I64:tokens targets:I32:targets shown:U8:16

# model NAME SETTINGS: $scratch/NAME.cfg.
model() {
  cat >"$scratch/$1.cfg" <<END_OF_MODEL
model = { sequence = 16; $2 };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
}
# described NAME: $scratch/NAME_described.cfg, of the description of that name.
described() { model "$1_described" "family = \"described\"; description = \"$models/$1.json\";"; }

# train NAME MODEL SETTING...: builds and trains.
train() {
  train_name=$1 train_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  case $train_model in bert*) train_data=$scratch/samples.safetensors ;; *) train_data=$scratch/data.bin ;; esac
  build "$train_name" "$scratch/$train_model.cfg" "$@" && train_bits "$train_name" --data "$train_data" --steps $steps
}
# as REFERENCE NAME MODEL SETTING...: trains to the bits of REFERENCE.
as() {
  as_reference=$1 as_name=$2
  shift
  ok "$as_name trains" train "$@"
  ok "$as_name has the bits of $as_reference" same_bits $steps "$as_reference" "$as_name"
}
# first NAME: the loss and the norm of the first step.
first() { log_field "$scratch/$1.log" loss | head -1; log_field "$scratch/$1.log" grad_norm | head -1; }
# is_near MOST LOSS NORM: two lines, of these numbers, each within so much of it.
is_near() {
  awk -v most="$1" -v loss="$2" -v norm="$3" '{ d = $1 / (NR == 1 ? loss : norm) - 1; if (!(d < most && -d < most)) bad = 1 } END { exit bad || NR != 2 }'
}
has_losses() { first "$1" | is_near 1e-5 "$2" "$3"; }
# by_pytorch NAME LOSS NORM: $python computes them anew.
by_pytorch() {
  "$scratch/$1" init --seed 7 --output "$scratch/$1.start" &&
    "$python" "$top_srcdir/tests/commands/described_torch.py" "$models/${1%_*}.json" "$scratch/$1.start" "$scratch/data.bin" 16 4 | tr ' ' '\n' | is_near 1e-9 "$2" "$3"
}

# ---- descriptions of families have their bits; of others, one rank and several have the same ----
model llama 'family = "llama"; layers = 3; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 200;'
model gpt2 'family = "gpt2"; layers = 2; hidden = 32; heads = 4; ffn = 128; vocab = 200;'
model gemma3 'family = "gemma3_text"; layers = 6; hidden = 32; heads = 4; kv_heads = 2; head_dim = 16; ffn = 48; vocab = 200; window = 5; query_scalar = 32; rope_theta = 1e6;'
for name in llama gpt2 gemma3 olmo2 nano odd readers wide pointwise gemma2 bert parts mixtral dots1; do described $name; done
rows="batch.microbatch=4 pipeline.microbatches=1 model.loss_rows=32"
ok "llama: the family trains" train llama llama $rows
for name in gpt2 gemma3; do ok "$name: the family trains" train $name $name; done
as llama llama_described llama_described pipeline.ranks=2 partition.unit=block $rows
as gpt2 gpt2_described gpt2_described pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=layer
as gemma3 gemma3_described gemma3_described pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=zero_bubble_v memory.recompute=attention
for name in olmo2 nano odd readers wide pointwise gemma2 bert parts mixtral dots1; do ok "$name trains" train ${name}_one ${name}_described; done
find_python 'import torch' /opt/peer/bin/peer-python python3
while read -r name loss norm; do
  ok "$name: the loss and norm of PyTorch" has_losses $name "$loss" "$norm"
  if test -n "$python"; then ok "$name: PyTorch here gives them" by_pytorch $name "$loss" "$norm"; else skip "$name: PyTorch here gives them" "set PEER"; fi
done <<END_OF_LOSSES
$(grep -v '^#' "$models/losses.txt")
END_OF_LOSSES
if test -n "$python" && "$python" -c 'import sys, torch; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14))'; then
  skip "derivatives at ties and bounds are PyTorch's here" "torch before 2.14 has 1 for clamp at its bounds"
elif test -n "$python"; then
  is "derivatives at ties and bounds are PyTorch's here" "$("$python" "$top_srcdir/tests/commands/described_torch.py" ties "$top_srcdir/tests/gen/ties.def" 2>&1)" ""
else
  skip "derivatives at ties and bounds are PyTorch's here" "set PEER"
fi
as olmo2_one olmo2_four olmo2_described pipeline.ranks=4 memory.recompute=full
as nano_one nano_two nano_described pipeline.ranks=2 pipeline.stages_per_rank=3 pipeline.schedule=interleaved
as readers_one readers_three readers_described pipeline.ranks=3 memory.recompute=layer
as pointwise_one pointwise_three pointwise_described pipeline.ranks=3 pipeline.zero_bubble=true cluster.threads_per_rank=2 cluster.bind=none memory.recompute=layer
as gemma2_one gemma2_two gemma2_described pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=attention cluster.threads_per_rank=2 cluster.bind=none
as bert_one bert_two bert_described pipeline.ranks=2 memory.recompute=attention
as parts_one parts_two parts_described pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=layer cluster.threads_per_rank=2 cluster.bind=none
as wide_one wide_five wide_described pipeline.ranks=5 partition.unit=block

# ---- generation, scores, initial weights ----
for name in gemma3 gemma3_described; do
  "$scratch/$name" generate --checkpoint "$scratch/$name.ckpt" --quiet --prompt "65 66 67" --tokens 20 --seed 3 >"$scratch/$name.text"
  is "$name generates" $? 0
  "$scratch/$name" score --data "$scratch/data.bin" --checkpoint "$scratch/$name.ckpt" --output - --quiet >"$scratch/$name.scores"
  is "$name scores" $? 0
done
ok "the same text" cmp "$scratch/gemma3.text" "$scratch/gemma3_described.text"
ok "the same scores" cmp "$scratch/gemma3.scores" "$scratch/gemma3_described.scores"
for name in llama llama_described; do
  "$scratch/$name" train --init "$scratch/llama.ckpt/latest/model.safetensors" --data "$scratch/data.bin" --steps 1 --quiet --checkpoint "$scratch/$name.init"
  is "$name begins with the weights of the family" $? 0
done
ok "the same checkpoint" cmp "$scratch/llama.init/latest/model.safetensors" "$scratch/llama_described.init/latest/model.safetensors"

# ---- docs/own-model.md ----
own=$top_srcdir/docs/own-model.md
sed -n '/^    { "penstock_model"/,/^$/p' "$own" >"$scratch/my.json"
sed -n '/^    model = {/,$p' "$own" >"$scratch/own.cfg"
matches "the description by hand" "$("$gen" --check "$scratch/own.cfg" 2>&1)" "*proved: *of 4 ranks*"

# ---- settings of plans ----
check() { "$gen" --check -s model.description="$@"; }
plan() { "$gen" "$scratch/nano_described.cfg" "$@"; }
# digest NAME: of a description; its model's too.
digest() { plan -s model.description="$scratch/$1.json" | sed -n 's/^ *\.\(model_\)*digest = //p'; }
for setting in "model.loss_rows=32 -s batch.microbatch=4" "model.dtype=bf16 -s batch.packed=true" cluster.device=cuda pipeline.schedule=inference \
  "data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer" "shapes.sequence=[8] -s shapes.microbatches=[8]"; do
  # shellcheck disable=SC2086
  ok "nano with $setting" plan --check -s $setting
done
ok "plans of measure: every block is a stage" plan --blocks -o "$scratch/blocks.c"
cp "$models/nano.json" "$scratch/nano.json"
sed -e 's/nano.py:60/nano.py:99/' -e 's/"source": "[^"]*"/"source": "x"/' -e 's/{"kind": "head", "prefix": ""}/{"prefix": "", "kind": "head"}/' "$models/nano.json" >"$scratch/lines.json"
sed 's/"epsilon": 1e-05/"epsilon": 1e-06/' "$models/nano.json" >"$scratch/epsilon.json"
is "source, lines and order of keys do not enter the digests" "$(digest lines)" "$(digest nano)"
for which in 1 2; do ok "what ops say does ($which)" test "$(digest epsilon | sed -n ${which}p)" != "$(digest nano | sed -n ${which}p)"; done
sed 's/"source": "[^"]*"/"config": {"model_type": "nano", "n_embd": 48}/' "$models/nano.json" >"$scratch/config.json"
plan -s model.description="$scratch/config.json" | grep -A 3 '\.config_json =' >"$scratch/config"
ok "config is the checkpoints' config.json" grep -q '"  .*n_embd.*: 48' "$scratch/config"
"$gen" --list-ops >"$scratch/ops"
is "each row has a line with its name first" "$(grep -c '^[A-Z_0-9]* .*->.* {.*} .' "$scratch/ops")" "$(grep -c . "$scratch/ops")"
is "with its operands and attributes" "$(sed -n 's/^\(RMSNORM .*}\) .*/\1/p' "$scratch/ops")" "RMSNORM x[rows,width] gain?[width] -> y[rows,width] { epsilon offset? width? }"
gelu='\["GELU", \["fb"\], {}, \["g"\]\]'
sed 's/'"$gelu"'/["GELU", ["fb"], {}, ["one"]], ["ADD", ["one", "one"], {}, ["g"]]/' "$models/nano.json" >"$scratch/once.json"
sed 's/'"$gelu"'/["GELU", ["fb"], {}, ["one"]], ["GELU", ["fb"], {}, ["two"]], ["ADD", ["one", "two"], {}, ["g"]]/' "$models/nano.json" >"$scratch/twice.json"
for name in once twice; do plan -s model.description="$scratch/$name.json" | grep -v '^ \* \|digest = \|sha256 ' >"$scratch/$name.c"; done
ok "an op is computed" test -s "$scratch/once.c"
ok "two equal ops are computed once" cmp "$scratch/once.c" "$scratch/twice.c"
fails "and have one name in model.outputs" 78 'model.outputs = ?"h.1.two"?: "h.1.one" in place of "h.1.two": they are equal' plan -s model.description="$scratch/twice.json" -s 'model.outputs=["h.1.two"]'
cat >"$scratch/planned.cfg" <<END_OF_PLAN
model = { family = "described"; description = "nano.json"; sequence = 16; };
optimizer = { learning_rate = 1e-2; steps = 8; };
plan = { ranks = 2; sequences = 4; memory_mib = 64; replicas = [1]; microbatch = [1]; schedules = ["1f1b"]; recompute = ["none"]; };
END_OF_PLAN
mkdir "$scratch/elsewhere"
"$top_builddir/penstock-plan" --seconds 0 -o "$scratch/elsewhere/chosen.cfg" "$scratch/planned.cfg" >"$scratch/said" 2>&1
is "penstock-plan chooses a topology" $? 0
ok "which finds the description from another folder" "$gen" --check "$scratch/elsewhere/chosen.cfg"

# ---- what is refused: a description of which sed changes a line; the message after the file's name ----
refused=0
while IFS='|' read -r model change message; do
  refused=$((refused + 1))
  sed "$change" "$models/$model.json" >"$scratch/wrong.json"
  fails "$change" 78 "wrong.json$message" check "$scratch/wrong.json" "$scratch/nano_described.cfg"
done <<'END_OF_REFUSALS'
nano|s/"penstock_model": 1/"penstock_model": 2/|: penstock_model = 2: the version of the format, 1
nano|s/"source"/"sauce"/|: sauce: there is no such key; the keys are penstock_model source
nano|s/"penstock_model": 1/"source": "x", &/|:1: duplicate object key near '"source"'
nano|s/{}, \["p"\]/{"x": 1, "x": 1}, ["p"]/|:33: duplicate object key near '"x"'
nano|s/"LAYERNORM", \["x"/"CUMSUM", ["x"/|: unit layer, op 0, CUMSUM (nano.py:41): there is no such row; a description may name ROPE_TABLE, LINEAR,
nano|s/\["q", "k", "v", "starts"\]/["q", "k", "w", "starts"]/|: unit layer, op 4, ATTENTION: w: operand v: there is no such value
nano|s/"\.ln_2\.bias"/".ln_3.bias"/|: unit layer, op 8, LAYERNORM: h.0.ln_3.bias: operand bias: there is no such weight
nano|s/"\.ln_2\.bias"/"x"/|: unit layer, op 8, LAYERNORM: x: operand bias: a weight, whose name begins with a point
nano|s/"kv_heads": 6/"kv_heads": 4/|: unit layer, op 4, ATTENTION: k?batch,sequence,kv_heads,head_dim? is 1 x 1 x 4 x 8, by the other operands and attributes, but what it reads has 48 elements for each token
nano|s/"head_dim": 8}/"head_dim": 8, "gap": 3}/|: unit layer, op 4, ATTENTION: there is no attribute gap; its attributes are: heads kv_heads head_dim window cap
nano|s/"head_dim": 8}/"head_dim": 8, "cap": -1}/|: unit layer, op 4, ATTENTION: cap: 0 or more
nano|s/"head_dim": 8}/"head_dim": 8, "cap": 1e39}/|: unit layer, op 4, ATTENTION: cap = *: at most 3.4e38
bert|s/\("name": "head.weight", "shape": \[[0-9]*, \)24/\112/|: unit head, op 0, LINEAR: the product is of 2 rows for each token: one
bert|s/"v", "shown"\]/"v", "starts"]/|: unit layer, op 3, ATTENTION_FULL (bert.py:30): starts: operand mask: an input by name of i32, i64 or u8
parts|s/"third": 8, "groups": 4/"third": 8, "groups": 3/|: unit layer, op 2, SPLIT_3: x?rows,groups,all? is 1 x 3 x 24, by the other operands and attributes, but what it reads has 96 elements for each token
parts|s/"second": 16}, \["first"/"second": 8}, ["first"/|: unit layer, op 10, SPLIT_2: x?rows,groups,all? is
parts|s/"pairs": 1}, \["qr"/"pairs": 2}, ["qr"/|: unit layer, op 4, ROPE_PART: pairs = 2: 1, or absent
parts|s/"half": 3/"half": 5/|: unit layer, op 4, ROPE_PART: the table is of 10 elements of a head: at most head_dim = 8
parts|s/"to": 16, "source": 5/"to": 16, "source": 72/|: unit layer, op 15, COPY_BLOCKS (parts.py:20): source = 72: below from = 72
parts|s/"target": 52/"target": 56/|: unit layer, op 21, COPY_BLOCKS: target = 56: below to = 56
parts|s/"to": 7, "groups": 4/"to": 7, "groups": 5/|: unit layer, op 16, COPY_BLOCKS: x?rows,groups,from,inner? is 1 x 5 x 11 x 1
parts|s/"width": 16/"width": 17/|: unit first, op 3, LAYERNORM: x?rows,width? is
parts|s/"sequence": 1, "offset": 1/"sequence": 1, "offset": 3/|: unit first, op 1, POSITION: sequence: 1, or absent: all tokens have the row ?offset?, one that the table has
parts|s/"sequence": 1, "offset": 1/"sequence": 2/|: unit first, op 1, POSITION: sequence: 1, or absent
nano|s/"heads": 6, //|: unit layer, op 4, ATTENTION: the attribute heads is missing
nano|s/\["q", "k", "v"\]\]/["q", "k"]]/|: unit layer, op 3, SPLIT: it has 3 outputs, not 2
nano|s/"shape": \[48, 192\]/"shape": [48, 190]/|: unit layer, op 12, LINEAR: x?rows,in? is
nano|s/"batch", "sequence", 48/"batch", "sequence", 40/|: unit layer, op 0, LAYERNORM (nano.py:41): x?rows,width? is
nano|s/\["y", "db"\]/["y", "y"]/|: unit layer, op 13, BIAS: db: no op reads it
nano|s/\["GELU".*/& ["GELU", ["fb"], {}, ["h"]],/|: unit layer, op 12, GELU: h: no op reads it
nano|s/"gives": \["z"\]/"gives": ["x"]/|: unit layer: gives x: a value that an op of the unit makes
nano|s/"kind": "head", "prefix"/"kind": "hat", "prefix"/|: units?2?.kind = "hat": one of the kinds: embedding, layer, head
nano|s/"count": 2/"count": 0/|: units?1?.count = 0: a whole number from 1 to 8192
nano|s/"h.\*.attn.c_proj.bias"/"h.0.attn.c_proj.bias"/|: unit layer, op 6, BIAS: h.1.attn.c_proj.bias: operand bias: there is no such weight
nano|s/, "tied": "lm_head.weight"//|: unit head, op 1, LINEAR: lm_head.weight: operand w: there is no such weight
nano|s/"\.ln_2\.weight"/".ln_1.weight"/|: weight h.0.ln_1.weight: one op reads it, not several, in units 1 and 1
llama|s/"prefix": "model.layers."/"prefix": "model.layers"/|: units?1?.prefix = "model.layers": nothing, or a text that ends with a point
llama|s/\["k", "table", "starts"\]/["k", "v", "starts"]/|: unit layer, op 6, ROPE: v: operand table: a constant, which ROPE_TABLE makes
llama|s/\["logits", "targets", "targets.share"\]/["n", "targets", "targets.share"]/|: unit head, op 2, CROSS_ENTROPY: n: operand logits: what a LINEAR without addend makes
llama|s/"lm_head.weight", "shape": \[200, 32\]/"lm_head.weight", "shape": [200, 16]/|: unit head, op 1, LINEAR: the product is of 2 rows for each token: one
llama|s/\["CROSS_ENTROPY", \["logits"/["ROW_MEAN", ["logits"], {}, ["m"]], ["CROSS_ENTROPY", ["m"/|: unit head, op 2, ROW_MEAN: m, logits, has 1 columns: 200, as logits
llama|s/"initial": "ones"/"initial": "twos"/|: weights?1?.initial = "twos": "zeros", "ones", "given", {"normal": DEVIATION} or {"constant": NUMBER}
nano|s/"\.wte\.weight"\], {}/".wte.weight"], {"padding": 98}/|: unit embedding, op 0, EMBEDDING (nano.py:60): padding = 98: at most 97, the rows of the table
nano|s/\("wpe.weight", "shape": \[\)/\12, 1, 1, /|: weights?1?.shape = ?2,1,1,64,48?: a list of one to four extents
nano|s/\("wpe.weight", "shape": \[\)/\12, /|: unit embedding, op 1, POSITION (nano.py:61): wpe.weight: operand table has 2 extents, the shape of the weight 3: those of 1 left out
pointwise|s/"RELU", 0\]/"RELU", 1]/|: unit layer, op 2, POINTWISE (odd.py:12): program?0?: RELU: input 1: one of the operands, which are 0 to 3, or an earlier step; the first is 4
pointwise|s/"SQUARE", 4\]/"SQUARE", 5]/|: unit layer, op 2, POINTWISE (odd.py:12): program?1?: SQUARE: input 5: one of the operands
pointwise|s/"SQUARE", 4\]/"SQUARED", 4]/|: unit layer, op 2, POINTWISE (odd.py:12): program?1?: SQUARED: there is no such step; the steps are CONST, ADD,
pointwise|s/"SQUARE", 4\]/"CHAIN", 4, 0]/|: unit layer, op 2, POINTWISE (odd.py:12): program?1?: CHAIN: there is no such step
pointwise|s/"SQUARE", 4\]/"MUL", 4]/|: unit layer, op 2, POINTWISE (odd.py:12): program?1?: MUL has 2 inputs, not 1
pointwise|s/"SQUARE", 4\]/"SQUARE", 0]/|: unit layer, op 2, POINTWISE (odd.py:12): program?0?, RELU: no step reads it
pointwise|s/"SQUARE", 4\]/"SQUARE", "x"]/|: kinds.layer.ops?2??2?.program?1? = ?"SQUARE","x"?: ?NAME, number, ...?
pointwise|s/\["RELU", 0\], \["SQUARE", 4\]//|: kinds.layer.ops?2??2?.program: a list of 1 to 32 steps, not of 0
pointwise|s/\[\["RELU", 0\], \["SQUARE", 4\]\]/3/|: unit layer, op 2, POINTWISE (odd.py:12): program: a list of steps
pointwise|s/"program": \[\["RELU", 0\], \["SQUARE", 4\]\]//|: unit layer, op 2, POINTWISE (odd.py:12): the attribute program is missing
pointwise|s/"RELU", 0\], \["SQUARE", 4/"SQUARE", 0], ["RELU", 4/|: unit layer, op 2, POINTWISE (odd.py:12): pointwise: program?1?, RELU: 0 of 64 points are on one of its sides; at least 8 must be
pointwise|s/"CONST", 1\], \["ADD", 6/"CONST", -1], ["ADD", 6/|: unit mix, op 7, POINTWISE (odd.py:21): pointwise: program?1?, LESS: * points are on one of its sides
pointwise|s/"CONST", 3\]/"CONST", 0]/|: unit head, op 2, POINTWISE (odd.py:31): pointwise: fewer than 64 of 8192 points that were drawn can be checked
pointwise|s/\["w", "\.bias", "x"\]/["w", ".bias", "x", "d"]/|: unit layer, op 7, POINTWISE (odd.py:14): program: no step reads operand 3, d
pointwise|s/\["u"\], {"program/["u", null, null, null, "n"], {"program/|: unit layer, op 2, POINTWISE (odd.py:12): it has at most 4 operands, not 5
pointwise|s/\["CLAMP_MAX", 13, 14\]/["CLAMP_MAX", 14, 13]/|: unit mix, op 7, POINTWISE (odd.py:21): program?11?: CLAMP_MAX: input 13: a step CONST
pointwise|s/"h\.\*\.scale", "shape": \[24\]/"h.*.scale", "shape": [23]/|: unit layer, op 6, POINTWISE (odd.py:13): x0?rows,width? is 1 x 23, by the other operands and attributes, but what it reads has 24 elements for each token
END_OF_REFUSALS
ok "all of them" test $refused -gt 40
sed 's/\("wpe.weight", "shape": \[\)/\11, /; s/\("h.\*.attn.c_attn.bias", "shape": \[\)144/\13, 1, 48/' "$models/nano.json" >"$scratch/dims.json"
ok "extents of 1, and a row of several dims" check "$scratch/dims.json" "$scratch/nano_described.cfg"
nano=$scratch/nano_described.cfg
ok "sequences of one token, whose tokens have one row of a table" "$gen" --check -s model.sequence=1 "$scratch/parts_described.cfg"
attends='s|\["LINEAR", \["first", "\.topic|["ATTENTION", ["first", "first", "first"], {"heads": 2, "kv_heads": 2, "head_dim": 12}, ["seen"]],\n      ["LINEAR", ["seen", ".topic|'
sed "$attends" "$models/losses.json" >"$scratch/attends.json"
printf 'model = { family = "described"; description = "attends.json"; sequence = 16; };\nbatch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-2; steps = 8; };\npipeline = { ranks = 1; microbatches = 2; schedule = "1f1b"; };\n' >"$scratch/attends.cfg"
ok "an attention of samples has one token" "$gen" --print=c -o "$scratch/attends.c" "$scratch/attends.cfg"
is "which is said" "$(grep -c seen "$scratch/attends.json")" 2
sed 's/"CONST", 0.5\], \["ADD", 6/"CONST", 0], ["ADD", 6/' "$models/pointwise.json" >"$scratch/pole.json"
ok "a program whose gradient is no number at 0" check "$scratch/pole.json" "$scratch/nano_described.cfg"
sed 's/"RELU", 0\], \["SQUARE", 4/"SQUARE", 0], ["SQRT", 4/; s/"DIV", 0, 4\], \["TANH", 5/"ERF", 0], ["DIV", 5, 0/' "$models/pointwise.json" >"$scratch/root.json"
ok "a root at 0, and a derivative that is a small difference there" check "$scratch/root.json" "$scratch/nano_described.cfg"
fails "more positions than there are" 78 "model.sequence = 65: at most 64, the sequence of $models/nano.json" "$gen" --check -s model.sequence=65 "$nano"
fails "a setting that the description replaces" 78 'model.hidden = 48: none, with model.family = "described": it follows from' "$gen" --check -s model.hidden=48 "$nano"
fails "splits of weights" 78 "tensor_parallel.splits = 2: 1, with the family described" "$gen" --check -s tensor_parallel.splits=2 "$nano"
fails "no description" 78 "model.description: missing; family described needs it" sh -c "sed 's/description = [^;]*;//' '$nano' >'$scratch/without.cfg'; '$gen' --check '$scratch/without.cfg'"
fails "a description of another family" 78 'none, but with model.family = "described"' "$gen" --check -s model.description="$models/nano.json" "$scratch/llama.cfg"
fails "documents that an op does not know" 78 "bert.json: unit layer, op 3, ATTENTION_FULL (bert.py:30): it has no operand starts, with batch.packed = true" "$gen" --check -s batch.packed=true "$scratch/bert_described.cfg"
fails "a score of tokens that see later ones" 64 "score: this binary's model reads more than texts have: unit layer, op 3, ATTENTION_FULL (bert.py:30): later tokens" "$scratch/bert_one" score --data "$scratch/data.bin" --checkpoint "$scratch/bert_one.ckpt" --output -
fails "no name of a file" 78 'model.description = : the name of a file' "$gen" --check -s model.description= "$nano"
fails "no such file" 66 "none.json: " "$gen" --check -s model.description=none.json "$nano"
finish
