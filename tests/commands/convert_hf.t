#!/bin/sh
# convert_hf.t: models that Hugging Face's transformers made, of every family, of every dtype, in one file and in several: converted, read
# by --init, and scored as transformers does; trained on, and our checkpoints read by transformers as they are. With initial deviations of .02
# scores are 2e-6 apart at most, a few units in the last place; with .2, 1e-4.
# Ten steps of training have losses and gradient norms of transformers' with PyTorch's AdamW, 1e-5 apart at most.
# Needs a Python with transformers and torch: set PEER, or PYTHONPATH.
. "${top_srcdir:-.}/tests/support/lib.sh"

find_python 'import torch, transformers' /opt/peer/bin/peer-python python3 || skip_all "no Python with torch and transformers here: set PEER"
hf() { "$python" "$top_srcdir/tests/commands/convert_hf.py" "$@" 2>"$scratch/hf.errors" || { sed 's/^/# /' "$scratch/hf.errors" | tail -n 5; return 1; }; }

mkdir "$scratch/hf"
ok "transformers makes the models" hf make "$scratch/hf"
make_tokens "$scratch/data.bin" 385 # twelve windows
ok "some of them in several files" test -f "$scratch/hf/gpt2/model.safetensors.index.json"

# scores NAME BINARY OPTION...: ln p of every token but the first, as ours has it, into NAME.ours.
scores() {
  scores_name=$1 scores_binary=$2
  shift 2
  "$scratch/$scores_binary" score --data "$scratch/data.bin" --output "$scratch/$scores_name.json" --quiet "$@" >/dev/null &&
    sed 's/.*"log_probabilities":\[null,\([^]]*\)\].*/\1/' "$scratch/$scores_name.json" | tr ',' '\n' >"$scratch/$scores_name.ours"
}
# same_scores NAME MOST: they equal those of transformers within that.
same_scores() {
  paste "$scratch/$1.ours" "$scratch/$1.theirs" | awk -v allowed="$2" '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; if (NF != 2) bad = 1 }
    END { print "# " NR " tokens, at most " most " apart"; exit bad || NR != 384 || most > allowed }'
}

# settings FILE: what a topology says, but for a head_dim that is hidden/heads, which not every class stores.
settings() { sed '/^#/d; / head_dim = 8;/d' "$scratch/$1" | sort; }

names="llama llama_tied qwen2 qwen2_tied mistral mistral_all mistral_wide gemma3 gemma3_linear qwen3 qwen3_tied qwen3_moe qwen3_moe_tied qwen3_moe_mixed mixtral mixtral_window dots1 dots1_plain llama_llama3 qwen3_llama3 llama_linear llama_yarn mistral_yarn qwen2_yarn qwen3_yarn gemma3_yarn gemma3_images llama_biases gpt2 gpt2_bare gpt2_untied" pairs=
while read -r name options; do
  ok "$name: converted" "$top_builddir/penstock-convert" -o "$scratch/$name.cfg" "$scratch/hf/$name"
  ok "$name: built" build "$name" "$scratch/$name.cfg" -s pipeline.microbatches=4 -s optimizer.learning_rate=1e-3 -s optimizer.warmup_steps=0 -s optimizer.decay=constant $options
  ok "$name: scored with --init" scores "$name" "$name" --init "$scratch/hf/$name"
  ok "$name: scored with wide weights" scores "$name.wide" "$name" --init "$scratch/hf/$name.wide"
  ok "$name: trains on" "$scratch/$name" train --data "$scratch/data.bin" --init "$scratch/hf/$name" --steps 10 --quiet \
    --checkpoint "$scratch/$name.ckpt" --log "$scratch/$name.log"
  ok "$name: scored from the checkpoint" scores "$name.trained" "$name" --checkpoint "$scratch/$name.ckpt"
  ok "$name: training has changed it (the test can tell)" sh -c "! cmp -s '$scratch/$name.ours' '$scratch/$name.trained.ours'"
  ok "$name: the checkpoint converts" "$top_builddir/penstock-convert" -o "$scratch/$name.again" "$scratch/$name.ckpt/latest"
  is "$name: to the same topology" "$(settings "$name.again")" "$(settings "$name.cfg")"
  pairs="$pairs $scratch/$name=$scratch/hf/$name $scratch/$name.wide=$scratch/hf/$name.wide $scratch/$name.trained=$scratch/$name.ckpt/latest"
done <<'END'
llama       -s pipeline.ranks=3
llama_tied  -s pipeline.ranks=3
qwen2       -s pipeline.ranks=2
qwen2_tied  -s pipeline.ranks=1 -s pipeline.stages_per_rank=3
mistral      -s pipeline.ranks=2
mistral_all
mistral_wide -s pipeline.ranks=3
gemma3       -s pipeline.ranks=2
gemma3_linear
qwen3
qwen3_tied  -s pipeline.ranks=1 -s pipeline.stages_per_rank=3
qwen3_moe -s pipeline.ranks=2 -s expert_parallel.rows=8
qwen3_moe_tied
qwen3_moe_mixed -s pipeline.ranks=2 -s partition.before=[model.layers.1.mlp]
mixtral     -s expert_parallel.rows=16
mixtral_window -s pipeline.ranks=3
dots1       -s pipeline.ranks=2 -s expert_parallel.rows=8
dots1_plain
llama_llama3 -s pipeline.ranks=2
qwen3_llama3
llama_linear
llama_yarn   -s pipeline.ranks=2
mistral_yarn
qwen2_yarn
qwen3_yarn
gemma3_yarn
gemma3_images -s pipeline.ranks=2
llama_biases -s pipeline.ranks=2 -s partition.before=[model.layers.1.mlp]
gpt2        -s pipeline.ranks=3
gpt2_bare
gpt2_untied -s pipeline.ranks=2 -s partition.layers=[2,1]
END
# shellcheck disable=SC2086 # words are meant to part here
ok "transformers reads them all, and our checkpoints of them" hf read "$scratch/data.bin" $pairs
for name in $names; do
  ok "$name: scores equal those of transformers" same_scores "$name" 2e-6
  ok "$name: scores of wide weights equal those of transformers" same_scores "$name.wide" 1e-4
  ok "$name: scores of the checkpoint equal those of transformers" same_scores "$name.trained" 2e-6
  matches "$name: nothing is missing or left over" "$(cat "$scratch/$name.trained.loaded")" "*] all of it"
  is "$name: and the config means the same" "$(sed 's/].*//' "$scratch/$name.trained.loaded")" "$(sed 's/].*//' "$scratch/$name.loaded")"
done

# same_steps NAME: losses and norms are those of transformers' steps to 1e-5.
same_steps() {
  log_field "$scratch/$1.log" loss >"$scratch/$1.losses"
  log_field "$scratch/$1.log" grad_norm | paste -d ' ' "$scratch/$1.losses" - "$scratch/$1.steps" |
    awk '{ for (i = 1; i < 3; i++) { d = ($i - $(i + 2)) / $(i + 2); if (d < 0) d = -d; if (d > most) most = d }; if (NF != 4) bad = 1 }
      END { print "# " NR " steps, at most " most " apart"; exit bad || NR != 10 || most > 1e-5 }'
}
trained="llama gpt2 qwen3_moe qwen3_moe_mixed mixtral dots1" pairs=
for name in $trained; do pairs="$pairs $scratch/$name=$scratch/hf/$name"; done
# shellcheck disable=SC2086
ok "transformers trains some of them" hf train "$scratch/data.bin" $pairs
for name in $trained; do ok "$name: ten steps have its losses and gradient norms" same_steps "$name"; done
finish
