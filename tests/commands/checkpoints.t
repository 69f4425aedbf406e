#!/bin/sh
# checkpoints.t: what the deployed binary saves and takes back: names and contents, resumption, damage of every kind, and that what was
# good on disk stays good.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 12; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
make_tokens "$scratch/data.bin" 20000
ok "two ranks" build two "$scratch/model.cfg"
ok "four ranks" build four "$scratch/model.cfg" -s pipeline.ranks=4
ok "another model" build wide "$scratch/model.cfg" -s model.hidden=48
ok "a model with other heads, the same shapes" build heads "$scratch/model.cfg" -s model.heads=4

# train NAME OPTION...: runs; the message goes to $scratch/err.
train() {
  train_name=$1
  shift
  "$scratch/$train_name" train --data "$scratch/data.bin" --quiet "$@" 2>"$scratch/err"
}
refuses() { # NAME STATUS PATTERN COMMAND...: the status, the message
  refuses_name=$1 refuses_status=$2 refuses_pattern=$3
  shift 3
  "$@" >/dev/null
  got=$?
  is "$refuses_name: status" $got "$refuses_status"
  matches "$refuses_name: message" "$(complaints "$scratch/err")" "$refuses_pattern"
}

ckpt=$scratch/new/folder/ckpt
ok "trains 6 steps, saves every 2, makes DIR" train two --steps 6 --save-every 2 --checkpoint "$ckpt" --log "$scratch/log"
is "the folders" "$(ls "$ckpt" | tr '\n' ' ')" "latest step-00000002 step-00000004 step-00000006 "
is "latest is a relative link" "$(readlink "$ckpt/latest")" "step-00000006"
is "the files" "$(ls "$ckpt/latest" | tr '\n' ' ')" "config.json manifest.json model.safetensors optimizer.safetensors "
manifest=$(tr -d ' \n' <"$ckpt/latest/manifest.json")
matches "the manifest has the step" "$manifest" '*"step":6*'
matches "the manifest has the cursor: windows read" "$manifest" '*"cursor":48*'
matches "the manifest has checksums by tensor" "$manifest" '*"lm_head.weight":"*'
matches "config.json names the architecture" "$(cat "$ckpt/latest/config.json")" '*LlamaForCausalLM*'

ok "resumes from 6 to 9" train two --steps 9 --resume --checkpoint "$ckpt" --log "$scratch/log"
is "the log is appended to" "$(log_field "$scratch/log" step | tr '\n' ' ')" "1 2 3 4 5 6 7 8 9 "
ok "the whole run" train four --steps 9 --checkpoint "$scratch/whole" --log "$scratch/log2"
ok "is the same, on twice the ranks" cmp "$ckpt/latest/model.safetensors" "$scratch/whole/latest/model.safetensors"
ok "and so are the moments" cmp "$ckpt/latest/optimizer.safetensors" "$scratch/whole/latest/optimizer.safetensors"
is "and the losses" "$(log_field "$scratch/log" loss)" "$(log_field "$scratch/log2" loss)"
ok "resuming at the last step does nothing wrong" train two --steps 9 --resume --checkpoint "$ckpt"
ok "and leaves the same checkpoint" cmp "$ckpt/latest/model.safetensors" "$scratch/whole/latest/model.safetensors"
train two --steps 1 --resume --checkpoint "$scratch/empty"
is "--resume without a checkpoint starts at step 1" $? 0
"$scratch/two" train --data "$scratch/data.bin" --steps 1 --resume --checkpoint "$scratch/empty2" >"$scratch/out" 2>&1
matches "and says so" "$(cat "$scratch/out")" "*step 1*"

# init and --init
ok "init" "$scratch/two" init --seed 5 --output "$scratch/start.safetensors"
ok "trains from the seed" train two --seed 5 --steps 2 --checkpoint "$scratch/seeded"
ok "trains from the file" train two --init "$scratch/start.safetensors" --steps 2 --checkpoint "$scratch/inited"
ok "the same" cmp "$scratch/seeded/latest/model.safetensors" "$scratch/inited/latest/model.safetensors"
refuses "weights of another model" 65 "*start.safetensors*" train wide --init "$scratch/start.safetensors" --steps 1
refuses "no such weights" 66 "*nothing.safetensors*" train two --init "$scratch/nothing.safetensors" --steps 1
refuses "another model's checkpoint" 65 "*" train wide --resume --checkpoint "$ckpt" --steps 1
refuses "a checkpoint with other heads" 65 "penstock: $ckpt/step-00000009/manifest.json: model_digest: a checkpoint of another model: \
num_attention_heads = 2 there, model.heads = 4 here; num_key_value_heads = 2 there, model.kv_heads = 4 here; head_dim = 16 there, model.head_dim = 8 here" train heads --resume --checkpoint "$ckpt" --steps 1

# --init of a checkpoint's folder: what is read is checked against its manifest, which may be of a model with another sequence.
ok "a model of longer sequences" build longer "$scratch/model.cfg" -s model.sequence=32
rm -rf "$scratch/copy"
cp -a "$ckpt" "$scratch/copy"
ok "trains from a checkpoint's folder" train longer --init "$scratch/copy/latest" --steps 1
refuses "--init of a checkpoint with other heads" 65 "penstock: $scratch/copy/step-00000009/config.json: num_attention_heads = 2 there, model.heads = 4 here; *" \
  train heads --init "$scratch/copy/latest" --steps 1
config=$scratch/copy/latest/config.json
cp "$config" "$scratch/config.json"
sed 's/"rope_theta": 10000.0,/"rope_theta": 2e4, "rope_scaling": {"type": "linear", "factor": 4},/' "$scratch/config.json" >"$config"
refuses "--init of one with other positions" 65 "penstock: *config.json: rope_theta = 20000.0 there, model.rope_theta = 10000 here; \
rope_scaling.type = \"linear\" there, model.rope_scaling = absent here; rope_scaling.factor = 4.0 there, model.rope_factor = absent here; *" \
  train two --init "$scratch/copy/latest" --steps 1
ok "which --ignore takes, whole keys" train two --init "$scratch/copy/latest" --steps 1 --ignore rope_theta --ignore rope_scaling
ok "a binary of them" build linear "$scratch/model.cfg" -s model.rope_theta=2e4 -s model.rope_scaling=linear -s model.rope_factor=4
ok "takes them as they are" train linear --init "$scratch/copy/latest" --steps 1
cp "$scratch/config.json" "$config"
refuses "and refuses the others" 65 "penstock: *config.json: rope_theta = 10000.0 there, model.rope_theta = 20000 here; \
rope_scaling = \"none\" there (transformers' default), model.rope_scaling = \"linear\" here; *" train linear --init "$scratch/copy/latest" --steps 1
ok "from the folder that holds it: trains from the latest" train longer --init "$scratch/copy" --steps 1
printf '\001' | dd of="$scratch/copy/latest/model.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
refuses "a flipped byte in it" 65 "*copy/step-00000009/model.safetensors: tensor model.embed_tokens.weight: its SHA-256*" \
  train longer --init "$scratch/copy/latest/" --steps 1
ok "the file by itself has no manifest" train longer --init "$scratch/copy/latest/model.safetensors" --steps 1
rm "$scratch/copy/latest/manifest.json"
ok "nor has a folder without" train longer --init "$scratch/copy/latest" --steps 1
echo '{"name": "an app", "step": 9}' >"$scratch/copy/latest/manifest.json"
ignored="copy/step-00000009/manifest.json is not of a checkpoint: ignored, the weights are not checked against checksums"
ok "nor has one with a manifest of another tool's" train longer --init "$scratch/copy/latest" --steps 1
is "which is said once" "$(grep -v 'nothing is saved' "$scratch/err" | sed 's,[^ ]*/copy,copy,')" "longer: $ignored"
ok "nor is it a checkpoint to evaluate" \
  "$scratch/two" eval --data "$scratch/data.bin" --steps 1 --quiet --checkpoint "$scratch/copy/step-00000009" 2>"$scratch/err"
is "which is said once, too" "$(sed 's,[^ ]*/copy,copy,' "$scratch/err")" "two: $ignored"
sed 's/model_digest/model_digesu/' "$ckpt/latest/manifest.json" >"$scratch/copy/latest/manifest.json"
refuses "a manifest of ours with a damaged digest" 65 "*copy/step-00000009/manifest.json: model_digest:*" train two --init "$scratch/copy/latest" --steps 1
sed 's/state_checksum/state_checksun/; s/"step": *9/"step": -9/' "$ckpt/latest/manifest.json" >"$scratch/copy/latest/manifest.json"
refuses "with a damaged checksum and step" 65 "*copy/step-00000009/manifest.json: step:*" train two --init "$scratch/copy/latest" --steps 1
head -c 100 "$ckpt/latest/manifest.json" >"$scratch/copy/latest/manifest.json"
refuses "cut off" 65 "*copy/step-00000009/manifest.json:4:*" train two --init "$scratch/copy/latest" --steps 1

# Damage: a copy of the good checkpoint, harmed; refused by name; the good one is still good.
harm() { # PLACE BYTES-AS-PRINTF FILE
  printf "$2" | dd of="$3" bs=1 seek="$1" conv=notrunc 2>/dev/null
}
damaged() { # NAME PATTERN COMMAND-ON-$copy...
  damaged_name=$1 damaged_pattern=$2
  shift 2
  rm -rf "$scratch/copy"
  cp -a "$ckpt" "$scratch/copy"
  copy=$scratch/copy/latest
  eval "$@"
  refuses "$damaged_name" 65 "$damaged_pattern" train two --resume --checkpoint "$scratch/copy" --steps 10
}
damaged "truncated weights" "*model.safetensors*" 'truncate -s -1 "$copy/model.safetensors"'
damaged "truncated moments" "*optimizer.safetensors*" 'truncate -s -100 "$copy/optimizer.safetensors"'
damaged "an empty file" "*model.safetensors*" ': >"$copy/model.safetensors"'
damaged "a longer file" "*model.safetensors*" 'echo >>"$copy/model.safetensors"'
damaged "a flipped byte of a weight" "*model.embed_tokens.weight*SHA-256*damaged*" 'harm 9000 "\\001" "$copy/model.safetensors"'
damaged "a flipped byte of a moment" "*" 'harm 9000 "\\125" "$copy/optimizer.safetensors"'
damaged "a flipped byte of the header" "*model.safetensors*" 'harm 40 "\\001" "$copy/model.safetensors"'
damaged "a header that lies about its length" "*model.safetensors*" 'harm 0 "\\377\\377\\377\\377\\377\\377\\377\\177" "$copy/model.safetensors"'
damaged "a manifest that is no JSON" "*manifest.json*" 'echo "{" >"$copy/manifest.json"'
damaged "a manifest of another step" "*manifest.json*" 'sed -i "s/\"step\": *9/\"step\": 8/" "$copy/manifest.json"'
rm -rf "$scratch/copy"
cp -a "$ckpt" "$scratch/copy"
rm "$scratch/copy/latest/manifest.json"
train two --resume --checkpoint "$scratch/copy" --steps 10 >/dev/null
ok "a missing manifest is an error" test $? -ge 65
rm "$scratch/copy/latest"
ln -s step-99999999 "$scratch/copy/latest"
refuses "a dangling latest" 66 "*" train two --resume --checkpoint "$scratch/copy" --steps 10
ok "the good one can still be resumed" train two --resume --checkpoint "$ckpt" --steps 10

# A DIR that cannot be.
echo x >"$scratch/file"
refuses "a DIR that is a file" 73 "*$scratch/file*" train two --checkpoint "$scratch/file/ckpt" --steps 1

# A run that has diverged is not saved over one that has not.
ok "a learning rate far too high" build wild "$scratch/model.cfg" -s optimizer.learning_rate=1e30 -s optimizer.weight_decay=1e30
refuses "a run that diverges" 79 "*diverged: 4 consecutive steps skipped since step 2" train wild --steps 5 --checkpoint "$scratch/diverged"
ok "leaves no checkpoint that cannot be loaded" test ! -e "$scratch/diverged/latest"
finish
