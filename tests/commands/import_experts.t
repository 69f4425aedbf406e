#!/bin/sh
# import_experts.t: penstock-import takes models with experts, of transformers and written by hand: a deployment has their losses and gradients, and those
# of the family where there is one; other routers and experts are refused by the user's lines. Needs a Python with torch and transformers: set PEER.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/import/import.sh"

major=$("$python" -c 'import importlib.metadata as m; print(m.version("transformers").split(".")[0])')
folders="mixtral qwen3_moe olmoe qwen2_moe"
test "$major" -lt 5 || folders="$folders dots1"
taken="by_halves by_hits" checked="by_mask by_column by_scattered_logits by_rows by_numbers"
refused=$(sed -n 's/^REFUSED = (\(.*\))/\1/p' "$cases/experts.py" | tr -d ',')
for name in mixtral qwen3_moe olmoe qwen2_moe dots1 phimoe; do echo "$name --hf hf/$name --sequence 16 -o $name.cfg"; done >runs
for name in $taken $checked; do echo "$name $cases/experts.py:model_$name --sequence 16 -o $name.cfg --weights $name.start"; done >>runs
for name in $refused with_biases of_two_kinds beside_none; do echo "no_$name $cases/experts.py:model_$name --sequence 16 -o no_$name.cfg"; done >>runs
echo "deep --hf hf/deep --sequence 16 --meta -o deep.cfg" >>runs
run_all() { "$python" -B "$cases/run.py" "$program" "$cases/experts.py" hf model_by_column <runs >changes; }
ok "all of them run" run_all

# ---- what is taken ----
for name in $folders $taken; do
  is "$name is imported" "$(status $name)" 0 || sed 's/^/# /' $name.err
  start=$name.start
  test -f "$start" || start=hf/$name
  ok "$name: its plan" build $name $name.cfg -s pipeline.microbatches=4 -s optimizer.learning_rate=1e-3 -s optimizer.weight_decay=0
  ok "$name: trains with its weights" train_bits $name --data data.bin --steps 3 --init "$start" 2>/dev/null
  sed -n '1p;4p' $name.bits | paste -d ' ' - - >$name.ours
done
modules=$(for name in $taken; do echo "$cases/experts.py:model_$name"; done)
# shellcheck disable=SC2046,SC2086 # words are meant to part here
"$python" -B "$cases/step.py" data.bin 16 4 $(for name in $folders; do echo hf/$name; done) $modules \
  $(for name in $folders; do echo $name.ckpt/latest; done) >torch.steps 2>torch.err
ok "transformers reads checkpoints of folders" test $? = 0 || sed 's/^/# /' torch.err
number=0
for name in $folders $taken; do
  number=$((number + 1))
  echo "# $name: PyTorch $(sed -n ${number}p torch.steps), ours $(cat $name.ours)"
  ok "$name: the loss and norm of PyTorch" sh -c "sed -n ${number}p torch.steps | paste -d ' ' $name.ours - |
    awk '{ a = \$1 / \$3 - 1; b = \$2 / \$4 - 1; exit !(NF == 4 && a * a < 1e-10 && b * b < 1e-10) }'"
done

for name in $checked; do is "$name is imported" "$(status $name) $(grep -c '"MOE"' $name.json)" "0 1"; done

# ---- a family's bits ----
family() {
  cat >$1_family.cfg <<END_OF_MODEL
model = { family = "$1"; hidden = 32; heads = 4; kv_heads = 2; vocab = 200; sequence = 16; $2 };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; weight_decay = 0; steps = 1000; warmup_steps = 100; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
  ok "$1: the family" build $1_family $1_family.cfg
  ok "$1: trains with these weights" train_bits $1_family --data data.bin --steps 3 --init hf/$1 2>/dev/null
}
of_eight="layers = 2; head_dim = 12; ffn = 40; moe_ffn = 24; experts = 8; experts_per_token = 3; norm_epsilon = 1e-6;"
family mixtral 'layers = 2; moe_ffn = 24; experts = 4; experts_per_token = 2; window = 5; rope_theta = 1e6;'
family qwen3_moe "$of_eight mlp_only = [0]; expert_every = 1; router_normalize = true;"
test "$major" -lt 5 || family dots1 "$of_eight dense_layers = 1; shared_experts = 1; router_normalize = true; router_groups = 4; router_top_groups = 2; router_scale = 2.5;"
for name in mixtral qwen3_moe; do ok "$name: the import has its bits" same_bits 3 $name ${name}_family; done
if test "$major" -lt 5; then
  matches "refused: experts that transformers 4 takes of groups that are not chosen" "$(status dots1) $(cat dots1.err)" "65 *modeling_dots1.py:*scores of 0 in groups that are not chosen: -inf*"
else
  ok "dots1: the import has its losses" close_to dots1 dots1_family 1e-6
  matches "--meta: a small copy with layers of both kinds is compared" "$(status deep) $(cat deep.err)" "0 *compared with a small model of the class, with a layer of each kind*"
  matches "a loss of the router is left out, and said" "$(cat deep.err)" "*router_aux_loss_coef of 0.01 is left out: model.aux_loss*"
  ok "without weights the names are those of transformers' files" grep -q '"model.layers.\*.mlp.experts.\*.up_proj.weight", "shape": \[8, 24, 32\]' deep.json
fi

# ---- refusals: the line, the reason, no file ----
for name in $refused; do
  marked=$(awk -v name="$name" '$0 ~ "^def " name "\\(" { on = 1; next } /^(def|class) / { on = 0 } on && /#>/ { print FNR + 1 ":" $0 }' "$cases/experts.py")
  wrong=$(echo "$marked" | while IFS= read -r line; do
    grep -F "penstock-import: experts.py:${line%%:*}: " no_$name.err | grep -qF "${line##*#> }" || echo "${line##*#> }"
  done)
  is "refused: $name: the line and the reason" "$(status no_$name) $wrong" "65 "
  test -z "$wrong" || sed 's/^/# /' no_$name.err
done
matches "refused: experts with biases" "$(status no_with_biases) $(cat no_with_biases.err)" "65 *experts.py:*: return self.down(F.silu(self.gate(x)) \* self.up(x)): bias = *"
matches "refused: two kinds of experts" "$(status no_of_two_kinds) $(cat no_of_two_kinds.err)" "65 *experts.py:*: other experts, or another router, than in layers.0: *"
matches "refused: what is computed where no token has an expert" "$(status no_beside_none) $(cat no_beside_none.err)" "65 *the description has another loss than the module"
matches "refused: a router with noise" "$(status phimoe) $(cat phimoe.err)" "65 *modeling_phimoe.py:*random numbers, of aten.rand_like*"
is "the comparison finds each change of a description" "$(cat changes)" "6 changes"
is "nothing is written" "$(ls -d no_* | grep -v '\.err$\|\.out$\|\.status$')" ""
finish
