#!/bin/sh
# recipes.t: the recipes of docs/recipes do what their READMEs say, as far as this machine goes, with the programs of the build folder; installed.t
# has those of a prefix.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 99
recipes=$top_srcdir/docs/recipes
PENSTOCK=$top_builddir
export PENSTOCK
unset SETTINGS TEXT TOPOLOGY STEPS MODEL CHATS DATA SEQUENCE RANKS RATE FROZEN PYTHON HOSTS TRAIN
# recipe NAME FOLDER [VARIABLE=VALUE...]: what it says is in FOLDER.out.
recipe() {
  recipe_name=$1 recipe_folder=$2
  shift 2
  env "$@" "$recipes/$recipe_name/run" "$recipe_folder" >"$recipe_folder.out" 2>&1 || { sed 's/^/# /' "$recipe_folder.out"; return 1; }
}
steps_of() { sed -n '/"grad_norm"/s/^{"step":\([0-9]*\),.*/\1/p' "$1" | tr '\n' ' '; }

# ---- pretrain ----
small='model.hidden=64 model.ffn=128'
ok "pretrain" recipe pretrain pretrain STEPS=8 "SETTINGS=$small"
is "each step once, over a resume" "$(steps_of pretrain/log.jsonl)" "1 2 3 4 5 6 7 8 "
is "evaluated and sampled each quarter" "$(grep -c '"event":"sample"' pretrain/log.jsonl) $(grep -c 'evaluation loss' pretrain.out)" "4 4"
ok "the loss falls" test "$(log_field pretrain/log.jsonl loss | sed -n '1p;8p' | sort -g | tail -n 1)" = "$(log_field pretrain/log.jsonl loss | head -n 1)"
if test -x "$top_builddir/penstock-report"; then
  ok "a report" grep -q '<svg' pretrain/report.html
else
  skip "a report" "penstock-report is not built"
fi
ok "again, with more steps" recipe pretrain pretrain STEPS=12 "SETTINGS=$small"
is "it goes on" "$(steps_of pretrain/log.jsonl)" "1 2 3 4 5 6 7 8 9 10 11 12 "
fails "a text that is absent" 66 "absent/text: no such file" env TEXT=absent/text "$recipes/pretrain/run" none
fails "programs that are absent" 66 "absent: no penstock-gen there: set PENSTOCK" env PENSTOCK=absent "$recipes/pretrain/run" none
ok "nothing is made of them" test ! -e none

# ---- fine-tune ----
if command -v python3 >/dev/null && test -x "$top_builddir/penstock-chat"; then
  # A token file that was made elsewhere: of ids, with a mask.
  awk 'BEGIN { for (i = 0; i < 6; i++) { printf "%c%c%c%c", 100, 0, 0, 0
               for (j = 0; j < 100; j++) printf "%c%c", 32 + (7 * i + j) % 90, 0
               for (j = 0; j < 100; j++) printf "%c", (j >= 50) } }' >ids.raw
  "$tokens" --ids 16 --masks --pack 128 -o ids.bin ids.raw 2>/dev/null
  ok "fine-tune, with tokens made before" recipe finetune before STEPS=6 DATA=ids.bin SEQUENCE=128
  # Tensors that are trained have moments.
  is "the embedding is frozen, and no other tensor" \
    "$(grep -ao '"[a-z0-9_.]*\.exp_avg"' before/checkpoints/latest/optimizer.safetensors | sed 's/"\(.*\).exp_avg"/\1/' | sort)" \
    "$(grep -ao '"[a-z0-9_.]*\.weight"' before/model/model.safetensors | tr -d '"' | grep -v embed_tokens | sort)"
  is "a folder for transformers" "$(ls before/tuned | tr '\n' ' ')" \
    "config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json "
  if find_python 'import tokenizers, transformers, jinja2' /opt/peer/bin/peer-python python3; then
    ok "fine-tune, from chats" recipe finetune chats STEPS=120 "PYTHON=$python"
    is "and the model replies" "$(tail -n 1 chats.out)" "A process that holds some stages of the model."
  else
    skip "fine-tune, from chats" "no Python with tokenizers, transformers and jinja2 here: set PEER"
    fails "fine-tune, without packages" 69 "has not all of the packages tokenizers, transformers and jinja2" "$recipes/finetune/run" none
  fi
else
  skip "fine-tune" "no python3 here"
fi

# ---- two hosts by Slurm ----
if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null || test "$(id -u)" -ne 0; then
  skip "two hosts by Slurm" "Slurm is not installed, or this is not root"
elif test -z "$OFI_ARCHIVES"; then
  skip "two hosts by Slurm" "no libfabric here"
else
  slurm() { timeout 300 sh "$top_srcdir/tests/support/hosts.sh" 2 sh "$top_srcdir/tests/support/slurm.sh" 2 2 "$@"; }
  # All hosts are the cores of this machine.
  slurm env STEPS=4 SETTINGS=cluster.bind=none "$recipes/slurm/run" slurm >slurm.out 2>&1
  slurm_status=$?
  if test $slurm_status -eq 77; then
    skip "two hosts by Slurm" "network namespaces or Slurm do not start here"
  else
    is "two hosts by Slurm: status" $slurm_status 0
    is "each step" "$(steps_of slurm/checkpoints/log.jsonl)" "1 2 3 4 "
    matches "between hosts by libfabric" "$(cat slurm/job-*.out)" "*transport ofi*4 ranks*"
    is "the secret is removed" "$(ls slurm/checkpoints | tr '\n' ' ')" "latest log.jsonl step-00000004 "
  fi
  fails "one host" 64 "two hosts are needed" env HOSTS=host1 "$recipes/slurm/run" none
fi

# ---- 8 GPUs ----
ok "8 GPUs: planned and proved" recipe gpus gpus TRAIN=no
matches "for all of them" "$(tr -d ' \n' <gpus/report.json)" '*"ranks":1,*"replicas":8,*'
matches "and for their memory" "$(cat gpus/gpus.cfg)" '*device = "cuda"*limit_mib = 72000*'
ok "the plan compiles" sh -c '"$0" --name=gpus -o gpus.c gpus/gpus.cfg && '"$CC $CFLAGS $PEN_CFLAGS"' -O0 -I"$1" -c -o gpus.o gpus.c' "$gen" "$top_srcdir"
if test -x gpus/penstock-gpus; then
  matches "so does its binary" "$(cat gpus.out)" "*device *cuda*"
else
  matches "what is missing is said" "$(cat gpus.out)" "*gpus.cfg is the plan, proved; its binary needs a Penstock with CUDA*"
fi
ok "8 GPUs, rehearsed on CPUs" recipe gpus rehearsal STEPS=4 SETTINGS='cluster.device=cpu model.layers=8 model.hidden=64 model.heads=4 model.kv_heads=2
  model.ffn=128 model.vocab=256 model.sequence=64 model.loss_rows=0 model.dtype=f32 plan.microbatch=[1]'
is "as the README has it" "$(steps_of rehearsal/log.jsonl) $(grep -c '8 ranks share\|8 replicas' rehearsal.out)" "1 2 3 4  2"
finish
