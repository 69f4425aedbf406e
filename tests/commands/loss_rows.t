#!/bin/sh
# loss_rows.t: model.loss_rows: the head and its cross-entropy by chunks of rows: the losses of whole logits except for the order of sums, the
# same bits in every topology, less memory, and the score of each token.
. "${top_srcdir:-.}/tests/support/lib.sh"

steps=4
make_tokens "$scratch/data.bin" 8000
# describe FAMILY SETTINGS
describe() {
  cat >"$scratch/$1.cfg" <<END
model = { family = "$1"; layers = 2; hidden = 32; heads = 4; ffn = 48; vocab = 1000; sequence = 40; $2 };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 60; warmup_steps = 5; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
}
describe llama "kv_heads = 2;"
describe gpt2 ""

# close_to NAME OTHER SHARE: losses and norms agree to that share.
close_to() {
  test "$(wc -l <"$scratch/$2.bits")" -eq $((2 * steps)) && paste "$scratch/$1.bits" "$scratch/$2.bits" | awk -v share="$3" '{ d = $1 - $2
    if (d < 0) d = -d; if (!(d <= share * $1)) { bad = 1; print "# " $0 } } END { exit bad || NR == 0 }'
}

# A microbatch has 80 rows: two chunks and a half.
while read -r family name share options; do
  ok "$family: $name is built" build "${family}_$name" "$scratch/$family.cfg" $options
  ok "$family: $name trains" train_bits "${family}_$name" --data "$scratch/data.bin" --steps $steps
  case $share in
  -) ;;
  same) ok "$family: $name has the same bits" same_bits $steps "${family}_chunks" "${family}_$name" ;;
  *) ok "$family: $name has the losses of whole logits" close_to "${family}_whole" "${family}_$name" "$share" ;;
  esac
done <<'END'
llama whole  -
llama chunks 1e-5 -s model.loss_rows=32
llama two    same -s model.loss_rows=32 -s pipeline.ranks=2 -s pipeline.zero_bubble=true
llama alone  same -s model.loss_rows=32 -s pipeline.ranks=2 -s partition.before=[lm_head]
llama split  same -s model.loss_rows=32 -s pipeline.ranks=2 -s pipeline.zero_bubble=true -s partition.before=[lm_head]
llama again  same -s model.loss_rows=32 -s memory.recompute=full
llama layer  same -s model.loss_rows=32 -s memory.recompute=layer
llama attn   same -s model.loss_rows=32 -s memory.recompute=attention
llama frozen -    -s model.loss_rows=32 -s model.frozen=[lm_head.weight]
gpt2  whole  -
gpt2  chunks 1e-4 -s model.loss_rows=64
gpt2  two    same -s model.loss_rows=64 -s pipeline.ranks=2
llama half   2e-2 -s model.loss_rows=32 -s model.dtype=bf16
END

arena() { "$scratch/$1" info --json | grep -o '"arena_bytes":[0-9]*' | awk -F: '{ sum += $2 } END { print sum }'; }
echo "# arenas: whole logits $(arena llama_whole), chunks $(arena llama_chunks)"
ok "chunks take less memory" test "$(arena llama_chunks)" -lt "$(arena llama_whole)"
# A B computes the logits once, for both gradients; where I and W are split each computes them, and F never does.
ops_of() { awk '/"eval"/ { exit } { print }' "$scratch/$1.c" | grep -o 'PEN_OP_HEAD_LOSS[A-Z_]*' | tr '\n' ' '; }
is "one op for both gradients in B, and the loss of eval" "$(ops_of llama_chunks)" "PEN_OP_HEAD_LOSS_B PEN_OP_HEAD_LOSS "
is "also where F runs again" "$(ops_of llama_again)" "PEN_OP_HEAD_LOSS_B PEN_OP_HEAD_LOSS "
is "two where I and W are split" "$(ops_of llama_split)" "PEN_OP_HEAD_LOSS PEN_OP_HEAD_LOSS_DW PEN_OP_HEAD_LOSS "
is "the loss and its input's gradient where the head is frozen" "$(ops_of llama_frozen)" "PEN_OP_HEAD_LOSS PEN_OP_HEAD_LOSS "
loss_of() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/$2.ckpt" --steps 2 2>/dev/null | log_field - loss; }
is "eval gives the same bits on two ranks" "$(loss_of llama_two llama_chunks)" "$(loss_of llama_chunks llama_chunks)"
ok "rows that are no fewer than a microbatch's are whole logits" build large "$scratch/llama.cfg" -s model.loss_rows=96
is "with the same plan except for the setting" "$(grep -c HEAD_LOSS "$scratch/large.c")" 0

# The sum over the targets: of 256, a power of two, the loss and the gradients of the first step are 256 times the mean's, but for the order of
# sums; a perplexity is of the mean in either.
times_256() {
  "$scratch/mean" eval --data "$scratch/data.bin" --init "$scratch/start.safetensors" --steps 2 2>/dev/null >"$scratch/mean.eval"
  "$scratch/$1" eval --data "$scratch/data.bin" --init "$scratch/start.safetensors" --steps 2 2>/dev/null >"$scratch/$1.eval"
  { head -n 1 "$scratch/mean.log" | log_field - loss && head -n 1 "$scratch/mean.log" | log_field - grad_norm && log_field "$scratch/mean.eval" loss
    head -n 1 "$scratch/$1.log" | log_field - loss && head -n 1 "$scratch/$1.log" | log_field - grad_norm && log_field "$scratch/$1.eval" loss
    log_field "$scratch/mean.eval" perplexity && log_field "$scratch/$1.eval" perplexity; } | tr '\n' ' ' |
    awk '{ print "# " $0; for (i = 1; i <= 3; i++) { d = $(i + 3) / $i - 256; if (!(d * d < 1e-6)) bad = 1 }
      d = $7 - $8; if (!(d * d <= 1e-12 * $7 * $7)) bad = 1 } END { exit bad || NF != 8 }'
}
ok "the mean" train_model 1 mean llama -s model.sequence=32
ok "where it starts" "$scratch/mean" init --output "$scratch/start.safetensors"
while read -r name options; do
  ok "the sum: $name" train_model 1 "$name" llama -s model.sequence=32 -s model.loss=cross_entropy_sum $options
  ok "the sum: $name is 256 times the mean" times_256 "$name"
done <<'END'
sum
sum_chunks -s model.loss_rows=32
sum_two    -s pipeline.ranks=2 -s pipeline.zero_bubble=true
sum_splits -s tensor_parallel.splits=2
END

"$gen" --check -s model.loss_rows=33 "$scratch/llama.cfg" 2>"$scratch/err"
is "rows that no chunk begins with are refused" "$?" 78
matches "which says what is taken" "$(complaints "$scratch/err")" "*model.loss_rows = 33: a multiple of 32*"
# Score has each row's loss, whole or by chunks.
for name in whole chunks; do
  ok "$name: scores" "$scratch/llama_$name" score --data "$scratch/data.bin" --checkpoint "$scratch/llama_chunks.ckpt" --output "$scratch/$name.json" --quiet
  tr ',[]' '\n\n\n' <"$scratch/$name.json" | grep '^-[0-9]' >"$scratch/$name.scores"
done
same_scores() {
  paste "$scratch/whole.scores" "$scratch/chunks.scores" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || !(d <= -1e-5 * $1 + 1e-6)) bad = 1 }
    END { exit bad || NR < 7900 }'
}
ok "every token's log-probability except for the order of sums" same_scores

# ---- generation ----
# Windows of 40 tokens have two chunks: prompts end in each, at their boundary, and grow over it.
for words in 1 20 31 32 33 38; do
  awk -v n=$words 'BEGIN { printf "{\"prompt\": \""; for (i = 0; i < n; i++) printf "%s%d", (i ? " " : ""), 1 + i * 37 % 999; print "\"}" }'
done >"$scratch/prompts"
while read -r name wanted options; do
  ok "generation, $name: it is built" build "text_$name" "$scratch/llama.cfg" -s generate.prompts=0 $options
  "$scratch/text_$name" generate --prompts "$scratch/prompts" --checkpoint "$scratch/llama_chunks.ckpt" --tokens 12 --seed 3 --quiet >"$scratch/text_$name.out"
  is "generation, $name: it generates" $? 0
  is "generation, $name: the texts are those of whole logits" "$(cat "$scratch/text_$name.out")" "$(cat "$scratch/text_$wanted.out")"
done <<END
whole  whole
chunks whole  -s model.loss_rows=32
two    whole  -s model.loss_rows=32 -s pipeline.ranks=2
splits splits -s tensor_parallel.splits=2
split  splits -s tensor_parallel.splits=2 -s model.loss_rows=32
shared splits -s tensor_parallel.splits=2 -s model.loss_rows=32 -s tensor_parallel.ranks=2
END
is "there are six texts" "$(wc -l <"$scratch/text_whole.out")" 6

# most_bytes OPTION...: the activations of the rank with the most, where the logits of a whole window are 256 MiB, those of 32 rows 16 MiB; on
# cuda a product has 32 MiB of workspace.
most_bytes() {
  "$gen" -p report "$scratch/llama.cfg" -s model.vocab=131072 -s model.sequence=512 -s batch.microbatch=1 -s model.loss_rows=32 "$@" |
    sed -n 's/.*"activations": \([0-9]*\),*/\1/p' | sort -n | tail -n 1
}
for device in cpu cuda; do
  for options in "" "-s generate.prompts=0" "-s tensor_parallel.splits=2" "-s tensor_parallel.ranks=2" "-s pipeline.ranks=2" "-s model.tie_embeddings=true"; do
    ok "no profile holds the logits of a window, $device, ${options:-one rank}" test "$(most_bytes -s cluster.device=$device $options)" -lt $((64 << 20))
  done
done
finish
