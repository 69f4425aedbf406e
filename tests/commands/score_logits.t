#!/bin/sh
# score_logits.t: score --logits writes the logits that predict each token: their softmax gives the scores, and the K largest are the
# largest of all.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 to read the files"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 48; vocab = 257; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 2; microbatches = 3; schedule = "1f1b"; };
END
cat >"$scratch/check.py" <<'END'
"""check.py SCORES ALL TOP K: the logits of ALL give the scores; the lines of TOP are the K largest of each row, of which NaN is the
largest of all."""
import json, math, struct, sys

scores = [p for line in open(sys.argv[1]) for p in json.loads(line)["log_probabilities"]]
data = open(sys.argv[2], "rb").read()
header_bytes = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + header_bytes])
assert list(header) == ["logits", "predicted"] and header["logits"]["dtype"] == "F32", header
count, vocab = header["logits"]["shape"]
past = count * vocab * 4
assert header["logits"]["data_offsets"] == [0, past] and len(data) == 8 + header_bytes + past + count
assert header["predicted"] == {"dtype": "U8", "shape": [count], "data_offsets": [past, past + count]}, header
assert list(data[8 + header_bytes + past :]) == [score is not None for score in scores]
rows = [struct.unpack_from(f"<{vocab}f", data, 8 + header_bytes + i * vocab * 4) for i in range(count)]
top = [json.loads(line) for line in open(sys.argv[3])]
k = int(sys.argv[4])
tokens = json.loads(open("tokens.json").read())
assert len(scores) == count == len(top) == len(tokens), (len(scores), count, len(top), len(tokens))
for score, row, best, token in zip(scores, rows, top, tokens):
    if score is None:
        assert all(math.isnan(x) for x in row) and best is None
        continue
    if isinstance(score, float):
        most = max(row)
        assert abs(row[token] - most - math.log(sum(math.exp(x - most) for x in row)) - score) < 1e-5
    else:
        assert score == "nan" if max(row) == math.inf or any(map(math.isnan, row)) else (score, row[token]) == ("-inf", -math.inf)
    order = sorted(range(vocab), key=lambda i: (0, 0, i) if math.isnan(row[i]) else (1, -row[i], i))[:k]
    texts = [float(f"{row[i]:.9g}") if math.isfinite(row[i]) else str(row[i]) for i in order]
    assert [i for i, _ in best] == order and [x for _, x in best] == texts
END
cat >"$scratch/zero_head.py" <<'END'
"""zero_head.py FILE: all logits become 0."""
import json, struct, sys

data = bytearray(open(sys.argv[1], "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
first, past = json.loads(data[8:start])["lm_head.weight"]["data_offsets"]
data[start + first : start + past] = bytes(past - first)
open(sys.argv[1], "wb").write(data)
END
cd "$scratch" || exit 99
ok "two ranks" build two model.cfg
ok "in bf16, the head in chunks" build half model.cfg -s model.dtype=bf16 -s model.loss_rows=32 -s batch.microbatch=4
split='-s tensor_parallel.splits=2' # the second split of the vocabulary has fewer tokens
ok "in splits" build split model.cfg $split
ok "in splits and chunks, in bf16, on one rank" build chunks model.cfg $split -s model.dtype=bf16 -s model.loss_rows=32 -s batch.microbatch=4 -s pipeline.ranks=1
ok "in splits, packed" build packed model.cfg $split -s batch.packed=true
ok "packed, on replicas that share out their weights" build shared model.cfg -s batch.packed=true -s data_parallel.replicas=2 \
  -s data_parallel.shard=weights
make_tokens data.bin 2000
./two train --data data.bin --quiet --checkpoint ckpt
is "trained a little" $? 0
make_tokens text.bin 430 7 # 26 windows and a part of one, in steps of 6
tail -c +1025 text.bin | od -An -v -tu2 -w2 | awk '{ print (NR > 1 ? "," : "[") $1 + 0 } END { print "]" }' >tokens.json

score() { # NAME DATA K
  "./$1" score --data "$2" --checkpoint ckpt --output scores.json --quiet --logits "logits.$3" --logits-top "$3" >result
}
for name in two half split chunks; do
  ok "$name: all logits" score $name text.bin 0
  ok "$name: the 5 largest" score $name text.bin 5
  ok "$name: they give the scores" python3 check.py scores.json logits.0 logits.5 5
done
for name in two split; do
  ok "$name: more than the vocabulary" score $name text.bin 1000
  ok "$name: all logits again" score $name text.bin 0
  ok "$name: those of all tokens in falling order" python3 check.py scores.json logits.0 logits.1000 257
done
rm -f logits.*

# Documents of a packed file, some cut, are whole and in the order of the input.
awk 'BEGIN { s = 3; for (d = 0; d < 30; d++) { s = s * 16807 % 2147483647; n = d % 7 == 6 ? 40 : 1 + s % 12
  for (t = 1; t < n; t++) { s = s * 16807 % 2147483647; printf "%c", 65 + s % 26 } printf "\n" } }' >lines
"$tokens" --bytes --end-of-text 10 --pack 16 --pad-to 4 -o packed.bin lines 2>/dev/null
od -An -v -tu1 -w1 lines | awk '{ print (NR > 1 ? "," : "[") $1 + 0 } END { print "]" }' >tokens.json
for name in shared packed; do
  ok "$name: all logits" score $name packed.bin 0
  ok "$name: the 3 largest" score $name packed.bin 3
  ok "$name: they give the scores" python3 check.py scores.json logits.0 logits.3 3
done

./two init --output equal.safetensors
ok "a head of zeros" python3 zero_head.py equal.safetensors
./two score --data text.bin --init equal.safetensors --output scores.json --quiet --logits equal --logits-top 3 >result
is "of equal logits the lower ids come first" "$(sort -u equal)" "[[0, 0], [1, 0], [2, 0]]
null"

# What is not finite is a value like any other: it has its place, and no mark is taken for it.
printf 'some water QA and QB, then R and SA, and QA again: all the rest is finite' >spoilt.text
"$tokens" --bytes -o spoilt.bin spoilt.text 2>/dev/null
od -An -v -tu1 -w1 spoilt.text | awk '{ print (NR > 1 ? "," : "[") $1 + 0 } END { print "]" }' >tokens.json
./two init --output sound.safetensors
ok "weights whose logits are not finite" python3 "$top_srcdir/tests/support/spoil_weights.py" sound.safetensors spoilt.safetensors
for name in two split; do
  for k in 0 4 257; do
    ./$name score --data spoilt.bin --init spoilt.safetensors --output scores.json --quiet --logits logits.$k --logits-top $k >result 2>err
    is "$name: $k logits: status" $? 0
  done
  is "$name: the result has no loss" "$(cat result)" '{"loss":null,"perplexity":null,"tokens":72}'
  is "$name: how many are not finite is said" "$(complaints err)" "penstock: 4 of 72 log-probabilities are not finite: the result has no loss"
  is "$name: each has its place" "$(grep -o '"nan"\|"-inf"\|null' scores.json | tr '\n' ' ')" 'null "-inf" "nan" "nan" "-inf" "nan" '
  ok "$name: they are what the logits give" python3 check.py scores.json logits.0 logits.4 4
  ok "$name: and what all logits give" python3 check.py scores.json logits.0 logits.257 257
  ./$name eval --data spoilt.bin --init spoilt.safetensors --steps 1 --quiet >result 2>err
  matches "$name: eval has no loss either" "$(cat result)" '{"loss":null,"perplexity":null,"tokens":*}'
  is "$name: and says so" "$(complaints err)" "penstock: 1 of 1 steps have a loss that is not finite: the result has no loss"
done

# After an error there is no half-written file.
echo before >logits.0
(
  ulimit -f 100 # blocks of 512 bytes or 1 KiB; all logits have 440 KiB
  score two text.bin 0 2>err
)
is "a file that grows too large: status" $? 74
matches "a file that grows too large: message" "$(complaints err)" "penstock: --logits logits.0: File too large"
is "the file that was there stays" "$(cat logits.0) $(ls logits.0*)" "before logits.0"
mkdir folder
./two score --data text.bin --checkpoint ckpt --output scores.json --quiet --logits folder >result 2>err
is "not a file: status" $? 64
is "not a file: message" "$(complaints err)" "penstock: --logits folder: not a regular file"
./two score --data text.bin --checkpoint ckpt --output scores.json --quiet --logits none/x >result 2>err
is "no folder: status" $? 73
matches "no folder: message" "$(complaints err)" "penstock: --logits none/x: cannot create none/x.tmp: *"
./two score --data text.bin --checkpoint ckpt --output scores.json --quiet --logits scores.json >result 2>err
is "one file for both: status" $? 64
finish
