#!/bin/sh
# splits_text.t: score and generate with split weights (tensor_parallel.splits): scores depend on the number of splits alone, not on ranks, are almost
# those of whole weights, and have eval's loss; the text does not depend on ranks, nor on the cache of keys and values, and its likeliest tokens are
# those of score's logits.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/splits.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 4 ''
describe gpt2 4 '' # tied
describe qwen3 2 'head_dim = 12; dtype = "bf16";'
sed -i 's/vocab = 200/vocab = 257/; s/learning_rate = 1e-2; steps = 8/learning_rate = 1e-2; steps = 40/' "$scratch"/*.cfg
split='-s tensor_parallel.splits=4'
cd "$scratch" || exit 99

for family in llama gpt2 qwen3; do
  ok "$family: whole weights" build "${family}_whole" $family.cfg
  ok "$family: in 4 splits" build "${family}_one" $family.cfg $split
  ok "$family: in 4 splits on two ranks" build "${family}_two" $family.cfg $split -s pipeline.ranks=2
  ok "$family: in 4 splits without a cache" build "${family}_uncached" $family.cfg $split -s generate.prompts=0 -s pipeline.ranks=2
  ok "$family: in 4 splits, for three prompts at once" build "${family}_three" $family.cfg $split -s generate.prompts=3
  ok "$family: trains" "./${family}_one" train --data data.bin --quiet --seed 7 --checkpoint $family.ckpt
done
ok "llama: in 4 splits by chunks of rows" build llama_rows llama.cfg $split -s model.loss_rows=32 -s batch.microbatch=4
ok "llama: on replicas that share out their weights" build llama_shared llama.cfg $split -s data_parallel.replicas=2 -s data_parallel.shard=weights

# ---- score ----
make_tokens text.bin 400 7
score() { "./$1" score --data text.bin --checkpoint "${1%%_*}.ckpt" --output "$1.json" --quiet >"$1.result"; }
# numbers FILE: all log-probabilities, one a line.
numbers() { tr ',[' '\n\n' <"$1" | sed -n 's/^\(-[0-9.e-]*\)]*$/\1/p'; }
# nearly TOLERANCE ONE OTHER: as many numbers in both, each as far from its fellow at most.
nearly() {
  numbers "$2.json" >one.numbers && numbers "$3.json" >other.numbers && test "$(wc -l <one.numbers)" -gt 390 && paste one.numbers other.numbers |
    awk -v most="$1" '{ d = $1 - $2; if (NF != 2 || !(d <= most && -d <= most)) { print "# " $0; bad = 1 } } END { exit bad }'
}
for family in llama gpt2 qwen3; do
  for name in whole one two; do ok "$family: $name scores" score "${family}_$name"; done
  ok "$family: two ranks give the bits of one" cmp "${family}_one.json" "${family}_two.json"
  most=1e-4
  test $family != qwen3 || most=0.1 # bf16
  ok "$family: almost the scores of whole weights" nearly $most "${family}_one" "${family}_whole"
  "./${family}_one" eval --data text.bin --checkpoint $family.ckpt --quiet >eval.result
  ok "$family: the loss of eval" sh -c "paste '${family}_one.result' eval.result | tr -d '{}\"' | sed 's/[a-z]*://g' |
    awk -F '[,\t]' '{ d = \$1 - \$4; exit !(d < 0.3 && d > -0.3 && \$1 > 0.1) }'"
done
ok "llama: other bits in 4 splits than whole (the test can tell)" sh -c '! cmp -s llama_one.json llama_whole.json'
for name in rows shared; do
  ok "llama: $name scores" score llama_$name
  ok "llama: $name has the scores of the others" nearly 1e-6 llama_one llama_$name
done

# ---- generate ----
prepare_prompts
for family in llama gpt2 qwen3; do
  generate ${family}_one --prompt "$prompt" --tokens 40 --seed 1 >first
  is "$family: as many tokens as were asked for" "$(cut -d ' ' -f 1-8 first) $(wc -w <first | tr -d ' ')" "$prompt 48"
  for name in two uncached; do
    generate ${family}_$name --prompt "$prompt" --tokens 40 --seed 1 >again
    ok "$family: $name gives the same text" cmp first again
  done
  generate ${family}_one --prompt "$prompt" --tokens 8 --temperature 0 >cold
  tr ' ' '\n' <cold | awk '$1 > 0 { printf "%c", $1 } END { printf "." }' >cold.text
  "$tokens" --bytes -o cold.bin cold.text 2>/dev/null
  "./${family}_two" score --data cold.bin --checkpoint $family.ckpt --output - --quiet --logits best --logits-top 1 >/dev/null
  best=$(sed -n '9,16s/^\[\[\([0-9]*\),.*/\1/p' best | tr '\n' ' ')
  is "$family: its likeliest tokens are those of score" "$(echo "$best" | wc -w | tr -d ' ') $best" "8 $(cut -d ' ' -f 9-16 cold) "
  generate ${family}_three --prompts prompts --tokens 12 --seed 3 >three
  is "$family: a text for each prompt" "$(grep -c '"text": *"[0-9 ]*"' three)" 4
  generate ${family}_uncached --prompts prompts --tokens 12 --seed 3 >apart
  ok "$family: those of one prompt at a time, without a cache" cmp three apart
done
finish
