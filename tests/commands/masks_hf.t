#!/bin/sh
# masks_hf.t: models of Hugging Face's transformers are fine-tuned on masked chats, plain and packed, on several ranks: the losses are to 1e-5 those of
# transformers with labels of -100. Needs a Python with transformers and torch: set PEER.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'import torch, transformers' /opt/peer/bin/peer-python python3 || skip_all "no Python with torch and transformers here: set PEER"
hf() { "$python" "$top_srcdir/tests/commands/masks_hf.py" "$@" 2>hf.errors || { sed 's/^/# /' hf.errors | tail -n 5; return 1; }; }
cd "$scratch" || exit 99

mkdir hf
ok "transformers makes the models" hf make hf
# Chats of one to three turns; some end with a question, some are longer than a window.
awk 'BEGIN {
  state = 5
  for (c = 0; c < 150; c++) {
    state = state * 16807 % 2147483647
    count = 1 + state % 6
    printf "{\"messages\": ["
    for (m = 0; m < count; m++) {
      state = state * 16807 % 2147483647
      printf "%s{\"role\": \"%s\", \"content\": \"", m ? ", " : "", m % 2 ? "assistant" : "user"
      for (t = state % 11; t >= 0; t--) { state = state * 16807 % 2147483647; printf "%c", 97 + state % 26 }
      printf "\"}"
    }
    print "]}"
  }
}' >chats.jsonl
chats() { # NAME OPTION...
  chats_name=$1
  shift
  "$tokens" --messages --end-of-text 10 -o "$chats_name.bin" "$@" chats.jsonl 2>/dev/null
}
ok "plain" chats plain
ok "packed" chats packed --pack 32 --pad-to 8
ok "a document a window" chats single --pack 32 --pad-to 8 --single

steps=10 rate=3e-3
theirs() { hf train "$1" "$2" 32 8 $steps $rate >theirs; }
while read -r family name data options; do
  ok "$family $name: converted" "$top_builddir/penstock-convert" -o "$family.cfg" "hf/$family"
  # Eight windows a step.
  ok "$family $name: built" build "$family.$name" "$family.cfg" -s batch.packed=true -s batch.microbatch=2 -s pipeline.microbatches=4 \
    -s optimizer.learning_rate=$rate -s optimizer.warmup_steps=0 -s optimizer.decay=constant $options
  ok "$family $name: $data: trained" "./$family.$name" train --data $data.bin --init "hf/$family" --steps $steps --quiet --overwrite --log log
  log_field log loss >loss
  log_field log tokens | paste -d ' ' loss - >ours
  ok "$family $name: $data: transformers trains" theirs "hf/$family" $data.bin
  ok "$family $name: $data: as many targets count, and losses agree to 1e-5" sh -c "paste -d ' ' ours theirs |
    awk '{ d = \$1 - \$3; if (d < 0) d = -d; if (d > most) most = d; if (NF != 4 || \$2 != \$4) bad = 1; n += \$2 }
      END { print \"# \" NR \" steps, \" n \" targets, the last loss \" \$1 \", at most \" most \" apart\"; exit bad || NR != $steps || n < 500 || most > 1e-5 }'"
done <<'END_OF_LIST'
llama one      plain
llama one      packed
llama two      single -s pipeline.ranks=2
llama replicas packed -s pipeline.ranks=2 -s pipeline.microbatches=2 -s data_parallel.replicas=2
qwen3 three    plain  -s pipeline.ranks=3
qwen3 vee      packed -s pipeline.ranks=1 -s pipeline.stages_per_rank=3
gpt2  two      single -s pipeline.ranks=2
gpt2  one      packed
END_OF_LIST
finish
