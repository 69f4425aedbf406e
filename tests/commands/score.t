#!/bin/sh
# score.t: score gives every token of a file its log-probability, in the order of the file, and every document its sum: the same bits on
# any ranks, and the loss that eval gives.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 1; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
ok "one rank" build one model.cfg
ok "one window a step" build single model.cfg -s batch.microbatch=1
ok "two ranks" build two model.cfg -s pipeline.ranks=2 -s pipeline.microbatches=4
ok "a V" build vee model.cfg -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.microbatches=3 -s pipeline.schedule=zero_bubble_v
ok "without training" build plain model.cfg -s pipeline.schedule=inference -s pipeline.stages_per_rank=2 -s pipeline.ranks=2
make_tokens data.bin 2000
./two train --data data.bin --quiet --checkpoint ckpt
is "trained a little" $? 0
make_tokens text.bin 433 7 # 27 windows

score() { # NAME OUTPUT OPTION...
  score_name=$1 score_output=$2
  shift 2
  "./$score_name" score --data text.bin --checkpoint ckpt --output "$score_output" --quiet "$@"
}
last=$(score single single.json | tail -n 1)
matches "the last line is eval's" "$last" '{"loss":*,"perplexity":*,"tokens":432}'
same_result() { # LINE OTHER: except for the order in which losses were added
  printf '%s\n' "$@" | sed 's/{"loss":\([^,]*\),"perplexity":\([^,]*\),"tokens":\([^}]*\)}/\1 \2 \3/' |
    awk 'NR == 1 { loss = $1; perplexity = $2; tokens = $3 }
      END { exit !(NR == 2 && tokens == $3 && loss / $1 - 1 < 1e-12 && 1 - loss / $1 < 1e-12 && perplexity / $2 - 1 < 1e-11 && 1 - perplexity / $2 < 1e-11) }'
}
ok "and what it says is eval's" same_result "$last" "$(./single eval --data text.bin --checkpoint ckpt --quiet | tail -n 1)"
score one one.json >result
is "one: status" $? 0
for name in two vee plain; do
  score $name $name.json >result
  is "$name: status" $? 0
  ok "$name: the same bits, though its steps do not divide the file" cmp one.json $name.json
done
is "without an end-of-text token the file is one document" "$(wc -l <one.json | tr -d ' ')" 1
matches "its first token is not predicted" "$(cat one.json)" '{"document":0,"first_token":0,"log_probabilities":\[null,-*'
matches "all others are" "$(cat one.json)" '*"tokens":433,"scored":432,"log_probability":-*'

# Documents end with 'E' (69).
score two documents.json --end-of-text 69 >result
is "documents: status" $? 0
tail -c +1025 text.bin | od -An -v -tu2 -w2 | awk '{ n++; if ($1 == 69) { print n; n = 0 } } END { if (n) print n }' >wanted
sed 's/.*"tokens":\([0-9]*\).*/\1/' documents.json >got
ok "there are several" test "$(wc -l <wanted)" -ge 3
ok "each document has its tokens" cmp wanted got
is "they follow each other" "$(sed 's/.*"first_token":\([0-9]*\),.*/\1/' documents.json | tr '\n' ' ')" \
  "$(awk '{ printf "%d ", first; first += $1 }' wanted)"
values() { # FILE: all log-probabilities, one a line
  sed 's/.*\[\(.*\)\].*/\1/' "$1" | tr ',' '\n'
}
is "cut into documents, the tokens have the same" "$(values documents.json | cksum)" "$(values one.json | cksum)"
ok "each sum is that of its tokens" awk '{
    sum = $0; sub(/.*"log_probability":/, "", sum); sub(/}.*/, "", sum)
    list = $0; sub(/.*\[/, "", list); sub(/\].*/, "", list)
    n = split(list, value, ","); total = 0
    for (i = 1; i <= n; i++) if (value[i] != "null") total += value[i]
    if (total - sum > 1e-9 || sum - total > 1e-9) exit 1
  }' documents.json

# Progress: the mean of each step over its own targets; the last one has fewer, and windows past the end of the file none.
./two score --data text.bin --checkpoint ckpt --output progress.json 2>err >result
is "the last step's loss is that of the tokens that are left" "$(sed -n 's/^step 4\/4  loss \([^ ]*\) .*/\1/p' err)" \
  "$(values progress.json | tail -n 48 | awk '{ sum -= $1 } END { printf "%.4f\n", sum / NR }')"

# Every window by itself: eval's mean over a file of that window alone.
window() { # NUMBER FILE: a token file of that window
  {
    head -c 8 text.bin
    printf '\021\0\0\0'
    head -c 1024 text.bin | tail -c +13
    tail -c +$((1025 + $1 * 32)) text.bin | head -c 34
  } >"$2"
}
values single.json >single.values
for number in 0 13 26; do
  window $number window.bin
  mean=$(./single eval --data window.bin --checkpoint ckpt --quiet | tail -n 1 | sed 's/.*"loss":\([^,]*\),.*/\1/')
  ok "window $number has the mean of its tokens" awk -v mean="$mean" -v first=$((number * 16 + 2)) '
    NR >= first && NR < first + 16 { sum -= $1 } END { d = sum / 16 - mean; exit !(d < 1e-12 && d > -1e-12) }' single.values
done

# What a token gets depends on it and those before it alone: with another last token all others keep theirs.
./single score --data window.bin --checkpoint ckpt --output before.json --quiet >result
printf '\060' | dd of=window.bin bs=1 seek=$((1024 + 32)) conv=notrunc 2>/dev/null
./single score --data window.bin --checkpoint ckpt --output after.json --quiet >result
is "the tokens before the last keep theirs" "$(values after.json | head -n 16)" "$(values before.json | head -n 16)"
ok "the last one gets another" test "$(values after.json | tail -n 1)" != "$(values before.json | tail -n 1)"

if command -v python3 >/dev/null; then
  ok "every line is JSON" python3 -c 'import json, sys
for line in open(sys.argv[1]): d = json.loads(line); assert len(d["log_probabilities"]) == d["tokens"]' documents.json
else
  skip "every line is JSON" "no python3"
fi
score one /dev/stdout >result 2>err
is "standard output as a file, which the result would damage: status" $? 64
is "which is said" "$(complaints err)" "penstock: --output /dev/stdout: is standard output, where the result goes; --output - writes both there"
is "a pipe takes both" "$(score one /dev/stdout | tail -n 1)" "$(score one scores.json)"
score two - >both 2>err
is "- is standard output, also a file: status" $? 0
score two scores.json >last
is "the scores, then the result as the last line" "$(cat both)" "$(cat scores.json last)"
ok "no file of that name" test ! -e ./-
if test -w /dev/full; then
  score one /dev/full >result 2>err
  is "a full disk: status" $? 74
  matches "a full disk: message" "$(complaints err)" "penstock: --output /dev/full: *"
fi
ok "a model without tokens" build mlp "$topologies/mlp_1.cfg"
./mlp score --init none --output x 2>err
is "has nothing to score: status" $? 64
matches "has nothing to score: message" "$(complaints err)" "penstock: score: *it reads no tokens"
# The rest after the last full window is scored as well, whatever its length; its tokens get the same scores as in a full window.
values one.json >one.values
for length in 2 5 16 17 18 35 422; do
  head -c $length text.bin.text >part.text
  "$tokens" --bytes -o part.bin part.text 2>/dev/null
  last=$(./two score --data part.bin --checkpoint ckpt --output part.json --quiet | tail -n 1)
  values part.json >part.values
  is "a file of $length tokens: an entry each" "$(wc -l <part.values | tr -d ' ')" $length
  ok "a file of $length tokens: each as in the longer file" sh -c "head -n $length one.values | paste - part.values |
    awk '(\$1 == \"null\") != (\$2 == \"null\") { exit 1 } \$1 - \$2 > 1e-6 || \$2 - \$1 > 1e-6 { exit 1 }'"
  matches "a file of $length tokens: the last line counts them" "$last" "*\"tokens\":$((length - 1))}"
done
printf A >part.text
"$tokens" --bytes -o part.bin part.text 2>/dev/null
./two score --data part.bin --checkpoint ckpt --output part.json --quiet 2>err
is "one token: status" $? 65
matches "one token: message" "$(complaints err)" "penstock: part.bin: 1 tokens: at least 2 are needed to score one"

# A packed file: documents come in the order of the input, whatever windows they went to; cut ones are whole again.
ok "with bounds" build bound model.cfg -s batch.packed=true -s pipeline.ranks=2 -s pipeline.microbatches=2
awk 'BEGIN { s = 3; for (d = 0; d < 30; d++) { s = s * 16807 % 2147483647; n = d % 7 == 6 ? 40 : 1 + s % 12
  for (t = 1; t < n; t++) { s = s * 16807 % 2147483647; printf "%c", 65 + s % 26 } printf "\n" } }' >lines
"$tokens" --bytes --end-of-text 10 --pack 16 --pad-to 4 -o packed.bin lines 2>/dev/null
"$tokens" --bytes --end-of-text 10 --pack 16 --pad-to 4 --single -o alone.bin lines 2>/dev/null
packed() { ./bound score --data $1.bin --checkpoint ckpt --output $1.json --quiet >$1.last; }
ok "packed" packed packed
ok "alone" packed alone
is "a line a document" "$(sed 's/{"document":\([0-9]*\),.*/\1/' packed.json | tr '\n' ' ')" "$(seq -s ' ' 0 29) "
is "each with its tokens" "$(sed 's/.*"tokens":\([0-9]*\),.*/\1/' packed.json)" "$(awk '{ print length($0) + 1 }' lines)"
is "all but its first are predicted" "$(sed 's/.*"scored":\([0-9]*\),.*/\1/' packed.json)" "$(awk '{ print length($0) }' lines)"
values packed.json >packed.values
values alone.json >alone.values
ok "the same as alone, to 1e-5" sh -c "paste packed.values alone.values | awk '(\$1 == \"null\") != (\$2 == \"null\") { exit 1 }
  \$1 != \"null\" { n++; d = \$1 - \$2; if (d > 1e-5 || d < -1e-5) exit 1 } END { exit n < 200 }'"
matches "the sum of all is in the last line" "$(tail -n 1 packed.last)" "*\"tokens\":$(awk '{ n += length($0) } END { print n }' lines)}"
ok "with bounds, on replicas that share out their weights" build shared model.cfg -s batch.packed=true -s pipeline.ranks=2 -s data_parallel.replicas=3 \
  -s data_parallel.shard=weights
./shared score --data packed.bin --checkpoint ckpt --output shared.json --quiet >shared.last
is "they score, too" $? 0
ok "and write the same" cmp packed.json shared.json
is "to the last line" "$(cat shared.last)" "$(cat packed.last)"
./bound score --data packed.bin --checkpoint ckpt --output none.json --end-of-text 10 2>refusal
is "an end-of-text token is refused: 64" $? 64
matches "and why is said" "$(cat refusal)" '*--end-of-text 10: not with a packed file: the index of packed.bin has the document ends*'
finish
