"""The loss and gradient norm of a description, in f64 by PyTorch's own operators: the figures of tests/models/losses.txt.

described_torch.py MODEL.json WEIGHTS.safetensors TOKENS SEQUENCE SEQUENCES: prints LOSS NORM of the first sequences of the tokens. Inputs by name are those of
samples.py: tokens, targets, and numbers of each token.

described_torch.py ties TIES.def: says which rows have other gradients of steps than PyTorch."""
import json
import math
import re
import struct
import sys

import torch
import torch.nn.functional as F


def read_weights(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    weights = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
            weights[name] = tensor.double().requires_grad_()
    return weights


def read_windows(path, sequence, count):
    data = open(path, "rb").read()[1024:]
    tokens = torch.tensor(struct.unpack(f"<{len(data) // 2}H", data))
    first = torch.arange(count)[:, None] * sequence + torch.arange(sequence)
    return tokens[first], tokens[first + 1]


def heads_of(x, width):
    return x.reshape(*x.shape[:2], -1, width)


def added(y, a):
    return y if a is None else y + a


def normed(at, x, *weights):
    """In parts that are as long as the weights, or as said."""
    return heads_of(x, next((weight.numel() for weight in weights if weight is not None), at.get("width", x.shape[-1])))


def rms_norm(at, x, gain=None):
    x = normed(at, x, gain)
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + at["epsilon"]) * ((1 if gain is None else gain) + at.get("offset", 0))).flatten(2)


def layer_norm(at, x, gain=None, bias=None):
    x = normed(at, x, gain, bias)
    return F.layer_norm(x, x.shape[-1:], gain, bias, at["epsilon"]).flatten(2)


def rope_table(at):
    frequency = at["theta"] ** (-torch.arange(at["half"], dtype=torch.float64) / at["half"])
    angle = torch.arange(SEQUENCE, dtype=torch.float64)[:, None] * frequency
    return angle[:, None]


def rope(at, x, angle, starts):
    low, high = heads_of(x, 2 * angle.shape[-1]).chunk(2, -1)
    return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()), -1).flatten(2)


def rope_part(at, x, angle, starts):
    """Of the first elements of each head; pairs are put into halves, and back."""
    x, half = heads_of(x, at["head_dim"]), angle.shape[-1]
    order = torch.arange(2 * half).reshape(half, 2).t().flatten() if at.get("pairs") else torch.arange(2 * half)
    turned = rope(at, x[..., order].flatten(2), angle, starts).unflatten(2, x.shape[2:3] + (-1,))
    return torch.cat((turned[..., order.argsort()], x[..., 2 * half:]), -1).flatten(2)


def sizes_of(at):
    return [at[name] for name in ("first", "second", "third") if name in at]


def split(at, x):
    return [part.flatten(2) for part in heads_of(x, sum(sizes_of(at))).split(sizes_of(at), -1)]


def join(at, *parts):
    return torch.cat([heads_of(part, size) for part, size in zip(parts, sizes_of(at))], -1).flatten(2)


def copy_blocks(at, x, a=None):
    x, source, target = x.unflatten(-1, (at.get("groups", 1), -1)), at.get("source", 0), at.get("target", 0)
    part = x[..., source:source + at["to"] - target]
    return added(F.pad(part, (target, at["to"] - target - part.shape[-1])).flatten(-2), a)


def attend(at, q, k, v, seen):
    q, k, v = (heads_of(x, at["head_dim"]).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(at["heads"] // at["kv_heads"], 1) for x in (k, v))
    if "cap" in at:
        scores = at["cap"] * torch.tanh(q @ k.transpose(2, 3) / math.sqrt(at["head_dim"]) / at["cap"])
        o = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v
    else:
        o = F.scaled_dot_product_attention(q, k, v, seen)
    return o.transpose(1, 2).flatten(2)


def attention(at, q, k, v, starts):
    return attend(at, q, k, v, torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).tril().triu(1 - at.get("window", SEQUENCE)))


def attention_full(at, q, k, v, mask=None):
    return attend(at, q, k, v, torch.ones(1, 1, 1, SEQUENCE, dtype=torch.bool) if mask is None else mask[:, None, None] != 0)


# Each step of a program of POINTWISE; comparisons have no gradient.
STEPS = {
    "ADD": torch.add, "SUB": torch.sub, "MUL": torch.mul, "DIV": torch.div, "NEG": torch.neg, "EXP": torch.exp, "LOG": torch.log, "TANH": torch.tanh,
    "SQRT": torch.sqrt, "RSQRT": torch.rsqrt, "SIGMOID": torch.sigmoid, "SOFTPLUS": F.softplus, "ERF": torch.erf, "RELU": F.relu, "ABS": torch.abs,
    "SQUARE": torch.square, "MAX": torch.maximum, "MIN": torch.minimum, "CLAMP_MIN": lambda a, k: a.clamp(min=k.item()),
    "CLAMP_MAX": lambda a, k: a.clamp(max=k.item()), "LESS": lambda a, b: (a < b).double(), "LESS_EQUAL": lambda a, b: (a <= b).double(),
    "EQUAL": lambda a, b: (a == b).double(), "WHERE": lambda c, a, b: torch.where(c != 0, a, b),
}


def pointwise(at, *operands):
    value = list(operands) + [None] * (4 - len(operands))
    for name, *inputs in at["program"]:
        value.append(torch.tensor(inputs[0]).double() if name == "CONST" else STEPS[name](*(value[i] for i in inputs)))
    return value[-1]


def mixture(at, x, router, bias, gate, up, down, a=None):
    """Every expert of every token; those that are not chosen have the weight 0."""
    logits = F.linear(x, router)
    score = logits.sigmoid() if at.get("sigmoid") else logits.softmax(-1)
    choice = score.detach() if bias is None else score.detach() + bias.detach()
    groups = choice.unflatten(-1, (at.get("groups", 1), -1))
    best = groups.topk(min(2, groups.shape[-1]), -1).values.sum(-1).topk(at.get("best_groups", 1), -1).indices
    barred = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, best, False)
    chosen = groups.masked_fill(barred[..., None], -math.inf).flatten(-2).topk(at["choices"], -1).indices
    weight = torch.zeros_like(score).scatter(-1, chosen, 1.0) * score
    if at.get("normalize"):
        weight = weight / weight.sum(-1, keepdim=True)
    made = [F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), d) for g, u, d in zip(gate, up, down)]
    return added(sum(y * weight[..., e, None] * at.get("scale", 1) for e, y in enumerate(made)), a)


# Each row of ops.def: its attributes, then its operands; of absent ones None.
ROWS = {
    "EMBEDDING": lambda at, tokens, table, a=None: added(F.embedding(tokens, table, at["padding"] - 1 if "padding" in at else None), a),
    "POSITION": lambda at, x, table, starts=None: x + table[at.get("offset", 0):][:at.get("sequence", SEQUENCE)],
    "LINEAR": lambda at, x, w, a=None: added(F.linear(x, w), a),
    "AFFINE": lambda at, x, w, bias, a=None: added(x @ w + bias, a),
    "BIAS": lambda at, x, bias: x + bias,
    "RMSNORM": rms_norm,
    "LAYERNORM": layer_norm,
    "SPLIT": lambda at, x: x.chunk(3, -1),
    **dict.fromkeys(("SPLIT_2", "SPLIT_3"), split),
    **dict.fromkeys(("JOIN_2", "JOIN_3"), join),
    "COPY_BLOCKS": copy_blocks,
    "ROPE_TABLE": rope_table,
    "ROPE": rope,
    "ROPE_PART": rope_part,
    "ATTENTION": attention,
    "ATTENTION_FULL": attention_full,
    "SWIGLU": lambda at, gate, up: F.silu(gate) * up,
    "GEGLU": lambda at, gate, up: F.gelu(gate, approximate="tanh") * up,
    "GELU": lambda at, x: F.gelu(x),
    "GELU_TANH": lambda at, x: F.gelu(x, approximate="tanh"),
    "SCALE": lambda at, x: at["factor"] * x,
    "ADD": lambda at, a, b: a + b,
    "POINTWISE": pointwise,
    "MOE": mixture,
    "ROW_SUM": lambda at, x: x.sum(-1, keepdim=True),
    "ROW_MEAN": lambda at, x: x.mean(-1, keepdim=True),
    "CROSS_ENTROPY": lambda at, logits, targets, share: F.cross_entropy(logits.flatten(0, 1), targets.flatten()),
}


def units_of(model):
    """Kind and prefix of each unit."""
    counted = {}
    for unit in model["units"]:
        prefix, first = unit["prefix"], counted.get(unit["prefix"], 0)
        if "count" not in unit:
            yield unit["kind"], prefix
        for number in range(first, first + unit.get("count", 0)):
            yield unit["kind"], f"{prefix}{number}."
        counted[prefix] = first + unit.get("count", 0)


def weight_of(weights, name):
    """Of a name with * the list of the experts' matrices."""
    if "*" not in name:
        return weights[name]
    first, last = name.split("*")
    return [weights[f"{first}{n}{last}"] for n in range(sum(one.startswith(first) and one.endswith(last) for one in weights))]


def loss_of(model, weights, inputs):
    tied = {weight["tied"]: weight["name"] for weight in model["weights"] if "tied" in weight}
    value = {entry["name"]: inputs.get(entry.get("from", entry["name"]), inputs["numbers"]) for entry in model["inputs"]}
    x = None
    for kind, prefix in units_of(model):
        described = model["kinds"][kind]
        local = {taken["name"]: x for taken in described["takes"]}
        for row, operands, attributes, outputs, *_ in described["ops"]:
            read = [None if name is None else weight_of(weights, tied.get(prefix + name[1:], prefix + name[1:])) if name[0] == "."
                    else local.get(name, value.get(name)) for name in operands]
            made = ROWS[row](attributes, *read)
            local.update(zip(outputs, made if len(outputs) > 1 else (made,)))
        x = local[described["gives"][0]] if described["gives"] else made
    return x


def check_ties(path):
    """Each row of tests/gen/ties.def."""
    for name, numbers in re.findall(r"^PEN_TIE\((\w+), (.*)\)$", open(path).read(), re.M):
        numbers = [float(number.replace("INFINITY", "inf")) for number in numbers.split(", ")]
        inputs = [torch.tensor(number, requires_grad=True) for number in numbers[:3]]
        taken = inputs[:STEPS_READ.get(name, 1)]
        STEPS[name](*taken).backward()
        made = [0.0 if each.grad is None else each.grad.item() for each in inputs]
        if made != numbers[3:]:
            print(name, numbers[:3], "PyTorch:", made)


STEPS_READ = {"WHERE": 3, **dict.fromkeys(("MAX", "MIN", "CLAMP_MIN", "CLAMP_MAX"), 2)}
if sys.argv[1] == "ties":
    sys.exit(check_ties(sys.argv[2]))
SEQUENCE = int(sys.argv[4])
weights = read_weights(sys.argv[2])
tokens, targets = read_windows(sys.argv[3], SEQUENCE, int(sys.argv[5]))
window, place = torch.arange(len(tokens))[:, None], torch.arange(SEQUENCE)
numbers = (31 * window + 7 * place + place // 5) % 4
loss = loss_of(json.load(open(sys.argv[1])), weights, {"tokens": tokens, "targets": targets, "numbers": numbers})
loss.backward()
print(repr(loss.item()), repr(math.sqrt(sum(float((weight.grad ** 2).sum()) for weight in weights.values() if weight.grad is not None))))
