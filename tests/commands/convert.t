#!/bin/sh
# convert.t: penstock-convert: what config.json says becomes the topology's model, or is refused by name; the weights are read from one
# file or several. (Against transformers itself: convert_hf.t.)
. "${top_srcdir:-.}/tests/support/lib.sh"
convert=$top_builddir/penstock-convert
cd "$scratch" || exit 99

llama='"model_type":"llama","hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":256,"max_position_embeddings":16'
qwen3=$(echo "$llama" | sed s/llama/qwen3/),'"num_key_value_heads":4'
dots1='"model_type":"dots1","vocab_size":64,"hidden_size":16,"num_attention_heads":4,"n_routed_experts":4,"num_experts_per_tok":2'
qwen2=$(echo "$qwen3" | sed s/qwen3/qwen2/)
mistral=$(echo "$qwen3" | sed s/qwen3/mistral/)
gemma3=$(echo "$llama" | sed 's/llama/gemma3_text/; s/"num_hidden_layers":2/"num_hidden_layers":7/'),'"num_key_value_heads":2'
gpt2='"model_type":"gpt2","n_embd":36,"n_layer":2,"n_head":4,"vocab_size":256,"n_positions":16'
# model FAMILY KEYS: the model's settings of the topology, on one line, sorted.
model() {
  printf '{%s%s}\n' "$1" "$2" >config.json
  "$convert" -o out.cfg config.json 2>errors || { cat errors; return; }
  sed -n '/^  /s/^  \(.*\);$/\1/p' out.cfg | sort | tr '\n' ',' | sed 's/,$//; s/,/, /g'
}
is "llama, with what the class leaves out" "$(model "$llama" '')" \
  'family = "llama", ffn = 48, heads = 4, hidden = 32, kv_heads = 4, layers = 2, norm_epsilon = 1e-6, rope_theta = 10000.0, sequence = 16, vocab = 256'
is "all that llama may say" \
  "$(model "$llama" ',"num_key_value_heads":2,"head_dim":10,"rms_norm_eps":1e-05,"rope_theta":500000,"tie_word_embeddings":true,"rope_scaling":null')" \
  'family = "llama", ffn = 48, head_dim = 10, heads = 4, hidden = 32, kv_heads = 2, layers = 2, norm_epsilon = 1e-05, rope_theta = 500000.0, sequence = 16, tie_embeddings = true, vocab = 256'
is "biases of llama" "$(model "$llama" ',"attention_bias":true,"mlp_bias":true' | grep -o '[a-z]*_bias = [a-z]*' | tr '\n' ' ')" 'attention_bias = true mlp_bias = true '
is "what changes nothing" "$(model "$llama" ',"is_llama_config":true,"rope_interleaved":false,"attention_bias":false,"mlp_bias":false,"transformers.js_config":{"dtype":"q4"}')" "$(model "$llama" '')"
is "rope_theta of transformers 5" "$(model "$llama" ',"rope_parameters":{"rope_type":"default","rope_theta":1234.5}' | grep -o 'rope_theta = [0-9.]*')" 'rope_theta = 1234.5'
# Positions that are stretched: as transformers 4 says it, and as 5 does.
stretched='"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64'
rope() { model "$@" | grep -o 'rope_[a-z_]* = [^,]*' | tr '\n' ' '; }
is "llama3" "$(rope "$llama" ",\"rope_theta\":1e4,\"rope_scaling\":{$stretched}")" \
  'rope_factor = 8.0 rope_high_freq_factor = 4.0 rope_low_freq_factor = 1.0 rope_original_sequence = 64 rope_scaling = "llama3" rope_theta = 10000.0 '
matches "llama3: as the table of angles is made" "$("$gen" out.cfg)" '*PEN_OP_ROPE_TABLE*{16, 4}, {10000, 8, 3.395305452627*, 0.3333333333333333*}*'
is "llama3 of transformers 5, qwen3" "$(rope "$qwen3" ",\"rope_parameters\":{\"rope_theta\":1e4,$stretched}")" "$(rope "$llama" ",\"rope_scaling\":{$stretched}")"
is "llama3 without its positions" "$(rope "$llama" ',"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0}' | grep -o 'original_sequence = [0-9]*')" \
  "original_sequence = 16"
is "linear" "$(rope "$llama" ',"rope_scaling":{"type":"linear","factor":4}')" 'rope_factor = 4.0 rope_scaling = "linear" rope_theta = 10000.0 '
matches "linear: as the table of angles is made" "$("$gen" out.cfg)" '*PEN_OP_ROPE_TABLE*{16, 4}, {10000, 4}}*'
yarn='"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":64'
is "yarn; what transformers takes as absent is no setting" \
  "$(rope "$llama" ",\"rope_theta\":1e4,\"rope_scaling\":{$yarn,\"beta_fast\":0,\"beta_slow\":null,\"mscale\":0.0,\"truncate\":true}")" \
  'rope_factor = 4.0 rope_original_sequence = 64 rope_scaling = "yarn" rope_theta = 10000.0 '
# Of 8 dims, pairs of wavelengths that fit 32 times and once: floor(8 ln(64/(2 pi 32)) / (2 ln 10000)) = -1, at least 0; ceil(8 ln(64/(2 pi)) / (2 ln 10000)) = 2;
# 1 + ln(4)/10.
matches "yarn: as the table of angles is made" "$("$gen" out.cfg)" '*PEN_OP_ROPE_TABLE*{16, 4}, {10000, 4, 0, -1, 0.5, 1.13862943611198*}*'
is "all that yarn may say, qwen3 of transformers 5" "$(rope "$qwen3" ",\"rope_parameters\":{$yarn,\"beta_fast\":2.5,\"beta_slow\":0.5,\
\"mscale\":0.7,\"mscale_all_dim\":0.5,\"attention_factor\":1.5,\"truncate\":false}")" \
  'rope_attention_factor = 1.5 rope_beta_fast = 2.5 rope_beta_slow = 0.5 rope_factor = 4.0 rope_mscale = 0.7 rope_mscale_all_dim = 0.5 '\
'rope_original_sequence = 64 rope_scaling = "yarn" rope_theta = 10000.0 rope_truncate = false '
matches "not rounded, and its own factor" "$("$gen" out.cfg)" '*PEN_OP_ROPE_TABLE*{10000, 4, 0, -1.'*', 1.5}*'
is "qwen3's heads are 128 wide unless it says" "$(model "$qwen3" '' | grep -o 'head_dim = [0-9]*')" "head_dim = 128"
is "qwen2's are hidden/heads, and no key asks for its biases" "$(model "$qwen2" ',"architectures":["Qwen2ForCausalLM"],"use_sliding_window":false,"sliding_window":4096,"use_mrope":false')" \
  "$(model "$llama" '' | sed s/llama/qwen2/)"
sliding_window() { model "$mistral" "$1" | grep -o ' window = [0-9]*'; }
is "mistral, with what the class leaves out" "$(model "$mistral" '')" "$(model "$llama" '' | sed 's/llama/mistral/; s/$/, window = 4096/')"
is "mistral's window" "$(sliding_window ',"sliding_window":5')" " window = 5"
matches "as attention has it" "$("$gen" out.cfg)" '*PEN_OP_ATTENTION,*{1, 16, 4, 4, 8, 5}*'
is "mistral without one" "$(sliding_window ',"sliding_window":null')" " window = 0"
matches "attention to the whole sequence" "$("$gen" out.cfg)" '*PEN_OP_ATTENTION,*{1, 16, 4, 4, 8, 16}*'
is "gemma3_text, with what the class leaves out" "$(model "$gemma3" '')" \
  'family = "gemma3_text", ffn = 48, head_dim = 256, heads = 4, hidden = 32, kv_heads = 2, layers = 7, norm_epsilon = 1e-6, query_scalar = 256, rope_local_theta = 10000.0, rope_theta = 1000000.0, sequence = 16, vocab = 256, window = 4096'
gemma3_keys=',"head_dim":12,"query_pre_attn_scalar":16,"sliding_window":5,"hidden_activation":"gelu_pytorch_tanh","attn_logit_softcapping":null'
wanted="family = \"gemma3_text\", ffn = 48, head_dim = 12, heads = 4, hidden = 32, kv_heads = 2, layers = 7, norm_epsilon = 1e-6, query_scalar = 16, \
rope_factor = 8.0, rope_local_theta = 20000.0, rope_scaling = \"linear\", rope_theta = 30000.0, sequence = 16, vocab = 256, window = 5"
is "gemma3_text, as transformers 4 wrote it" \
  "$(model "$gemma3" "$gemma3_keys,\"sliding_window_pattern\":6,\"rope_theta\":3e4,\"rope_local_base_freq\":2e4,\"rope_scaling\":{\"factor\":8,\"rope_type\":\"linear\"}")" "$wanted"
local='"sliding_attention"'
is "gemma3_text of transformers 5" "$(model "$gemma3" "$gemma3_keys,\"layer_types\":[$local,$local,$local,$local,$local,\"full_attention\",$local],\"rope_parameters\":{\
\"full_attention\":{\"rope_theta\":3e4,\"rope_type\":\"linear\",\"factor\":8},$local:{\"rope_theta\":2e4,\"rope_type\":\"default\"}}")" "$wanted"
is "windows and tables of its layers" "$("$gen" out.cfg | grep -o 'PEN_OP_ATTENTION,.*{1, 16, 4, 2, 12, [0-9]*}' | sed 's/.*, //' | head -n 7 | tr -d '\n')" "5}5}5}5}5}16}5}"
images='"model_type":"gemma3","architectures":["Gemma3ForConditionalGeneration"],"vision_config":{"hidden_size":8},"mm_tokens_per_image":4,"tie_word_embeddings":false'
is "gemma3: its part for text" "$(model "$images" ",\"text_config\":{$gemma3$gemma3_keys}")" "$(model "$gemma3" "$gemma3_keys,\"tie_word_embeddings\":false")"
is "gpt2" "$(model "$gpt2" '')" \
  'family = "gpt2", ffn = 144, heads = 4, hidden = 36, layers = 2, norm_epsilon = 1e-5, sequence = 16, vocab = 256'
is "gpt2 with a width of its own, untied" "$(model "$gpt2" ',"n_inner":50,"tie_word_embeddings":false' | grep -o 'ffn = [0-9]*\|tie_embeddings = [a-z]*' | tr '\n' ' ')" \
  'ffn = 50 tie_embeddings = false '
# Every default, as transformers' class has it, but for a sequence of at most 4096; what is absent is not what is null.
while IFS='	' read -r family wanted; do
  is "all of $family that is absent" "$(model "\"model_type\":\"$family\"" '')" "family = \"$family\", $wanted"
done <<'END'
llama	ffn = 11008, heads = 32, hidden = 4096, kv_heads = 32, layers = 32, norm_epsilon = 1e-6, rope_theta = 10000.0, sequence = 2048, vocab = 32000
mistral	ffn = 14336, heads = 32, hidden = 4096, kv_heads = 8, layers = 32, norm_epsilon = 1e-6, rope_theta = 10000.0, sequence = 4096, vocab = 32000, window = 4096
qwen2	ffn = 22016, heads = 32, hidden = 4096, kv_heads = 32, layers = 32, norm_epsilon = 1e-6, rope_theta = 10000.0, sequence = 4096, vocab = 151936
qwen3	ffn = 22016, head_dim = 128, heads = 32, hidden = 4096, kv_heads = 32, layers = 32, norm_epsilon = 1e-6, rope_theta = 10000.0, sequence = 4096, vocab = 151936
gemma3_text	ffn = 9216, head_dim = 256, heads = 8, hidden = 2304, kv_heads = 4, layers = 26, norm_epsilon = 1e-6, query_scalar = 256, rope_local_theta = 10000.0, rope_theta = 1000000.0, sequence = 4096, vocab = 262208, window = 4096
gpt2	ffn = 3072, heads = 12, hidden = 768, layers = 12, norm_epsilon = 1e-5, sequence = 1024, vocab = 50257
END
is "sizes that are absent are named" "$(printf '{"model_type":"llama","hidden_size":64,"vocab_size":256}' >config.json; "$convert" -o out.cfg config.json 2>&1)" \
  "penstock-convert: warning: config.json: num_hidden_layers: absent: 32, as in transformers' class
penstock-convert: warning: config.json: num_attention_heads: absent: 32, as in transformers' class
penstock-convert: warning: config.json: intermediate_size: absent: 11008, as in transformers' class
penstock-convert: warning: config.json: max_position_embeddings: absent: 2048, as in transformers' class"
logged='"output_router_logits":true'
is "the loss of routers, where it is computed" "$(for more in '' ",$logged" ",$logged,\"router_aux_loss_coef\":0.02" ',"router_aux_loss_coef":0.02'; do
  model '"model_type":"mixtral"' "$more" | grep -o 'aux_loss = [0-9.]*' || echo none
done | tr '\n' ' ')" 'none aux_loss = 0.001 aux_loss = 0.02 none '
matches "which is said" "$(printf '{"model_type":"mixtral",%s,"router_aux_loss_coef":0.02}' "$logged" >config.json; "$convert" -o out.cfg config.json 2>&1)" \
  "*config.json: router_aux_loss_coef = 0.02, with output_router_logits: model.aux_loss, of each layer; transformers' loss is of all layers together*"
is "heads of keys and values that are null are as many as heads" \
  "$(for family in mistral qwen2 qwen3; do model "\"model_type\":\"$family\"" ',"num_key_value_heads":null' | grep -o 'kv_heads = [0-9]*'; done | tr '\n' ' ')" \
  'kv_heads = 32 kv_heads = 32 kv_heads = 32 '
is "windows that no layer has" "$(for more in '"sliding_window":8' '"sliding_window":null,"max_window_layers":0' \
  '"max_window_layers":1,"layer_types":["full_attention","full_attention","full_attention"]'; do
  model "$dots1,\"num_hidden_layers\":3" ",$more" | grep -o 'window\|experts = [0-9]*' | head -n 1; done | tr '\n' ' ')" 'experts = 4 experts = 4 experts = 4 '
is "two names of one key that agree" \
  "$(model "$llama" ',"dtype":"float32","torch_dtype":"float32","rope_theta":5e4,"rope_scaling":{"type":"linear","factor":4},"rope_parameters":{"rope_type":"linear","factor":4.0,"rope_theta":50000}')" \
  "$(model "$llama" ',"rope_theta":5e4,"rope_scaling":{"type":"linear","factor":4}')"
is "gpt2's other names" "$(model '"model_type":"gpt2"' ',"hidden_size":36,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":256,"max_position_embeddings":16')" "$(model "$gpt2" '')"
for family in "$llama" "$qwen2" "$qwen3" "$mistral" "$gemma3" "$gpt2"; do
  model "$family" '' >/dev/null
  ok "what is written can be generated: $(grep -o 'family = .*' out.cfg)" "$gen" --check out.cfg
done
mkdir folder && printf '{%s}' "$gpt2" >folder/config.json
is "a folder is its config.json" "$("$convert" folder)" "$("$convert" folder/config.json)"
printf '{%s}' "$llama" | sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 131072/' >config.json
is "a long context is shortened" "$("$convert" config.json 2>err | grep -o 'sequence = .*')" "sequence = 4096;"
is "which is said" "$(complaints err)" "penstock-convert: sequence = 4096 of max_position_embeddings = 131072 positions: --sequence takes another"
is "--sequence takes all of it" "$("$convert" --sequence 131072 config.json 2>&1 | grep -o 'sequence = .*')" "sequence = 131072;"
is "--sequence" "$(printf '{%s}' "$llama" >config.json; "$convert" --sequence 8 config.json | grep -o 'sequence = .*')" "sequence = 8;"
matches "dropout earns a warning" "$("$convert" -o out.cfg folder 2>&1; printf '{%s,"resid_pdrop":0.1}' "$gpt2" >config.json; "$convert" -o out.cfg config.json 2>&1)" \
  'penstock-convert: warning: config.json: resid_pdrop = 0.1: dropout is not supported; training continues without it'

# refused STATUS TEXT NAME OPTION...: of config.json.
refused() {
  refused_status=$1 refused_text=$2 refused_name=$3
  shift 3
  rm -f out.cfg
  said=$("$convert" -o out.cfg "$@" 2>&1)
  is "$refused_name: status" "$?" "$refused_status"
  is "$refused_name: message" "$said" "penstock-convert: $refused_text"
  ok "$refused_name: nothing is written" test ! -e out.cfg
}
while IFS='	' read -r family keys text; do
  eval "family=\$$family"
  printf '{%s,%s}' "$family" "$keys" >config.json
  refused 65 "config.json: $text" "$keys" config.json
done <<'END'
llama	"rope_scaling":{"rope_type":"llama3","factor":8.0,"high_freq_factor":4.0,"original_max_position_embeddings":8}	rope_scaling.low_freq_factor: missing
llama	"rope_scaling":{"rope_type":"linear","factor":"8"}	rope_scaling.factor = "8" is not supported: a finite number, 1 or more
llama	"rope_scaling":{"type":"linear","factor":0.5}	rope_scaling.factor = 0.5 is not supported: a finite number, 1 or more
llama	"rope_scaling":{"type":"dynamic","factor":2}	rope_scaling.type = "dynamic" is not supported: only "default", "linear", "llama3" or "yarn"
qwen3	"rope_parameters":{"rope_type":"yarn","rope_theta":1e4}	rope_parameters.factor: missing
qwen3	"rope_scaling":{"rope_type":"yarn","factor":4,"truncate":0}	rope_scaling.truncate = 0 is not supported: true or false
qwen3	"rope_scaling":{"rope_type":"yarn","factor":4,"beta_fast":-1}	rope_scaling.beta_fast = -1 is not supported: a finite number above 0
qwen3	"rope_scaling":{"rope_type":"yarn","factor":4,"attention_factor":0.0}	rope_scaling.attention_factor = 0.0 is not supported: a finite number above 0
qwen3	"rope_scaling":{"rope_type":"yarn","factor":4,"low_freq_factor":1.0}	rope_scaling.low_freq_factor = 1.0 is not supported: RoPE scaling "yarn" has no such key
llama	"rope_scaling":{"rope_type":"longrope"}	rope_scaling.rope_type = "longrope" is not supported: only "default", "linear", "llama3" or "yarn"
llama	"rope_scaling":{"type":"linear","factor":2,"low_freq_factor":1.0}	rope_scaling.low_freq_factor = 1.0 is not supported: RoPE scaling "linear" has no such key
llama	"rope_parameters":{"rope_type":"default","rope_theta":1e4,"factor":4.0}	rope_parameters.factor = 4.0 is not supported: RoPE scaling "default" has no such key
llama	"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}	rope_parameters.partial_rotary_factor = 0.5 is not supported: RoPE scaling "default" has no such key
llama	"partial_rotary_factor":0.5	partial_rotary_factor = 0.5 is not supported: only 1.0|1
llama	"attention_bias":1	attention_bias = 1 is not supported: true or false
qwen3	"attention_bias":true	attention_bias = true is not supported: only false
qwen2	"mlp_bias":true	mlp_bias = true is not supported: only false
llama	"torch_dtype":"float32","dtype":"bfloat16"	dtype = "bfloat16" is not supported: torch_dtype, the other name of this key, is "float32"
llama	"rope_scaling":{"type":"linear","factor":4},"rope_parameters":{"rope_type":"linear","factor":8}	rope_parameters.factor = 8.0, but rope_scaling.factor = 4.0: two names of one key
qwen2	"rope_scaling":{"type":"default"},"rope_parameters":{"rope_type":"linear","factor":8}	rope_parameters.rope_type = "linear", but rope_scaling.type = "none": two names of one key
llama	"rope_scaling":{"type":"linear","rope_type":"default"}	rope_scaling.type = "linear" is not supported: rope_type, the other name of this key, says otherwise
qwen3	"rope_theta":1e6,"rope_parameters":{"rope_type":"default","rope_theta":1e4}	rope_parameters.rope_theta = 10000.0, but rope_theta = 1000000.0: two names of one key
gpt2	"n_ctx":32	n_ctx = 32 is not supported: n_positions, the other name of this key, is 16
gpt2	"max_position_embeddings":32	max_position_embeddings = 32, but n_positions = 16: two names of one key
llama	"rope_interleaved":true	rope_interleaved = true is not supported: only false
llama	"hidden_act":"gelu"	hidden_act = "gelu" is not supported: only "silu"|"swish"
llama	"sliding_window":4096	sliding_window = 4096 is not supported: only null
llama	"quantization_config":{"bits":4}	quantization_config = {"bits":4} is not supported: unknown key; if the results of the model do not depend on it: --ignore quantization_config
llama	"rms_norm_eps":-1.0	rms_norm_eps = -1.0 is not supported: a finite number, 0 or more
llama	"num_key_value_heads":"2"	num_key_value_heads = "2" is not supported: a whole number from 1 to 65536
llama	"tie_word_embeddings":1	tie_word_embeddings = 1 is not supported: true or false
gemma3	"layer_types":["sliding_attention","full_attention"]	layer_types[1] = "full_attention" is not supported: only "sliding_attention"
gemma3	"sliding_window_pattern":2	sliding_window_pattern = 2 is not supported: only 6
gemma3	"final_logit_softcapping":30.0	final_logit_softcapping = 30.0 is not supported: only null
gemma3	"rope_parameters":{"sliding_attention":{"rope_type":"linear"}}	rope_parameters.sliding_attention.rope_type = "linear" is not supported: only "default" positions in these layers
gemma3	"rope_parameters":{"rope_type":"default"}	rope_parameters.rope_type = "default" is not supported: only full_attention and sliding_attention
gemma3	"rope_parameters":{"full_attention":{"rope_type":"dynamic"}}	rope_parameters.full_attention.rope_type = "dynamic" is not supported: only "default", "linear", "llama3" or "yarn"
gemma3	"architectures":["Gemma3ForConditionalGeneration"]	architectures[0] = "Gemma3ForConditionalGeneration" is not supported: only "Gemma3ForCausalLM"
images	"boi_token_index":1	text_config: missing
images	"text_config":[1]	text_config = [1] is not supported: an object
images	"quantization_config":{"bits":4},"text_config":{"model_type":"gemma3_text","num_hidden_layers":6,"hidden_size":8,"vocab_size":9,"num_attention_heads":1,"intermediate_size":8,"max_position_embeddings":8}	quantization_config = {"bits":4} is not supported: unknown key; if the results of the model do not depend on it: --ignore quantization_config
mistral	"sliding_window":0	sliding_window = 0 is not supported: a whole number from 1 to 1048576, or null
mistral	"sliding_window":4.5	sliding_window = 4.5 is not supported: a whole number from 1 to 1048576, or null
mistral	"attention_bias":true	attention_bias = true is not supported: unknown key; if the results of the model do not depend on it: --ignore attention_bias
mistral	"architectures":["MistralForSequenceClassification"]	architectures[0] = "MistralForSequenceClassification" is not supported: only "MistralForCausalLM"
qwen2	"use_sliding_window":true	use_sliding_window = true is not supported: only false
qwen2	"attention_bias":true	attention_bias = true is not supported: unknown key; if the results of the model do not depend on it: --ignore attention_bias
llama	"architectures":["LlamaForSequenceClassification"]	architectures[0] = "LlamaForSequenceClassification" is not supported: only "LlamaForCausalLM"
llama	"architectures":["LlamaForCausalLM","MistralForCausalLM"]	architectures[1] = "MistralForCausalLM" is not supported: only "LlamaForCausalLM"
qwen2	"architectures":["Qwen2Model"]	architectures[0] = "Qwen2Model" is not supported: only "Qwen2ForCausalLM"
qwen3	"architectures":["Qwen2ForCausalLM"]	architectures[0] = "Qwen2ForCausalLM" is not supported: only "Qwen3ForCausalLM"
gpt2	"architectures":["GPT2Model"]	architectures[0] = "GPT2Model" is not supported: only "GPT2LMHeadModel"
gpt2	"architectures":[7]	architectures[0] = 7 is not supported: only "GPT2LMHeadModel"
gpt2	"architectures":"GPT2LMHeadModel"	architectures = "GPT2LMHeadModel" is not supported: a list
qwen3	"use_sliding_window":true	use_sliding_window = true is not supported: only false
qwen3	"layer_types":["full_attention","sliding_attention"]	layer_types[1] = "sliding_attention" is not supported: only "full_attention"
dots1	"num_hidden_layers":3,"sliding_window":8,"max_window_layers":2	max_window_layers = 2 is not supported: at least 3, the number of layers, or sliding_window null, or a list layer_types: no windows of attention
dots1	"num_hidden_layers":63	max_window_layers = null is not supported: at least 63, the number of layers, or sliding_window null, or a list layer_types: no windows of attention
gpt2	"activation_function":"relu"	activation_function = "relu" is not supported: only "gelu_new"|"gelu_pytorch_tanh"
gpt2	"scale_attn_weights":false	scale_attn_weights = false is not supported: only true
gpt2	"scale_attn_by_inverse_layer_idx":true	scale_attn_by_inverse_layer_idx = true is not supported: only false
gpt2	"add_cross_attention":true	add_cross_attention = true is not supported: only false
END
printf '{"model_type":"bert"}' >config.json
refused 65 'config.json: model_type = "bert" is not supported: "llama", "qwen2", "qwen3", "qwen3_moe", "dots1", "mistral", "mixtral", "gemma3_text" or "gpt2"' "another model" config.json
printf '{}' >config.json
refused 65 'config.json: model_type: missing' "no model_type" config.json
printf '{%s,"hidden_act":"gelu","rope_scaling":{"type":"dynamic","factor":2},"attention_bias":1,"foo":1}' "$llama" >config.json
is "all that is not supported is told" "$("$convert" config.json 2>&1 | sed -n 's/.*json: \(.*\) is not supported: .*/\1/p' | sort | tr '\n' ' ')$?" \
  'attention_bias = 1 foo = 1 hidden_act = "gelu" rope_scaling.type = "dynamic" 0'
awk 'BEGIN { printf "{\"model_type\":\"llama\""; for (i = 0; i < 3000; i++) printf ",\"k%d\":1", i; print "}" }' >config.json
"$convert" config.json >out 2>&1
is "of very many the first" "$? $(wc -l <out) $(tail -n 1 out)" "65 101 penstock-convert: config.json: 2900 keys more are not supported"
printf '[]' >config.json
refused 65 'config.json: not a JSON object' "a list" config.json
printf '{%s,"n_inner":1e9}' "$gpt2" >config.json
refused 65 'config.json: n_inner = 1000000000.0 is not supported: a whole number from 1 to 4194304' "too large" config.json
printf '{\n"model_type":\n' >config.json
"$convert" config.json >out 2>&1
is "no JSON: status" $? 65
matches "no JSON: file and line" "$(cat out)" "penstock-convert: config.json:[0-9]: *"
refused 66 'absent.json: No such file or directory' "no file" absent.json
refused 66 '/dev/null: not a regular file' "a device" /dev/null
printf '{%s}' "$gpt2" >config.json
refused 64 "--sequence 8: n_positions = 16, the rows of its table of positions" "gpt2 shortened" --sequence 8 config.json
printf '{%s}' "$llama" >config.json
refused 64 "--sequence 17: max_position_embeddings = 16, or fewer" "too long" --sequence 17 config.json
refused 64 "--sequence -1: a whole number, 1 or more" "below zero" --sequence -1 config.json
refused 64 "give one config.json, or the folder that holds it; try --help" "nothing to read"
refused 64 "--nothing: no such option; see penstock-convert --help" "an option that is none" --nothing config.json
printf '{%s,"quantization_config":{"bits":4}}' "$llama" >config.json
ok "--ignore takes a key all the same" "$convert" --ignore quantization_config -o out.cfg config.json
printf '{%s}' "$llama" >config.json
is "no folder to write into: status" "$("$convert" -o nowhere/out.cfg config.json 2>/dev/null; echo $?)" 73

# ---- weights in one file or several, our own readers alone ----
printf '{%s}' "$gpt2" >config.json
"$convert" -o small.cfg config.json
ok "a binary of it" build small small.cfg -s pipeline.ranks=2
ok "its start" "$scratch/small" init --seed 3 --output whole.safetensors
make_tokens data.bin 200
loss() { "$scratch/small" eval --data data.bin --quiet --init "$1" 2>errors | tail -n 1; }
wanted=$(loss whole.safetensors)
matches "scored from one file" "$wanted" '{"loss":*'
# The one file is every shard of an index, by links: what is in which file is the index's to say.
mkdir shards && cp whole.safetensors shards/a.safetensors
header() { head -c "$(($(od -An -td8 -N8 "$1") + 8))" "$1" | tail -c +9; }
names=$(header whole.safetensors | grep -oE '"transformer[a-z0-9_.]*"' | tr -d '"')
index() { # FILE-OF-EACH: prints an index that names $1 for every tensor
  printf '{"metadata":{"total_size":1},"weight_map":{'
  first=
  for name in $names; do printf '%s"%s":"%s"' "$first" "$name" "$1"; first=,; done
  printf '}}\n'
}
index a.safetensors >shards/model.safetensors.index.json
is "scored from a folder with an index: the same" "$(loss shards)" "$wanted"
is "and from the index itself" "$(loss shards/model.safetensors.index.json)" "$wanted"
sed 's/"transformer.wpe.weight":"a.safetensors"/"transformer.wpe.weight":"b.safetensors"/' shards/model.safetensors.index.json >shards/other.json
loss shards/other.json >/dev/null
is "a shard that is not there: message" "$(complaints errors)" "penstock: shards/b.safetensors: No such file or directory"
sed 's/"transformer.wpe.weight":"a.safetensors",//' shards/model.safetensors.index.json >shards/other.json
is "a tensor that no file has: status" "$("$scratch/small" eval --data data.bin --quiet --init shards/other.json 2>errors; echo $?)" 65
matches "a tensor that no file has: message" "$(complaints errors)" "*shards/other.json: tensor transformer.wpe.weight: missing"
sed 's#"a.safetensors"#"../a.safetensors"#' shards/model.safetensors.index.json >shards/other.json
loss shards/other.json >/dev/null
matches "a file elsewhere" "$(complaints errors)" "*shards/other.json: weight_map: transformer.*: must be the name of a file in the same folder"
echo '{"weight_map":{}}' >shards/other.json
loss shards/other.json >/dev/null
matches "an index of nothing" "$(complaints errors)" "*shards/other.json: weight_map: must be an object that names a file for each tensor"
echo '{"weight_map":' >shards/other.json
loss shards/other.json >/dev/null
matches "an index that is no JSON" "$(complaints errors)" "*shards/other.json:[0-9]: *"

# The config.json beside the weights: of the binary's model, or refused by key; differences may be taken.
mkdir model && cp whole.safetensors model/model.safetensors
beside() { # KEYS OPTION...: scored from a folder with these keys of gpt2 besides
  printf '{%s%s}' "$gpt2" "$1" >model/config.json
  shift
  "$scratch/small" eval --data data.bin --quiet --init model "$@" 2>said | tail -n 1
  grep -v "windows are not read" said >errors || :
}
is "scored beside a config of the same model" "$(beside '' && cat errors)" "$wanted"
said() { "$scratch/small" eval --data data.bin --init "$1" 2>&1 >/dev/null | grep 'shapes'; }
is "a file alone is compared by its shapes, which is said" "$(said whole.safetensors)" \
  "small: whole.safetensors: no config.json beside: the model is checked by shapes only"
is "not beside a config" "$(said model)" ""
rm model/config.json
is "so is a folder without a config" "$(said model)" "small: model: no config.json beside: the model is checked by shapes only"
while IFS='	' read -r keys ignored text; do
  beside "$keys" >/dev/null
  is "another model beside: $keys" "$(complaints errors)" "penstock: model/config.json: $text"
  is "$keys: taken with --ignore $ignored" "$(beside "$keys" --ignore "$ignored")" "$wanted"
done <<'END'
,"layer_norm_epsilon":1e-06	layer_norm_epsilon	layer_norm_epsilon = 1e-06 there, model.norm_epsilon = 1e-05 here; to load it all the same: --ignore KEY
,"n_inner":48	n_inner	n_inner = 48 there, model.ffn = 144 here; to load it all the same: --ignore KEY
,"tie_word_embeddings":false	tie_word_embeddings	tie_word_embeddings = false there, model.tie_embeddings = true here; to load it all the same: --ignore KEY
,"activation_function":"relu"	activation_function	activation_function = "relu" is not supported: only "gelu_new"|"gelu_pytorch_tanh"
END
is "keys that are not known are named" "$(beside ',"one":1,"two":{"three":3},"four":null' && cat errors)" "$wanted
penstock: model/config.json: 2 keys are not known, and not compared: one, two"
printf '{%s}' "$llama" >model/config.json
loss model >/dev/null
is "another family" "$(complaints errors)" 'penstock: model/config.json: model_type = "llama" there, model.family = "gpt2" here; to load it all the same: --ignore KEY'

# What a checkpoint keeps of the folder that its run began from: the config but for what differs, and the files that serve it.
serving=',"architectures":["GPT2LMHeadModel"],"activation_function":"relu","bos_token_id":5,"eos_token_id":[5,7],"torch_dtype":"bfloat16","custom":{"small":1e-05,"large":0.1,"none":null},"layer_norm_epsilon":1e-06'
printf '{%s%s}' "$gpt2" "$serving" >model/config.json
for file in generation_config.json tokenizer.json merges.txt; do echo "$file" >model/$file; done
echo other >model/README.md
serves() { # NAME STEP: the files of a checkpoint, and that they are the model's
  is "$1: the files" "$(ls served/latest | tr '\n' ' ')" \
    "config.json generation_config.json manifest.json merges.txt model.safetensors optimizer.safetensors tokenizer.json "
  is "$1: theirs" "$(cat served/latest/generation_config.json served/latest/tokenizer.json served/latest/merges.txt | tr '\n' ' ')" \
    "generation_config.json tokenizer.json merges.txt "
  is "$1: the config" "$(tr -d ' \n' <served/latest/config.json)" \
    "$(printf '{%s%s}' "$gpt2" "$serving" | sed 's/1e-06/1e-05/; s/bfloat16/float32/; s/relu/gelu_new/')"
}
train() { "$scratch/small" train --data data.bin --quiet --checkpoint served "$@" 2>errors; }
ok "trains from a folder" train --steps 1 --init model --ignore layer_norm_epsilon --ignore activation_function
serves "from a folder"
mv model gone
ok "goes on without it" train --steps 2 --resume
serves "resumed"
"$scratch/small" train --data data.bin --quiet --checkpoint served --steps 60 --resume --restarts 1 --save-every 1 --keep 2 --log log 2>errors &
run=$!
await_steps log 5
kill -KILL "$(children $run | sed -n 2p)"
wait $run
is "after a loss: status" $? 0
matches "after a loss: from a checkpoint" "$(grep '"event":"restart"' log)" '*"source":"checkpoint"*'
serves "after a loss"
is "what --keep removes is gone" "$(ls served | tr '\n' ' ')" "latest step-00000059 step-00000060 "

# A checkpoint as a model of transformers, in another dtype.
exports() { # NAME STATUS TEXT OPTION...
  exports_name=$1 exports_status=$2 exports_text=$3
  shift 3
  said=$("$convert" "$@" 2>&1)
  is "export, $exports_name" "$? $said" "$exports_status $exports_text"
}
exports "as it is, of a run's folder" 0 "" --export plain served
is "export: the files" "$(ls plain | tr '\n' ' ')" "config.json generation_config.json merges.txt model.safetensors tokenizer.json "
ok "export: the config is the checkpoint's" cmp plain/config.json served/latest/config.json
wanted_here=$("$scratch/small" eval --data data.bin --quiet --checkpoint served)
is "export: scored as the checkpoint is" "$(loss plain)" "$wanted_here"
mkdir half
exports "bf16, of a step's folder into an empty one" 0 "" --export half --dtype bf16 served/step-00000060
is "export: the config says bf16, and else the same" "$(sed 's/bfloat16/float32/' half/config.json)" "$(cat plain/config.json)"
ok "export: it says bf16" grep -q '"torch_dtype": "bfloat16"' half/config.json
if find_python 'import struct' python3; then
  ok "export: each value is rounded to the nearest" "$python" "$top_srcdir/tests/support/rounded.py" plain/model.safetensors half/model.safetensors
else
  skip "export: each value is rounded to the nearest" "no Python"
fi
exports "into a folder that has something" 73 "penstock-convert: --export half: exists, and is no empty folder" --export half served
exports "into the folder of a checkpoint" 64 "penstock-convert: --export served/latest/new: in the folder of a checkpoint" --export served/latest/new served
exports "of nothing" 66 "penstock-convert: nowhere: holds neither model.safetensors nor a checkpoint named latest: No such file or directory" --export new nowhere
exports "another dtype" 64 "penstock-convert: --dtype f64: f32 or bf16" --export new --dtype f64 served
exports "a dtype of nothing" 64 "penstock-convert: --dtype is for --export" --dtype bf16 served/latest
cp -r served/step-00000060 damaged && printf '\001' | dd of=damaged/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
matches "export: a damaged file" "$("$convert" --export new damaged 2>&1; echo $?)" "penstock-convert: */damaged/model.safetensors: tensor *: its SHA-256 is not that of manifest.json: the file was damaged
65"
is "export: nothing is left of what failed" "$(ls -d new* 2>/dev/null)" ""
printf '{%s,"architectures":["LlamaForCausalLM"],"dtype":"float32","eos_token_id":3,"rope_parameters":{"rope_type":"default","rope_theta":5e5}}' "$llama" >config.json
"$convert" --sequence 8 -o short.cfg config.json
ok "a binary of shorter sequences" build short short.cfg
mkdir long && cp config.json long && "$scratch/short" init --output long/model.safetensors
"$scratch/short" train --data data.bin --quiet --steps 1 --init long --checkpoint long.ckpt
is "positions are those of the model, in the words of its config" "$(tr -d ' \n' <long.ckpt/latest/config.json)" "$(sed 's/5e5/500000.0/' config.json)"
"$scratch/short" train --data data.bin --quiet --steps 1 --checkpoint plain.ckpt
is "without --init no id is invented" "$(grep -o '"[a-z]*_token_id": .*' plain.ckpt/latest/config.json | tr -d ',\n')" \
  '"bos_token_id": null"eos_token_id": null"pad_token_id": null'

# Names without the base model's part, and what is stored beside the weights.
bare() { # rewrites the header of whole.safetensors with names of the same length: "transformer.X" becomes "X" and spaces after it
  header whole.safetensors | sed 's/"transformer\.\([a-z0-9_.]*\)":/"\1":            /g'
}
{ head -c 8 whole.safetensors; bare; tail -c +$(($(od -An -td8 -N8 whole.safetensors) + 9)) whole.safetensors; } >bare.safetensors
is "scored from a file whose names lack their first part" "$(loss bare.safetensors)" "$wanted"
# headed HEADER: the tensors of whole.safetensors after another header.
headed() {
  headed_bytes=${#1}
  # shellcheck disable=SC2059 # the format is made of octal escapes
  printf "$(printf '\\%03o\\%03o\\%03o\\000\\000\\000\\000\\000' $((headed_bytes % 256)) $((headed_bytes / 256 % 256)) $((headed_bytes / 65536)))"
  printf '%s' "$1"
  tail -c +$(($(od -An -td8 -N8 whole.safetensors) + 9)) whole.safetensors
}
# with FILE NAME DTYPE BYTES: whole.safetensors with one tensor more, of zeros.
with() {
  with_end=$(($(wc -c <whole.safetensors) - $(od -An -td8 -N8 whole.safetensors) - 8))
  {
    headed "$(header whole.safetensors | sed 's/} *$//'),\"$2\":{\"dtype\":\"$3\",\"shape\":[$4],\"data_offsets\":[$with_end,$((with_end + $4))]}}"
    head -c "$4" /dev/zero
  } >"$1"
}
headed "$(header whole.safetensors | sed 's/"transformer\./"module.transformer./g')" >prefixed.safetensors
with mask.safetensors transformer.h.0.attn.bias BOOL 3
is "a mask beside the weights is passed over" "$(loss mask.safetensors)" "$wanted"
with head.safetensors lm_head.weight U8 4
loss head.safetensors >/dev/null
is "the head of a tied model that is not its embedding is not" "$(complaints errors)" \
  "penstock: head.safetensors: tensor lm_head.weight: differs from transformer.wte.weight, but this model ties them: build one with model.tie_embeddings = false, or leave the head: --ignore lm_head.weight"
is "unless it is ignored" "$("$scratch/small" eval --data data.bin --quiet --init head.safetensors --ignore lm_head.weight 2>errors | tail -n 1)" "$wanted"
with other.safetensors transformer.h.0.other.weight U8 4
loss other.safetensors >/dev/null
is "any other tensor is not" "$(complaints errors)" "penstock: other.safetensors: tensor transformer.h.0.other.weight: not a part of this model"
# The part for text of a model of text and images: a prefix before its tensors, and tensors of images.
(
  mkdir images && cd images && printf '{%s%s}' "$gemma3" "$gemma3_keys" >config.json && "$convert" -o text.cfg config.json
) || exit 99
ok "a binary of gemma3_text" build text images/text.cfg
"$scratch/text" init --output images/whole.safetensors
image='"vision_tower.x":{"dtype":"U8","shape":[4],"data_offsets":'
at=$(($(wc -c <images/whole.safetensors) - $(od -An -td8 -N8 images/whole.safetensors) - 8))
(cd images && { headed "$(header whole.safetensors | sed 's/"model\./"language_model.model./g; s/} *$//'),$image[$at,$((at + 4))]}}"; printf 1234; } >../images.safetensors)
text_loss() { "$scratch/text" eval --data data.bin --quiet --init "$1" 2>errors | tail -n 1; }
is "the weights of gemma3's part for text" "$(text_loss images.safetensors)" "$(text_loss images/whole.safetensors)"
matches "which is a loss" "$(text_loss images.safetensors)" "*[0-9].[0-9]*"
(cd images && { headed "$(header whole.safetensors | sed 's/} *$//'),$image[$at,$((at + 4))]}}"; printf 1234; } >../bare_images.safetensors)
text_loss bare_images.safetensors >/dev/null
is "tensors of images beside a gemma3_text are no part of it" "$(complaints errors)" "penstock: bare_images.safetensors: tensor vision_tower.x: not a part of this model"
# What people give in place of it.
instead() { # FILE STATUS TEXT
  "$scratch/small" eval --data data.bin --quiet --init "$1" >/dev/null 2>errors
  matches "$1 as weights" "$? $(complaints errors)" "$2 penstock: $1$3"
}
instead prefixed.safetensors 65 ': tensor module.transformer.*: this model'"'"'s is transformer.*: rename the tensors, without "module."'
printf 'PK\003\004rest of it' >model.pt
instead model.pt 65 ': a file of torch.save: convert it with Python: *'
mkdir torch && cp model.pt torch/pytorch_model.bin
instead torch 65 '/pytorch_model.bin: no safetensors file, which is needed: *'
instead openai/gpt2 66 ': No such file or directory; a model of a hub is downloaded first: *'
instead data.bin 65 ': a token file: it is for --data'
printf '\037\213\010\000rest of it' >data.gz
"$scratch/small" eval --data data.gz --quiet --init whole.safetensors >/dev/null 2>errors
matches "compressed data" "$? $(complaints errors)" "65 penstock: data.gz: compressed by gzip: decompress it first: gzip -dc"
ok "a binary of the model untied" build untied small.cfg -s model.tie_embeddings=false
"$scratch/untied" eval --data data.bin --quiet --init head.safetensors >/dev/null 2>errors
is "whose head is a weight" "$(complaints errors)" "penstock: head.safetensors: tensor lm_head.weight: dtype U8: must be F32, BF16 or F16"

# What is there and no file of its own is written through.
full=$scratch/full
if mknod "$full" c 1 7 2>/dev/null && (: >"$full") 2>/dev/null; then
  "$convert" -o "$full" config.json 2>errors
  is "a full device: status" $? 74
  ok "it is still a device" test -c "$full"
else
  skip "a full device: status" "no right to make one"
fi
if test -w /dev/full; then
  "$convert" --help >/dev/full 2>errors
  is "--help without room: status" $? 74
fi
cp config.json same.json
is "the config is not written over" "$("$convert" -o ./same.json same.json 2>&1; echo $?)" "penstock-convert: -o ./same.json: the same file as the config
64"
ok "and is what it was" cmp config.json same.json
ln -s linked.cfg link.cfg
"$convert" -o link.cfg config.json 2>errors
is "output into what a link names" "$? $(test -L link.cfg && test -s linked.cfg && echo both)" "0 both"
finish
