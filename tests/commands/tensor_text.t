#!/bin/sh
# tensor_text.t: score, score --logits and generate with tensor ranks (tensor_parallel.ranks): with one number of splits 1, 2 and 4 tensor ranks give
# the same bits of scores and logits and the same texts, in stages, with replicas, with chunks of rows, with the cache of keys and values and without it.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/splits.sh"

make_tokens "$scratch/data.bin" 4000
make_tokens "$scratch/text.bin" 400 7
describe llama 2 ''
describe gpt2 2 '' # tied
describe qwen3 2 'head_dim = 12; dtype = "bf16";'
sed -i 's/vocab = 200/vocab = 257/; s/learning_rate = 1e-2; steps = 8/learning_rate = 1e-2; steps = 30/' "$scratch"/*.cfg
echo 'tensor_parallel = { splits = 4; };' | tee -a "$scratch/llama.cfg" "$scratch/qwen3.cfg" >>"$scratch/gpt2.cfg"
T2='-s tensor_parallel.ranks=2'
T4='-s tensor_parallel.ranks=4'
cd "$scratch" || exit 99

for family in llama gpt2 qwen3; do
  ok "$family: one tensor rank" build ${family}_one $family.cfg
  ok "$family: two, each with all tokens" build ${family}_two $family.cfg $T2 -s tensor_parallel.sequence=false
  ok "$family: four, in two stages" build ${family}_four $family.cfg $T4 -s pipeline.ranks=2
  ok "$family: trains" "./${family}_one" train --data data.bin --quiet --seed 7 --checkpoint $family.ckpt
done

# ---- score ----
# score NAME [OPTION...]: leaves NAME.json and NAME.result.
score() {
  score_name=$1
  shift
  "./$score_name" score --data text.bin --checkpoint "${score_name%%_*}.ckpt" --output "$score_name.json" --quiet "$@" >"$score_name.result"
}
# scores NAME REFERENCE: NAME has the scores, the largest logits and all logits of REFERENCE.
scores() {
  ok "$1 scores, with the largest logits" score "$1" --logits "$1.top" --logits-top 7
  ok "$1: the scores of $2" cmp "$2.json" "$1.json"
  is "$1: the loss of $2" "$(cat "$1.result")" "$(cat "$2.result")"
  ok "$1: the largest logits of $2" cmp "$2.top" "$1.top"
  ok "$1 writes all logits" score "$1" --logits "$1.logits" --logits-top 0
  ok "$1: the logits of $2" cmp "$2.logits" "$1.logits"
}
for family in llama gpt2 qwen3; do
  score ${family}_one --logits ${family}_one.top --logits-top 7
  score ${family}_one --logits ${family}_one.logits --logits-top 0
  is "$family: a line of 7 logits for each of 400 tokens but the first" \
    "$(grep -c '^\(\[*[0-9]*, [-0-9.e]*\], *\)\{6\}\[[0-9]*, [-0-9.e]*\]\]$' ${family}_one.top) $(wc -l <${family}_one.top | tr -d ' ')" "399 400"
  for name in two four; do scores ${family}_$name ${family}_one; done
done
# More logits than a tensor rank has tokens: it has 2 x 65, the last of four 62.
for name in one two four; do
  ok "llama: $name writes more logits than a tensor rank has" score llama_$name --logits many_$name --logits-top 200
done
ok "llama: two has those of one" cmp many_one many_two
ok "llama: four has those of one" cmp many_one many_four
ok "llama: by chunks of rows" build llama_rows llama.cfg -s model.loss_rows=32 -s batch.microbatch=4
ok "llama: by chunks of rows, two tensor ranks" build llama_rows_two llama.cfg $T2 -s model.loss_rows=32 -s batch.microbatch=4
score llama_rows --logits llama_rows.top --logits-top 7
score llama_rows --logits llama_rows.logits --logits-top 0
scores llama_rows_two llama_rows
shared='-s data_parallel.replicas=2 -s data_parallel.shard=weights'
ok "llama: replicas that share out their weights" build llama_shared llama.cfg $shared
ok "llama: with two tensor ranks each" build llama_shared_two llama.cfg $shared $T2
score llama_shared --logits llama_shared.top --logits-top 7
score llama_shared --logits llama_shared.logits --logits-top 0
scores llama_shared_two llama_shared
ok "replicas that keep their weights whole: one scores" build llama_replicas llama.cfg -s data_parallel.replicas=2 $T2
scores llama_replicas llama_one

# ---- generate ----
prepare_prompts # the longest text is longer than the model's sequence
for family in llama gpt2 qwen3; do
  ok "$family: two without a cache" build ${family}_uncached $family.cfg $T2 -s generate.prompts=0
  ok "$family: four for three prompts at once" build ${family}_three $family.cfg $T4 -s generate.prompts=3
  generate ${family}_one --prompt "$prompt" --tokens 40 --seed 1 >first
  is "$family: as many tokens as were asked for" "$(cut -d ' ' -f 1-8 first) $(wc -w <first | tr -d ' ')" "$prompt 48"
  for name in two four uncached three; do
    generate ${family}_$name --prompt "$prompt" --tokens 40 --seed 1 >again
    ok "$family: $name gives the same text" cmp first again
  done
  generate ${family}_one --prompt "$prompt" --tokens 40 --seed 2 >other
  ok "$family: another seed gives another text (the test can tell)" sh -c '! cmp -s first other'
  generate ${family}_one --prompts prompts --tokens 12 --seed 3 --top-k 20 >apart
  is "$family: a text for each prompt" "$(grep -c '"text": *"[0-9 ]*"' apart)" 4
  for name in two three; do
    generate ${family}_$name --prompts prompts --tokens 12 --seed 3 --top-k 20 >again
    ok "$family: $name gives the texts of all prompts" cmp apart again
  done
done
generate llama_one --prompt "$prompt" --tokens 12 --seed 1 --samples 3 >first
for name in shared_two replicas; do
  generate llama_$name --prompt "$prompt" --tokens 12 --seed 1 --samples 3 >again
  ok "llama: $name gives the same three texts" cmp first again
done

# ---- on two hosts ----
# on_both NAME COMMAND...: a command of $scratch/NAME on each of two emulated hosts; out.1 and out.2 have what they print.
on_both() { on_hosts 2 "$@" || { sed 's/^/# /' err.1 err.2 && false; }; }
hosts_status=77
test -z "$OFI_ARCHIVES" || { sh "$top_srcdir/tests/support/hosts.sh" 2 true; hosts_status=$?; }
if test $hosts_status -eq 77; then
  skip "two hosts with two tensor ranks each" "no libfabric, or no network namespaces here"
else
  make_secret secret
  # The last stage is on the second host, the command that prints the result there.
  ok "two hosts with two tensor ranks each" build gpt2_hosts gpt2.cfg $T2 -s pipeline.ranks=2 -s cluster.hosts=[host1,host2] \
    -s cluster.port=$((20000 + $$ % 12000)) -s cluster.bind=none
  ok "score" on_both gpt2_hosts score --data "$scratch/text.bin" --checkpoint "$scratch/gpt2.ckpt" --output "$scratch/gpt2_hosts.json" --quiet \
    --logits "$scratch/gpt2_hosts.top" --logits-top 7
  ok "with the scores of one rank" cmp gpt2_one.json gpt2_hosts.json
  ok "and its largest logits" cmp gpt2_one.top gpt2_hosts.top
  generate gpt2_one --prompt "$prompt" --tokens 30 --seed 1 >first
  ok "generate" on_both gpt2_hosts generate --checkpoint "$scratch/gpt2.ckpt" --prompt "$prompt" --tokens 30 --seed 1 --quiet
  is "the text of one rank, from one of the two" "$(cat out.1 out.2)" "$(cat first)"
fi

# ---- seal ----
wrapped=$(grep -o -- '-Wl,--wrap=[a-z_,=-]*' "$top_srcdir/runtime/base/seal.c" | tr '\n' ' ')
sealed_build() {
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -DPEN_TEST_SEAL -I"$top_srcdir" $wrapped -o "$scratch/$1_sealed" \
    "$top_srcdir/runtime/base/seal.c" "$scratch/$1.o" libruntime.a $KERNEL_ARCHIVES $OFI_LIBS $RUNTIME_LIBS)
}
ok "the test build" sealed_build llama_two
ok "keeps the seal when it scores" score llama_two_sealed --logits sealed.top --logits-top 7
generate llama_two_sealed --prompts prompts --tokens 30 >sealed.text
is "and when it generates" $? 0
finish
