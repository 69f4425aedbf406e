#!/bin/sh
# losses.t: family described: losses with shares of their own are those of PyTorch over the whole batch, however it is divided, on any ranks.
. "${top_srcdir:-.}/tests/support/lib.sh"

models=$(cd "$top_srcdir/tests/models" && pwd)
here=$(cd "$top_srcdir/tests/commands" && pwd)
cd "$scratch" || exit 99
make_tokens data.bin 1500
samples() { "${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$@"; } # OUT FIRST COUNT TOKENS SEQUENCE NAME:DTYPE:WHAT...
cp "$models/losses.json" "$models/policy.json" .
samples losses.safetensors 0 24 data.bin 16 idx:I32:tokens value:F32:reals:16 old:F32:reals:16 weight:F32:parts:16 state:BF16:reals:16x24 label:U8:bits:16 \
  mask:U8:bits:16 class:I64:ids:16 topic:I64:ids: score:F32:reals:
samples policy.safetensors 0 24 data.bin 16 idx:I32:tokens taken:I64:ids:16 valid:U8:valid:16 old:F32:logs:16 reference:F32:logs:16 advantage:F32:reals:16 \
  mask:U8:bits:16 sign:F32:signs:16 last:U8:last:16 teacher:I32:ids:16x3 probability:F32:parts:16x3
for model in losses policy; do
  cat >$model.cfg <<END
model = { family = "described"; description = "$model.json"; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 2; schedule = "1f1b"; };
END
done
# train NAME MODEL SETTING...: builds and trains.
train() {
  train_name=$1 train_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$train_name" "$train_model.cfg" "$@" && train_bits "$train_name" --data "$train_model.safetensors" --steps 3
}
first() { log_field "$1.log" loss | head -1; log_field "$1.log" grad_norm | head -1; }
# is_near MOST LOSS NORM: two lines, of these numbers, each within so much of it.
is_near() {
  awk -v most="$1" -v loss="$2" -v norm="$3" '{ d = $1 / (NR == 1 ? loss : norm) - 1; if (!(d < most && -d < most)) bad = 1 } END { exit bad || NR != 2 }'
}
# has_losses NAME: the loss and norm of the first step.
has_losses() { first "$1" | is_near 1e-5 "$loss" "$norm"; }
# by_pytorch MODEL: $python computes them anew.
by_pytorch() {
  ./${1}_one init --seed 7 --output start && "$python" "$here/losses_torch.py" start "$1.safetensors" 4 | tr ' ' '\n' | is_near 1e-9 "$loss" "$norm"
}
find_python 'import torch' /opt/peer/bin/peer-python python3

# ---- masked MSE, BCE, weighted Huber, the value of PPO, classes; of samples a class and a score; GRPO, KL, label smoothing, z-loss, DPO, pair reward, distillation ----
while read -r model groups loss norm; do
  ok "$model trains" train ${model}_one $model $groups
  ok "the loss and norm of PyTorch" has_losses ${model}_one
  if test -n "$python"; then ok "PyTorch here gives them" by_pytorch $model; else skip "PyTorch here gives them" "set PEER"; fi
  ok "on 2 ranks" train ${model}_two $model $groups pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=full
  ok "the same bits" same_bits 3 ${model}_one ${model}_two
  ok "on 4 ranks" train ${model}_four $model $groups pipeline.ranks=4 cluster.threads_per_rank=2 cluster.bind=none
  ok "the same bits" same_bits 3 ${model}_one ${model}_four
  ok "4 samples a microbatch" train ${model}_whole $model $groups batch.microbatch=4 pipeline.microbatches=1
  ok "the loss and norm of PyTorch" has_losses ${model}_whole
  ok "on 2 replicas" train ${model}_replicas $model $groups pipeline.microbatches=1 data_parallel.replicas=2
  ok "the loss and norm of PyTorch" has_losses ${model}_replicas
done <<END_OF_LOSSES
losses batch.loss_group=1 12.014310790387029 18.358692778917643
policy batch.loss_group=2 6.745041487576523 10.600821740025024
END_OF_LOSSES
ok "1 sample a microbatch" train losses_single losses batch.microbatch=1 pipeline.microbatches=4
loss=12.014310790387029 norm=18.358692778917643
ok "the loss and norm of PyTorch" has_losses losses_single

# ---- values of samples ----
ok "in blocks" train losses_blocks losses pipeline.ranks=3 partition.unit=block pipeline.microbatches=1 batch.microbatch=4
ok "the same bits" same_bits 3 losses_whole losses_blocks
ok "kept as outputs" build losses_kept losses.cfg -s 'model.outputs=["h.2.z", "first"]'
./losses_kept init --seed 7 --output start && ./losses_kept eval --data losses.safetensors --init start --steps 2 --quiet --outputs kept.safetensors >kept 2>/dev/null
is "one row a sample" "$("${PYTHON:-python3}" - <<'END_OF_OUTPUTS'
import json, struct
data = open("kept.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
entries = json.loads(data[8:8 + length])
read = {name: struct.unpack("<%df" % ((e["data_offsets"][1] - e["data_offsets"][0]) // 4), data[8 + length:][slice(*e["data_offsets"])]) for name, e in entries.items()}
same = all(read["first"][24 * n:24 * n + 24] == read["h.2.z"][16 * 24 * n:16 * 24 * n + 24] for n in range(8))
print(entries["first"]["shape"], entries["h.2.z"]["shape"], same)
END_OF_OUTPUTS
)" "[8, 1, 24] [8, 16, 24] True"
ok "measured in blocks" build losses_blocks losses.cfg --blocks
ok "without a file" ./losses_blocks measure --seconds 0.1 --output costs.json --quiet
fails "more tokens than there are" 78 "model.sequence = 1: at least 2, the tokens that losses.json selects of" "$gen" --check -s model.sequence=1 losses.cfg

# ---- a loss of each microbatch ----
sed 's/"shares": \[/"loss_of": "microbatch", &/' losses.json >of.json
ok "a loss of each microbatch" train losses_of losses model.description=of.json
ok "is said in the log's first line" test "$(grep -c '"loss_of":"microbatch"' losses_of.log) $(head -1 losses_of.log | grep -c loss_of)" = "1 1"
ok "one microbatch a step" build losses_micro losses.cfg -s pipeline.microbatches=1
./losses_of init --seed 7 --output start && ./losses_micro eval --data losses.safetensors --init start --steps 2 --quiet >mean 2>/dev/null
ok "the loss is the mean of steps of one microbatch" sh -c "{ sed 's/.*\"loss\":\([^,]*\),.*/\1/' mean; echo 1; } | awk -v of=$(log_field losses_of.log loss | head -1) 'NR == 1 { d = \$1 / of - 1; exit !(d < 1e-6 && -d < 1e-6) }'"

# ---- LINEAR and LOGP by chunks of rows ----
cp "$models/grpo.json" logp.json
sed -e '/".lm_head.weight"\]/d' -e 's/"LOGP", \["logits"/"TOKEN_LOGP", ["x", ".lm_head.weight"/' logp.json >named.json
samples logp.safetensors 0 24 data.bin 16 idx:I32:tokens taken:I64:ids:16 valid:U8:valid:16 old:F32:logs:16 reference:F32:logs:16 advantage:F32:reals:16 \
  mask:U8:bits:16 sign:F32:signs:16 last:U8:last:16
sed 's/policy/logp/' policy.cfg >logp.cfg
chunks="batch.loss_group=2 batch.microbatch=4 pipeline.microbatches=1 model.loss_rows=32"
loss=4.20769383136951 norm=23.897738775863964
ok "log-probabilities train" train logp_one logp batch.loss_group=2
ok "the loss and norm of PyTorch" has_losses logp_one
if test -n "$python"; then ok "PyTorch here gives them" by_pytorch logp; else skip "PyTorch here gives them" "set PEER"; fi
# shellcheck disable=SC2086
ok "by chunks of rows" train logp_chunks logp $chunks
ok "the loss and norm of PyTorch" has_losses logp_chunks
is "as TOKEN_LOGP, with one op for both gradients in B" "$(grep -o 'PEN_OP_[A-Z_]*LOGP[A-Z_]*' logp_chunks.c | sort -u | tr '\n' ' ')" "PEN_OP_TOKEN_LOGP PEN_OP_TOKEN_LOGP_B "
# shellcheck disable=SC2086
ok "on 2 ranks, gradients of weights apart" train logp_two logp $chunks pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=full
ok "the same bits" same_bits 3 logp_chunks logp_two
# shellcheck disable=SC2086
ok "where the description names TOKEN_LOGP" train logp_named logp $chunks model.description=named.json
ok "the same bits" same_bits 3 logp_chunks logp_named
ok "and without chunks" train logp_whole logp batch.loss_group=2 model.description=named.json
ok "those of LINEAR and LOGP" same_bits 3 logp_one logp_whole
# ---- bf16: what ops make between the last products and the losses is f32 ----
ok "in bf16, the log-probabilities kept" build half logp.cfg -s model.dtype=bf16 -s batch.loss_group=2 -s 'model.outputs=["logp", "lse", "r"]'
./half init --seed 7 --output start && ./half eval --data logp.safetensors --init start --steps 1 --quiet --outputs kept.safetensors >kept 2>/dev/null
matches "the loss is that of f32 log-probabilities" "$("${PYTHON:-python3}" - <<'END_OF_LOSS'
import json, math, struct
def read(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__": continue
        begin, end = entry["data_offsets"]
        raw, code, size = data[8 + length + begin:8 + length + end], {"F32": "f", "I32": "i", "I64": "q", "U8": "B", "BF16": "H"}[entry["dtype"]], entry["dtype"]
        values = struct.unpack("<%d%s" % (len(raw) // struct.calcsize(code), code), raw)
        tensors[name] = [struct.unpack("<f", struct.pack("<I", v << 16))[0] for v in values] if size == "BF16" else values
        tensors[name + ".dtype"] = size
    return tensors
kept, of = read("kept.safetensors"), read("logp.safetensors")
rows, softplus = range(64), lambda x: max(x, 0) + math.log1p(math.exp(-abs(x)))
logp, lse, reward = (kept[name] for name in ("logp", "lse", "r"))
ratio = [math.exp(logp[i] - of["old"][i]) for i in rows]
apart = [of["reference"][i] - logp[i] for i in rows]
masked, targets = sum(of["mask"][:64]), sum(t != -100 for t in of["taken"][:64])
group = lambda terms: [sum(terms[i // 32 * 32:i // 32 * 32 + 32]) for i in rows]
margin = group([-apart[i] * of["sign"][i] * of["mask"][i] for i in rows])
difference = group([reward[i] * of["sign"][i] * of["last"][i] for i in rows])
loss = sum(-min(ratio[i] * of["advantage"][i], min(max(ratio[i], 0.8), 1.2) * of["advantage"][i]) * of["mask"][i] for i in rows) / masked
loss += sum((math.exp(apart[i]) - apart[i] - 1) * of["mask"][i] for i in rows) * 0.1 / masked
loss += sum(lse[i] ** 2 * of["valid"][i] for i in rows) * 0.01 / targets
loss += sum(softplus(-0.2 * margin[i]) + softplus(-difference[i]) for i in rows) * 0.0625 / 4
found = json.loads(open("kept").read().splitlines()[-1])["loss"]
print(kept["logp.dtype"], kept["lse.dtype"], kept["r.dtype"], abs(found / loss - 1) < 1e-6 or (found, loss))
END_OF_LOSS
)" "F32 F32 BF16 True"
ok "trains" train half_one logp model.dtype=bf16 batch.loss_group=2
ok "on 2 ranks, gradients of weights apart" train half_two logp model.dtype=bf16 batch.loss_group=2 pipeline.ranks=2 pipeline.zero_bubble=true memory.recompute=full
ok "the same bits" same_bits 3 half_one half_two
sed 's/\[97, 24\]/[8192, 24]/' logp.json >large.json
placed() { "$gen" -p report -s model.description=large.json -s batch.microbatch=8 "$@" logp.cfg | sed -n 's|.*"placed_bytes": \([0-9]*\).*|\1|p'; }
ok "and less memory" test $(($(placed) - $(placed -s model.loss_rows=32))) -gt $((2 << 20))

# ---- scores and texts: the logits alone, whatever the loss ----
"${PYTHON:-python3}" - <<'END_OF_MODELS' || exit 99
import json
def save(name, model):
    json.dump(model, open(name + ".json", "w"))
model = json.load(open("logp.json")) # whose head has a weight that the logits do not need
head = model["kinds"]["head"]
of_reward = {"r", "rewards", "difference", "pair", "pair_loss"}
head["ops"] = [op for op in head["ops"] if op[3][0] not in of_reward]
model["weights"] = [weight for weight in model["weights"] if weight["name"] != "reward.weight"]
model["inputs"] = [one for one in model["inputs"] if one["name"] != "last"]
save("text", model)
twice = json.loads(json.dumps(model)) # x is the mean of two equal values
twice["kinds"]["head"]["ops"][:1] = [["SCALE", ["x"], {"factor": 1}, ["a"]], ["SCALE", ["x"], {"factor": 1}, ["b"]],
                                     ["POINTWISE", ["a", "b"], {"program": [["ADD", 0, 1], ["CONST", 0.5], ["MUL", 4, 5]]}, ["half"]],
                                     ["LINEAR", ["half", ".lm_head.weight"], {}, ["logits"]]]
at = next(i for i, op in enumerate(twice["kinds"]["head"]["ops"]) if op[0] == "LOGP") # and of a second LOGP one value is read
twice["kinds"]["head"]["ops"][at + 1][1][0] = "logp_2"
twice["kinds"]["head"]["ops"].insert(at + 1, ["LOGP", ["logits", "taken"], {}, ["logp_2", "lse_2"]])
save("twice", twice)
model["kinds"]["layer"]["ops"] += [["ROW_MEAN", ["z"], {}, ["m"]], ["GROUP_SUM", ["m"], {}, ["s"], "policy.py:4"], ["POINTWISE", ["z", "s"], {"program": [["ADD", 0, 1]]}, ["y"]]]
model["kinds"]["layer"]["gives"] = ["y"]
save("mixed", model)
model = json.load(open("text.json"))
given = json.loads(json.dumps(model))
given["weights"] += [{"name": "likely.weight", "shape": [97, 24], "initial": "ones"}, {"name": "wide.weight", "shape": [24, 1], "initial": "ones"}]
for name, width, gives, ops in [("likely", 24, "logp", [["LINEAR", ["x", ".weight"], {}, ["l"]], ["LOGP", ["l", "taken"], {}, ["logp", "lse"]]]),
                                ("wide", 1, "z", [["LINEAR", ["x", ".weight"], {}, ["z"]]])]:
    given["kinds"][name] = {"takes": [{"name": "x", "shape": ["batch", "sequence", width]}], "gives": [gives], "ops": ops}
    given["units"].insert(-1, {"kind": name, "prefix": name + "."})
save("given", given)
model["inputs"] = [model["inputs"][0], {"name": "next", "dtype": "i32", "shape": ["batch", "sequence"]}]
model["kinds"]["head"]["ops"] = [["LINEAR", ["x", ".lm_head.weight"], {}, ["logits"]], ["CROSS_ENTROPY", ["logits", "next", "next.share"], {}, ["loss"]]]
del model["shares"]
save("plain", model)
model["logits"], model["shares"] = "logits", [{"name": "pairs", "over": "samples", "factor": 0.0625}]
del model["inputs"][1]
model["kinds"]["head"]["ops"] = [["LINEAR", ["x", ".lm_head.weight"], {}, ["product"]], ["SCALE", ["product"], {"factor": 1}, ["logits"]],
                                 ["POINTWISE", ["logits"], {"program": [["SQUARE", 0]]}, ["squares"]], ["SUM_LOSS", ["squares", "pairs"], {}, ["loss"]]]
save("squared", model)
END_OF_MODELS
# texts NAME DESCRIPTION SETTING...: what it scores and generates.
texts() {
  texts_name=$1 texts_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$texts_name" logp.cfg -s model.description="$texts_model.json" -s generate.prompts=2 "$@" && "./$texts_name" init --seed 7 --output "$texts_name.start" 2>/dev/null &&
    "./$texts_name" score --data data.bin --init "$texts_name.start" --output "$texts_name.scores" --quiet >"$texts_name.sum" 2>/dev/null &&
    "./$texts_name" generate --init "$texts_name.start" --prompt "65 66 67" --tokens 24 --seed 3 --quiet >"$texts_name.text" 2>/dev/null
}
same_texts() { cmp "$1.scores" "$2.scores" && cmp "$1.sum" "$2.sum" && cmp "$1.text" "$2.text"; }
ok "a model with cross entropy scores and generates" texts plain_one plain
ok "one with other losses" texts text_one text batch.loss_group=2
ok "the same" same_texts plain_one text_one
ok "with equal operations before" texts twice_one twice batch.loss_group=2
ok "the same" same_texts plain_one twice_one
ok "on 2 ranks, the head in chunks" texts text_two text batch.loss_group=2 pipeline.ranks=2 batch.microbatch=4 model.loss_rows=32
ok "the same texts" cmp plain_one.text text_two.text
ok "with a weight that the logits do not need" texts reward_one logp batch.loss_group=2
ok "the same" same_texts plain_one reward_one
ok "where the description names TOKEN_LOGP" texts named_text named batch.loss_group=2
ok "the same" same_texts plain_one named_text
ok "in bf16" texts plain_half plain model.dtype=bf16
ok "where ops of f32 alone read the logits" texts squared_half squared model.dtype=bf16
ok "the same" same_texts plain_half squared_half
ok "in bf16, as TOKEN_LOGP, on replicas that share weights" "$gen" --check -s model.description=named.json -s model.dtype=bf16 -s batch.loss_group=2 -s data_parallel.replicas=2 \
  -s data_parallel.shard=weights -s pipeline.microbatches=1 logp.cfg
ok "in bf16, log-probabilities that a unit gives, and unread normalizers" "$gen" --check -s model.description=given.json -s model.dtype=bf16 -s batch.loss_group=2 \
  -s pipeline.ranks=2 logp.cfg
ok "a model whose layers read other samples" build mixed_one logp.cfg -s model.description=mixed.json -s batch.loss_group=2
fails "does not" 64 "score: this binary's model reads more than texts have: unit layer, op 4, GROUP_SUM (policy.py:4): later tokens" \
  ./mixed_one score --data data.bin --init text_one.start --output -
# logits NAME: with that key.
logits() { sed "s/\"source\"/\"logits\": \"$1\", \"source\"/; s/\[11, 24\]/[${2:-97}, 24]/" policy.json >key.json && "$gen" -s model.description=key.json -s batch.loss_group=2 policy.cfg; }
is "a key names other logits" "$(logits logits | grep -c 'name = "score"')" 1
matches "they have as many columns as the first unit embeds tokens" "$(logits logits 11 | grep -A 1 no_texts)" '*"has logits of 11 tokens, and unit embedding, op 0, EMBEDDING* embeds 97"*'
fails "and no other value" 78 'key.json: logits = "kl": a value that a LINEAR of the last unit' logits kl

# ---- the log, an evaluation, groups, a step without a loss ----
is "samples are counted, and targets" "$(log_field losses_one.log samples | head -1) $(log_field losses_one.log tokens | head -1)" "4 $(
  "${PYTHON:-python3}" -c 'print(64 - sum((w * 7919 + e * 104729 + sum(map(ord, "class"))) * 2654435761 % 2**32 // 2**20 % 5 == 0 for w in range(4) for e in range(16)))')"
./losses_one eval --data losses.safetensors --checkpoint losses_one.ckpt --quiet >evaluated 2>/dev/null
matches "an evaluation has a loss, and no perplexity" "$(cat evaluated)" '{"loss":[0-9]*,"tokens":[0-9]*}'
fails "it generates no text" 64 "model has logits of 11 tokens, and unit embedding, op 0, EMBEDDING embeds 97" ./losses_one generate --checkpoint losses_one.ckpt --prompt 65
samples masked.safetensors 0 4 data.bin 16 idx:I32:tokens value:F32:reals:16 old:F32:reals:16 weight:F32:parts:16 state:BF16:reals:16x24 label:U8:bits:16 \
  mask:U8:zeros:16 class:I64:ids:16 topic:I64:ids: score:F32:reals:
./losses_one train --steps 1 --seed 7 --quiet --data masked.safetensors --log masked.log
log_field masked.log loss >masked
log_field masked.log loss >>masked
ok "a mask of zeros: the losses with other shares are left" is_near 1e-5 5.7549721764496755 5.7549721764496755 <masked
samples odd.safetensors 0 5 data.bin 16 idx:I32:tokens taken:I64:ids:16 valid:U8:valid:16 old:F32:logs:16 reference:F32:logs:16 advantage:F32:reals:16 \
  mask:U8:bits:16 sign:F32:signs:16 last:U8:last:16 teacher:I32:ids:16x3 probability:F32:parts:16x3
fails "no whole groups" 65 "odd.safetensors: 5 samples: a multiple of 2, which the loss takes together (batch.loss_group)" \
  ./policy_one train --steps 1 --quiet --data odd.safetensors
ok "measure has whole groups" "$gen" --blocks -o blocks.c -s batch.loss_group=2 policy.cfg
fails "half a group a microbatch" 78 "batch.microbatch = 3: a multiple of 2, batch.loss_group" "$gen" --check -s batch.loss_group=2 -s batch.microbatch=3 policy.cfg

# ---- what is refused ----
checks() { "$gen" --check -s model.description=wrong.json losses.cfg; }
while IFS='|' read -r change message; do
  sed "$change" losses.json >wrong.json
  fails "$change" 78 "wrong.json$message" checks
done <<'END_OF_CHANGES'
s/"over": "samples"/"over": "sample"/|: shares?0?.over = "sample": "samples", "sum" or "targets"
s/"input": "mask", "least"/"input": "masks", "least"/|: shares?1?.input = "masks": an input of the list, by name
s/"over": "targets", "input": "class"/"over": "targets", "input": "value"/|: shares?4?.input = "value": the targets, or an input of i32, i64 or u8
s/"factor": 0.25/"factor": 0/|: shares?2?.factor = 0: a number that is not 0, of at most 3.4e38
s/"factor": 0.25/"factor": -1e39/|: shares?2?.factor = -1e39: a number that is not 0, of at most 3.4e38
s/"least": 1}/"least": 0}/|: shares?1?.least = 0: a number above 0, of at most 3.4e38
s/"name": "half"/"name": "masked"/|: shares?3?.name = "masked": a name of its own
s/\["ppo", "half"\]/["ppo", "masked"]/|: shares?3?: half: no loss has it
s/\["ppo", "half"\]/["ppo"]/|: unit head, op 14, SUM_LOSS: operand share is missing
s/\["ppo", "half"\]/["ppo", "mask"]/|: unit head, op 14, SUM_LOSS: mask: operand share: a name of the list shares
s/"class", "classes"\]/"class", "class.share"]/|: unit head, op 15, CROSS_ENTROPY: class.share: operand share: a name of the list shares
s/"shares": \[/"sharing": [/|: sharing: there is no such key
s/"shares": \[/"loss_of": "step", &/|: loss_of = "step": "microbatch", with a list shares
s/\["s", "score"\]/["s", "value"]/|: unit head, op 22, POINTWISE (losses.py:25): operand x0 is of samples, operand x1 of tokens; all are of either
s/\["topics", "topic", "topics"\]/["topics", "class", "topics"]/|: unit head, op 19, CROSS_ENTROPY (losses.py:22): operand logits is of samples, operand targets of tokens
s/"SELECT_TOKENS", \["x"\], {"tokens"/"SELECT_TOKENS", ["first"], {"tokens"/|: unit head, op 20, SELECT_TOKENS: operand x: a value of tokens, not of samples
s/"SELECT_TOKENS", \["x"\], {"first": 0/"SELECT_TOKENS", ["x"], {"first": -1/|: unit head, op 16, SELECT_TOKENS (losses.py:20): first = -1: a whole number from 0 to
s/"REPEAT_TOKENS", \["mean"\]/"REPEAT_TOKENS", ["d"]/|: unit head, op 3, REPEAT_TOKENS: operand x: a value of samples, not of tokens
s/"gives": \["z"\]/"gives": ["w"]/; s/, "x"\], {}, \["z"\]\]/&, ["SELECT_TOKENS", ["z"], {}, ["w"]]/|: unit layer: gives w: a value of tokens, not of samples
END_OF_CHANGES
fails "a loss that is a sum" 78 'model.loss = cross_entropy_sum: "cross_entropy"; the losses of losses.json have shares of their own' \
  "$gen" --check -s model.loss=cross_entropy_sum losses.cfg
finish
