#!/bin/sh
# inputs.t: family described: inputs that a safetensors file has by their names have the bits of a token file with the same windows, in any stage, on
# any ranks; what does not fit is refused.
. "${top_srcdir:-.}/tests/support/lib.sh"

models=$(cd "$top_srcdir/tests/models" && pwd)
cd "$scratch" || exit 99
make_tokens data.bin 1500 # 93 windows of 16 tokens
samples() { "${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$@"; } # OUT FIRST COUNT TOKENS SEQUENCE NAME:DTYPE:WHAT...
# model NAME SEQUENCE: NAME.cfg, of the description NAME.json.
model() {
  cat >"$1.cfg" <<END
model = { family = "described"; description = "$1.json"; sequence = $2; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
}
# plan NAME MODEL SETTING...: builds.
plan() {
  plan_name=$1 plan_model=$2
  shift 2
  for setting in "$@"; do set -- "$@" -s "$setting"; shift; done
  build "$plan_name" "$plan_model.cfg" "$@"
}
# as REFERENCE NAME MODEL FILE SETTING...: builds and trains NAME to the bits of REFERENCE.
as() {
  as_reference=$1 as_name=$2 as_model=$3 as_file=$4
  shift 4
  ok "$as_name: a plan" plan "$as_name" "$as_model" "$@"
  ok "$as_name trains" train_bits "$as_name" --data "$as_file" --steps 3
  ok "$as_name has the bits of $as_reference" same_bits 3 "$as_reference" "$as_name"
}

# ---- tokens and targets by name: the bits of the token file ----
cp "$models/nano.json" tokens.json
sed 's/, "from": "t[a-z]*"//' tokens.json >named.json
model tokens 16
model named 16
samples all.safetensors 0 93 data.bin 16 idx:I32:tokens targets:I64:targets
ok "tokens: a plan" plan tokens tokens
ok "tokens trains" train_bits tokens --data data.bin --steps 3
as tokens named named all.safetensors
is "with as many targets" "$(log_field named.log tokens)" "$(log_field tokens.log tokens)"
as tokens named_two named all.safetensors pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=interleaved model.loss_rows=32
for name in tokens named; do
  ./$name score --data data.bin --checkpoint $name.ckpt --output - --quiet >$name.scores
  is "$name scores a text" $? 0
  ./$name generate --checkpoint $name.ckpt --quiet --prompt "65 66 67" --tokens 20 --seed 3 >$name.text
  is "$name continues one" $? 0
done
ok "the same scores" cmp tokens.scores named.scores
ok "the same text" cmp tokens.text named.text
# ---- files, order, evaluation, another topology: as with the token file ----
for part in 1 2 3; do samples part-0000$part-of-00003.safetensors $((31 * part - 31)) 31 data.bin 16 targets:I32:targets idx:I64:tokens; done
# alike NAME TRAIN OPTION...: named trains with these options to the bits of tokens with those of $of_tokens.
alike() {
  alike_name=$1
  shift
  ok "$alike_name: tokens" train_bits tokens --steps 5 $of_tokens
  ok "$alike_name: named" train_bits named --steps 5 "$@"
  ok "$alike_name: the same bits" same_bits 5 tokens named
  is "$alike_name: the same epochs" "$(log_field named.log epoch)" "$(log_field tokens.log epoch)"
}
head -c 97 data.bin.text >few.text # 6 windows
"$tokens" --bytes -o few.bin few.text 2>/dev/null
samples few.safetensors 0 6 few.bin 16 idx:I32:tokens targets:I32:targets
of_tokens="--data data.bin"
alike "parts" --data part-00001-of-00003.safetensors
cp named.sums parts.sums
ok "a list of them" train_bits named --steps 5 --data 'part-*.safetensors'
ok "the same bits" cmp parts.sums named.sums
of_tokens="--data few.bin --shuffle --shuffle-seed 3"
alike "shuffled" --data few.safetensors --shuffle --shuffle-seed 3
is "the manifest counts samples" "$(sed -n 's/.*"data": {"epoch": \([0-9]*\), "rows": \([0-9]*\), "shuffle": "3".*/\1 \2/p' named.ckpt/latest/manifest.json)" "4 2"
of_tokens="--data few.bin=0.25 --data data.bin=0.75"
alike "blended" --data few.safetensors=0.25 --data all.safetensors=0.75
of_tokens="--data data.bin --eval-data few.bin --eval-every 2 --log-microbatches"
alike "evaluated" --data all.safetensors --eval-data few.safetensors --eval-every 2 --log-microbatches
is "the same losses of microbatches" "$(sed -n 's/.*"microbatch_losses":\([^]]*\).*/\1/p' named.log)" "$(sed -n 's/.*"microbatch_losses":\([^]]*\).*/\1/p' tokens.log)"
is "the same losses of evaluation" "$(log_field named.log eval_loss)" "$(log_field tokens.log eval_loss)"
is "of eval, too" "$(./named eval --data few.safetensors --checkpoint named.ckpt --quiet 2>/dev/null)" "$(./tokens eval --data few.bin --checkpoint tokens.ckpt --quiet 2>/dev/null)"
cp -r named.ckpt/ two.ckpt
ok "one rank makes seven steps" train_bits named --steps 7 --data all.safetensors
./named_two train --data all.safetensors --steps 7 --quiet --resume --checkpoint two.ckpt
is "two ranks go on after five" $? 0
ok "the same weights" cmp two.ckpt/latest/model.safetensors named.ckpt/latest/model.safetensors
fails "with other samples" 65 "few.safetensors: not the file that " ./named_two train --data few.safetensors --steps 8 --resume --checkpoint two.ckpt
ok "tokens on two replicas: a plan" plan tokens_replicas tokens data_parallel.replicas=2 pipeline.microbatches=2
ok "trains" train_bits tokens_replicas --data data.bin --steps 3
as tokens_replicas named_replicas named all.safetensors data_parallel.replicas=2 pipeline.microbatches=2

# ---- inputs of stages in the middle: values of several dtypes, tokens ----
sed -e '/"name": "idx"/i {"name": "prior", "dtype": "f32", "shape": ["batch", "sequence", 6, 8]},' \
  -e 's/\["ADD", \["y", "db"\], {}, \["z"\], "nano.py:43"\]/["ADD", ["y", "db"], {}, ["w"]], ["ADD", ["w", "prior"], {}, ["z"]]/' named.json >prior.json
model prior 16
inputs="idx:I32:tokens targets:I32:targets"
samples prior.safetensors 0 93 data.bin 16 $inputs prior:F32:16x6x8
ok "prior: a plan" plan prior prior
matches "info lists them" "$(./prior info)" "*
inputs        prior: F32 ?samples, 16, 6, 8?
              idx: I32 or I64 ?samples, 16?
              targets: I32 or I64 ?samples, 16?
*"
matches "in JSON, too" "$(./prior info --json)" '*"inputs":?{"name":"prior","dtype":"f32","sample":?16,6,8?},{"name":"idx","dtype":"i32","sample":?16?},*'
samples zeros.safetensors 0 93 data.bin 16 $inputs prior:F32:zeros:16x6x8
ok "a prior of zeros trains" train_bits prior --data zeros.safetensors --steps 3
ok "to the bits of none" same_bits 3 named_two prior
ok "prior trains" train_bits prior --data prior.safetensors --steps 3
ok "to other bits" other_bits named_two prior
as prior prior_two prior prior.safetensors pipeline.ranks=2 memory.recompute=full
as prior prior_four prior prior.safetensors pipeline.ranks=4 pipeline.zero_bubble=true
for dtype in bf16 u8; do
  sed "s/\"prior\", \"dtype\": \"f32\"/\"prior\", \"dtype\": \"$dtype\"/" prior.json >$dtype.json
  model $dtype 16
  samples $dtype.safetensors 0 93 data.bin 16 $inputs "prior:$(echo $dtype | tr bfu BFU):16x6x8"
  as prior prior_$dtype $dtype $dtype.safetensors
done
ok "a plan for cuda" "$gen" --check -s cluster.device=cuda prior.cfg
ok "in bf16: a plan" plan prior_half prior model.dtype=bf16
ok "trains" train_bits prior_half --data prior.safetensors --steps 3
ok "close to f32" close_to prior prior_half 0.03
for name in tokens named; do
  sed -e '/"name": "h.\*.ln_1.weight"/i {"name": "h.*.again.weight", "shape": [97, 48], "initial": {"normal": 0.1}},' \
    -e 's/\["ADD", \["y", "db"\], {}, \["z"\], "nano.py:43"\]/["ADD", ["y", "db"], {}, ["w"]], ["EMBEDDING", ["idx", ".again.weight", "w"], {}, ["z"]]/' $name.json >again_$name.json
  model again_$name 16
done
ok "tokens in each layer: a plan" plan again_tokens again_tokens
ok "trains" train_bits again_tokens --data data.bin --steps 3
as again_tokens again_three again_named all.safetensors pipeline.ranks=3
fails "texts do not reach the middle" 64 "generate: this binary's model reads more than texts have" ./again_three generate --checkpoint again_three.ckpt --prompt 65
fails "nor do they have a prior" 64 "score: this binary's model reads more than texts have" ./prior score --data data.bin --checkpoint prior.ckpt --output -

# ---- samples without a sequence ----
cp "$models/digits.json" digits.json
model digits 1
samples digits.safetensors 0 40 data.bin 1 pixels:U8:4x6 digit:I64:
ok "digits: a plan" plan digits digits
ok "digits trains" train_bits digits --data digits.safetensors --steps 3
is "a sample has a target" "$(log_field digits.log tokens | tr '\n' ' ')" "4 4 4 "
as digits digits_three digits digits.safetensors pipeline.ranks=3 partition.unit=block partition.before=[side.pixels,last] pipeline.zero_bubble=true
fails "it generates no text" 64 "more than texts have" ./digits generate --checkpoint digits.ckpt --prompt 65

# ---- what is refused ----
trains() { ./named train --steps 3 --quiet --data "$@"; }
while IFS='|' read -r name inputs message; do
  # shellcheck disable=SC2086
  samples wrong.safetensors 0 8 data.bin 16 $inputs
  fails "$name" 65 "wrong.safetensors: $message" trains wrong.safetensors
done <<'END_OF_WRONG'
a name that is missing|idx:I32:tokens target:I32:targets|input targets: missing; I32 or I64 ?samples, 16? is wanted
another dtype|idx:F32:tokens targets:I32:targets|input idx: it is F32 ?8, 16?, and I32 or I64 ?samples, 16? is wanted
other extents|idx:I32:24 targets:I32:targets|input idx: it is I32 ?8, 24?, and I32 or I64 ?samples, 16? is wanted
an extent more|idx:I32:16x1 targets:I32:targets|input idx: it is I32 ?8, 16, 1?
a further tensor|idx:I32:tokens targets:I32:targets mask:U8:16|tensor mask: not an input of the model, which are idx, targets
an id that the table does not have|idx:I32:97:tokens targets:I32:targets|input idx: element 15 of sample 7 is 97: ids from 0 to 96
a target that no logit has|idx:I32:tokens targets:I64:5000000000:targets|input targets: element 15 of sample 7 is 5000000000: ids from 0 to 96, or -100
END_OF_WRONG
head -c 3000 all.safetensors >cut.safetensors
fails "a file that was cut" 65 "cut.safetensors: tensor idx: reaches past the end of the file" trains cut.safetensors
head -c 3 all.safetensors >few_bytes.safetensors
fails "the first bytes of one" 65 "few_bytes.safetensors: no safetensors file: the model's inputs are read by name from one: idx, targets" trains few_bytes.safetensors
fails "a token file" 65 "data.bin: no safetensors file: the model's inputs are read by name from one: idx, targets" trains data.bin
fails "no data" 64 "train needs --data FILE: a safetensors file that has its inputs by name" ./named train
fails "ids" 64 "--ids 16: the model's inputs are read by name from the data" ./named train --data data.bin --ids 16
fails "a list with a token file" 65 "data.bin: no safetensors file" trains few.safetensors --data data.bin
samples ignored.safetensors 0 4 data.bin 16 idx:I32:tokens targets:I32:-100:targets
./named train --steps 1 --quiet --data ignored.safetensors --log ignored.log
is "a target of -100 is ignored" "$(log_field ignored.log tokens)" 63
samples nan.safetensors 0 4 data.bin 16 idx:I32:tokens targets:I32:targets prior:F32:nan:16x6x8
fails "a value that is not finite is computed with" 79 "" ./prior train --steps 1 --quiet --data nan.safetensors --log nan.log
is "the step has no loss" "$(log_field nan.log loss)" null
checks() { "$gen" --check -s model.description=wrong.json prior.cfg; }
while IFS='|' read -r change message; do
  sed "$change" prior.json >wrong.json
  fails "$change" 78 "wrong.json$message" checks
done <<'END_OF_CHANGES'
s/"dtype": "f32"/"dtype": "f64"/|: inputs?0?.dtype = "f64": "i32", "i64", "f32", "bf16" or "u8"
s/"dtype": "f32"/"dtype": "i32"/|: unit layer, op 15, ADD: prior: operand *: a value, not an input; or an input by name of f32, bf16 or u8
s/"sequence", 6, 8/"sequence", 6, 7/|: unit layer, op 15, ADD:
s/"batch", "sequence", 6, 8/6, 8/|: inputs?0?.shape = ?6,8?: ?"batch", "sequence", ...? or ?"batch", ...?, with at most 5 extents
s/"sequence", 6, 8/48/|: unit layer, op 15, ADD: operand b is of samples, operand a of tokens
s/"name": "idx", "dtype": "i32"/"name": "idx", "dtype": "f32"/|: unit embedding, op 0, EMBEDDING (nano.py:60): idx: operand tokens: the input from "tokens", or one by name of i32, i64 or u8
s/"targets.share"/"idx.share"/|: unit head, op 2, CROSS_ENTROPY: idx.share: operand share: that of the operand targets
s/\("name": "targets".*\)}/\1, "from": "targets"}/|: inputs?2?*: all inputs with "from", of a token file, or none but starts, of tensors by name
s/\["w", "prior"\]/["w", "y"]/|: inputs?0?: prior: no op reads it
s/"idx"/"prior"/|: inputs?1? = *: a name and a "from" of its own
END_OF_CHANGES
finish
