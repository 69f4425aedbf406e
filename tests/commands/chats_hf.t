#!/bin/sh
# chats_hf.t: tools/tokens/tokens_hf.py --messages: chats by a tokenizer's chat template, and which of their tokens count. Needs a Python with
# transformers: set PEER.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'import transformers' /opt/peer/bin/peer-python python3 || skip_all "no Python with transformers here: set PEER"
cd "$scratch" || exit 99
# Words are tokens; <turn> and <end> are special.
cat >tokenizer.json <<'END_OF_FILE'
{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null, "decoder": null,
 "added_tokens": [{"id": 0, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
                  {"id": 1, "content": "<turn>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
 "pre_tokenizer": {"type": "Whitespace"},
 "model": {"type": "WordLevel", "unk_token": "other", "vocab": {"<end>": 0, "<turn>": 1, "user": 2, "assistant": 3, "system": 4, "one": 5, "two": 6, "three": 7, "think": 8, "other": 9}}}
END_OF_FILE
cat >chats.jsonl <<'END_OF_FILE'
{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two three"}, {"role": "user", "content": "two"}, {"role": "assistant", "content": "one"}]}

{"messages": [{"role": "assistant", "content": "three"}, {"role": "user", "content": "one two"}, {"role": "assistant", "content": ""}]}
END_OF_FILE
tool() { "$python" "$top_srcdir/tools/tokens/tokens_hf.py" --program "$tokens" "$scratch/tokenizer.json" --messages "$@"; }
# template TEXT: becomes the tokenizer's.
template() {
  "$python" -c 'import json, sys; json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": sys.argv[1]}, open(sys.argv[2], "w"))' \
    "$1" "$scratch/tokenizer_config.json"
}
# counted: what the chats become: ids, those that count after a bar.
counted() {
  tool -o t.bin chats.jsonl 2>err || { sed 's/^/# /' err; return 1; }
  masked_tokens t.bin | awk '{ printf "%s%s ", $2 ? "|" : "", $1 }'
}
first='1 2 5 0 1 3 |6 |7 |0 1 2 6 0 1 3 |5 |0'
second='1 3 |7 |0 1 2 5 6 0 1 3 |0'
prompt='{% if add_generation_prompt %}<turn>assistant {% endif %}'
template "{% for m in messages %}<turn>{{ m.role }} {{ m.content }}<end> {% endfor %}$prompt"
is "a template with a generation prompt" "$(counted)" "$first $second "
ok "packed" tool --pack 32 --pad-to 4 -o packed.bin chats.jsonl
is "with a mask" "$(head -c 8 packed.bin)" PENPACK2
if find_python 'import transformers, pyarrow' "$python"; then
  # Rows have all fields that any has: what a message lacks is null.
  ok "the chats in a table" "$python" -c '
import json, pyarrow, pyarrow.parquet
lines = [json.loads(line) for line in open("chats.jsonl") if line.strip()]
lines[1]["messages"][0].update(weight=1, name="x", tool_calls=[])
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), "chats.parquet")'
  ok "a table" tool --pack 32 --pad-to 4 -o t.bin chats.parquet
  ok "has the same tokens" cmp packed.bin t.bin
else
  skip "a table" "no Python with pyarrow"
fi
template '{% for m in messages %}<turn>{{ m.role }} {{ m.content | trim }}<end> {% endfor %}'
is "and one without" "$(counted)" "$first $second "
template "{% for m in messages %}<turn>{{ m.role }} {% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>{% endgeneration %}{% else %}{{ m.content }}<end>{% endif %}{% endfor %}"
is "one that marks the assistant's text" "$(counted)" "$first $second "
template "{%- for m in messages -%}
  <turn>{{ m.role }} {# comment #}
  {%- if m.role == 'assistant' -%}
    {%- generation -%} {{ ' ' + m.content }} {%- endgeneration -%} <end>
  {%- else %} {{ m.content }}<end> {% endif %}
{% endfor -%}"
is "or that without its end: the end counts" "$(counted)" "$first $second "
cp chats.jsonl both.jsonl
cat >chats.jsonl <<'END_OF_FILE'
{"messages": [{"role": "user", "content": [{"type": "text", "text": "o"}, {"type": "text", "text": "ne"}]}, {"role": "assistant", "content": "two three", "weight": 0}, {"role": "user", "content": "two"}, {"role": "assistant", "content": "one", "weight": 1}]}
{"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]}
{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"three\": 1}"}}]}]}
END_OF_FILE
template "{% for m in messages %}<turn>{{ m.role }} {{ m.content }}{% for c in m.tool_calls %}{% for a in c.function.arguments %}{{ a }}{% endfor %}{% endfor %}<end> {% endfor %}$prompt"
is "weights, parts, conversations and tool calls" "$(counted)" '1 2 5 0 1 3 6 7 0 1 2 6 0 1 3 |5 |0 1 2 5 0 1 3 |6 |0 1 2 5 0 1 3 |7 |0 '
mv both.jsonl chats.jsonl
# Qwen3's: of earlier answers what was thought is left out, and the last one has a place for it.
template "{% for m in messages %}<turn>{{ m.role }} {% if m.role == 'assistant' and loop.last %}think {% endif %}{{ m.content }}<end> {% endfor %}$prompt"
is "a template that changes earlier answers" "$(counted)" '1 2 5 0 1 3 |6 |7 |0 1 2 6 0 1 3 8 |5 |0 1 3 |7 |0 1 2 5 6 0 1 3 8 |0 '
printf '{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}\n' >single.jsonl
cp chats.jsonl both.jsonl
mv single.jsonl chats.jsonl
is "and a single answer: all that comes after the prompt counts" "$(counted)" '1 2 5 0 1 3 |8 |6 |0 '
mv both.jsonl chats.jsonl

# refused STATUS PATTERN INPUT
refused() {
  rm -f t.bin
  tool -o t.bin "$3" 2>err
  refused_status=$? # a substitution sets it anew
  matches "$1: $(tail -n 1 err)" "$refused_status $(complaints err) $(ls t.bin* 2>/dev/null)" "$1 *$2*"
}
template "{% for m in messages %}{{ m.content[1:] }}{% endfor %}"
refused 65 "chats.jsonl:1: the chat template changes the assistant's messages: mark them in it by {% generation %}" chats.jsonl
template "{{ raise_exception('no roles') }}"
refused 65 'chats.jsonl:1: the chat template: no roles' chats.jsonl
template "{% for m in messages %}"
refused 65 'chats.jsonl:1: the chat template: *endfor*' chats.jsonl
template '{{ messages }}'
while read -r line; do
  read -r message
  printf '{"messages": [{"role": "user", "content": "x"}]}\n%s\n' "$line" >bad.jsonl
  template '{{ messages[0].content }}'
  refused 65 "bad.jsonl:2: $message" bad.jsonl
done <<'TEXT'
{"messages": []}
no field "messages" that is a list of messages
{"messages": [{"role": "user"}]}
messages\[0\]: no field "content" that is a string
{"messages": [{"content": "x"}]}
messages\[0\]: no field "role" that is a string
{"messages": [{"role": "bot", "content": "x"}]}
messages\[0\]: role "bot": system, developer, user, assistant or tool
[]
no field "messages" that is a list of messages
TEXT
printf '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}' >tokenizer_config.json
refused 65 'no chat template beside it' chats.jsonl
finish
