#!/bin/sh
# sampling.t: what generate draws with --top-k, --top-p, --min-p and --repetition-penalty is what these say of score's logits, on any ranks; a
# prompt's own seed gives its text at any place of the file; a text ends with one of the ids of --stop; the steps keep the seal.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'pass' /opt/peer/bin/peer-python python3 || skip_all "no python3 to read JSON"
PEN_PRODUCTS=own # sums do not depend on the number of rows, so that bits are equal
export PEN_PRODUCTS

# All tokens are ASCII, so that a character is a token.
cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; ffn = 48; vocab = 104; sequence = 64; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 30; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
generate = { prompts = 3; };
cluster = { device = "cpu"; };
END
cd "$scratch" || exit 99
cat >prompts.json <<'END'
{"prompt": "ABCDEFGH"}
{"prompt": "THE ", "seed": 12}
{"prompt": "Q", "seed": 9223372036854775807}
{"prompt": "ABC"}
END
make_tokens data.bin 4000
sampling() { "$python" "$top_srcdir/tests/commands/sampling.py" "$@"; }
length=50
generate() { # NAME OPTION...
  generate_name=$1
  shift
  "./$generate_name" generate --checkpoint ckpt --prompts prompts.json --tokens "$length" --quiet "$@"
}

ok "one rank" build one model.cfg
ok "two ranks" build two model.cfg -s pipeline.ranks=2
ok "four ranks without a cache" build plain model.cfg -s pipeline.ranks=4 -s generate.prompts=0
ok "a V for one text at once" build vee model.cfg -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s generate.prompts=1
ok "replicas" build replicas model.cfg -s data_parallel.replicas=2 -s data_parallel.shard=weights
ok "split weights on one tensor rank" build split_one model.cfg -s tensor_parallel.splits=4
ok "on two" build split_two model.cfg -s tensor_parallel.splits=4 -s tensor_parallel.ranks=2
ok "on four, in two stages" build split_four model.cfg -s tensor_parallel.splits=4 -s tensor_parallel.ranks=4 -s pipeline.ranks=2
ok "trained a little" ./one train --data data.bin --quiet --checkpoint ckpt

# ---- what is drawn, recomputed from score's logits ----
recomputed() { # OPTION...: of the lines that one has written
  sampling windows lines 64 >windows.text && "$tokens" --bytes -o windows.bin windows.text 2>/dev/null &&
    ./one score --data windows.bin --checkpoint ckpt --output scores --logits logits --logits-top 104 --quiet >/dev/null &&
    sampling check lines logits 64 104 5 "$@" >checked 2>&1
  cat checked | sed '$!s/^/# /'
}
while read -r options; do
  generate one --seed 5 $options >lines
  is "$options: status" $? 0
  is "$options: each of 200 tokens is the one that is to be drawn" "$(recomputed $options | tail -n 1)" 200
  for name in two plain vee replicas; do
    generate $name --seed 5 $options >again
    ok "$options: $name gives the same texts" cmp lines again
  done
  generate split_one --seed 5 $options >lines
  for name in split_two split_four; do
    generate $name --seed 5 $options >again
    ok "$options: $name gives the texts of one tensor rank" cmp lines again
  done
done <<END
--top-p 0.7 --temperature 1
--min-p 0.2 --temperature 1.5
--repetition-penalty 0.3 --temperature 0
--repetition-penalty 0.7 --top-k 5
--repetition-penalty 1.2 --temperature 1.4 --top-k 40 --top-p 0.9 --min-p 0.05
END

# What changes nothing, and what does.
generate one --seed 5 >usual
generate one --seed 5 --top-k 0 --top-p 1 --min-p 0 --repetition-penalty 1 >again
ok "the defaults, given: the same texts" cmp usual again
generate one --temperature 0 >cold
generate one --temperature 0 --top-k 3 --top-p 0.1 --min-p 0.9 >again
ok "at temperature 0 they change nothing" cmp cold again
generate one --temperature 0 --repetition-penalty 0.3 >again
ok "but the penalty does" test "$(cksum <cold)" != "$(cksum <again)"
generate one --top-p 1e-9 >again
ok "the smallest top-p leaves the likeliest" cmp cold again

# ---- seeds of prompts ----
sed '1!G;h;$!d' prompts.json >reversed.json # the last line first
usual_of() { grep "\"prompt\": \"$1\"" "$2"; }
for name in one two split_two; do
  generate $name --seed 5 --samples 2 >forwards
  ./$name generate --checkpoint ckpt --prompts reversed.json --tokens 50 --quiet --seed 6 --samples 2 >backwards
  for prompt in "THE " Q; do
    is "$name: '$prompt' has a seed: the same texts at another place, whatever --seed is" "$(usual_of "$prompt" backwards)" "$(usual_of "$prompt" forwards)"
    is "$name: '$prompt' has two samples, which differ" "$(usual_of "$prompt" forwards | sort -u | wc -l | tr -d ' ')" 2
  done
  ok "$name: ABC has none: another text (the test can tell)" test "$(usual_of ABC forwards)" != "$(usual_of ABC backwards)"
  ./$name generate --checkpoint ckpt --prompt "THE " --seed 12 --tokens 50 --quiet >alone
  echo '{"prompt": "THE ", "seed": 12}' >own.json
  is "$name: the text of --prompt with that --seed" "$(cat alone)" \
    "THE $(./$name generate --checkpoint ckpt --prompts own.json --tokens 50 --quiet | "$python" -c 'import json; print(json.loads(input())["text"])')"
done
for seed in -1 1.5 '"1"' null; do
  printf '{"prompt": "A"}\n{"prompt": "B", "seed": %s}\n' "$seed" >bad.json
  ./one generate --checkpoint ckpt --prompts bad.json 2>err
  is "seed $seed: status" $? 65
  is "seed $seed: message" "$(complaints err)" 'penstock: --prompts bad.json:2: "seed" must be a whole number from 0 to 9223372036854775807'
done

# ---- stop ids ----
cat >stopped.py <<'END'
"""stopped.py WHOLE: two ids, in falling order, that some texts of WHOLE have and others do not.
stopped.py WHOLE STOPPED IDS: each text of STOPPED is that of WHOLE to the first of IDS, and says why it ended."""
import json, re, sys

whole, lines = ([json.loads(line) for path in paths for line in open(path)] for paths in (sys.argv[1:2], sys.argv[2:3]))
if not lines:
    texts = [set(line["text"]) for line in whole]
    print(*sorted(map(ord, set.union(*texts[:2]) - texts[2]), reverse=True)[:2], sep=",")
    sys.exit()
stops = "".join(map(re.escape, map(chr, map(int, sys.argv[3].split(",")))))
for line, full in zip(lines, whole, strict=True):
    found = re.match(f"[^{stops}]*[{stops}]", full["text"], re.DOTALL)
    text, reason = (found.group(), "stop") if found else (full["text"], "length")
    assert line == {"prompt": full["prompt"], "text": text, "finish_reason": reason}, (line, full)
print(*sorted({line["finish_reason"] for line in lines}))
END
length=12
generate one --seed 5 >whole
stops=$("$python" stopped.py whole)
for name in one two plain vee; do
  generate $name --seed 5 --stop "$stops" >stopped
  is "$name: a text ends with the first of two ids, or is full" "$("$python" stopped.py whole stopped "$stops")" "length stop"
done
length=50
generate split_one --seed 5 --stop 66,32,65 >stopped
generate split_two --seed 5 --stop 66,32,65 >again
ok "tensor ranks stop as one does" cmp stopped again
count=$(grep -c '"finish_reason": "stop"}' stopped)
./split_one generate --checkpoint ckpt --prompts prompts.json --tokens 50 --seed 5 --stop 66,32,65 2>err >again
matches "the last line says how many" "$(complaints err)" "* tokens  * tokens/s  $count of 4 texts ended with a stop token"
./one generate --checkpoint ckpt --prompt ABCDEFGH --tokens 20 --temperature 0 --quiet >whole
stop=$(tail -c +13 whole | head -c 1)
./one generate --checkpoint ckpt --prompt ABCDEFGH --tokens 20 --temperature 0 --quiet --stop "$(printf %d "'$stop")" >stopped
is "--prompt: the token is printed" "$(cat stopped)" "ABCDEFGH$(tail -c +9 whole | sed "s/$stop.*/$stop/")"
generate one --seed 5 --stop 66 --end-of-text 32 >both
generate one --seed 5 --stop 66,32 >again
ok "--end-of-text is one more" cmp both again

# ---- refused ----
while read -r option value pattern; do
  ./one generate --checkpoint ckpt --prompt A "$option" "$value" 2>err >out
  is "$option $value: status" $? 64
  matches "$option $value: message" "$(complaints err)" "penstock: $option $value: $pattern"
done <<'END'
--stop 104 token ids below 104, separated by commas
--stop 1,,2 token ids below 104, separated by commas
--stop 1, token ids below 104, separated by commas
--stop -1 token ids below 104, separated by commas
--stop 99999999999999999999 token ids below 104, separated by commas
--top-k -1 a whole number, 0 or more
--top-p 0 a number above 0, at most 1
--top-p 1.01 a number above 0, at most 1
--top-p nan a number above 0, at most 1
--min-p 1 a number, 0 or more and below 1
--min-p -0.1 a number, 0 or more and below 1
--repetition-penalty 0 a number above 0
--repetition-penalty x a number above 0
END

# ---- seal ----
wrapped=$(grep -o -- '-Wl,--wrap=[a-z_,=-]*' "$top_srcdir/runtime/base/seal.c" | tr '\n' ' ')
sealed_build() {
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -DPEN_TEST_SEAL -I"$top_srcdir" $wrapped -o "$scratch/$1_sealed" \
    "$top_srcdir/runtime/base/seal.c" "$scratch/$1.o" libruntime.a $KERNEL_ARCHIVES $OFI_LIBS $RUNTIME_LIBS)
}
for name in two split_two; do
  ok "$name: the test build" sealed_build $name
  generate ${name}_sealed --seed 5 --stop 66 --repetition-penalty 1.2 --top-k 40 --top-p 0.9 --min-p 0.05 >sealed
  is "$name: it keeps the seal" $? 0
done
finish
