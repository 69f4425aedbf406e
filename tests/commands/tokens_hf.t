#!/bin/sh
# tokens_hf.t: tools/tokens/tokens_hf.py makes the files that penstock-tokens makes of the tokenizer's ids; most of it needs Python's tokenizers package.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'import sys' python3 || skip_all "no Python"
mkdir "$scratch/without"
echo 'raise ImportError("none here")' >"$scratch/without/tokenizers.py"
PYTHONPATH=$scratch/without "$python" "$top_srcdir/tools/tokens/tokens_hf.py" --help 2>"$scratch/err"
matches "without the package it says so" "$? $(complaints "$scratch/err")" "1 tokens_hf.py: needs Python's package tokenizers*none here"

if ! find_python 'import tokenizers' /opt/peer/bin/peer-python python3; then
  skip "its files" "no Python with the tokenizers package"
  finish
fi
tool() { "$python" "$top_srcdir/tools/tokens/tokens_hf.py" --program "$tokens" "$@"; }

# A tokenizer of whole words, and the ids that it must give, without it.
cat >"$scratch/tokenizer.json" <<'END'
{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null, "decoder": null,
 "added_tokens": [{"id": 0, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
 "pre_tokenizer": {"type": "Whitespace"},
 "model": {"type": "WordLevel", "unk_token": "the", "vocab": {"<|endoftext|>": 0, "the": 1, "water": 2, "turns": 3, "wheel": 4}}}
END
printf '{"text": "the water turns the wheel"}\n{"text": "water"}\n\n{"text": "the wheel turns"}\n' >"$scratch/lines.jsonl"
printf '\1\0\2\0\3\0\1\0\4\0\0\0\2\0\0\0\1\0\4\0\3\0\0\0' >"$scratch/ids"
ok "a packed file" tool "$scratch/tokenizer.json" --field text --pack 8 --pad-to 2 -o "$scratch/t.bin" "$scratch/lines.jsonl"
ok "as penstock-tokens packs the ids" "$tokens" --ids 16 --end-of-text 0 --pack 8 --pad-to 2 -o "$scratch/wanted.bin" "$scratch/ids"
ok "the same bytes" cmp "$scratch/t.bin" "$scratch/wanted.bin"
printf 'the water turns the wheel' >"$scratch/a"
printf 'water' >"$scratch/b"
printf 'the wheel turns' >"$scratch/c"
ok "a plain file, of a document a file" tool "$scratch/tokenizer.json" -o "$scratch/t.bin" "$scratch/a" "$scratch/b" "$scratch/c"
ok "holds the ids" sh -c "tail -c +1025 '$scratch/t.bin' | cmp - '$scratch/ids'"
refused() { # STATUS PATTERN ARGUMENT...
  wanted=$1 pattern=$2
  shift 2
  rm -f "$scratch/t.bin"
  tool "$@" -o "$scratch/t.bin" 2>"$scratch/err"
  got=$?
  matches "$got: $(tail -n 1 "$scratch/err")" "$got $(complaints "$scratch/err")" "$wanted *$pattern*"
  ok "and nothing is left" sh -c "! ls '$scratch'/t.bin*"
}
printf '{"text": "the"}\n{"txt": "water"}\n' >"$scratch/bad.jsonl"
refused 65 'bad.jsonl:2: no field "text"' "$scratch/tokenizer.json" --field text "$scratch/bad.jsonl"
refused 66 'absent: No such file' "$scratch/tokenizer.json" "$scratch/absent"
refused 64 'the tokenizer has no such token' "$scratch/tokenizer.json" --end-of-text '</s>' "$scratch/a"
refused 65 'bad.jsonl: ' "$scratch/bad.jsonl" "$scratch/a"

# Only some targets count.
printf '{"p": "the water", "c": "turns"}\n{"c": "wheel", "p": ""}\n' >"$scratch/pairs.jsonl"
ok "prompts and completions" tool "$scratch/tokenizer.json" --prompt-field p --field c -o "$scratch/t.bin" "$scratch/pairs.jsonl"
is "completions count, and what ends them" "$(masked_tokens "$scratch/t.bin" | tr '\n' ',')" '1 0,2 0,3 1,0 1,4 1,0 1,'
ok "packed" tool "$scratch/tokenizer.json" --prompt-field p --field c --pack 8 --pad-to 8 -o "$scratch/t.bin" "$scratch/pairs.jsonl"
is "with a mask" "$(head -c 8 "$scratch/t.bin") $(tail -c 1 "$scratch/t.bin" | od -An -tu1 | tr -d ' ')" "PENPACK2 $((4 + 8 + 16 + 32))"
refused 65 'pairs.jsonl:1: no field "q"' "$scratch/tokenizer.json" --prompt-field q --field c "$scratch/pairs.jsonl"
refused 64 'it needs --field' "$scratch/tokenizer.json" --prompt-field q "$scratch/pairs.jsonl"
refused 64 'choose one of --field and --messages' "$scratch/tokenizer.json" --field c --messages "$scratch/pairs.jsonl"
ok "tools/tokens_hf.py is the same program" cmp "$top_srcdir/tools/tokens_hf.py" "$top_srcdir/tools/tokens/tokens_hf.py"

"$python" "$top_srcdir/tools/tokens_hf.py" --program "$scratch/nowhere" "$scratch/tokenizer.json" -o "$scratch/t.bin" "$scratch/a" 2>"$scratch/err"
matches "a program that is not there" "$? $(complaints "$scratch/err")" "66 tokens_hf.py: --program $scratch/nowhere: No such file or directory"

# What generate takes and prints.
is "a text as numbers" "$(tool "$scratch/tokenizer.json" --encode 'the water turns')" "1 2 3"
is "lines of numbers as text" "$(printf '1 2 3 0\n4\n' | tool "$scratch/tokenizer.json" --decode | tr '\n' '/')" "the water turns <|endoftext|>/wheel/"
cat >"$scratch/words.cfg" <<'END'
model = { family = "llama"; layers = 1; hidden = 16; heads = 2; ffn = 16; vocab = 300; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 1; };
pipeline = { ranks = 1; microbatches = 1; schedule = "1f1b"; };
END
ok "a binary whose tokens are not bytes" build words "$scratch/words.cfg"
ok "its weights" "$scratch/words" init --output "$scratch/words.safetensors"
"$scratch/words" generate --init "$scratch/words.safetensors" --tokens 3 --prompt "$(tool "$scratch/tokenizer.json" --encode 'the water turns')" \
  >"$scratch/said" 2>"$scratch/err"
is "generate takes the numbers" "$?" 0
matches "and prints numbers" "$(tail -n 1 "$scratch/said")" "1 2 3 [0-9]*"
printf '1 2\n3 nine\n' | tool "$scratch/tokenizer.json" --decode >"$scratch/out" 2>"$scratch/err"
matches "what is no number of a token" "$? $(complaints "$scratch/err")" "65 *line 2: 'nine': must be a token id below 5*"
tool "$scratch/tokenizer.json" --encode the --decode 2>"$scratch/err" </dev/null
matches "both at once" "$? $(complaints "$scratch/err")" "64 *choose one of*"
tool "$scratch/tokenizer.json" --encode a --encode b 2>"$scratch/err" </dev/null
matches "an option given twice" "$? $(complaints "$scratch/err")" "64 tokens_hf.py: --encode: given twice; --help lists the options"
tool "$scratch/tokenizer.json" --enc a 2>"$scratch/err" </dev/null
matches "an option that is none" "$? $(complaints "$scratch/err")" "64 tokens_hf.py: unrecognized arguments: --enc*"
cp "$scratch/tokenizer.json" "$scratch/kept.json"
tool "$scratch/tokenizer.json" -o "$scratch/tokenizer.json" "$scratch/pairs.jsonl" 2>"$scratch/err"
matches "the tokenizer as output" "$? $(complaints "$scratch/err")" "64 tokens_hf.py: -o */tokenizer.json: the same file as */tokenizer.json"
ok "which stays" cmp "$scratch/tokenizer.json" "$scratch/kept.json"

# What the post-processor puts at the start of a document, and what ends one.
mkdir "$scratch/with" && cd "$scratch/with" || exit 99
cat >post_processor <<'END'
 "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [6], "tokens": ["</s>"]}}},
 "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
END
sed -e 's/"vocab": {/&"<s>": 5, "<\/s>": 6, /' -e 's/"post_processor": null, //; s/"truncation": null, //' -e '1r post_processor' ../tokenizer.json >tokenizer.json
says() { # FIELD TEXT ARGUMENT...: the tokens of the file that is made, and what is said
  says_tokens=$1 says_text=$2
  shift 2
  tool "$@" -o t.bin 2>err
  is "$says_text" "$? $(ids_of t.bin) $(sed -n 's/^tokens_hf.py: //p' err)" "0 $says_tokens $says_text"
}
ids_of() { tail -c +1025 "$1" | od -An -v -tu2 -w2 | tr -d ' ' | tr '\n' ','; }
begun='documents begin with <s> (5), and end with'
says 5,1,2,3,1,4,0,5,2,0,5,1,4,3,0, "$begun <|endoftext|> (0); --no-bos leaves it out" tokenizer.json ../a ../b ../c
ok "the tokens of the tokenizers package between its own first one and what ends a document" "$python" -c '
import sys, tokenizers
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.no_truncation()
wanted = [token for name in sys.argv[1:] for token in tokenizer.encode(open(name).read()).ids[:-1] + [0]]
data = open("t.bin", "rb").read()[1024:]
assert [int.from_bytes(data[at:at + 2], "little") for at in range(0, len(data), 2)] == wanted' ../a ../b ../c
says 1,2,3,1,4,0,2,0,1,4,3,0, "documents begin with no token of their own, and end with <|endoftext|> (0); --no-bos" tokenizer.json --no-bos --field text ../lines.jsonl
says 2,0, "documents begin with no token of their own, and end with <|endoftext|> (0); the tokenizer's post-processor puts none there" ../tokenizer.json ../b
ok "prompts and completions" tool tokenizer.json --prompt-field p --field c -o t.bin ../pairs.jsonl
is "begin so, too, which is no target" "$(masked_tokens t.bin | tr '\n' ',')" '5 0,1 0,2 0,3 1,0 1,5 0,4 1,0 1,'
is "a prompt of generate begins as documents do" "$(tool tokenizer.json --encode 'the water')" "5 1 2"
is "or not" "$(tool tokenizer.json --no-bos --encode 'the water')" "1 2"
refused 64 '--no-bos: of chats the chat template says how they begin' tokenizer.json --no-bos --messages ../lines.jsonl
for end in '"</s>"' '{"content": "</s>", "special": true}'; do
  printf '{"eos_token": %s}' "$end" >tokenizer_config.json
  says 5,2,6, "$begun </s> (6); --no-bos leaves it out" tokenizer.json ../b
done
says 5,2,4, "$begun wheel (4); --no-bos leaves it out" --end-of-text wheel tokenizer.json ../b
printf '{"eos_token": null}' >tokenizer_config.json
says 5,2,0, "$begun <|endoftext|> (0); --no-bos leaves it out" tokenizer.json ../b
refused 64 'documents begin with <s>, which ends them: --pack needs --no-bos, or another --end-of-text' tokenizer.json --end-of-text '<s>' --pack 8 ../b
printf '{"eos_token": "<end>"}' >tokenizer_config.json
refused 65 'tokenizer.json: no token "<end>", which the tokenizer_config.json beside it names as eos_token; --end-of-text TOKEN names another' tokenizer.json ../b
printf '{' >tokenizer_config.json
refused 65 'tokenizer_config.json: not JSON' tokenizer.json ../b

# Compressed text.
cd "$scratch" || exit 99
ok "JSON lines" tool tokenizer.json --field text -o wanted.bin lines.jsonl
same() { # NAME ARGUMENT...: the file that is made is wanted.bin
  same_name=$1
  shift
  ok "$same_name" tool tokenizer.json --field text -o t.bin "$@"
  ok "$same_name: the same bytes" cmp wanted.bin t.bin
}
gzip -c lines.jsonl >lines # the content says it, not the name
same gzip lines
same "gzip, of a pipe" - <lines
(head -n 1 lines.jsonl | gzip && tail -n +2 lines.jsonl | gzip) >lines
same "several members" lines
head -c 50 lines >cut.gz
refused 65 'cut.gz: damaged: ' tokenizer.json --field text cut.gz
if find_python 'import tokenizers, zstandard' "$python" && command -v zstd >/dev/null; then
  (head -n 1 lines.jsonl | zstd -q --long=31 && tail -n +2 lines.jsonl | zstd -q) >lines
  same zstd lines
  printf 'damage' | dd of=lines bs=1 seek=20 conv=notrunc 2>/dev/null
  refused 65 'lines: damaged: ' tokenizer.json --field text lines
else
  skip "zstd" "no Python with zstandard, or no zstd"
fi

# Tables.
if ! find_python 'import tokenizers, pyarrow' "$python"; then
  skip "Parquet and Arrow" "no Python with pyarrow"
  finish
fi
mkdir set parts many many/train
ok "tables of the lines" "$python" -c '
import json, pyarrow, pyarrow.parquet
lines = [json.loads(line) for line in open("lines.jsonl") if line.strip()]
table = pyarrow.table({"n": [1, 2, 3], "text": pyarrow.array([line["text"] for line in lines], pyarrow.large_string())})
pyarrow.parquet.write_table(table, "all.parquet", row_group_size=2, compression="zstd")
def ipc(opens, name, table):
    with opens(name, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
ipc(pyarrow.ipc.new_stream, "all.arrow", table)
ipc(pyarrow.ipc.new_file, "all.feather", table)
pyarrow.parquet.write_table(table.slice(0, 1), "parts/train-00000.parquet")
pyarrow.parquet.write_table(table.slice(1, 2), "parts/train-00001.parquet")
open("parts/README.md", "w").write("text")
# As save_to_disk of the package datasets writes it, with what it keeps beside it.
ipc(pyarrow.ipc.new_stream, "set/b.arrow", table.slice(0, 2))
ipc(pyarrow.ipc.new_stream, "set/a.arrow", table.slice(2))
ipc(pyarrow.ipc.new_stream, "set/cache-1.arrow", table)
json.dump({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}, open("set/state.json", "w"))
chats = [json.loads(line) for line in open("pairs.jsonl")]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(chats), "pairs.parquet")
pyarrow.parquet.write_table(pyarrow.table({"text": ["the", None]}), "null.parquet")'
same Parquet all.parquet
same "a stream of Arrow" all.arrow
same "a file of Arrow" all.feather
same "a folder of Parquet files" parts
same "a folder of save_to_disk" set
# As DatasetDict.save_to_disk writes it.
mkdir -p splits/train splits/held_out && cp set/b.arrow set/a.arrow set/state.json splits/train && cp set/a.arrow splits/held_out
echo '{"_data_files": [{"filename": "a.arrow"}]}' >splits/held_out/state.json
echo '{"splits": ["train", "held_out"]}' >splits/dataset_dict.json
same "a folder of splits: train" splits
tail -n 1 lines.jsonl >last.jsonl
ok "the lines of another split, and of a file" tool tokenizer.json --field text -o wanted.bin last.jsonl lines.jsonl
same "another split, and a file" --split held_out splits all.parquet
refused 64 '--split test: splits has no such split; choose one by --split: train, held_out' tokenizer.json --field text --split test splits
refused 64 '--split train: no FILE is a folder with splits (dataset_dict.json)' tokenizer.json --field text --split train set
rm -r splits/train
refused 66 'splits/train: No such file' tokenizer.json --field text splits
echo '{"splits": ["held_out"]}' >splits/dataset_dict.json
refused 64 'splits: no split train; choose one by --split: held_out' tokenizer.json --field text splits
for wrong in '{"splits": "train"}' '{"split": []}' '[' '{"splits": [1]}'; do
  echo "$wrong" >splits/dataset_dict.json
  refused 65 'splits/dataset_dict.json: not that of a data set' tokenizer.json --field text splits
done
ok "pairs" tool tokenizer.json --prompt-field p --field c -o t.bin pairs.parquet
ok "pairs in lines" tool tokenizer.json --prompt-field p --field c -o wanted.bin pairs.jsonl
ok "the same bytes" cmp wanted.bin t.bin
refused 64 'all.parquet: a table: --field names the column of its texts' tokenizer.json all.parquet
refused 65 'all.parquet: no column txt; it has n, text' tokenizer.json --field txt all.parquet
refused 65 'null.parquet: row 2: no field "text" that is a string' tokenizer.json --field text null.parquet
refused 66 'many: no Parquet or Arrow files in this folder; name one of its folders: train' tokenizer.json --field text many
for table in all.parquet all.arrow; do
  head -c 300 $table >cut
  refused 65 'cut: damaged: ' tokenizer.json --field text cut
done
refused 66 'is read by its name' tokenizer.json --field text - <all.parquet
finish
