#!/bin/sh
# chat.t: penstock-chat passes ids between a tokenizer and generate: what it prints is the text of generate's ids, for a prompt and for the turns of a chat.
. "${top_srcdir:-.}/tests/support/lib.sh"
chat=$top_builddir/penstock-chat
test -x "$chat" || skip_all "penstock-chat is not built"
cd "$scratch" || exit 99
mkdir without
for name in tokenizers jinja2; do echo 'raise ImportError("none here")' >without/$name.py; done
cat >words.cfg <<'END'
model = { family = "llama"; layers = 2; hidden = 16; heads = 2; ffn = 16; vocab = 300; sequence = 32; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 1; };
pipeline = { ranks = 2; microbatches = 1; schedule = "1f1b"; };
END
ok "a binary whose tokens are not bytes" build words words.cfg
fails "no weights" 64 "choose one of --checkpoint DIR and --init PATH" "$chat" ./words

# ---- the tokenizer: words, the ids of which spread over the vocabulary, and bytes of UTF-8 that make a character ----
find_python 'import tokenizers, jinja2' /opt/peer/bin/peer-python python3 || {
  skip "text" "no Python with tokenizers and jinja2 here: set PEER"
  finish
}
mkdir folder
cat >make.py <<'END'
import json
special = ["<end>", "<turn>", "<start>"]
vocab = {word: index for index, word in enumerate(special + ["user", "assistant", "system"] + [f"w{index}" for index in range(6, 300)])}
added = [dict(id=vocab[word], content=word, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for word in special]
start = {"id": "<start>", "ids": [2], "tokens": ["<start>"]}
json.dump({"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "decoder": None, "added_tokens": added,
           "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", "unk_token": "w299", "vocab": vocab},
           "post_processor": {"type": "TemplateProcessing", "special_tokens": {"<start>": start}, "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
                              "single": [{"SpecialToken": {"id": "<start>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}},
          open("folder/tokenizer.json", "w"))
END
"$python" make.py
./words init --output folder/model.safetensors --seed 3 2>/dev/null
talk() { "$python" -B "$chat" ./words --init folder "$@"; }
ids() { ./words generate --init folder --quiet "$@" 2>/dev/null | tail -n 1; }
as_words() { # the words of ids after the first COUNT
  awk -v skip="$1" '{ for (i = skip + 1; i <= NF; i++) { if ($i > 5) printf " w%d", $i; else if ($i > 2) printf " %s", $i == 3 ? "user" : $i == 4 ? "assistant" : "system" } printf "\n" }'
}

# ---- a prompt ----
is "a prompt is continued" "$(talk --prompt 'w7 w8' --tokens 12)" "$(ids --prompt '2 7 8' --tokens 12 | as_words 3)"
options="--temperature 1.5 --top-k 50 --top-p .9 --min-p .01 --repetition-penalty 1.2 --seed 5"
is "with the options of generate" "$(talk --prompt 'w7 w8' --tokens 12 $options)" "$(ids --prompt '2 7 8' --tokens 12 $options | as_words 3)"
third=$(ids --prompt '2 7 8' --tokens 12 | cut -d ' ' -f 6)
is "--stop ends it" "$(talk --prompt 'w7 w8' --tokens 12 --stop "299,$third" | wc -w)" 3
printf '{"eos_token_id": [999, %s]}' "$third" >folder/generation_config.json
is "and so do the ids of generation_config.json" "$(talk --prompt 'w7 w8' --tokens 12 | wc -w)" 3
rm folder/generation_config.json
printf '{"eos_token": {"content": "w%s"}}' "$third" >folder/tokenizer_config.json
is "or else the tokenizer's end of text" "$(talk --prompt 'w7 w8' --tokens 12 | wc -w)" 3
rm folder/tokenizer_config.json
is "lines, without a chat template" "$(printf 'w7 w8\n\nw9\n' | talk --tokens 5)" "$(ids --prompt '2 7 8' --tokens 5 | as_words 3)
$(ids --prompt '2 9' --tokens 5 | as_words 2)"

# ---- a chat, of a checkpoint that keeps the tokenizer ----
cat >folder/tokenizer_config.json <<'END'
{"bos_token": "<start>", "chat_template": "{{ bos_token }}{% for m in messages %}<turn> {{ m.role }} {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} <end> {% endfor %}{% if add_generation_prompt %}<turn> assistant{% endif %}"}
END
echo '{"eos_token_id": 0}' >folder/generation_config.json
awk 'BEGIN { for (i = 0; i < 200; i++) printf "%c%c", 6 + i, 0 }' >ids.raw
"$tokens" --ids 16 -o data.bin ids.raw 2>/dev/null
ok "a checkpoint" ./words train --init folder --data data.bin --steps 1 --checkpoint run --quiet 2>/dev/null
talk() { "$python" -B "$chat" ./words --checkpoint run "$@"; }
ids() { ./words generate --checkpoint run --quiet --stop 0 "$@" 2>/dev/null | tail -n 1; }
is "its tokenizer is found" "$(talk --prompt 'w7 w8' --tokens 12)" "$(ids --prompt '2 7 8' --tokens 12 | as_words 3)"
first=$(ids --prompt '2 1 3 7 0 1 4' --tokens 4)
is "a message" "$(talk --prompt w7 --chat --tokens 4)" "$(echo "$first" | as_words 7 | sed 's/^ //')"
replied=$(echo "$first" | as_words 7 | sed 's/^ //; s/w//g; s/user/3/g; s/assistant/4/g; s/system/5/g')
second=$(ids --prompt "2 1 3 7 0 1 4 $replied 0 1 3 8 0 1 4" --tokens 4)
count=$(echo "2 1 3 7 0 1 4 $replied 0 1 3 8 0 1 4" | wc -w)
printf 'w7\nw8\n' | talk --tokens 4 >got
is "turns" "$(cat got)" "$(echo "$first" | as_words 7 | sed 's/^ //')
$(echo "$second" | as_words "$count" | sed 's/^ //')"
is "with a message of the system" "$(talk --prompt w7 --chat --system w9 --tokens 4)" \
  "$(ids --prompt '2 1 5 9 0 1 3 7 0 1 4' --tokens 4 | as_words 11 | sed 's/^ //')"
is "plain lines" "$(echo 'w7 w8' | talk --plain --tokens 5)" "$(ids --prompt '2 7 8' --tokens 5 | as_words 3)"

cat >counted <<'STOP'
#!/bin/sh
echo "$1 $2" >>starts
exec ./words "$@"
STOP
chmod +x counted
printf 'w7\nw8\n' | "$python" -B "$chat" ./counted --checkpoint run --tokens 4 >again
is "in one run" "$(cmp got again)$(tr '\n' ' ' <starts)" "info --json generate --stream "
mkfifo in out
"$python" -B "$chat" ./words --checkpoint run --tokens 4 <in >out 2>err &
pid=$!
exec 3>in 4<out
echo w7 >&3
read -r reply <&4
is "a message is answered before the next one comes" "$reply" "$(sed -n 1p got)"
child=$(children $pid)
kill -TERM "$child"
while lives "$child"; do sleep 0.05; done
echo w8 >&3
wait $pid
is "a run that a signal ends: status" "$? $(complaints err)" "0 "
exec 3>&- 4<&-

# ---- over two hosts ----
fails "--ssh without hosts" 64 "--ssh: the binary is not started by penstock-launch" talk --ssh rsh_to_host --prompt w7
if test -n "$OFI_ARCHIVES" && sh "$top_srcdir/tests/support/hosts.sh" 2 true; then
  ok "a binary of two hosts" build hosts words.cfg -s cluster.hosts=[host1,host2] -s cluster.bind=none -s "cluster.port=$((20000 + $$ % 12000))"
  printf 'w7\nw8\n' | PATH="$top_srcdir/tools:$PATH" timeout 300 sh "$top_srcdir/tests/support/hosts.sh" 2 \
    "$python" -B "$chat" ./hosts --ssh rsh_to_host --checkpoint run --tokens 4 >again 2>err
  is "penstock-launch starts both, and the chat is the same" "$? $(cmp got again)$(complaints err)" "0 "
else
  skip "over two hosts" "no libfabric, or no network namespaces here"
fi

# ---- characters of several bytes, and a vocabulary of bytes ----
mkdir bytes
cat >bytes.py <<'END'
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.save("bytes/tokenizer.json")
END
"$python" bytes.py
ok "a binary of bytes" build small words.cfg -s model.vocab=256
./small init --output bytes/model.safetensors 2>/dev/null
"$python" -B "$chat" ./small --init bytes --prompt 'über ' --tokens 60 --seed 2 >got 2>err
is "text of bytes: status" "$? $(complaints err)" "0 "
cat >wanted.py <<'END'
import subprocess, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file("bytes/tokenizer.json")
ids = tokenizer.encode("über ").ids
out = subprocess.run(["./small", "generate", "--init", "bytes", "--prompt", bytes(ids), "--tokens", "60", "--seed", "2", "--quiet"], stdout=subprocess.PIPE,
                     stderr=subprocess.DEVNULL).stdout[len(ids):-1]
sys.stdout.reconfigure(encoding="utf-8")
print(tokenizer.decode(list(out)))
END
"$python" wanted.py >wanted
ok "is generate's" cmp got wanted

# ---- what is wrong ----
no_package() { "$python" -B -c 'import sys, runpy; sys.path.insert(0, sys.argv.pop(1)); sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name="__main__")' "$scratch/without" "$chat" "$@"; }
fails "without the package" 69 "needs Python's package tokenizers (pip install tokenizers): none here" no_package ./words --checkpoint run --prompt x
rm without/tokenizers.py
fails "without jinja2" 69 "the chat template needs Python's package jinja2" no_package ./words --checkpoint run --prompt x --chat
fails "both weights" 64 "choose one of --checkpoint DIR and --init PATH" talk --init folder
fails "given twice" 64 "--top-p: given twice" talk --top-p 1 --top-p 1 --prompt x
fails "a value that generate refuses" 64 "--top-p 0: a number above 0" talk --top-p 0 --prompt x
fails "no tokenizer" 66 "without: no tokenizer.json there, nor in its latest" "$python" -B "$chat" ./words --checkpoint without --prompt x
fails "no binary" 66 "./absent: No such file" "$python" -B "$chat" ./absent --checkpoint run --prompt x
fails "another program" 65 "true: no binary of a language model" "$python" -B "$chat" true --checkpoint run --prompt x
fails "a chat of nothing" 64 "--chat needs --prompt" talk --chat
echo '{"chat_template": "{{ raise_exception(\"only one message\") }}"}' >folder/tokenizer_config.json
fails "a template that refuses" 65 "the chat template: only one message" "$python" -B "$chat" ./words --init folder --prompt x --chat
echo '[' >folder/tokenizer.json
fails "a tokenizer that is none" 65 "folder/tokenizer.json: " "$python" -B "$chat" ./words --init folder --prompt x
finish
