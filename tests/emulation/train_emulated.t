#!/bin/sh
# train_emulated.t: training with cluster.device = "cuda", as one program from its topology to its checkpoint, over the CUDA backend compiled
# for the host (tests/emulation/emulate.h). Losses and norms are the CPU's except for the order of sums; the bits are the same from run to run,
# with and without a graph, and after a restart.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 3; schedule = "1f1b"; };
END
make_tokens "$scratch/data.bin" 4000

train_data=data.bin
# train NAME OPTIONS...: leaves NAME.bits (losses, then norms) and NAME.err. A step must be one graph, unless nothing can be captured.
train() {
  train_name=$1 train_binary=$2
  shift 2
  anew "$scratch/$train_name.log" "$@"
  "$scratch/$train_binary" train --data "$scratch/$train_data" --seed 7 --log "$scratch/$train_name.log" "$@" 2>"$scratch/$train_name.err" || return 1
  { log_field "$scratch/$train_name.log" loss; log_field "$scratch/$train_name.log" grad_norm; } >"$scratch/$train_name.bits"
  test -n "${PEN_EMULATED_NO_GRAPH-}" || ! grep 'cannot be one graph' "$scratch/$train_name.err"
}

# close_to NAME OTHER LINES: losses and norms agree to 2e-5, relatively: f32 sums of a few thousand terms in another order.
close_to() {
  test "$(wc -l <"$scratch/$2.bits")" -eq "$3" && paste "$scratch/$1.bits" "$scratch/$2.bits" | awk '{ d = $1 - $2
    if (d < 0) d = -d; if (!(d <= 2e-5 * ($1 < 0 ? -$1 : $1))) { bad = 1; print "# " $0 } } END { exit bad || NR == 0 }'
}

ok "a plan for the CPU" build cpu "$scratch/model.cfg" -s cluster.device=cpu
ok "a plan for CUDA" build cuda "$scratch/model.cfg" -s cluster.device=cuda
matches "says its device" "$("$scratch/cuda" info)" "*device        cuda, transport ipc*"
ok "the CPU trains" train cpu cpu --steps 5
ok "CUDA trains" train cuda cuda --steps 5 --checkpoint "$scratch/ckpt" --save-every 3
matches "says what it runs on" "$(complaints "$scratch/cuda.err")" "*cuda: GPU 0, compute capability 9.0*"
PEN_EMULATED_DRIVER=11080 "$scratch/cuda" train --data "$scratch/data.bin" --steps 1 >"$scratch/out" 2>&1
matches "a driver that is too old is told, and what to do" "$(cat "$scratch/out")" "*the driver is of CUDA 11.8; this program, of CUDA *, needs R5* or later*"
ok "losses and norms are the CPU's" close_to cpu cuda 10
eval_with() {
  "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/ckpt" --steps 2 --quiet >"$scratch/eval.$1"
}
ok "the CPU evaluates CUDA's checkpoint" eval_with cpu
ok "CUDA evaluates it" eval_with cuda
for name in cpu cuda; do log_field "$scratch/eval.$name" loss >"$scratch/eval_$name.bits"; done
ok "to the same loss" close_to eval_cpu eval_cuda 1

ok "CUDA trains again, and saves at step 3" train again cuda --steps 3 --checkpoint "$scratch/two"
ok "continues from there" train again cuda --steps 5 --checkpoint "$scratch/two" --resume
ok "with the bits of one run" cmp "$scratch/cuda.bits" "$scratch/again.bits"
ok "and its checkpoint" cmp "$scratch/ckpt/latest/model.safetensors" "$scratch/two/latest/model.safetensors"
ok "and its moments" cmp "$scratch/ckpt/latest/optimizer.safetensors" "$scratch/two/latest/optimizer.safetensors"

# The device counts the updates of each tensor: of one that was frozen for three steps, of which the first has no targets.
make_tokens "$scratch/gap.bin" 4000 1 60
ok "a plan for CUDA with a frozen tensor" build frozen "$scratch/model.cfg" -s cluster.device=cuda -s model.frozen=[lm_head.weight]
train_data=gap.bin
ok "trains" train frozen frozen --steps 3 --checkpoint "$scratch/thawed"
ok "which is continued with all tensors" train thawed cuda --steps 5 --save-every 1 --checkpoint "$scratch/thawed" --resume
train_data=data.bin
ok "by which AdamW corrects the bias" updates_are "$scratch/thawed/step-00000004" "$scratch/thawed/latest" \
  "$(log_field "$scratch/thawed.log" lr | tail -n 1)" 4 lm_head.weight=2

plain() { PEN_EMULATED_NO_GRAPH=1 train "$@"; }
ok "trains where nothing can be captured" plain plain cuda --steps 5
matches "says so" "$(complaints "$scratch/plain.err")" "*rank 0: a step of train cannot be one graph (*its actions are enqueued one by one*"
ok "with the same bits" cmp "$scratch/cuda.bits" "$scratch/plain.bits"
ok "trains under --trace, row by row" train traced cuda --steps 5 --trace "$scratch/trace"
ok "with the same bits again" cmp "$scratch/cuda.bits" "$scratch/traced.bits"
is "every row is in the trace" "$(grep -c '"cat":"F"' "$scratch/trace")" 15

for device in cpu cuda; do
  ok "a plan for $device with the greatest magnitude for a norm" build "inf_$device" "$scratch/model.cfg" -s cluster.device=$device -s optimizer.norm=inf
  ok "trains" train "inf_$device" "inf_$device" --steps 3
done
ok "to the same losses" close_to inf_cpu inf_cuda 6

for device in cpu cuda; do
  ok "a plan for $device with a tied matrix" build "tied_$device" "$scratch/model.cfg" -s cluster.device=$device -s model.tie_embeddings=true
  ok "trains" train "tied_$device" "tied_$device" --steps 3
done
ok "to the same losses" close_to tied_cpu tied_cuda 6

# Tensors of three optimizers alternate in the plan; each optimizer has one launch, Muon for the momentum, before its products.
for device in cpu cuda; do
  ok "a plan for $device with groups" build "groups_$device" "$scratch/model.cfg" -s cluster.device=$device -s optimizer.momentum=0.9 -s \
    'optimizer.groups=[norm.weight: name=sgd rate=20, o_proj.weight down_proj.weight: name=sgd rate=3 weight_decay=0.3, q_proj.weight up_proj.weight: name=muon, lm_head.weight: rate=0.3]'
done
groups() { PEN_GRAPH=unmarked PEN_GRAPH_DOT="$scratch/groups.nodes" train groups_cuda groups_cuda --steps 3; }
ok "trains" groups
ok "on the CPU, too" train groups_cpu groups_cpu --steps 3
ok "to the same losses and norms" close_to groups_cpu groups_cuda 6
is "one launch for an optimizer, of Muon's two" "$(sed -n '/label/s/.*\(adamw\|sgd\|muon_momentum\|muon_apply\).*/\1/p' "$scratch/groups.nodes" | tr '\n' ' ')" "muon_momentum muon_apply sgd adamw "

# As many tensors as Llama 3.2 1B has: their norms and AdamW take a few launches, with all between them.
for device in cpu cuda; do
  ok "a plan for $device of 16 layers" build "deep_$device" "$scratch/model.cfg" -s cluster.device=$device -s model.layers=16 -s model.hidden=16 \
    -s model.heads=2 -s model.kv_heads=1 -s model.ffn=16 -s model.sequence=8 -s pipeline.microbatches=1
done
deep() { PEN_GRAPH=unmarked PEN_GRAPH_DOT="$scratch/nodes" train deep_cuda deep_cuda --steps 3; }
ok "trains" deep
ok "on the CPU, too" train deep_cpu deep_cpu --steps 3
ok "to the same losses and norms" close_to deep_cpu deep_cuda 6
launches=$(awk '/label/ { nodes++ } /norm_of_blocks/ && !first { first = nodes } /adamw/ { last = nodes } END { print first && last ? last - first + 1 : "no" }' "$scratch/nodes")
ok "norms and AdamW of 147 tensors: $launches launches, at most 20" test "$launches" -le 20

# GPT-2: products with biases, LayerNorm, positions; Muon on q, k and v of one tensor.
cat >"$scratch/gpt2.cfg" <<'END'
model = { family = "gpt2"; layers = 2; hidden = 32; heads = 4; ffn = 48; vocab = 200; sequence = 16; tie_embeddings = true; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; groups = ["c_attn.weight: name=muon"]; };
pipeline = { ranks = 1; microbatches = 3; schedule = "1f1b"; };
END
for device in cpu cuda; do
  ok "a plan of gpt2 for $device" build "gpt2_$device" "$scratch/gpt2.cfg" -s cluster.device=$device
  ok "trains" train "gpt2_$device" "gpt2_$device" --steps 5
done
ok "to the same losses" close_to gpt2_cpu gpt2_cuda 10

# Biases of q, k and v; windows of attention; gated GELU, gains stored less 1, and local layers; experts, in two slices.
while read -r family options; do
  for device in cpu cuda; do
    ok "a plan of $family for $device" build "${family}_$device" "$scratch/model.cfg" -s cluster.device=$device -s model.family=$family $options
    ok "trains" train "${family}_$device" "${family}_$device" --steps 3
  done
  ok "to the same losses" close_to "${family}_cpu" "${family}_cuda" 6
done <<'END'
qwen2
mistral     -s model.window=5
gemma3_text -s model.window=5 -s model.layers=6
qwen3_moe   -s model.experts=5 -s model.experts_per_token=2 -s model.moe_ffn=24 -s expert_parallel.rows=8 -s model.aux_loss=0.1 -s model.z_loss=0.01 -s model.aux_scope=step
END
is "and the same load of experts" "$(log_field "$scratch/qwen3_moe_cuda.log" expert_load)" "$(log_field "$scratch/qwen3_moe_cpu.log" expert_load)"

# Inputs that a safetensors file has by name: values of two ops, and ids.
cat >"$scratch/digits.cfg" <<END
model = { family = "described"; description = "$(cd "$top_srcdir/tests/models" && pwd)/digits.json"; sequence = 1; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 3; schedule = "1f1b"; };
END
"${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$scratch/digits.safetensors" 0 40 "$scratch/data.bin" 1 pixels:U8:4x6 digit:I64:
train_data=digits.safetensors
for device in cpu cuda; do
  ok "a plan of digits for $device" build "digits_$device" "$scratch/digits.cfg" -s cluster.device=$device
  ok "trains" train "digits_$device" "digits_$device" --steps 3
done
ok "to the same losses" close_to digits_cpu digits_cuda 6
# Values and inputs of samples.
cat >"$scratch/losses.cfg" <<END
model = { family = "described"; description = "$(cd "$top_srcdir/tests/models" && pwd)/losses.json"; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 2; schedule = "1f1b"; };
END
"${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$scratch/losses.safetensors" 0 24 "$scratch/data.bin" 16 idx:I32:tokens value:F32:reals:16 \
  old:F32:reals:16 weight:F32:parts:16 state:BF16:reals:16x24 label:U8:bits:16 mask:U8:bits:16 class:I64:ids:16 topic:I64:ids: score:F32:reals:
train_data=losses.safetensors
for device in cpu cuda; do
  ok "a plan of samples for $device" build "losses_$device" "$scratch/losses.cfg" -s cluster.device=$device
  ok "trains" train "losses_$device" "losses_$device" --steps 3
done
ok "to the same losses" close_to losses_cpu losses_cuda 6
train_data=data.bin
# A description whose programs have every step.
cat >"$scratch/pointwise.cfg" <<END
model = { family = "described"; description = "$(cd "$top_srcdir/tests/models" && pwd)/pointwise.json"; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; decay = "cosine"; };
pipeline = { ranks = 1; microbatches = 3; schedule = "1f1b"; };
END
for device in cpu cuda; do
  ok "a plan of a description for $device" build "pointwise_$device" "$scratch/pointwise.cfg" -s cluster.device=$device
  ok "trains" train "pointwise_$device" "pointwise_$device" --steps 3
done
ok "to the same losses" close_to pointwise_cpu pointwise_cuda 6

# bf16: products and activations; weights, moments and sums of gradients stay f32.
# within NAME OTHER: losses agree to 2%, and are not the same.
within() {
  paste "$scratch/$1.bits" "$scratch/$2.bits" | head -n "$3" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 0.02 * $1)) bad = 1
    if (d > 0) differ = 1 } END { exit bad || !differ || NR == 0 }'
}
for family in model gpt2 pointwise; do
  ok "a plan of $family.cfg in bf16 for CUDA" build "half_$family" "$scratch/$family.cfg" -s cluster.device=cuda -s model.dtype=bf16
  ok "trains" train "half_$family" "half_$family" --steps 5 --checkpoint "$scratch/half_$family.ckpt" --save-every 3
done
ok "llama's losses are those of f32 to 2%" within cuda half_model 5
ok "a plan of experts in bf16" build half_experts "$scratch/model.cfg" -s cluster.device=cuda -s model.dtype=bf16 -s model.family=qwen3_moe -s model.experts=5 \
  -s model.experts_per_token=2 -s model.moe_ffn=24 -s expert_parallel.rows=8
ok "trains" train half_experts half_experts --steps 3
ok "to the losses of f32 to 2%" within qwen3_moe_cuda half_experts 3
ok "gpt2's losses are those of f32 to 2%" within gpt2_cuda half_gpt2 5
ok "and the description's" within pointwise_cuda half_pointwise 3
ok "it trains again, without a graph" plain half_plain half_gpt2 --steps 5
ok "with the same bits" cmp "$scratch/half_gpt2.bits" "$scratch/half_plain.bits"
ok "once more, and saves at step 3" train half_again half_gpt2 --steps 3 --checkpoint "$scratch/half_two"
ok "continues from there" train half_again half_gpt2 --steps 5 --checkpoint "$scratch/half_two" --resume
ok "with the bits of one run" cmp "$scratch/half_gpt2.bits" "$scratch/half_again.bits"
ok "and its weights" cmp "$scratch/half_gpt2.ckpt/latest/model.safetensors" "$scratch/half_two/latest/model.safetensors"
# eval_of BINARY CHECKPOINT
eval_of() { "$scratch/$1" eval --data "$scratch/data.bin" --checkpoint "$scratch/$2" --steps 2 --quiet 2>"$scratch/eval.err" | log_field - loss; }
ok "a plan in bf16 for the CPU" build half_cpu "$scratch/gpt2.cfg" -s cluster.device=cpu -s model.dtype=bf16
ok "trains" train half_cpu half_cpu --steps 5 --checkpoint "$scratch/half_cpu.ckpt"
ok "its losses are CUDA's to 2%" within half_cpu half_gpt2 5
for trained in half_gpt2 half_cpu; do
  eval_of half_gpt2 $trained.ckpt >"$scratch/there.bits"
  eval_of half_cpu $trained.ckpt >"$scratch/here.bits"
  ok "what $trained saved evaluates alike on both" sh -c "paste '$scratch/here.bits' '$scratch/there.bits' |
    awk '{ d = \$1 - \$2; if (d < 0) d = -d; if (!(d <= 5e-3 * \$1)) bad = 1 } END { exit bad || NR != 1 }'"
done
ok "mlp in bf16 for CUDA" build half_mlp "$topologies/mlp_1.cfg" -s cluster.device=cuda -s model.dtype=bf16 -s model.hidden=16 -s model.layers=2
ok "trains" train half_mlp half_mlp --steps 2

# Windows of several documents: attention and positions within each.
awk 'BEGIN {
  for (d = 0; d < 300; d++) {
    text = ""
    for (t = 0; t < 3 + d % 7; t++) text = text sprintf("%c", 97 + (d * 7 + t * t) % 26)
    printf "{\"id\": %d, \"text\": \"%s\"}\n", d, text
  }
}' >"$scratch/documents.jsonl"
ok "documents are packed" "$tokens" --field text --end-of-text 10 --quiet --pack 16 -o "$scratch/packed.bin" "$scratch/documents.jsonl" 2>/dev/null
train_data=packed.bin
for family in model gpt2; do
  for device in cpu cuda; do
    ok "a plan of $family.cfg, packed, for $device" build "packed_$device" "$scratch/$family.cfg" -s cluster.device=$device -s batch.packed=true
    ok "trains" train "packed_$device" "packed_$device" --steps 5
  done
  ok "to the same losses" close_to packed_cpu packed_cuda 10
done
ok "one in bf16" build packed_half "$scratch/gpt2.cfg" -s cluster.device=cuda -s batch.packed=true -s model.dtype=bf16
ok "trains" train packed_half packed_half --steps 5
ok "to the losses of f32 to 2%" within packed_cuda packed_half 5
train_data=data.bin

# The head and its loss by chunks.
for device in cpu cuda; do
  ok "a plan for $device with chunks of logits" build "chunks_$device" "$scratch/gpt2.cfg" -s cluster.device=$device -s model.loss_rows=32 \
    -s batch.microbatch=3
  ok "trains" train "chunks_$device" "chunks_$device" --steps 3
done
ok "to the same losses" close_to chunks_cpu chunks_cuda 6
ok "in bf16, too" build chunks_half "$scratch/gpt2.cfg" -s cluster.device=cuda -s model.loss_rows=32 -s batch.microbatch=3 -s model.dtype=bf16
ok "trains" train chunks_half chunks_half --steps 3
ok "to the losses of f32 to 2%" within chunks_cuda chunks_half 3

# The start: llama_1b.cfg, cut to 10 M weights. With that learning rate a step leaves them as they are.
cut="model.layers=2 model.vocab=4096 model.hidden=512 model.heads=8 model.kv_heads=2 model.ffn=2048 model.sequence=16 batch.microbatch=1
  pipeline.microbatches=1 optimizer.learning_rate=1e-60"
for device in cpu cuda; do
  ok "a plan of llama_1b.cfg, cut, for $device" build "start_$device" "$top_srcdir/tests/gpu/llama_1b.cfg" -s cluster.device=$device \
    $(printf ' -s %s' $cut)
done
ok "the CPU writes the weights of the start" "$scratch/start_cpu" init --seed 7 --output "$scratch/start.safetensors"
# start_from NAME OPTION...: a step; sets copied to the bytes that were copied from the host.
start_from() {
  rm -f "$scratch/copies"
  PEN_EMULATED_COPIES=$scratch/copies train "$1" start_cuda --steps 1 --checkpoint "$scratch/$1.ckpt" --timeout 300 $2 || return 1
  copied=$(awk '{ sum += $1 } END { print sum }' "$scratch/copies")
  cmp "$scratch/start.safetensors" "$scratch/$1.ckpt/latest/model.safetensors"
}
ok "CUDA starts from the same bits" start_from seed ""
ok "which it makes: $copied bytes are copied from the host" test "$copied" -lt 1048576
value_bytes=$((4 * $("$scratch/start_cuda" info | sed -n 's/^model .* \([0-9]*\) parameters.*/\1/p')))
ok "it starts from the file" start_from file "--init $scratch/start.safetensors"
ok "with the same losses and norms" cmp "$scratch/seed.bits" "$scratch/file.bits"
besides=$((copied - value_bytes))
ok "of which it copies the weights, $value_bytes of $copied bytes" test "${besides#-}" -lt 1048576

# What no kernel takes is refused by the generator.
"$gen" --check -s cluster.device=cuda -s model.dtype=bf16 -s model.head_dim=12 "$scratch/model.cfg" 2>"$scratch/refused"
is "a head_dim that no kernel takes is refused" "$?" 78
matches "which says what is taken" "$(cat "$scratch/refused")" "*model.head_dim = 12: a multiple of 8, at most 128*"
"$gen" --check -s cluster.device=cuda -s batch.microbatch=65536 "$scratch/model.cfg" 2>"$scratch/refused"
is "more sequences than a grid's side are refused" "$?" 78
matches "which is said" "$(cat "$scratch/refused")" "*batch.microbatch = 65536: at most 65535, with cluster.device = \"cuda\"*"

# What this very GPU has no room for, by the program, before it starts.
ok "a plan whose heads are 256 wide" build wide_heads "$scratch/model.cfg" -s cluster.device=cuda -s model.head_dim=256
PEN_EMULATED_SHARED=101376 "$scratch/wide_heads" train --data "$scratch/data.bin" --steps 1 2>"$scratch/refused"
is "a GPU with too little shared memory is refused" "$?" 71
matches "which is said" "$(cat "$scratch/refused")" "*rank 0, device cuda: ATTENTION_QKV: each of its blocks needs 142336 bytes of shared memory, and this GPU allows \
101376*"

# A pair a|b on two streams, recomputation, inputs that are normals, no clipping.
ok "a plan with pairs" build pairs "$scratch/model.cfg" -s cluster.device=cuda -s pipeline.schedule=dual_pipe_v -s pipeline.stages_per_rank=2
ok "trains" train pairs pairs --steps 5
ok "to the CPU's losses" close_to cpu pairs 10
ok "a plan that recomputes" build again2 "$scratch/model.cfg" -s cluster.device=cuda -s memory.recompute=full
ok "trains" train again2 again2 --steps 5
ok "with the same bits as one that does not" cmp "$scratch/cuda.bits" "$scratch/again2.bits"
for device in cpu cuda; do
  ok "a plan of mlp for $device" build "mlp_$device" "$topologies/mlp_1.cfg" -s cluster.device=$device -s optimizer.clip_norm=0 \
    -s model.hidden=16 -s model.layers=2
  ok "trains" train "mlp_$device" "mlp_$device" --steps 3
done
ok "mlp, unclipped, has the CPU's losses" close_to mlp_cpu mlp_cuda 6

# Pinned memory is reported where there is some: two feeds, as many boards, a line of words and the staging for checkpoints.
pinned() { tr ',{' '\n\n' | sed -n 's/^ *"pinned_bytes": *\([0-9]*\).*/\1/p'; }
shown=$("$scratch/cuda" info --json | pinned)
matches "and of kernels for the device" "$("$scratch/cuda" info)" "*kernels       cuda*"
ok "info tells of pinned memory" test "${shown:-0}" -gt 4194304
is "in both its forms" "$("$scratch/cuda" info | awk '/ pinned / { here = 1 } here && $1 == "0" { print $(NF - 1) }')" "$shown"
is "as the report does" "$("$gen" -p report -s cluster.device=cuda "$scratch/model.cfg" | pinned)" "$shown"
is "of a CPU's there is none" "$("$scratch/cpu" info --json | pinned)$("$gen" -p report -s cluster.device=cpu "$scratch/model.cfg" | pinned)" ""

is "a binary of the CPU has no CUDA in it" "$(nm "$scratch/cpu" | grep -ci ' [TD] .*cuda')" 0
finish
