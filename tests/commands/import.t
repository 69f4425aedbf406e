#!/bin/sh
# import.t: penstock-import describes modules of PyTorch so that a deployment has their losses and gradients, and the bits of the family where there is
# one; it refuses what it cannot, by the user's lines. Needs a Python with torch and transformers: set PEER.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/import/import.sh"

# ---- what is imported, and refused: one process for all ----
trained="nano written_out odd placed llama gpt2 gemma3 olmo2" checked="mistral gemma2 qwen2 qwen3 programs standard lecture parts phi3 gpt_neox stablelm phi" folders="bare neox scaled"
for name in $trained $checked; do
  options=
  test $name != odd || options="--loss odd_loss"
  echo "$name $cases/models.py:$name --sequence 16 -o $name.cfg --weights $name.start $options"
done >runs
named="regression raised dpo encoder regressor pooled scores"
while read -r name module; do echo "$name $cases/named.py:$module -o $name.cfg --weights $name.start"; done >>runs <<'END_OF_NAMED'
regression model --inputs regression_inputs --loss regression --sequence 16
raised takes --inputs policy_inputs --loss raised --sequence 16
squared_value takes --inputs policy_inputs --loss squared_value --sequence 16
dpo model --inputs policy_inputs --loss dpo --sequence 16
encoder encoder --inputs encoder_inputs --loss picked --sequence 16
regressor regressor --inputs regressor_inputs --loss squares
pooled pooled --inputs pooled_inputs --loss squares --sequence 16
scores scores --inputs pooled_inputs --loss margins --sequence 16
counted model --inputs regression_inputs --loss counted --sequence 16
of_microbatch model --inputs regression_inputs --loss counted --loss-of microbatch --sequence 16
grpo model --inputs policy_inputs --loss grpo --sequence 16
distilled model --inputs policy_inputs --loss distilled --sequence 16
smoothed model --loss smoothed --sequence 16
classes regressor --inputs regressor_inputs --loss classes
no_pairs model --inputs policy_inputs --loss pairs --loss-group 2 --sequence 16
no_contrastive model --inputs policy_inputs --loss contrastive --sequence 16
no_whole_teacher model --inputs policy_inputs --loss whole_teacher --sequence 16
no_balance model --inputs policy_inputs --loss balance --sequence 16
no_raised_alone model --inputs policy_inputs --loss raised_alone --sequence 16
no_whole_sum model --inputs policy_inputs --loss whole_sum --sequence 16
needs_sequence model --inputs policy_inputs --loss grpo
END_OF_NAMED
for name in $folders; do echo "$name --hf hf/$name --sequence 16 -o $name.cfg"; done >>runs
refused=$(sed -n 's/^FUNCTIONS = (\(.*\))/\1/p; s/^CLASSES = (\(.*\))/\1/p' "$cases/refused.py" | tr -d ',' | tr '[:upper:]' '[:lower:]' | tr '\n' ' ')
for name in $refused flat; do echo "no_$name $cases/refused.py:build_$name --sequence 16 -o no_$name.cfg --weights no_$name.start"; done >>runs
disturbed="$(sed -n 's/^    "\([a-z_]*\)": lambda.*/\1/p' "$cases/disturbed.py") heads_by_view heads_left other_ids places_of_two"
for name in $disturbed nothing; do
  echo "other_$name $cases/disturbed.py:$name --sequence 16 -o other_$name.cfg"
done >>runs
sed -n '/^    import torch$/,/^Bytes/s/^    //p' "$top_srcdir/docs/own-model.md" |
  sed 's/vocabulary=256, width=256, layers=8, most=1024/vocabulary=97, width=64, layers=2, most=16/' >my.py
cat >>runs <<END_OF_RUNS
my my.py:Model --sequence 16 -o my.cfg
raises $cases/refused.py:raises --sequence 16 -o raises.cfg
ops $cases/models.py:nano --sequence 16 --print=ops
units $cases/models.py:nano --sequence 16 --print=units
reasons $cases/refused.py:build_several --sequence 16 --print=refused
long $cases/models.py:nano --sequence 64 -o long.cfg
meta $cases/models.py:qwen3 --sequence 16 --meta -o meta.cfg
large --hf hf/scaled --sequence 16 --meta -o large.cfg
whole $cases/models.py:nano --sequence 32 --cut h.0,h.1 -o whole.cfg
named $cases/refused.py:build_flat --sequence 16 --cut first,second -o named.cfg
no_file absent.py:build --sequence 16 -o no_file.cfg
no_build $cases/models.py:absent --sequence 16 -o no_build.cfg
no_sequence $cases/models.py:nano -o no_sequence.cfg
no_output $cases/models.py:nano --sequence 16
no_folder $cases/models.py:nano --sequence 16 -o absent/x.cfg
END_OF_RUNS
run_all() { "$python" -B "$cases/run.py" "$program" "$cases/models.py" hf mistral odd <runs >changes; }
ok "all of them run" run_all

for name in $trained $folders $named; do
  is "$name is imported" "$(status $name)" 0 || sed 's/^/# /' $name.err
  start=$name.start
  test -f "$start" || start=hf/$name
  data=data.bin
  test ! -f $name.safetensors || data=$name.safetensors
  microbatches=4
  case $name in dpo | scores) microbatches=2 ;; esac
  ok "$name: its plan" build $name $name.cfg -s pipeline.microbatches=$microbatches -s optimizer.learning_rate=1e-3 -s optimizer.weight_decay=0
  ok "$name: trains with its weights" train_bits $name --data $data --steps 3 --init "$start" 2>/dev/null
  sed -n '1p;4p' $name.bits | paste -d ' ' - - >$name.ours
done
modules=$(for name in $trained; do echo "$cases/models.py:$name"; done | sed 's/:odd$/:odd:odd_loss/')
# shellcheck disable=SC2086 # words are meant to part here
"$python" -B "$cases/step.py" data.bin 16 4 $modules $(for name in $folders; do echo hf/$name; done
  for name in regression:model:regression raised:takes:raised dpo:model:dpo encoder:encoder:picked regressor:regressor:squares pooled:pooled:squares scores:scores:margins; do echo "$cases/named.py:${name#*:}:${name%%:*}.safetensors"; done
  for name in $folders; do echo $name.ckpt/latest; done) >torch.steps 2>torch.err
ok "transformers reads checkpoints of folders" test $? = 0 || sed 's/^/# /' torch.err
number=0
for name in $trained $folders $named; do
  number=$((number + 1))
  echo "# $name: PyTorch $(sed -n ${number}p torch.steps), ours $(cat $name.ours)"
  ok "$name: the loss and norm of PyTorch" sh -c "sed -n ${number}p torch.steps | paste -d ' ' $name.ours - |
    awk '{ a = \$1 / \$3 - 1; b = \$2 / \$4 - 1; exit !(NF == 4 && a * a < 1e-10 && b * b < 1e-10) }'"
done

for name in $checked counted of_microbatch grpo distilled smoothed classes squared_value; do ok "$name is imported" "$gen" --check $name.cfg; done 2>checked.err
ok "whose config.json they have" cmp hf/bare/config.json bare.ckpt/latest/config.json

# ---- a family's bits ----
family() {
  cat >$1_family.cfg <<END_OF_MODEL
model = { family = "$2"; hidden = 32; heads = 4; vocab = 200; sequence = 16; $3 };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; weight_decay = 0; steps = 1000; warmup_steps = 100; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
}
family llama llama 'layers = 3; kv_heads = 2; ffn = 48; norm_epsilon = 1e-6;'
family gpt2 gpt2 'layers = 2; ffn = 128;'
family gemma3 gemma3_text 'layers = 6; kv_heads = 2; head_dim = 16; ffn = 48; window = 5; query_scalar = 32; rope_theta = 1e6;'
for name in llama gpt2 gemma3; do
  ok "$name: the family" build ${name}_family ${name}_family.cfg
  ok "$name: trains with these weights" train_bits ${name}_family --data data.bin --steps 3 --init $name.start 2>/dev/null
  ok "$name: the import has its bits" same_bits 3 $name ${name}_family
done

# ---- what is said, and written ----
matches "dropout is left out" "$(cat nano.err)" "*dropout of 0.1 is left out*"
matches "and what nothing reads" "$(cat nano.err)" "*spare.weight is left out: nothing reads it*"
matches "tokens of which no input has one each" "$(cat smoothed.err)" "*model.sequence stays 16*"
matches "how many samples the loss takes together" "$(cat dpo.err) $(grep -c 'microbatch = 2; loss_group = 2;' dpo.cfg)" "*the loss takes 2 samples together*1"
matches "also of inputs" "$(cat dpo.err)" "*the input advantage is left out: nothing reads it*"
ok "logits that no cross entropy reads have their name" grep -q '"logits": "logits",$' squared_value.json
ok "and what is fixed is written" grep -q '"source": ".*; the loss is over 16 tokens of a sample: model.sequence stays so"' smoothed.json
ok "a sum over the number of targets is their mean" grep -q '"kind.share"' counted.json
ok "or a share of each microbatch" grep -q '"loss_of": "microbatch"' of_microbatch.json
ok "two names of one matrix" grep -q '"name": "wte.weight", "shape": \[200, 32\], .*"tied": "lm_head.weight"' nano.json
is "layers are of one kind" "$(sed -n '/"units"/,$p' nano.json | tr -d ' \n')" '"units":[{"kind":"embedding","prefix":""},{"kind":"layer","prefix":"h.","count":2},{"kind":"head","prefix":""}]}'
ok "ops have the user's lines" grep -q '"LAYERNORM".*"models.py:[0-9]*"\]' nano.json
ok "frozen weights stay so" grep -q 'frozen = \["h.0.mlp.c_fc.weight", ' written_out.cfg
is "they do not change" "$(log_field written_out.log loss | wc -l) $("$python" -c '
import sys
from safetensors import safe_open
a, b = (safe_open(path, "np") for path in sys.argv[1:])
print(*sorted({name.split(".")[2] for name in a.keys() if name.startswith("h.") and (a.get_tensor(name) == b.get_tensor(name)).all()}))' written_out.start written_out.ckpt/latest/model.safetensors)" "3 mlp"
ok "a sum is one" grep -q 'loss = "cross_entropy_sum"' odd.cfg
is "two kinds of layers" "$(sed -n '/"units"/,$p' gemma3.json | grep -c '"count"')" 2
for name in nano whole; do sed -n '/"kinds"/,$p' $name.json >${name}_kinds; done
ok "--cut names the units" cmp nano_kinds whole_kinds
ok "--print=ops" grep -q '^v[0-9]* = ATTENTION v[0-9]*\[0\] v[0-9]*\[1\] v[0-9]*\[2\] starts heads=4 kv_heads=4 head_dim=8  # models.py:' ops.out
is "--print=units" "$(cut -d : -f 1 units.out | tr '\n' ' ')" "- h.0 h.1 - "
matches "--print=refused" "$(status reasons) $(cat reasons.out)" "65 refused.py:*: x = layer.up(x).erfinv(): Penstock has no operation for aten.erfinv
refused.py:*: return layer.down(x.sin()): Penstock has no operation for aten.sin"

is "the model of docs/own-model.md" "$(status my) $(grep -c POINTWISE my.json)" "0 3"

# ---- refusals: the line, the reason, no file ----
for name in $refused; do
  marked=$(awk -v name="$name" 'tolower($0) ~ "^(def|class) " name "\\(" { on = 1; next } /^(def|class) / { on = 0 } on && /#>/ { print FNR + 1 ":" $0 }' "$cases/refused.py")
  wrong=$(echo "$marked" | while IFS= read -r line; do
    grep -F "penstock-import: refused.py:${line%%:*}: " no_$name.err | grep -qF "${line##*#> }" || echo "${line##*#> }"
  done)
  is "refused: $name: the line and the reason" "$(status no_$name) $wrong" "65 "
  test -z "$wrong" || sed 's/^/# /' no_$name.err
done
for name in pairs contrastive whole_teacher balance raised_alone whole_sum; do
  wrong=$(sed -n "/^def $name(/,/^\$/s/^    #> //p" "$cases/named.py")
  matches "refused: the loss $name" "$(status no_$name) $(cat no_$name.err)" "65 *named.py:*: *$wrong*"
done
is "nearly what there is: refused" "$(for name in $disturbed; do
  test "$(status other_$name)" = 65 && ! test -e other_$name.cfg && ! test -e other_$name.json || echo "$name: $(status other_$name)"
done)" ""
is "without a disturbance it is imported" "$(status other_nothing)" 0
is "the comparison finds each change of a description" "$(cat changes)" "8 changes
12 changes"
matches "a model without layers" "$(status no_flat) $(cat no_flat.err)" "65 *no layers: *--cut NAME,...*: some of embed, first, second, head*"
ok "whose modules --cut names" "$gen" --check named.cfg 2>/dev/null
matches "a table of constants stays" "$(cat placed.err)" "*waves is a constant of the module: a weight that stays*"
ok "files have its shape, and it does not change" "$python" -c '
import sys, torch
sys.path.insert(0, sys.argv[1])
import models
from safetensors.torch import load_file
model, saved = models.placed(), load_file("placed.ckpt/latest/model.safetensors")
made = {name: saved.pop(name) for name in ("table", "blocks.1.table", "blocks.1.means_2", "bias_2")}
told = model.load_state_dict(saved, strict=False)
assert not told.unexpected_keys and set(told.missing_keys) <= {"one", "zero", "blocks.0.frequency", "blocks.1.means", "bias"}, told
assert torch.equal(model.waves, models.placed().waves) and torch.equal(made["blocks.1.means_2"], model.blocks[1].means[0]) and made["table"].shape == (16, 32)' "$cases"
fails "a run needs its values" 64 "weight waves has no initial values" "$scratch/placed" train --data data.bin --steps 1
is "nothing is written" "$(ls -d no_* | grep -v '\.err$\|\.out$\|\.status$')" ""
matches "an exception of the user's" "$(status raises) $(cat raises.err)" "65 *refused.py*ValueError: of the user"
matches "positions that there are not" "$(status long) $(cat long.err)" "65 *models.py*AssertionError*"
for case in no_file:66 no_build:66 no_sequence:64 needs_sequence:64 no_output:64 no_folder:73; do is "status of ${case%:*}" "$(status "${case%:*}")" "${case#*:}"; done
matches "--meta is not compared" "$(status meta) $(cat meta.err)" "0 *not compared with the module"
matches "but a small copy of a model of transformers is" "$(status large) $(cat large.err)" "0 *compared with a small model of the class, with a layer of each kind"
for names in "meta qwen3" "large scaled"; do
  # shellcheck disable=SC2086
  set -- $names
  is "$1: the same description, but for initial values" "$(sed 's/"initial": [^,]*[,}]*//' $1.json | cksum)" "$(sed 's/"initial": [^,]*[,}]*//' $2.json | cksum)"
done
is "without torch: 69" "$(python3 -S -B "$program" x.py:build --sequence 16 -o x.cfg >/dev/null 2>&1; echo $?)" 69
finish
