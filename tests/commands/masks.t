#!/bin/sh
# masks.t: token files in which only some targets count: of a prompt and its completion, and of chats; what penstock-tokens writes, and how
# train, eval and score count and weigh them, plain and packed, on any topology.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 99

tokens() { "$tokens" "$@" 2>err; }
# shown FILE: the tokens of a plain file as text, those that count after a bar.
shown() { masked_tokens "$1" | awk '{ printf "%s%c", $2 ? "|" : "", $1 == 10 ? "$" : $1 }'; }

# ---- what is written ----
printf '{"q": "2+2=", "a": "4"}\n{"a": "ok\\n", "q": ""}\n\n{"q": "x\\ny", "a": ""}\n' >pairs.jsonl
ok "prompts and completions" tokens --prompt-field q --field a --end-of-text 10 -o pairs.bin pairs.jsonl
is "completions count, and what ends them" "$(shown pairs.bin)" '2+2=|4|$|o|k|$x$y|$'
matches "which is reported" "$(tail -n 1 err)" 'penstock-tokens: 3 documents, 6 of 13 tokens are targets that count'
is "the header says that a mask follows" "$(od -An -td4 -N 16 pairs.bin | tr -s ' ')" ' 20240520 1 13 1'
is "of a bit for each token" "$(wc -c <pairs.bin)" $((1024 + 2 * 13 + 2))
ok "without an end-of-text token" tokens --bytes --prompt-field q --field a -o plain.bin pairs.jsonl
is "none is added" "$(shown plain.bin)" '2+2=|4|o|k|$x$y'
cat >chats.jsonl <<'TEXT'
{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "tool", "content": "t\n"}, {"role": "assistant", "name": "x", "content": "a\n"}]}
{"messages": [{"role": "assistant", "content": ""}, {"role": "developer", "content": "d"}, {"role": "user", "content": "end"}], "id": 7}
TEXT
ok "chats" tokens --messages --end-of-text 10 -o chats.bin chats.jsonl
is "the assistant's messages count, and what ends each" "$(shown chats.bin)" 'Shi|y|o|$t$|a|$|$dend'
ok "with --bytes" tokens --bytes --messages --end-of-text 10 -o plain.bin chats.jsonl
ok "the same" cmp chats.bin plain.bin
cat >forms.jsonl <<'END'
{"messages": [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}, {"role": "assistant", "content": "a", "weight": 0}, {"role": "tool", "content": "t"}, {"role": "assistant", "content": [{"type": "text", "text": "b\n"}], "weight": 1, "tool_calls": []}]}
{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "u"}, {"from": "gpt", "value": "c"}]}
END
{ printf '\357\273\277'; cat forms.jsonl; } >marked.jsonl
ok "weights, parts of text, conversations, and a byte order mark" tokens --messages --end-of-text 10 -o forms.bin marked.jsonl
is "an answer of weight 0 and what ends it do not count" "$(shown forms.bin)" 'hia$t|b|$su|c|$'
ok "packed" tokens --messages --end-of-text 10 --pack 16 --pad-to 8 --single -o packed.bin chats.jsonl
is "its magic is another" "$(head -c 8 packed.bin)" PENPACK2
is "documents are lines, and the first token of a document is no target" \
  "$(od -An -v -tu4 -w32 -j $((64 + 2 * 24 + 16 * 2)) -N 64 packed.bin | awk '{ print $5, $6, $7 }' | tr '\n' ' ')" '16 1 5 8 1 0 '
# tokens 3, 4, 5, 8, 9 of the first window, and the first of the second one, which is not a target; never padding
is "a bit for each token is last" "$(tail -c 3 packed.bin | od -An -tu1 | tr -s ' ')" " $((8 + 16 + 32)) $((1 + 2)) 1"

bytes_of() { # NUMBER BYTES: its bytes, the lowest first
  bytes_left=$1
  for _ in $(seq "$2"); do printf "\\$(printf %03o $((bytes_left % 256)))"; bytes_left=$((bytes_left / 256)); done
}
masked_ids() { # BITS ID COUNTS ID COUNTS...: a document of ids with its mask
  masked_bytes=$(($1 / 8)) masked_mask=
  shift
  bytes_of $(($# / 2)) 4
  while test $# -gt 0; do
    bytes_of "$1" $masked_bytes
    masked_mask="$masked_mask $2"
    shift 2
  done
  for counts in $masked_mask; do bytes_of "$counts" 1; done
}
{ masked_ids 16 7 0 300 1 10 1; masked_ids 16; masked_ids 16 8 0 9 1; } >ids16
ok "ids with masks" tokens --ids 16 --masks -o ids.bin ids16
is "as they are" "$(masked_tokens ids.bin | tr '\n' ' ')" '7 0 300 1 10 1 8 0 9 1 '
masked_ids 32 70000 1 1 0 2147483647 1 >ids32
ok "of 32 bits" tokens --ids 32 --masks --end-of-text 70000 --pack 8 --pad-to 8 -o ids.bin ids32
is "packed" "$(head -c 8 ids.bin) $(od -An -tu4 -j 64 -N 16 ids.bin | tr -s ' ') $(tail -c 1 ids.bin | od -An -tu1 | tr -d ' ')" \
  'PENPACK2  70000 1 2147483647 70000 5'

# ---- what is refused ----
# refused NAME STATUS MESSAGE OPTION...: reads the file bad.
refused() {
  refused_name=$1 refused_status=$2 refused_message=$3
  shift 3
  "$tokens" "$@" -o refused.bin bad 2>err
  matches "$refused_name" "$? $(head -n 1 err) $(ls refused.bin* 2>/dev/null)" "$refused_status penstock-tokens: $refused_message "
}
while read -r line; do
  read -r message
  printf '{"messages": [{"role": "user", "content": "x"}]}\n%s\n' "$line" >bad
  refused "refused: $line" 65 "bad:2: $message" --messages
done <<'TEXT'
{"messages": []}
the field "messages" is an empty list
{"messages": "x"}
the field "messages" is not a list of messages
{"message": []}
no field "messages" in an object on this line
[7]
no field "messages" in an object on this line
{"messages": ["x"]}
messages\[0\]: no field "role" in an object
{"messages": [{"role": "user", "content": "x"}, {"content": "x"}]}
messages\[1\]: no field "role" in an object
{"messages": [{"role": 7, "content": "x"}]}
messages\[0\]: the field "role" is not a string
{"messages": [{"role": "bot", "content": "x"}]}
messages\[0\]: role "bot": system, developer, user, assistant or tool*
{"conversations": [{"from": "bot", "value": "x"}]}
conversations\[0\]: from "bot": system, *
{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]}
messages\[0\]: "tool_calls": *tokens_hf.py*
{"messages": [{"role": "assistant", "content": "x"}], "tools": [{"type": "function"}]}
"tools": *tokens_hf.py*
{"conversations": [{"from": "function_call", "value": "x"}]}
conversations\[0\]: "function_call": *tokens_hf.py*
{"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]}
messages\[0\]: "weight": 0 or 1
{"messages": [{"role": "user", "content": "x", "weight": 1}]}
messages\[0\]: "weight": 1: the assistant's messages alone are targets
{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
messages\[0\]: a part of type "image_url": text alone is supported
{"messages": [{"role": "user"}]}
messages\[0\]: no field "content" in an object
{"messages": [{"role": "assistant", "content": null}]}
messages\[0\]: the field "content" is not a string
{"messages": [{"role": "user", "content": "x"]}
not JSON: *
TEXT
printf '{"q": "x", "a": "y"}\n{"a": "y"}\n' >bad
refused "no prompt: 65" 65 'bad:2: no field "q" in an object on this line' --prompt-field q --field a
printf '{"q": "x", "a": 3}\n' >bad
refused "a completion that is no string: 65" 65 'bad:1: the field "a" is not a string' --prompt-field q --field a
refused "a prompt without a completion: 64" 64 '--prompt-field: *it needs --field' --prompt-field q
refused "a prompt of bytes: 64" 64 '--prompt-field: *it needs --field' --prompt-field q --bytes
refused "two kinds of lines: 64" 64 'choose one of --field and --messages' --messages --field a
refused "chats of ids: 64" 64 'choose one of --bytes, --ids and --field or --messages' --messages --ids 16
refused "masks of text: 64" 64 '--masks: *it needs --ids' --masks --bytes
for length in 1 3 5 9 12; do # of 4 bytes of count, 6 of ids, 3 of mask
  masked_ids 16 1 0 2 1 3 1 | head -c $length >bad
  refused "a document of ids cut to $length bytes: 65" 65 'bad: document 0 is cut short' --ids 16 --masks
done
{ masked_ids 16 1 0; masked_ids 16 1 0 2 3; } >bad
refused "a mask of 3: 65" 65 'bad: document 1, id 1: mask 3: 0 or 1' --ids 16 --masks
printf '\377\377\377\377' >bad
refused "a count that no memory holds: 65" 65 'bad: document 0 is cut short' --ids 32 --masks
masked_ids 32 2147483648 1 >bad
refused "an id of 32 bits: 65" 65 'bad: id 2147483648: ids go up to 2147483647' --ids 32 --masks

# ---- what is trained ----
# Chats of letters: prompts of up to 12 tokens, answers of up to 9. As pairs, as text alone, and with prompts that are empty.
awk 'BEGIN {
  state = 11
  for (c = 0; c < 60; c++) {
    for (part = 0; part < 2; part++) {
      state = state * 16807 % 2147483647; text[part] = ""
      for (t = state % (part ? 9 : 12); t >= 0; t--) { state = state * 16807 % 2147483647; text[part] = text[part] sprintf("%c", 65 + state % 26) }
    }
    printf "{\"p\": \"%s\", \"c\": \"%s\"}\n", text[0], text[1] >"some.jsonl"
    printf "{\"p\": \"\", \"c\": \"%s%s\"}\n", text[0], text[1] >"all.jsonl"
  }
}'
made() { # NAME INPUT OPTION...
  made_name=$1 made_input=$2
  shift 2
  tokens --end-of-text 10 -o "$made_name.bin" "$@" "$made_input.jsonl"
}
for way in plain packed single; do
  case $way in
    plain) set -- ;;
    packed) set -- --pack 32 --pad-to 4 ;;
    single) set -- --pack 32 --pad-to 4 --single ;;
  esac
  ok "$way: some targets count" made some_$way some --prompt-field p --field c "$@"
  ok "$way: all count" made all_$way all --prompt-field p --field c "$@"
  ok "$way: a file without a mask" made bare_$way all --field c "$@"
done
cat >model.cfg <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 32; heads = 2; ffn = 48; vocab = 96; sequence = 32; };
batch = { microbatch = 1; packed = true; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
ok "one rank" build one model.cfg
ok "its first weights" ./one init --seed 7 --output start
train() { # NAME DATA STEPS OPTION...: leaves NAME.bits, of losses, norms and counts
  train_name=$1 train_data=$2 train_steps=$3
  shift 3
  rm -rf "$train_name.ckpt" "$train_name.log"
  "./$train_name" train --data "$train_data.bin" --steps "$train_steps" --seed 7 --quiet --log "$train_name.log" --checkpoint "$train_name.ckpt" "$@" || return 1
  { log_field "$train_name.log" loss; log_field "$train_name.log" grad_norm; log_field "$train_name.log" tokens; } >"$train_name.bits"
}
for way in plain packed single; do
  ok "$way: without a mask" train one bare_$way 4
  cp one.bits bare.bits
  ok "$way: all count" train one all_$way 4
  ok "$way: which is the same" cmp one.bits bare.bits
done

# eval's loss is the mean of what score gives to the tokens that count, and score gives to these what it gives to all.
values() { sed 's/.*\[\(.*\)\].*/\1/' "$1" | tr ',' '\n'; } # all log-probabilities, one a line
score() { ./one score --data "$1.bin" --init start --output "$1.json" --quiet >"$1.last"; }
number() { sed "s/.*\"$1\":\\([^,}]*\\).*/\\1/"; } # FIELD
close() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d <= 1e-6 && d >= -1e-6 && a + 0 > 0) }'; }
for way in plain packed single; do
  ok "$way: all is scored" score bare_$way
  ok "$way: some is scored" score some_$way
  values bare_$way.json >bare.values
  values some_$way.json >some.values
  # Which tokens count, in the order of the input, by the lines themselves.
  sed 's/{"p": "\(.*\)", "c": "\(.*\)"}/\1 \2/' some.jsonl |
    awk '{ for (t = 0; t < length($1); t++) print 0; for (t = 0; t <= length($2); t++) print 1 }' >counts
  is "$way: a value a token" "$(wc -l <some.values)" "$(wc -l <counts)"
  ok "$way: those that do not count have none, the others that of all" sh -c "paste counts bare.values some.values |
    awk '{ if ((\$1 ? \$2 : \"null\") != \$3) exit 1 }'"
  mean=$(awk '$1 != "null" { sum -= $1; n++ } END { printf "%.9f %d", sum / n, n }' some.values)
  is "$way: the last line counts them" "$(number tokens <some_$way.last)" "${mean#* }"
  ok "$way: and has their mean" close "$(number loss <some_$way.last)" "${mean% *}"
done
sed 's/{"p": "\(.*\)", "c": "\(.*\)"}/\1\2/' some.jsonl | awk '{ print length($0) + 1 }' >lengths
./one score --data some_plain.bin --init start --output ended.json --end-of-text 10 --quiet >last
is "documents of a stream end at the token, whether it counts or not" "$(number tokens <ended.json)" "$(cat lengths)"
printf '{"messages": [{"role": "user", "content": "AB\\nCD\\nE"}, {"role": "assistant", "content": "F"}]}\n' >context.jsonl
ok "context with such tokens" made context context --messages
./one score --data context.bin --init start --output context.json --end-of-text 10 --quiet >last
is "ends there" "$(number tokens <context.json | tr '\n' ' ')" '3 3 3 '
is "where only the answer is scored" "$(number scored <context.json | tr '\n' ' ')" '0 0 2 '

# Steps count the targets that count; eval does over all full steps.
masked_tokens some_plain.bin | awk '{ print $2 }' >bits
sums() { # WINDOWS-A-STEP: the targets of each step over windows of 32
  awk -v each=$((32 * $1)) 'NR > 1 { sum += $1; if ((NR - 1) % each == 0) { print sum; sum = 0 } }' bits
}
ok "some train" train one some_plain 5
is "tokens of a step: its targets" "$(log_field one.log tokens)" "$(sums 4)"
./one eval --data some_plain.bin --init start --quiet >last
is "tokens of eval: those of all full steps" "$(number tokens <last)" "$(sums 4 | awk '{ n += $1 } END { print n }')"
ok "some train with evaluations" train one bare_plain 2 --eval-data some_plain.bin --eval-every 2
is "eval_tokens: likewise" "$(log_field one.log eval_tokens | head -n 1)" "$(number tokens <last)"

# Topologies. Replicas add in another order.
ok "two ranks" build two model.cfg -s pipeline.ranks=2
ok "a V" build vee model.cfg -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
ok "replicas" build replicas model.cfg -s pipeline.ranks=2 -s pipeline.microbatches=2 -s data_parallel.replicas=2 -s data_parallel.shard=weights
for way in plain packed single; do
  ok "$way: one rank" train one some_$way 5
  for name in two vee; do
    ok "$way: $name" train $name some_$way 5
    ok "$way: $name has the bits of one rank" cmp one.bits $name.bits
    ok "$way: $name has its weights" cmp one.ckpt/latest/model.safetensors $name.ckpt/latest/model.safetensors
  done
  ok "$way: replicas" train replicas some_$way 5
  ok "$way: replicas have its losses and norms, and its counts" close_to one replicas 1e-4
done
set -- model.cfg -s model.dtype=bf16 -s model.tie_embeddings=true -s batch.microbatch=2 -s model.loss_rows=32 -s pipeline.microbatches=2
ok "a tied bf16 model of chunked logits" build chunked "$@"
ok "and in a V" build chunked_vee "$@" -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
ok "trains" train chunked some_packed 5
ok "trains in a V" train chunked_vee some_packed 5
ok "with the same bits" cmp chunked.bits chunked_vee.bits

# Shapes: a step runs the shortest that holds its windows, whatever counts in them.
cat model.cfg - >shapes.cfg <<'END_OF_MODEL'
shapes = ({ sequence = 16; microbatches = 8; });
END_OF_MODEL
ok "two shapes" build shapes shapes.cfg
awk 'length($0) < 28' some.jsonl >short.jsonl # documents of at most 14 tokens
ok "short documents" made short short --prompt-field p --field c --pack 16 --pad-to 4 --single
ok "and a binary of the short shape" build sixteen model.cfg -s model.sequence=16 -s pipeline.microbatches=8
ok "train in the short shape" train shapes short 2
ok "and alone" train sixteen short 2
ok "with the same bits" cmp shapes.bits sixteen.bits

# ---- nothing that counts ----
# Windows of 32 tokens: 0 to 3 have no target, 4 has some, 5 to 7 none, then some.
printf '{"p": "%s", "c": "%s"}\n' "$(printf '%0129d' 0)" "$(printf '%010d' 0)" "$(printf '%0117d' 0)" "$(printf '%0160d' 0)" >sparse.jsonl
made sparse sparse --prompt-field p --field c
masked_tokens sparse.bin | awk '{ print $2 }' >bits
is "steps of one window: their targets" "$(sums 1 | head -n 9 | tr '\n' ' ')" '0 0 0 0 11 0 0 0 32 '
ok "one window a step" build single model.cfg -s pipeline.microbatches=1
ok "trains" train single sparse 9
is "windows keep their places" "$(log_field single.log tokens | tr '\n' ' ')" '0 0 0 0 11 0 0 0 32 '
is "steps without targets are skipped" "$(log_field single.log skipped | tr '\n' ' ')" '1 2 3 4 4 5 6 7 7 '
matches "the cursor counts every window" "$(cat single.ckpt/latest/manifest.json)" '*"cursor": *9*'
ok "four steps" train single sparse 4
ok "change nothing" cmp single.ckpt/latest/model.safetensors start
# A window without targets beside one with some: the mean is that window's.
ok "two windows a step" build pair model.cfg -s pipeline.microbatches=2 -s optimizer.clip_norm=0
ok "one window a step" build single model.cfg -s pipeline.microbatches=1 -s optimizer.clip_norm=0
ok "steps of two windows" train pair sparse 3 --log-microbatches
ok "steps of one" train single sparse 5
is "the mean is over targets, not over windows" "$(log_field pair.log loss | tail -n 1)" "$(log_field single.log loss | tail -n 1)"
matches "a microbatch without any has no loss" "$(tail -n 1 pair.log)" '*"microbatch_losses":\[[0-9]*,null\]}'
is "and the norm" "$(log_field pair.log grad_norm | tail -n 1)" "$(log_field single.log grad_norm | tail -n 1)"
made nothing sparse --field p --prompt-field c
printf '{"messages": [{"role": "user", "content": "%s"}]}\n' "$(printf '%0129d' 0)" >nothing.jsonl
for way in '' '--pack 32'; do
  # shellcheck disable=SC2086
  made nothing nothing --messages $way
  ./one train --data nothing.bin --steps 1 2>err
  is "a file in which nothing counts ${way:---messages}: 65" "$? $(complaints err)" "65 penstock: nothing.bin: no window has a target that counts: its mask has none"
done

# ---- damage ----
# damaged NAME MESSAGE: the file bad is refused by train, eval and score.
damaged() {
  for command in train eval 'score --output out'; do
    test "$command" = train || command="$command --init start"
    # shellcheck disable=SC2086
    ./one $command --data bad.bin --quiet >out 2>err
    matches "$1: ${command%% *}" "$? $(complaints err)" "65 penstock: bad.bin: $2"
  done
}
for way in plain packed; do
  head -c -1 some_$way.bin >bad.bin
  damaged "$way: cut by a byte" "*bytes: its header counts *"
  { head -c -1 some_$way.bin; printf '\377'; } >bad.bin
  damaged "$way: a changed mask" "damaged [mi]*[kx]: checksum *, header says *"
done

# ---- two hosts, whose files have the same tokens and other masks ----
hosts() { sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
# shellcheck disable=SC2016 # the inner shell expands them
on_two='for i in 1 2; do on "host$i" timeout 300 ./far train --seed 7 --quiet --steps 2 --overwrite --log "far.log" --data "data.$i" >"out.$i" 2>"err.$i" & done
  wait $! && wait %1'
different() {
  make_secret "$scratch/secret"
  ok "$1: a plan for two hosts" build far model.cfg -s pipeline.ranks=2 -s cluster.hosts=[host1,host2] -s cluster.port=$((20000 + $$ % 12000)) -s cluster.bind=none
  for way in plain packed; do
    cp some_$way.bin data.1
    cp some_$way.bin data.2
    ok "$way: two hosts with one mask" hosts 2 sh -c "$on_two"
    ok "$way: have the losses of one host" train one some_$way 2
    is "$way: which are the same" "$(log_field far.log loss)" "$(log_field one.log loss)"
    cp all_$way.bin data.2
    hosts 2 sh -c "$on_two" >out 2>&1
    is "$way: two hosts with other masks are refused" "$? $(complaints err.1 err.2)" "64 penstock: rank 1 was started with another --data than rank 0"
  done
}
if test -z "$OFI_ARCHIVES"; then
  skip "two hosts" "no libfabric here"
else
  hosts 2 true
  if test $? -eq 77; then skip "two hosts" "no network namespaces here"; else different hosts; fi
fi
finish
