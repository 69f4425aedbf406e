#!/bin/sh
# generate.t: what generate draws depends on seed, weights and prompt, not on ranks; the likeliest token is the likeliest for score.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 40; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
ok "two ranks" build two model.cfg
ok "one rank" build one model.cfg -s pipeline.ranks=1
ok "a V" build vee model.cfg -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
ok "without training" build plain model.cfg -s pipeline.schedule=inference -s pipeline.ranks=4
ok "in bf16" build half model.cfg -s model.dtype=bf16
ok "more tokens than bytes" build many model.cfg -s model.vocab=300
make_tokens data.bin 4000
./two train --data data.bin --quiet --checkpoint ckpt
is "trained a little" $? 0
./many init --output many.safetensors
is "and one not at all" $? 0

generate() { # NAME OPTION...
  generate_name=$1
  shift
  "./$generate_name" generate --checkpoint ckpt --prompt "ABCDEFGH" "$@" 2>err
}
generate two --tokens 40 --seed 1 >first
is "status" $? 0
matches "it says how fast it was, and nothing else" "$(complaints err)" "40 tokens  [0-9]* tokens/s"
is "it begins with the prompt, and has as many tokens as were asked for" "$(head -c 8 first) $(wc -c <first | tr -d ' ')" "ABCDEFGH 49"
for name in two one vee plain; do
  generate $name --tokens 40 --seed 1 >again
  ok "$name: the same again" cmp first again
done
generate two --tokens 40 --seed 2 >other
ok "another seed: another text" test "$(cksum <first)" != "$(cksum <other)"
generate half --tokens 40 --seed 1 >other
is "bf16 generates, too" "$(head -c 8 other) $(wc -c <other | tr -d ' ')" "ABCDEFGH 49"
generate two --tokens 20 --seed 1 >short
is "a shorter text is the longer one's beginning" "$(head -c 28 short)" "$(head -c 28 first)"
generate two --tokens 40 --seed 1 --samples 3 >three
is "three samples" "$(grep -c '^--- [123]$' three)" 3
is "the first of which is the one" "$(sed -n '2,/^--- 2$/p' three | sed '$d')" "$(cat first)"
generate two --tokens 30 --temperature 0 --samples 2 >cold
is "at temperature 0 all samples are equal" "$(sed -n '/^--- 1$/,/^--- 2$/p' cold | sed '1d;$d')" "$(sed -n '/^--- 2$/,$p' cold | sed 1d)"
generate two --tokens 30 --temperature 0 >cold
generate two --tokens 30 --top-k 1 --temperature 3 >top
ok "as from the one likeliest token" cmp cold top

# The window slides: each next token is the likeliest after the 16 before it, as score says.
text=$(generate one --tokens 40 --temperature 0)
best() { # TEXT of 17 bytes: is the last one likelier than others would be?
  for last in "$(printf %s "$1" | tail -c 1)" A K Z " " 7; do
    printf '%s%s' "$(printf %s "$1" | head -c 16)" "$last" >one.text
    "$tokens" --bytes -o one.bin one.text 2>/dev/null
    ./one score --data one.bin --checkpoint ckpt --output one.json --quiet >/dev/null
    sed 's/.*,\(-[^,]*\)\].*/\1/' one.json
  done | awk 'NR == 1 { best = $1 } $1 > best + 1e-6 { exit 1 }'
}
for from in 1 12 30; do
  ok "byte $((from + 16)) is the likeliest after the 16 before it" best "$(printf %s "$text" | tail -c +$from | head -c 17)"
done

# ---- what is drawn, recomputed from score's log-probabilities ----
# A vocabulary of twelve bytes; windows of 64 tokens, then of 256, which slides in the end.
awk 'BEGIN { s = 7; t = 1; for (i = 0; i < 30000; i++) { s = s * 16807 % 2147483647; t = s % 5 == 0 ? 1 + int(s / 8) % 11 : 1 + (t * 7 + 3) % 11
  printf "%c", t } }' >walk.text
"$tokens" --bytes -o walk.bin walk.text 2>/dev/null
ok "a window of several lengths" build long model.cfg -s model.vocab=12 -s model.sequence=256 -s model.layers=2
./long train --data walk.bin --quiet --checkpoint walk --steps 12
is "it trains" $? 0
./long generate --checkpoint walk --prompt "$(printf '\003\001\004')" --tokens 300 --samples 2 --temperature 1.3 --top-k 9 --seed 5 >long.text
is "two samples, the second after the first" "$(wc -c <long.text | tr -d ' ')" $((6 + 303 + 1 + 6 + 303 + 1))
tail -c 304 long.text | head -c 303 | od -An -v -tu1 -w1 | tr -d ' ' >drawn # the second

# The key is SHA-256 of the seed, 8 bytes, little-endian, and "generate"; the number is SplitMix64's of key, sample and place. Constants are
# those of Steele et al. as numbers of two's complement.
key=$(printf '\005\0\0\0\0\0\0\0generate' | sha256sum | sed 's/^\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\).*/0x\4\3\2\1 0x\8\7\6\5/')
shifted() { echo $((($1 >> $2) & ((1 << (64 - $2)) - 1))); }
mixed() {
  mixed_x=$((($1 ^ $(shifted $1 30)) * -4658895280553007687))
  mixed_x=$(((mixed_x ^ $(shifted $mixed_x 27)) * -7723592293110705685))
  echo $((mixed_x ^ $(shifted $mixed_x 31)))
}
golden=-7046029254386353131
uniform() { # SAMPLE PLACE: times 2^53
  shifted "$(mixed $(($(mixed $(((${key#* } << 32 | ${key% *}) + ($1 + 1) * golden))) + ($2 + 1) * golden)))" 11
}

# For each place and each candidate a window with what came before, the candidate next, and a window that parts it from what follows.
places="0 1 7 40 60 61 62 100 180 251 252 253 254 270 299"
for place in $places; do echo "$place $(uniform 1 $place)"; done >uniforms
awk -v vocab=12 -v sequence=256 'NR == FNR { token[n++] = $1; next } {
    written = $1 + 3; first = written > sequence ? written - sequence : 0
    for (c = 0; c < vocab; c++)
      for (t = 0; t < 2 * sequence; t++) {
        at = first + t
        printf "\\%03o", at < written ? token[at] : at == written ? c : 0
      }
    print ""
  }
  END { print "\\000" }' drawn uniforms >queries
while read -r line; do printf "$line"; done <queries >queries.text
"$tokens" --bytes -o queries.bin queries.text 2>/dev/null
./long score --data queries.bin --checkpoint walk --output queries.json --quiet >/dev/null
is "the queries are scored" $? 0
sed 's/.*\[\(.*\)\].*/\1/' queries.json | tr ',' '\n' >queries.values
awk -v vocab=12 -v sequence=256 -v top=9 -v temperature=1.3 '
  FILENAME == "drawn" { token[tokens++] = $1; next }
  FILENAME == "queries.values" { value[values++] = $1; next }
  {
    written = $1 + 3; first = written > sequence ? written - sequence : 0; total = 0; whole = 0
    for (c = 0; c < vocab; c++) {
      p[c] = value[((FNR - 1) * vocab + c) * 2 * sequence + written - first]
      whole += exp(p[c])
    }
    for (c = 0; c < vocab; c++) {
      likelier = 0
      for (o = 0; o < vocab; o++) likelier += p[o] > p[c]
      weight[c] = likelier < top ? exp(p[c] / temperature) : 0
      total += weight[c]
    }
    below = 0
    for (c = 0; c < token[written]; c++) below += weight[c] / total
    u = $2 / 9007199254740992
    good = u > below - 1e-5 && u < below + weight[token[written]] / total + 1e-5 && whole > 0.99999 && whole < 1.00001
    print good ? "as recomputed" : "place " $1 ": drew " token[written] ", u " u ", its share " below " to " below + weight[token[written]] / total ", sum " whole
  }' drawn queries.values uniforms >verdicts
is "each place draws what seed and score's probabilities say" "$(uniq -c verdicts | sed 's/^ *//')" "15 as recomputed"

# Token numbers.
./many generate --init many.safetensors --prompt "299 0 7" --tokens 5 --seed 3 >numbers
is "numbers: status" $? 0
is "numbers in, numbers out" "$(cut -d' ' -f1-3 numbers) $(wc -w <numbers | tr -d ' ')" "299 0 7 8"
ok "below the vocab" awk '{ for (i = 1; i <= NF; i++) if ($i !~ /^[0-9]+$/ || $i >= 300) exit 1 }' numbers
stop=$(cut -d' ' -f5 numbers)
./many generate --init many.safetensors --prompt "299 0 7" --tokens 5 --seed 3 --end-of-text "$stop" >ended
is "it ends with the end-of-text token" "$(cat ended)" "$(cut -d' ' -f1-5 numbers) "

refuses() { # PATTERN NAME OPTION...
  refuses_pattern=$1 refuses_name=$2
  shift 2
  "./$refuses_name" generate --init many.safetensors "$@" 2>err >out
  is "refused: $*: status" $? 64
  matches "refused: $*: message" "$(complaints err)" "penstock: $refuses_pattern"
}
refuses "generate needs either --prompt TEXT*" many
refuses "--prompt: 300: *below 300*" many --prompt "1 300"
refuses "--prompt: x: *" many --prompt x
refuses "--prompt ' ': at least one token" many --prompt " "
refuses "--temperature -1: a number, 0 or more" many --prompt 1 --temperature -1
refuses "--temperature nan: a number, 0 or more" many --prompt 1 --temperature nan
refuses "--samples 0: *1 or more" many --prompt 1 --samples 0
refuses "--tokens 0: *1 or more" many --prompt 1 --tokens 0
if test -w /dev/full; then
  generate two >/dev/full
  is "a full disk: status" $? 74
fi
finish
