"""The first step's loss and gradient norm of a family, in f64 by PyTorch's own operators, to hold a log against.

families_torch.py CONFIG.json WEIGHTS.safetensors TOKENS MICROBATCHES*MICROBATCH [AUX Z TOGETHER [STEPS]]: prints LOSS NORM, and the losses of
routers with these factors, whose choices are balanced over so many sequences. With STEPS a line for each of so many steps of these same
weights, whose choices are those of the step before."""
import json
import struct
import sys

import torch
import torch.nn.functional as F

config = json.load(open(sys.argv[1]))
LAYERS = config.get("num_hidden_layers") or config["n_layer"]


def read_weights(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    weights = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
        weights[name] = tensor.double().requires_grad_(not name.endswith("e_score_correction_bias"))
    return weights


def rotate(x, theta=config.get("rope_theta")):
    """Half-split rotary positions of x (batch, heads, sequence, head_dim)."""
    sequence, half = x.shape[-2], x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(sequence, dtype=torch.float64)[:, None] * frequency
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()), -1)


def rms(x, gain):
    return F.rms_norm(x, gain.shape, gain, config["rms_norm_eps"])


def heads_of(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def attend(q, k, v, window=config.get("sliding_window"), scale=None):
    """A token sees `window` tokens at most, itself included; None: all."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    if window:
        mask = mask.triu(1 - window)
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale).transpose(1, 2).flatten(2)


def head(w, embedding):
    return w[embedding if config["tie_word_embeddings"] else "lm_head.weight"]


def experts(w, at, x):
    """Every expert computes every row; those that a row has not chosen have the weight 0."""
    logits = F.linear(x, w[at + "gate.weight"])
    bias = w.get(at + "gate.e_score_correction_bias")
    scores = logits.softmax(-1) if bias is None else logits.sigmoid()
    choice = scores if bias is None else scores + bias
    count, groups = scores.shape[-1], config.get("n_group", 1)
    if groups > 1:
        sums = choice.unflatten(-1, (groups, -1)).topk(2).values.sum(-1)
        best = torch.zeros_like(sums).scatter(-1, sums.topk(config["topk_group"]).indices, 1)
        choice = choice.masked_fill(best.repeat_interleave(count // groups, -1) == 0, float("-inf"))
    chosen = choice.topk(config["num_experts_per_tok"]).indices
    ROUTED.append((logits, scores / scores.sum(-1, keepdim=True), torch.zeros_like(scores).scatter(-1, chosen, 1)))
    weights = scores * torch.zeros_like(scores).scatter(-1, chosen, 1)
    if config.get("norm_topk_prob"):
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * config.get("routed_scaling_factor", 1)
    y = 0
    if at + "shared_experts.up_proj.weight" in w:
        gate, up, down = (w[f"{at}shared_experts.{name}_proj.weight"] for name in ("gate", "up", "down"))
        y = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    for number in range(count):
        gate, up = (F.linear(x, w[f"{at}experts.{number}.{name}_proj.weight"]) for name in ("gate", "up"))
        y = y + weights[..., number, None] * F.linear(F.silu(gate) * up, w[f"{at}experts.{number}.down_proj.weight"])
    return y


ROUTED = []  # of each layer: logits, normalised scores, and 1 where an expert is chosen: (sequences, tokens, experts)


def router_losses(aux, z, together, before):
    """Sums over the layers: of means over `together` sequences of f P, and of the mean square of log-sum-exp. `before`: of each layer the
    share of tokens that have chosen an expert in the step before."""
    balance = square = 0
    for layer, (logits, scores, chosen) in enumerate(ROUTED):
        share, mean = (part.unflatten(0, (-1, together)).mean((1, 2)) for part in (chosen, scores))
        if before:
            share = before[layer]
        balance = balance + (share * mean).sum(-1).mean() * scores.shape[-1] / config["num_experts_per_tok"]
        square = square + logits.logsumexp(-1).square().mean()
    return aux * balance, z * square


def rotary_model(w, tokens):
    """Llama, Mistral, Qwen2 and Qwen3, with experts or without."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        h = rms(x, w[at + "input_layernorm.weight"])
        q, k, v = (heads_of(F.linear(h, w[f"{at}self_attn.{name}_proj.weight"], w.get(f"{at}self_attn.{name}_proj.bias")), count)
                   for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        if config["model_type"] in ("qwen3", "qwen3_moe", "dots1"):
            q, k = rms(q, w[at + "self_attn.q_norm.weight"]), rms(k, w[at + "self_attn.k_norm.weight"])
        x = x + F.linear(attend(rotate(q), rotate(k), v), w[at + "self_attn.o_proj.weight"], w.get(at + "self_attn.o_proj.bias"))
        h = rms(x, w[at + "post_attention_layernorm.weight"])
        if at + "mlp.gate.weight" in w:
            x = x + experts(w, at + "mlp.", h)
            continue
        gate, up = (F.linear(h, w[f"{at}mlp.{name}_proj.weight"], w.get(f"{at}mlp.{name}_proj.bias")) for name in ("gate", "up"))
        x = x + F.linear(F.silu(gate) * up, w[at + "mlp.down_proj.weight"], w.get(at + "mlp.down_proj.bias"))
    return F.linear(rms(x, w["model.norm.weight"]), head(w, "model.embed_tokens.weight"))


def gemma_model(w, tokens):
    """Gemma 3's text model; every sixth layer sees all tokens."""
    def norm(name, x):
        return rms(x, 1 + w[name + ".weight"])

    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][tokens] * config["hidden_size"] ** 0.5
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        local = (layer + 1) % 6 != 0
        h = norm(at + "input_layernorm", x)
        q, k, v = (heads_of(F.linear(h, w[f"{at}self_attn.{name}_proj.weight"]), count)
                   for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        theta = config["rope_local_base_freq" if local else "rope_theta"]
        q, k = (rotate(norm(f"{at}self_attn.{name}_norm", part), theta) for name, part in (("q", q), ("k", k)))
        h = attend(q, k, v, config["sliding_window"] if local else None, config["query_pre_attn_scalar"] ** -0.5)
        x = x + norm(at + "post_attention_layernorm", F.linear(h, w[at + "self_attn.o_proj.weight"]))
        h = norm(at + "pre_feedforward_layernorm", x)
        gate, up = (F.linear(h, w[f"{at}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        h = F.linear(F.gelu(gate, approximate="tanh") * up, w[at + "mlp.down_proj.weight"])
        x = x + norm(at + "post_feedforward_layernorm", h)
    return F.linear(norm("model.norm", x), head(w, "model.embed_tokens.weight"))


def gpt2_model(w, tokens):
    def affine(name, x):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], config["layer_norm_epsilon"])

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}."
        parts = affine(at + "attn.c_attn", norm(at + "ln_1", x)).chunk(3, -1)
        x = x + affine(at + "attn.c_proj", attend(*(heads_of(part, config["n_head"]) for part in parts)))
        h = affine(at + "mlp.c_fc", norm(at + "ln_2", x))
        x = x + affine(at + "mlp.c_proj", F.gelu(h, approximate="tanh"))
    return F.linear(norm("transformer.ln_f", x), head(w, "transformer.wte.weight"))


MODELS = {"dots1": rotary_model, "gemma3_text": gemma_model, "gpt2": gpt2_model, "llama": rotary_model, "mistral": rotary_model, "qwen2": rotary_model, "qwen3": rotary_model,
          "qwen3_moe": rotary_model}

sequence = config.get("max_position_embeddings") or config["n_positions"]
rows = int(sys.argv[4])
steps = int(sys.argv[8]) if len(sys.argv) > 8 else 1
stream = open(sys.argv[3], "rb").read()[1024:1024 + 2 * (steps * rows * sequence + 1)]
stream = torch.tensor(struct.unpack(f"<{len(stream) // 2}H", stream))
weights = read_weights(sys.argv[2])
trained = [tensor for tensor in weights.values() if tensor.requires_grad]
before = []
for step in range(steps):
    ROUTED.clear()
    tokens = stream[step * rows * sequence:][:rows * sequence + 1]
    logits = MODELS[config["model_type"]](weights, tokens[:-1].reshape(rows, sequence))
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[1:])
    if len(sys.argv) > 8 and not before:  # a first step: all are chosen equally often
        before = [torch.full_like(chosen[0, 0], config["num_experts_per_tok"] / chosen.shape[-1]) for _, _, chosen in ROUTED]
    losses = router_losses(float(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7]), before) if len(sys.argv) > 5 else ()
    gradients = torch.autograd.grad(sum((*losses, loss)), trained, allow_unused=True)
    norm = sum(float((gradient ** 2).sum()) for gradient in gradients if gradient is not None) ** 0.5
    print(f"{float(loss.detach()):.9g} {norm:.9g}", *(f"{float(part.detach()):.9g}" for part in losses))
    before = [chosen.mean((0, 1)) for _, _, chosen in ROUTED] if len(sys.argv) > 8 else []
