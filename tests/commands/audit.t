#!/bin/sh
# audit.t: train --audit finds every bit that is flipped, names it, ends with 80, and finds nothing where nothing is wrong.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/flips.sh"

cat >"$scratch/llama.cfg" <<'END'
pipeline = { ranks = 2; stages_per_rank = 2; microbatches = 4; schedule = "zero_bubble_v"; };
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; kv_heads = 2; ffn = 64; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 100; };
cluster = { device = "cpu"; };
memory = { audit = true; };
END
make_tokens "$scratch/data.bin" 20000

# ---- nothing wrong: the same bits, and no finding ----

one_stage="-s pipeline.stages_per_rank=1 -s pipeline.schedule=1f1b"
ok "audits of 1000 steps find nothing" undisturbed long llama 1000
ok "... with shapes of two lengths" undisturbed shapes llama 20 -s 'shapes.sequence=[8]' -s 'shapes.microbatches=[8]'
ok "... without clipping, packed" undisturbed packed llama 20 -s model.family=qwen3 -s batch.packed=true -s optimizer.clip_norm=0
ok "... with frozen weights" undisturbed frozen llama 20 -s 'model.frozen=["embed_tokens.weight","mlp.down_proj.weight"]' $one_stage
ok "... with products in which the optimizer is sharded, tied" \
  undisturbed tied llama 20 -s model.tie_embeddings=true -s data_parallel.replicas=2 -s data_parallel.shard=optimizer $one_stage
ok "... with gradients of each microbatch, in groups" undisturbed groups llama 20 -s data_parallel.reduce=microbatch -s data_parallel.replicas=4 \
  -s data_parallel.shard_ranks=2 -s data_parallel.unit=layer -s data_parallel.shard=weights $one_stage
ok "... in every third step, resumed" sh -c "cd '$scratch' && rm -r long.ckpt &&
  ./long train --quiet --seed 7 --data data.bin --steps 5 --audit 3 --checkpoint long.ckpt &&
  ./long train --quiet --seed 7 --data data.bin --steps 9 --audit 3 --checkpoint long.ckpt --resume"

# ---- flipped bits ----

ok "bits flipped on two ranks with two stages each are found" flips flip_v llama
ok "... with bf16, replicas, a sharded optimizer and a tied matrix" flips flip_tied llama -s model.tie_embeddings=true -s model.dtype=bf16 \
  -s data_parallel.replicas=2 -s data_parallel.shard=optimizer $one_stage
ok "... with weights gathered by layers, gradients of each microbatch, and recomputation" flips flip_layers llama \
  -s data_parallel.reduce=microbatch -s data_parallel.replicas=2 -s data_parallel.unit=layer -s data_parallel.shard=weights \
  -s memory.recompute=layer $one_stage
ok "... with weights gathered by stages" flips flip_shards llama -s data_parallel.replicas=2 -s data_parallel.shard=weights
ok "... with GPT-2 and a fused loss" flips flip_fused llama -s model.family=gpt2 -s model.kv_heads=4 -s model.loss_rows=32 \
  -s pipeline.schedule=dual_pipe_v
ok "... on one rank, packed" flips flip_one llama -s model.family=qwen3 -s batch.packed=true -s pipeline.ranks=1 -s pipeline.stages_per_rank=1 \
  -s pipeline.schedule=1f1b -s pipeline.zero_bubble=true -s memory.recompute=attention
count_flips
ok "at least 1000 bits in all" test "$(grep -c '^flip' "$scratch/all.flips")" -ge 1000

# ---- the end of a run ----

ends weight 1 1 flip_v
ends accumulator 1 1 flip_v
ends activation 1 1 flip_v
ends received 1 0 flip_layers
ends sent 1 0 flip_layers
ends within 1 1 flip_v
ends output 1 "" flip_v
ends index 0 0 flip_v
ends tied 1 0 flip_tied
ends moment 1 1 flip_tied
ends updated 1 "" flip_v
FLIP_TENSOR=embed_tokens
export FLIP_TENSOR
ends weight 1 0 flip_tied
unset FLIP_TENSOR
ok "nothing was saved" test ! -e "$scratch/none/latest"

# ---- a topology for a GPU ----
"$gen" --check "$scratch/llama.cfg" -s cluster.device=cuda -s cluster.transport=ipc 2>"$scratch/err"
is "a GPU is refused" $? 78
matches "... for memory.audit" "$(complaints "$scratch/err")" "*memory.audit = true: false, with cluster.device = \"cuda\""

# ---- two hosts ----
hosts() { sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
test -n "$OFI_ARCHIVES" && hosts 2 true || { skip "audits on two hosts" "no libfabric or no network namespaces here" && finish; }
make_secret "$scratch/secret"
cat >"$scratch/audit_on_hosts" <<'END'
for i in 1 2; do
  (cd "$1" && on "host$i" timeout 300 ./flip_hosts train --data data.bin --seed 5 --quiet --audit 1 >"out.$i" 2>"err.$i"; echo $? >"status.$i") &
done
wait
END
audit_on_hosts() { hosts 2 sh "$scratch/audit_on_hosts" "$scratch"; cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' '; }
link_more="$scratch/flip_bits.o $wrap"
ok "a plan for two hosts is built" build flip_hosts "$scratch/llama.cfg" $one_stage -s 'cluster.hosts=[host1,host2]' \
  -s cluster.port=$((20000 + $$ % 12000)) -s cluster.bind=none -s optimizer.steps=30
FLIP_FILE=$scratch/flips
export FLIP_FILE
: >"$FLIP_FILE"
is "bits are flipped on two hosts: both commands end well" "$(audit_on_hosts)" "0 0 "
grep -v '^found\|^flip' "$FLIP_FILE" | head -n 10 | sed 's/^/# /'
is "... they are found" "$(grep -c '^found' "$FLIP_FILE"), others: $(grep -vc '^found\|^flip' "$FLIP_FILE")" "120, others: 0"
ok "... among them messages before they were sent" grep -q '^found sent' "$FLIP_FILE"
FLIP_RANK=1 FLIP_PLACE=sent
export FLIP_RANK FLIP_PLACE
is "a message that differs ends both commands" "$(audit_on_hosts)" "80 80 "
matches "... the line names rank, host and writer" "$(complaints "$scratch/err.2")" \
  "penstock: rank 1 (pid [0-9]*, host host2) read other bits: *, element *, from rank 0"
finish
