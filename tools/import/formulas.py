"""formulas.py: a description run by PyTorch, one formula a row of ops.def: what the description says, to be compared with the module.

The values of a description are (batch, sequence, width). Angles of rotations are computed in f32, as models do, so that the comparison is
of the model and not of how they round."""
import torch
import torch.nn.functional as F

from inputs import IGNORED
from ops import matrix


def heads(x, width):
    return x.reshape(*x.shape[:2], -1, width)


def added(y, addend):
    return y if addend is None else y + addend


def normed(at, x, *weights):
    """In parts that are as long as the weights, or as said."""
    return heads(x, next((weight.numel() for weight in weights if weight is not None), at.get("width", x.shape[-1])))


def rms_norm(at, x, gain=None):
    x = normed(at, x, gain)
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + at["epsilon"]) * ((1.0 if gain is None else gain) + at.get("offset", 0))).flatten(2)


def layer_norm(at, x, gain=None, bias=None):
    x = normed(at, x, gain, bias)
    return F.layer_norm(x, x.shape[-1:], gain, bias, at["epsilon"]).flatten(2)


def sizes_of(at):
    return [at[name] for name in ("first", "second", "third") if name in at]


def split(at, x):
    return [part.flatten(2) for part in heads(x, sum(sizes_of(at))).split(sizes_of(at), -1)]


def join(at, *parts):
    return torch.cat([heads(part, size) for part, size in zip(parts, sizes_of(at))], -1).flatten(2)


def rope_table(at):
    """Frequencies, and what the table is multiplied by."""
    pair = torch.arange(at["half"], dtype=torch.float32)
    frequency = 1.0 / at["theta"] ** (pair / at["half"])
    if at.get("factor", 0) > 0:
        kept = (at.get("slope", 0) * frequency - at.get("offset", 0) - at.get("step", 0) * pair).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / at["factor"])
    return frequency, at.get("scale", 0) or 1.0


def rope(at, x, table, starts):
    frequency, scale = table
    position = torch.arange(x.shape[1], dtype=torch.float32)
    angle = (position[:, None] * frequency)[:, None]
    cos, sin = angle.cos() * scale, angle.sin() * scale
    x, rotated = heads(x, at["head_dim"]), 2 * len(frequency)
    turning, rest = x[..., :rotated], x[..., rotated:]
    low, high = (turning[..., ::2], turning[..., 1::2]) if at.get("pairs") else turning.chunk(2, -1)
    turned = low * cos - high * sin, high * cos + low * sin
    return torch.cat((torch.stack(turned, -1).flatten(-2) if at.get("pairs") else torch.cat(turned, -1), rest), -1).flatten(2)


def position(at, x, table, starts=None):
    """With `sequence` 1 of one row."""
    return x + table[at.get("offset", 0):][: at.get("sequence", x.shape[1])]


def scores_of(at, q, k):
    scores = (q @ k.transpose(-1, -2)) * at["head_dim"] ** -0.5
    return at["cap"] * torch.tanh(scores / at["cap"]) if at.get("cap") else scores


def attention(at, q, k, v, starts):
    q, k, v = (heads(x, at["head_dim"]).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(at["heads"] // at["kv_heads"], 1) for x in (k, v))
    sequence = q.shape[2]
    seen = torch.ones(sequence, sequence, dtype=torch.bool).tril().triu(1 - (at.get("window", 0) or sequence))
    return (scores_of(at, q, k).masked_fill(~seen, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


def attention_full(at, q, k, v, mask=None):
    """0 where a query sees no key."""
    q, k, v = (heads(x, at["head_dim"]).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(at["heads"] // at["kv_heads"], 1) for x in (k, v))
    scores = scores_of(at, q, k)
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None] == 0, float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(2)


def cross_entropy(at, logits, targets, share):
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return losses * share


def logp(at, logits, targets):
    """Of one target for each token or several; 0 where it is ignored."""
    ids = targets.reshape(*targets.shape[:2], -1)
    lse = logits.logsumexp(-1, keepdim=True)
    found = logits.gather(-1, ids.clamp(min=0)) - lse
    return found.masked_fill(ids == IGNORED, 0.0), lse


def select_tokens(at, x):
    """Values of samples are of one token."""
    count = at.get("tokens", 1)
    first = at.get("first", x.shape[1] - count)
    return x[:, first:first + count].flatten(1)[:, None]


def copy_blocks(at, x, a=None):
    x, source, target = x.unflatten(-1, (at.get("groups", 1), -1)), at.get("source", 0), at.get("target", 0)
    part = x[..., source:source + at["to"] - target]
    return added(F.pad(part, (target, at["to"] - target - part.shape[-1])).flatten(-2), a)


def group_sum(at, x):
    groups = x.reshape(len(x) // at["group"], -1, 1)
    return groups.sum(1, keepdim=True).expand_as(groups).reshape(x.shape)


def routes(at, logits, bias):
    """The numbers of the experts of each token, and their weights."""
    scores = logits.sigmoid() if at.get("sigmoid") else logits.softmax(-1)
    choice = (scores if bias is None else scores + bias).unflatten(-1, (at.get("groups", 1), -1))
    if at.get("groups", 1) > 1:
        best = choice.topk(2).values.sum(-1).topk(at["best_groups"]).indices
        choice = choice.masked_fill(torch.ones_like(choice[..., 0]).scatter(-1, best, 0.0)[..., None] > 0, float("-inf"))
    ids = choice.flatten(-2).topk(at["choices"]).indices
    weights = scores.gather(-1, ids)
    if at.get("normalize"):
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ids, weights * at.get("scale", 1)


def moe(at, x, router, bias, gate, up, down, a=None):
    ids, weights = routes(at, x @ router.t(), bias)
    y = torch.zeros_like(x)
    for expert in range(len(gate)):
        row, token, place = torch.where(ids == expert)
        read = x[row, token]
        made = (F.silu(read @ gate[expert].t()) * (read @ up[expert].t())) @ down[expert].t()
        y = y.index_put((row, token), made * weights[row, token, place][:, None], accumulate=True)
    return added(y, a)


# ---- programs ----

STEPS = {
    "ADD": torch.add, "SUB": torch.sub, "MUL": torch.mul, "DIV": torch.div, "NEG": torch.neg, "EXP": torch.exp, "LOG": torch.log, "TANH": torch.tanh,
    "SQRT": torch.sqrt, "RSQRT": torch.rsqrt, "SIGMOID": torch.sigmoid, "SOFTPLUS": F.softplus, "ERF": torch.erf, "RELU": F.relu, "ABS": torch.abs,
    "SQUARE": torch.square, "MAX": torch.maximum, "MIN": torch.minimum, "CLAMP_MIN": lambda a, k: a.clamp(min=k.item()),
    "CLAMP_MAX": lambda a, k: a.clamp(max=k.item()), "LESS": lambda a, b: (a < b).float(), "LESS_EQUAL": lambda a, b: (a <= b).float(),
    "EQUAL": lambda a, b: (a == b).float(), "WHERE": lambda c, a, b: torch.where(c != 0, a, b),
}


def pointwise(at, *operands):
    """Weights are of each part of a value that is as long as they are."""
    value, width = list(operands) + [None] * (4 - len(operands)), max(operand.shape[-1] for operand in operands if operand.dim() == 3)
    part = next((operand.numel() for operand in operands if operand.dim() < 2), width)
    value = [each if each is None or each.dim() < 2 else each[..., None] if each.shape[-1] < width else heads(each, part) for each in value]
    for name, *inputs in at["program"]:
        value.append(torch.tensor(float(inputs[0])) if name == "CONST" else STEPS[name](*(value[index] for index in inputs)))
    return value[-1].flatten(2)


# Each row: its attributes, then its operands; None: absent.
FORMULAS = {
    "EMBEDDING": lambda at, tokens, table: F.embedding(tokens, table, at["padding"] - 1 if "padding" in at else None),
    "POSITION": position,
    "LINEAR": lambda at, x, w, a=None: added((heads(x, w.shape[1]) @ w.t()).flatten(2), a),
    "AFFINE": lambda at, x, w, bias, a=None: added((heads(x, w.shape[0]) @ w + bias).flatten(2), a),
    "BIAS": lambda at, x, bias: (heads(x, bias.numel()) + bias).flatten(2),
    "RMSNORM": rms_norm,
    "LAYERNORM": layer_norm,
    "SPLIT": lambda at, x: x.chunk(3, -1),
    **dict.fromkeys(("SPLIT_2", "SPLIT_3"), split),
    **dict.fromkeys(("JOIN_2", "JOIN_3"), join),
    "COPY_BLOCKS": copy_blocks,
    "SELECT_TOKENS": select_tokens,
    "SUM_TOKENS": lambda at, x: (x.mean if at.get("mean") else x.sum)(1, keepdim=True),
    "REPEAT_TOKENS": lambda at, x: x.expand(-1, at["tokens"], -1),
    "ROPE_TABLE": rope_table,
    "ROPE": rope,
    "ROPE_PART": rope,
    "ATTENTION": attention,
    "ATTENTION_FULL": attention_full,
    "MOE": moe,
    "SWIGLU": lambda at, gate, up: gate * torch.sigmoid(gate) * up,
    "GEGLU": lambda at, gate, up: F.gelu(gate, approximate="tanh") * up,
    "GELU": lambda at, x: F.gelu(x),
    "GELU_TANH": lambda at, x: F.gelu(x, approximate="tanh"),
    "SCALE": lambda at, x: at["factor"] * x,
    "ADD": lambda at, a, b: a + b,
    "POINTWISE": pointwise,
    "ROW_MEAN": lambda at, x: x.mean(-1, keepdim=True),
    "ROW_SUM": lambda at, x: x.sum(-1, keepdim=True),
    "CROSS_ENTROPY": cross_entropy,
    "LOGP": logp,
    "GROUP_SUM": group_sum,
    "SUM_LOSS": lambda at, x, share: x.sum() * share,
}


def units_of(description):
    """Kind and prefix of each unit."""
    counted = {}
    for unit in description["units"]:
        prefix, first = unit["prefix"], counted.get(unit["prefix"], 0)
        if "count" not in unit:
            yield unit["kind"], prefix
        for number in range(first, first + unit.get("count", 0)):
            yield unit["kind"], f"{prefix}{number}."
        counted[prefix] = first + unit.get("count", 0)


IDS = {"EMBEDDING": 0, "CROSS_ENTROPY": 1, "LOGP": 1, "ATTENTION_FULL": 3}  # the operand that reads an input as ids
MATRICES = dict.fromkeys(("LINEAR", "AFFINE", "EMBEDDING", "POSITION", "TOKEN_LOGP"), 1)  # the operand that is a weight of two extents
LOSSES = ("CROSS_ENTROPY", "SUM_LOSS")


def shares_of(description, inputs, loss_is_sum):
    """What losses are multiplied with, by name, of these inputs of a step."""
    found = {}
    for share in description.get("shares", []):
        given = inputs.get(share.get("input"))
        over = {"samples": lambda: len(next(iter(inputs.values()))), "sum": lambda: float(given.double().sum()), "targets": lambda: int((given != IGNORED).sum())}[share["over"]]()
        over = max(over, share["least"]) if "least" in share else over
        found[share["name"]] = share.get("factor", 1) / over if over else 0.0
    for name, value in inputs.items():
        if not value.dtype.is_floating_point and value.dtype != torch.bool:
            found[f"{name}.share"] = 1.0 if loss_is_sum else 1.0 / max(int((value != IGNORED).sum()), 1)
    return found


def run(description, weights, inputs, shares, group=1, seen=None):
    """The loss of a description. `seen`: a function that gets the row and the outputs of each op."""
    tied = {weight["tied"]: weight["name"] for weight in description["weights"] if "tied" in weight}
    given, losses, inputs = None, [], with_tokens(description, inputs)
    sizes = {"GROUP_SUM": {"group": group}, "REPEAT_TOKENS": {"tokens": tokens_of(description, inputs)}}
    for kind, prefix in units_of(description):
        kind = description["kinds"][kind]
        local = {taken["name"]: given for taken in kind["takes"]}
        for row, operands, attributes, outputs, *_ in kind["ops"]:
            read = [operand_of(name, prefix, weights, tied, local, shares) for name in operands]
            read = [of_extents(each, row, place) if each is not None and names_weight(operands[place]) else each for place, each in enumerate(read)]
            for place, name in enumerate(operands):
                if name in inputs and name not in local:
                    read[place] = inputs[name].long() if IDS.get(row) == place else inputs[name].float().reshape(*inputs[name].shape[:2], -1)
            made = FORMULAS[row]({**attributes, **sizes.get(row, {})}, *read)
            made = made if len(outputs) > 1 else (made,)
            local.update(zip(outputs, made))
            losses += made if row in LOSSES else []
            if seen:
                seen(row, made)
        given = local[kind["gives"][0]] if kind["gives"] else None
    return sum(losses[1:], losses[0])


def names_weight(name):
    return name is not None and name[0] == "."


def of_extents(weight, row, place):
    """A weight as its operand reads it; those of experts as they are."""
    if row == "MOE":
        return weight
    return weight.reshape(matrix(weight.shape)) if MATRICES.get(row) == place else weight.flatten()


def tokens_of(description, inputs):
    return next((inputs[entry["name"]].shape[1] for entry in description["inputs"] if "sequence" in entry["shape"] and entry["name"] in inputs), 1)


def with_tokens(description, inputs):
    """Of inputs without the extent sequence, one token."""
    without = {entry["name"] for entry in description["inputs"] if "sequence" not in entry["shape"]}
    return {name: value[:, None] if name in without else value for name, value in inputs.items()}


def operand_of(name, prefix, weights, tied, local, shares):
    """None: absent, or an input, which the row reads in its own way."""
    if name is None:
        return None
    if name[0] == ".":
        full = prefix + name[1:]
        return weights[tied.get(full, full)]
    return local[name] if name in local else shares.get(name)
