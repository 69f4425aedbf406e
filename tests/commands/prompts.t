#!/bin/sh
# prompts.t: generate --prompts continues the prompts of a file of JSON lines, in their order, as --prompt does each.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 to read JSON"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 64; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 10; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cat >"$scratch/field.py" <<'END'
"""field.py NAME: that member of each line; characters up to U+00FF that are not ASCII as \\xXX."""
import json, sys

for line in sys.stdin:
    value = json.loads(line)
    assert list(value) == ["prompt", "text"], value
    print("".join(c if " " <= c < "\x7f" else f"\\x{ord(c):02x}" for c in value[sys.argv[1]]))
END
cd "$scratch" || exit 99
ok "two ranks" build two model.cfg
ok "more tokens than bytes" build many model.cfg -s model.vocab=300
make_tokens data.bin 4000
./two train --data data.bin --quiet --checkpoint ckpt
is "trained a little" $? 0
./many init --output many.safetensors

cat >prompts.json <<'END'
{"prompt": "ABCDEFGH", "other": [1, 2]}

{"prompt": "The longest of the prompts, which is longer than the sequence of the model: 64 tokens."}
{"prompt": "q\"\\\u0001"}
END
generate() { # OPTION...
  ./two generate --checkpoint ckpt "$@" 2>err
}
# Nothing is drawn from logits that are not finite, of which weights of this kind have some.
./two init --output sound.safetensors
ok "weights whose logits are not finite" python3 "$top_srcdir/tests/support/spoil_weights.py" sound.safetensors spoilt.safetensors
ok "without a cache" build bare model.cfg -s generate.prompts=0
ok "two tensor ranks" build halves model.cfg -s tensor_parallel.ranks=2
ends() { # NAME STATUS WRONG TEXT TOKENS OPTION...: so many logits are wrong after so many tokens of that text
  ends_name=$1 ends_status=$2 ends_message="penstock: text $4: $3 of the 256 logits after token $5 are not finite"
  shift 5
  ./$ends_name generate --init spoilt.safetensors --tokens 1 --quiet "$@" >out 2>err
  is "$ends_name $*: status" $? $ends_status
  test $ends_status = 0 || is "$ends_name $*: message" "$(complaints err)" "$ends_message"
}
for name in two bare halves; do
  ends $name 65 1 1 3 --prompt abQ
  ends $name 65 1 1 3 --prompt abR --temperature 0
  ends $name 65 256 1 3 --prompt abS
  ends $name 0 0 0 0 --prompt QRSab
done
printf '{"prompt": "ab"}\n{"prompt": "Q"}\n' >spoilt.json
ends two 65 1 2 1 --prompts spoilt.json --temperature 0.5 --top-k 3

generate --prompts prompts.json --tokens 20 --temperature 0 >lines
is "status" $? 0
matches "the rate" "$(complaints err)" "60 tokens  [0-9]* tokens/s"
{ printf '\357\273\277'; cat prompts.json; } >marked.json
generate --prompts marked.json --tokens 20 --temperature 0 >marked.lines
ok "a byte order mark is passed over" cmp lines marked.lines
is "the prompts in their order" "$(python3 field.py prompt <lines)" 'ABCDEFGH
The longest of the prompts, which is longer than the sequence of the model: 64 tokens.
q"\\x01'
python3 field.py text <lines >texts
is "a text for each" "$(wc -l <texts | tr -d ' ')" 3
generate --prompt ABCDEFGH --tokens 20 --temperature 0 | tail -c +9 >first
is "the first is that of --prompt, without the prompt" "$(sed -n 1p texts)" "$(cat first)"
generate --prompts prompts.json --tokens 20 --samples 2 --seed 3 >lines
is "two samples of each" "$(python3 field.py prompt <lines | uniq -c | awk '{ print $1 }' | tr '\n' ' ')" "2 2 2 "
is "all different" "$(python3 field.py text <lines | sort -u | wc -l | tr -d ' ')" 6
generate --prompts prompts.json --tokens 20 --samples 2 --seed 3 --quiet >again
ok "the same again" cmp lines again
is "--quiet" "$(complaints err)" ""
stop=$(sed -n 1p texts | head -c 5 | tail -c 1)
generate --prompts prompts.json --tokens 20 --temperature 0 --end-of-text "$(printf %d "'$stop")" >ended
is "it ends with the end-of-text token" "$(python3 field.py text <ended | sed -n 1p)" "$(sed -n 1p texts | sed "s/$stop.*/$stop/")"

# Bytes that are no text are escaped one by one: at a high temperature any byte comes.
./two generate --checkpoint ckpt --prompts prompts.json --tokens 400 --temperature 100 --seed 8 2>err >wild
python3 - <<'END'
import json

for line in open("wild", "rb"):
    text = json.loads(line.decode())["text"]  # the file is UTF-8
    assert sum(len(c.encode()) if ord(c) > 255 else 1 for c in text) <= 400, text
    assert any(128 <= ord(c) <= 255 for c in text) and any(ord(c) < 32 for c in text)
END
is "any bytes give UTF-8" $? 0

echo '{"prompt": "299 0 7"}' >numbers.json
./many generate --init many.safetensors --prompts numbers.json --tokens 5 --seed 3 2>err >lines
is "numbers in, numbers out" "$(sed 's/[0-9][0-9]*/N/g' lines)" '{"prompt": "N N N", "text": "N N N N N"}'
is "those of --prompt" "299 0 7 $(python3 field.py text <lines) " "$(./many generate --init many.safetensors --prompt "299 0 7" --tokens 5 --seed 3 2>err)"

refuses() { # STATUS PATTERN LINES...
  refuses_status=$1 refuses_pattern=$2
  shift 2
  printf '%s\n' "$@" >bad.json
  ./many generate --init many.safetensors --prompts bad.json 2>err >out
  is "refused: $*: status" $? "$refuses_status"
  matches "refused: $*: message" "$(complaints err)" "penstock: $refuses_pattern"
}
refuses 65 "--prompts bad.json:3: 300: token numbers below 300, separated by spaces" '{"prompt": "1"}' '' '{"prompt": "1 300"}'
refuses 65 "--prompts bad.json:1: not JSON: *" '{"prompt": '
refuses 65 '--prompts bad.json:1: an object with a string "prompt" is needed' '{"prompt": 1}'
refuses 65 "--prompts bad.json:1 '': at least one token" '{"prompt": ""}'
refuses 65 "--prompts bad.json:1: a byte 0 among token numbers" '{"prompt": "1 \u0000"}'
refuses 65 "--prompts bad.json: no prompt" ''
./many generate --init many.safetensors --prompts none.json 2>err
is "no file: status" $? 66
is "no file: message" "$(complaints err)" "penstock: --prompts none.json: No such file or directory"
./many generate --init many.safetensors --prompts numbers.json --prompt 1 2>err
is "both options: status" $? 64
finish
