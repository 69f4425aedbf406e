"""experts.py: models with experts for tests/commands/import_experts.t: folders of transformers, and modules whose router and experts are written by hand,
which penstock-import takes or refuses. A comment #> has the words of the reason; the line after it is the one that is named."""
import torch
import torch.nn.functional as F
from torch import nn

TOKENS, WIDTH, INNER, EXPERTS, CHOICES = 200, 32, 24, 4, 2
SIZES = {"hidden_size": WIDTH, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": TOKENS, "max_position_embeddings": 64, "initializer_range": 0.1,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
INNER_SIZES = {"intermediate_size": 40, "moe_intermediate_size": INNER, "num_experts_per_tok": 3, "head_dim": 12, "norm_topk_prob": True, "num_hidden_layers": 2}


def save_folders(folder):
    """A matrix of each expert is a tensor of its own in the files. The folder deep has none."""
    import transformers

    torch.manual_seed(4)
    configs = {
        "mixtral": transformers.MixtralConfig(**SIZES, num_hidden_layers=2, intermediate_size=INNER, num_local_experts=4, num_experts_per_tok=2, sliding_window=5),
        "qwen3_moe": transformers.Qwen3MoeConfig(**SIZES, **INNER_SIZES, num_experts=8, mlp_only_layers=[0]),
        "olmoe": transformers.OlmoeConfig(**SIZES, num_hidden_layers=1, intermediate_size=INNER, num_experts=8, num_experts_per_tok=3),
        "qwen2_moe": transformers.Qwen2MoeConfig(**SIZES, num_hidden_layers=1, moe_intermediate_size=INNER, shared_expert_intermediate_size=40, num_experts=8, num_experts_per_tok=2),
        "dots1": transformers.Dots1Config(**SIZES, **INNER_SIZES, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1),
        "phimoe": transformers.PhimoeConfig(**SIZES, num_hidden_layers=1, intermediate_size=INNER, num_local_experts=4),
    }
    for name, config in configs.items():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for path, tensor in model.state_dict().items():
            if path.endswith("e_score_correction_bias"):
                tensor.copy_(0.3 * torch.randn(tensor.shape))
        model.save_pretrained(f"{folder}/{name}")
    deep = configs["dots1"].to_dict() | {"num_hidden_layers": 4, "layer_types": None, "first_k_dense_replace": 2, "output_router_logits": True, "router_aux_loss_coef": 0.01}
    transformers.Dots1Config(**deep).save_pretrained(f"{folder}/deep")


# ---- written by hand ----

class Expert(nn.Module):
    def __init__(self, bias=False, halves=False):
        super().__init__()
        if halves:
            self.both = nn.Linear(WIDTH, 2 * INNER, bias=bias)
        else:
            self.gate, self.up = nn.Linear(WIDTH, INNER, bias=bias), nn.Linear(WIDTH, INNER, bias=bias)
        self.down = nn.Linear(INNER, WIDTH, bias=bias)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, function, **options):
        super().__init__()
        self.function = function
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert(**options) for _ in range(EXPERTS))

    def forward(self, x):
        return x + self.function(self, self.norm(x))


class Model(nn.Module):
    def __init__(self, function, **options):
        super().__init__()
        torch.manual_seed(6)
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer(function, **options) for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def by_mask(layer, x):
    best, ids = torch.topk(layer.router(x), CHOICES, dim=-1)
    weights = best.softmax(-1)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        y = y + expert(x) * (weights * (ids == number)).sum(-1, keepdim=True)
    return y


def by_column(layer, x):
    """One matrix of weights, 0 where an expert is not chosen."""
    scores = torch.sigmoid(layer.router(x.view(-1, WIDTH)))
    best, ids = scores.topk(CHOICES, dim=1)
    weights = torch.zeros_like(scores).scatter_(1, ids, best / best.sum(1, keepdim=True) * 1.5)
    return sum(weights[:, number, None] * expert(x.view(-1, WIDTH)) for number, expert in enumerate(layer.experts)).view(x.shape)


def by_scattered_logits(layer, x):
    logits = layer.router(x)
    best, ids = logits.topk(CHOICES)
    weights = torch.full_like(logits, float("-inf")).scatter(-1, ids, best).softmax(-1)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        y = y + weights[..., number:number + 1] * expert(x)
    return y


def by_halves(layer, x):
    """Gate and up are one matrix."""
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        gate, up = expert.both(x).chunk(2, -1)
        y = y + expert.down(F.silu(gate) * up) * torch.where(ids == number, best, 0.0).sum(-1, keepdim=True)
    return y


def by_rows(layer, x):
    """Each expert of the tokens that have chosen it alone."""
    shape, x = x.shape, x.view(-1, WIDTH)
    weights, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        row, place = torch.where(ids == number)
        if row.numel() > 0:
            y[row] += weights[row, place, None] * expert(x[row])
    return y.view(shape)


def by_hits(layer, x):
    """Only experts that a token has chosen, as transformers 4 has them."""
    shape, x = x.shape, x.view(-1, WIDTH)
    weights, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y, mask = torch.zeros_like(x), F.one_hot(ids, EXPERTS).permute(2, 1, 0)
    for number in torch.greater(mask.sum((-1, -2)), 0).nonzero():
        place, row = torch.where(mask[number].squeeze(0))
        y.index_add_(0, row, layer.experts[number](x[None, row].reshape(-1, WIDTH)) * weights[row, place, None])
    return y.view(shape)


def by_numbers(layer, x):
    """As by_hits, with the numbers of a list."""
    shape, x = x.shape, x.view(-1, WIDTH)
    weights, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y, mask = torch.zeros_like(x), F.one_hot(ids, EXPERTS).permute(2, 1, 0)
    for number in (mask.sum((-1, -2)) > 0).nonzero().flatten().tolist():
        place, row = torch.where(mask[number])
        y.index_add_(0, row, layer.experts[number](x[row]) * weights[row, place, None])
    return y.view(shape)


# ---- refused ----

def by_mask_of(layer, x, weights, ids):
    return sum(expert(x) * (weights * (ids == number)).sum(-1, keepdim=True) for number, expert in enumerate(layer.experts))


def noisy(layer, x):
    logits = layer.router(x)
    #> random numbers, of aten.randn_like
    best, ids = (logits + 0.1 * torch.randn_like(logits)).softmax(-1).topk(CHOICES)
    return by_mask_of(layer, x, best, ids)


def by_temperature(layer, x):
    scores = (layer.router(x) / 0.7).softmax(-1)
    #> a choice of the greatest that is no router of experts as MOE's
    best, ids = scores.topk(CHOICES)
    return by_mask_of(layer, x, best, ids)


def of_capacity(layer, x):
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    #> Penstock has no operation for aten.one_hot
    place = F.one_hot(ids, EXPERTS).flatten(1, 2).cumsum(1).view(*ids.shape, EXPERTS)
    return by_mask_of(layer, x, best * (place.gather(-1, ids[..., None])[..., 0] <= 4), ids)


def with_epsilon(layer, x):
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    weights = best / (best.sum(-1, keepdim=True) + 1e-3)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        #> 0.001 beside the sum of the scores: at most 1e-12
        y = y + expert(x) * (weights * (ids == number)).sum(-1, keepdim=True)
    return y


def one_twice(layer, x):
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number in (*range(EXPERTS - 1), 0):
        #> a sum of other experts than 0, 1, 2, ..., each once
        y = y + layer.experts[number](x) * (best * (ids == number)).sum(-1, keepdim=True)
    return y


def too_few(layer, x):
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts[:-1]):
        #> a router of 4 experts, but matrices of 3
        y = y + expert(x) * (best * (ids == number)).sum(-1, keepdim=True)
    return y


def with_one_up(layer, x):
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y, up = torch.zeros_like(x), layer.experts[0].up
    for number, expert in enumerate(layer.experts):
        #> experts that have the weight layers.0.experts.0.up.weight together
        y = y + expert.down(F.silu(expert.gate(x)) * up(x)) * (best * (ids == number)).sum(-1, keepdim=True)
    return y


def others(layer, x):
    """Experts in another order than their numbers."""
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(reversed(layer.experts)):
        #> experts whose weights are not named by their numbers
        y = y + expert(x) * (best * (ids == number)).sum(-1, keepdim=True)
    return y


def with_gelu(layer, x):
    #> a choice of the greatest that is no router of experts as MOE's
    best, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        y = y + expert.down(F.gelu(expert.up(x))) * (best * (ids == number)).sum(-1, keepdim=True)
    return y


def of_best_groups(layer, x):
    """Groups by their best expert."""
    scores = layer.router(x).sigmoid()
    groups = scores.unflatten(-1, (2, -1)).amax(-1).topk(1).indices
    kept = torch.zeros_like(scores[..., :2]).scatter(-1, groups, 1.0)[..., None].expand(*x.shape[:2], 2, 2).flatten(-2)
    #> a choice of the greatest that is no router of experts as MOE's
    best, ids = scores.masked_fill(kept == 0, float("-inf")).topk(CHOICES)
    return by_mask_of(layer, x, best, ids)


def of_first(layer, x):
    """A capacity beyond the tokens that are compared."""
    shape, x = x.shape, x.view(-1, WIDTH)
    weights, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        row, place = torch.where(ids == number)
        #> Penstock has no operation for aten.slice
        row, place = row[:1000], place[:1000]
        y.index_add_(0, row, expert(x[row]) * weights[row, place, None])
    return y.view(shape)


def of_several(layer, x):
    """Experts that more than two tokens have chosen."""
    shape, x = x.shape, x.view(-1, WIDTH)
    weights, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y, mask = torch.zeros_like(x), F.one_hot(ids, EXPERTS).permute(2, 1, 0)
    #> a branch, or a number, that depends on values
    for number in (mask.sum((-1, -2)) > 2).nonzero():
        place, row = torch.where(mask[number].squeeze(0))
        y.index_add_(0, row, layer.experts[number](x[row]) * weights[row, place, None])
    return y.view(shape)


def beside_none(layer, x):
    """Another result where no token has chosen an expert."""
    shape, x = x.shape, x.view(-1, WIDTH)
    weights, ids = layer.router(x).softmax(-1).topk(CHOICES)
    y = torch.zeros_like(x)
    for number, expert in enumerate(layer.experts):
        row, place = torch.where(ids == number)
        if row.numel() > 0:
            y[row] += weights[row, place, None] * expert(x[row])
        else:
            y = y + 1.0
    return y.view(shape)


TAKEN = (by_mask, by_column, by_scattered_logits, by_halves, by_rows, by_hits, by_numbers)
REFUSED = (noisy, by_temperature, of_capacity, with_epsilon, one_twice, too_few, with_one_up, others, with_gelu, of_best_groups, of_first, of_several)
for function in (*TAKEN, *REFUSED, beside_none):
    globals()[f"model_{function.__name__}"] = lambda function=function: Model(function, halves=function is by_halves)


def model_with_biases():
    return Model(by_mask, bias=True)


def model_of_two_kinds():
    """A description has one kind of experts."""
    model = Model(by_mask)
    model.layers[1].function = by_column
    return model
