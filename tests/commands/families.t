#!/bin/sh
# families.t: every family of transformers but llama (bits.t) trains with the same bits over ranks, stages and cuts within layers; and all
# of them give the loss and the gradient norm of an f64 model written with PyTorch's operators, where there is PyTorch.
. "${top_srcdir:-.}/tests/support/lib.sh"

make_tokens "$scratch/data.bin" 4000
describe llama 4 "kv_heads = 2;"
describe gpt2 4 "tie_embeddings = false;" # tied: tied.t
describe qwen2 4 "kv_heads = 2; norm_epsilon = 1e-6; rope_theta = 1e6;"
describe mistral 4 "kv_heads = 2; norm_epsilon = 1e-6; window = 5;"
describe gemma3_text 7 "kv_heads = 2; head_dim = 12; query_scalar = 20; norm_epsilon = 1e-6; rope_theta = 1e6; window = 5; tie_embeddings = false;"
describe qwen3_moe 2 "kv_heads = 2; head_dim = 12; norm_epsilon = 1e-6; rope_theta = 1e6; experts = 8; experts_per_token = 2; moe_ffn = 24; router_normalize = true;"
describe dots1 2 "kv_heads = 2; head_dim = 12; norm_epsilon = 1e-6; rope_theta = 1e6; experts = 8; experts_per_token = 3; moe_ffn = 24; router_normalize = true; router_scale = 2.5; router_groups = 4; router_top_groups = 2; shared_experts = 2; dense_layers = 1; "
describe qwen3 4 "kv_heads = 2; head_dim = 12; norm_epsilon = 1e-6; rope_theta = 1e6;"
sed 's/layers = 4/attention_bias = true; mlp_bias = true; &/' "$scratch/llama.cfg" >"$scratch/biases.cfg"

compare_runs 3 <<'END'
llama one
biases one
biases attention -s memory.recompute=attention -s pipeline.zero_bubble=true
biases two_cut   -s pipeline.ranks=2 -s partition.before=[model.layers.2.mlp]
qwen2 one
qwen2 one_zb     -s pipeline.zero_bubble=true
qwen2 by_layer   -s memory.recompute=layer
qwen2 attention  -s memory.recompute=attention
qwen2 two_cut    -s pipeline.ranks=2 -s partition.before=[model.layers.2.mlp]
qwen2 two_v      -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
qwen2 four       -s pipeline.ranks=4
mistral one
mistral one_zb    -s pipeline.zero_bubble=true
mistral attention -s memory.recompute=attention
mistral two_cut   -s pipeline.ranks=2 -s partition.before=[model.layers.2.mlp]
mistral four      -s pipeline.ranks=4
gemma3_text one
gemma3_text one_zb    -s pipeline.zero_bubble=true
gemma3_text by_layer  -s memory.recompute=layer
gemma3_text attention -s memory.recompute=attention
gemma3_text two_cut   -s pipeline.ranks=2 -s partition.before=[model.layers.5.mlp]
gemma3_text two_v     -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
gemma3_text four      -s pipeline.ranks=4
qwen3 one
qwen3 one_zb     -s pipeline.zero_bubble=true
qwen3 recomputed -s memory.recompute=full
qwen3 attention  -s memory.recompute=attention
qwen3 two_cut    -s pipeline.ranks=2 -s partition.before=[model.layers.2.mlp]
qwen3 two_v      -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
qwen3 four       -s pipeline.ranks=4
qwen3_moe one
qwen3_moe slices_one -s expert_parallel.rows=8
qwen3_moe recomputed -s expert_parallel.rows=8 -s memory.recompute=full
qwen3_moe attention  -s expert_parallel.rows=8 -s memory.recompute=attention -s pipeline.zero_bubble=true
qwen3_moe two_v      -s expert_parallel.rows=8 -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
dots1 one    -s expert_parallel.rows=8
dots1 two    -s expert_parallel.rows=8 -s pipeline.ranks=2 -s memory.recompute=layer
qwen3_moe balanced_one -s model.aux_loss=0.5 -s model.z_loss=0.1
dots1 balanced_one     -s model.aux_loss=0.5 -s model.z_loss=0.1 -s model.aux_scope=microbatch
qwen3_moe stepped_one  -s model.aux_loss=0.5 -s model.z_loss=0.1 -s model.aux_scope=step -s optimizer.learning_rate=1e-30
dots1 stepped_one      -s model.aux_loss=0.5 -s model.z_loss=0.1 -s model.aux_scope=step -s optimizer.learning_rate=1e-30
gpt2 one
gpt2 one_zb      -s pipeline.zero_bubble=true
gpt2 recomputed  -s memory.recompute=full
gpt2 by_layer    -s memory.recompute=layer
gpt2 two_cut     -s pipeline.ranks=2 -s partition.before=[transformer.h.2.mlp]
gpt2 two_v       -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block
gpt2 four        -s pipeline.ranks=4
END

# ---- an independent model ----
all_as_pytorch 3 llama_one biases_one mistral_one qwen2_one qwen3_one qwen3_moe_one qwen3_moe_slices_one dots1_one gemma3_text_one gpt2_one
router_factors="0.5 0.1 1"
all_as_pytorch 3 qwen3_moe_balanced_one
router_factors="0.5 0.1 2"
all_as_pytorch 3 dots1_balanced_one
router_factors="0.5 0.1 2 3"
all_as_pytorch 3 qwen3_moe_stepped_one dots1_stepped_one
finish
