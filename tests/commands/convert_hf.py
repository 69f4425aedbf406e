"""Small models of every family, made and read by Hugging Face's transformers, to hold penstock-convert, --init and checkpoints against.

convert_hf.py make FOLDER            writes each model into a folder of FOLDER, named after it, with weights of an initial deviation of .02; and
                                     one of .2 into NAME.wide, in which rotations, windows and gains show more
convert_hf.py train TOKENS NAME=FOLDER...  trains the model of each folder for ten steps as the test does, and writes the losses and norms into NAME.steps
convert_hf.py read TOKENS NAME=FOLDER...  for each folder writes into NAME.theirs ln p of every token of the file but the first, as the model there
                                     has it, in f32; and into NAME.loaded what its config means. Nothing may be missing or left over"""
import sys

import torch
import transformers

transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)  # more are slower for models as small as these
SIZES = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32)
GPT2 = dict(vocab_size=256, n_embd=36, n_layer=3, n_head=4, n_positions=32)
ROPE = dict(rope_parameters={"rope_theta": 5e5, "rope_type": "default"})

STRETCHED = dict(rope_parameters={"rope_theta": 1e4, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                  "original_max_position_embeddings": 64})
YARN = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
YARN_OF_ALL = dict(YARN, beta_fast=3.5, beta_slow=0.4, mscale=1.2, mscale_all_dim=0.7)
LINEAR = dict(rope_parameters={"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0})


def models():
    """Name, class, config, dtype in the file, greatest size of a file."""
    llama, qwen3, gpt2 = transformers.LlamaForCausalLM, transformers.Qwen3ForCausalLM, transformers.GPT2LMHeadModel
    yield "llama", llama, transformers.LlamaConfig(**SIZES, **ROPE), torch.float32, "5GB"
    yield "llama_tied", llama, transformers.LlamaConfig(**SIZES, tie_word_embeddings=True), torch.bfloat16, "9KB"
    qwen2 = transformers.Qwen2ForCausalLM
    yield "qwen2", qwen2, transformers.Qwen2Config(**SIZES, **ROPE), torch.bfloat16, "30KB"
    yield "qwen2_tied", qwen2, transformers.Qwen2Config(**SIZES, tie_word_embeddings=True), torch.float32, "5GB"
    mistral = transformers.MistralForCausalLM  # windows of 5 tokens, of all, and longer than a sequence
    yield "mistral", mistral, transformers.MistralConfig(**SIZES, **ROPE, sliding_window=5), torch.float32, "30KB"
    yield "mistral_all", mistral, transformers.MistralConfig(**SIZES, sliding_window=None), torch.float32, "5GB"
    yield "mistral_wide", mistral, transformers.MistralConfig(**SIZES, head_dim=12), torch.bfloat16, "5GB"
    gemma3 = transformers.Gemma3ForCausalLM
    sizes = dict(SIZES, num_hidden_layers=7, head_dim=12, sliding_window=5)
    linear = {"full_attention": {"rope_theta": 3e4, "rope_type": "linear", "factor": 4.0}, "sliding_attention": {"rope_theta": 2e3, "rope_type": "default"}}
    yield "gemma3", gemma3, transformers.Gemma3TextConfig(**sizes, query_pre_attn_scalar=12), torch.bfloat16, "30KB"
    yield "gemma3_linear", gemma3, transformers.Gemma3TextConfig(**sizes, query_pre_attn_scalar=20, tie_word_embeddings=False,
                                                                 rope_parameters=linear), torch.float32, "5GB"
    yield "qwen3", qwen3, transformers.Qwen3Config(**SIZES, **ROPE, head_dim=12), torch.float16, "30KB"
    yield "qwen3_tied", qwen3, transformers.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True), torch.float32, "5GB"
    qwen3_moe = transformers.Qwen3MoeForCausalLM
    moe = dict(SIZES, head_dim=12, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24)
    yield "qwen3_moe", qwen3_moe, transformers.Qwen3MoeConfig(**moe, **ROPE, norm_topk_prob=True), torch.float32, "30KB"
    yield "qwen3_moe_tied", qwen3_moe, transformers.Qwen3MoeConfig(**dict(moe, num_experts_per_tok=3), tie_word_embeddings=True), torch.bfloat16, "5GB"
    mixed = dict(moe, num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1])
    yield "qwen3_moe_mixed", qwen3_moe, transformers.Qwen3MoeConfig(**mixed), torch.float32, "5GB"
    mixtral = dict(SIZES, num_local_experts=4, num_experts_per_tok=2)
    yield "mixtral", transformers.MixtralForCausalLM, transformers.MixtralConfig(**mixtral, **ROPE), torch.float32, "30KB"
    yield "mixtral_window", transformers.MixtralForCausalLM, transformers.MixtralConfig(**mixtral, sliding_window=5, head_dim=12), torch.bfloat16, "5GB"
    dots = dict(SIZES, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2, first_k_dense_replace=1, sliding_window=None)
    yield "dots1", transformers.Dots1ForCausalLM, transformers.Dots1Config(**dots, **ROPE, n_group=4, topk_group=2, norm_topk_prob=True,
                                                                           routed_scaling_factor=2.5), torch.float32, "30KB"
    yield "dots1_plain", transformers.Dots1ForCausalLM, transformers.Dots1Config(**dict(dots, n_shared_experts=1)), torch.bfloat16, "5GB"
    yield "llama_llama3", llama, transformers.LlamaConfig(**SIZES, head_dim=16, **STRETCHED), torch.float32, "5GB"
    yield "qwen3_llama3", qwen3, transformers.Qwen3Config(**SIZES, head_dim=16, **STRETCHED), torch.float32, "5GB"
    yield "llama_linear", llama, transformers.LlamaConfig(**SIZES, **LINEAR), torch.float32, "5GB"
    yield "llama_yarn", llama, transformers.LlamaConfig(**SIZES, head_dim=16, rope_parameters=YARN), torch.float32, "5GB"
    yield "mistral_yarn", mistral, transformers.MistralConfig(**SIZES, head_dim=16, sliding_window=5, rope_parameters=dict(YARN, truncate=False, beta_fast=4)), torch.float32, "5GB"
    yield "qwen2_yarn", qwen2, transformers.Qwen2Config(**SIZES, rope_parameters=dict(YARN, factor=1.0, attention_factor=1.3)), torch.float32, "5GB"
    yield "qwen3_yarn", qwen3, transformers.Qwen3Config(**SIZES, head_dim=16, rope_parameters=YARN_OF_ALL), torch.float32, "5GB"
    yarn = {"full_attention": dict(YARN, beta_fast=4), "sliding_attention": {"rope_theta": 2e3, "rope_type": "default"}}
    yield "gemma3_yarn", gemma3, transformers.Gemma3TextConfig(**sizes, query_pre_attn_scalar=12, rope_parameters=yarn), torch.float32, "5GB"
    biases = dict(SIZES, attention_bias=True, mlp_bias=True)
    config = transformers.Gemma3Config(text_config=dict(sizes, query_pre_attn_scalar=12), mm_tokens_per_image=4, vision_config=dict(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14))
    yield "gemma3_images", transformers.Gemma3ForConditionalGeneration, config, torch.float32, "30KB"
    yield "llama_biases", llama, transformers.LlamaConfig(**biases, **ROPE), torch.float32, "5GB"
    yield "gpt2", gpt2, transformers.GPT2Config(**GPT2), torch.float32, "20KB"
    yield "gpt2_bare", transformers.GPT2Model, transformers.GPT2Config(**GPT2, n_inner=50), torch.float32, "5GB"
    yield "gpt2_untied", gpt2, transformers.GPT2Config(**GPT2, tie_word_embeddings=False), torch.float32, "5GB"


def save(model_class, config, dtype, shard, folder, deviation):
    """The config of the model without a head names the class with one, as that of gpt2 on the hub."""
    config.get_text_config().initializer_range = deviation
    torch.manual_seed(7)
    model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():  # gains and biases too, which begin at 1 and 0
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in model.named_buffers():  # which begins at 0
            if name.endswith("e_score_correction_bias"):
                buffer.add_(torch.randn_like(buffer) * 0.1)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    if model_class is transformers.GPT2Model:
        config.architectures = ["GPT2LMHeadModel"]
        config.save_pretrained(folder)


def make(folder):
    for name, model_class, config, dtype, shard in models():
        save(model_class, config, dtype, shard, f"{folder}/{name}", 0.02)
        save(model_class, config, dtype, shard, f"{folder}/{name}.wide", 0.2)


def score(model, tokens, out):
    sequence = model.config.get_text_config().max_position_embeddings
    for start in range(0, len(tokens) - 1, sequence):
        window, targets = tokens[start:start + sequence], tokens[start + 1:start + sequence + 1]
        window = window[:len(targets)]
        with torch.no_grad():
            scores = model(window[None]).logits[0].double().log_softmax(-1)
        for value in scores[torch.arange(len(targets)), targets].tolist():
            print("%.9g" % value, file=out)


def meaning(config):
    keys = ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
            "tie_word_embeddings"]
    if config.model_type == "gpt2":
        keys += ["layer_norm_epsilon", "activation_function"]
    else:
        keys += ["num_key_value_heads", "head_dim", "intermediate_size", "rms_norm_eps"]
        keys += ["hidden_activation", "sliding_window", "layer_types", "query_pre_attn_scalar"] if config.model_type == "gemma3_text" else ["hidden_act"]
        if not hasattr(config, "head_dim"):  # Qwen2Config has one only if its file does
            config.head_dim = config.hidden_size // config.num_attention_heads
    if config.model_type == "llama":
        keys += ["attention_bias", "mlp_bias"]
    if config.model_type == "mixtral":
        keys += ["num_local_experts", "num_experts_per_tok", "sliding_window"]
    if config.model_type == "mistral":
        keys.append("sliding_window")
    if config.model_type == "qwen3_moe":
        keys += ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "mlp_only_layers", "decoder_sparse_step"]
    if config.model_type == "dots1":
        keys += ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "n_group", "topk_group",
                 "norm_topk_prob", "routed_scaling_factor"]
    values = [getattr(config, key) for key in keys]
    if config.model_type == "gpt2":
        return values
    kinds = config.rope_parameters.values() if config.model_type == "gemma3_text" else [config.rope_parameters]
    return values + [sorted((key, value if key == "rope_type" else float(value)) for key, value in kind.items()) for kind in kinds]


def tokens_of(path):
    return torch.frombuffer(bytearray(open(path, "rb").read()[1024:]), dtype=torch.uint16).long()


def steps(model, tokens, count=10, windows=4):
    """The loss and gradient norm of each step, of so many windows one after the other, with our default AdamW, at a rate of 1e-3."""
    sequence = model.config.max_position_embeddings
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() == 1]
    stacks = [p for p in model.parameters() if p.dim() == 3]  # of experts, a matrix each
    adamw = torch.optim.AdamW([{"params": matrices + stacks, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    for step in range(count):
        starts = [(step * windows + n) * sequence % (len(tokens) - 1) for n in range(windows)]
        x = torch.stack([tokens[start:start + sequence] for start in starts])
        y = torch.stack([tokens[start + 1:start + sequence + 1] for start in starts])
        adamw.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        yield loss.item(), norm.item()


def train(path, *pairs):
    for pair in pairs:
        name, folder = pair.split("=", 1)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with open(name + ".steps", "w") as out:
            for loss, norm in steps(model, tokens_of(path)):
                print("%.9g %.9g" % (loss, norm), file=out)


def read(path, *pairs):
    tokens = tokens_of(path)
    for pair in pairs:
        name, folder = pair.split("=", 1)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        left = {kind: keys for kind, keys in info.items() if keys}
        with open(name + ".theirs", "w") as out:
            score(model.eval(), tokens, out)
        with open(name + ".loaded", "w") as out:
            print(meaning(model.config.get_text_config()), left or "all of it", file=out)


{"make": make, "train": train, "read": read}[sys.argv[1]](*sys.argv[2:])
