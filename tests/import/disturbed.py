"""disturbed.py: modules that are nearly what penstock-import takes, each with one thing another way: it refuses them."""
import math

import torch
import torch.nn.functional as F
from torch import nn

TOKENS, WIDTH, HEADS = 40, 16, 2


def causal(query, key):
    return key <= query


# Of each disturbance what it replaces.
NORMS = {
    "mean_of_samples": lambda x, gain: x * torch.rsqrt(x.square().mean(0, keepdim=True) + 1e-3) * gain,
    "stopped_norm": lambda x, gain: x * torch.rsqrt(x.square().mean(-1, keepdim=True).detach() + 1e-3) * gain,
}
MASKS = {
    "mask_one_less": lambda query, key: (key < query) | (query == 0),
    "mask_one_more": lambda query, key: key <= query + 1,
    "mask_of_both_sides": lambda query, key: (key - query).abs() < 3,
    "mask_every_second": lambda query, key: (key <= query) & ((query - key) % 2 == 0),
    "window_of_half": lambda query, key: (key <= query) & (query - key < len(query) // 2),
}
TABLES = {
    "sin_and_cos": lambda time, frequency: (torch.outer(time, frequency).sin(), torch.outer(time, frequency).cos()),
    "backwards": lambda time, frequency: (torch.outer(time, frequency).cos(), -torch.outer(time, frequency).sin()),
    "from_one": lambda time, frequency: (torch.outer(time + 1, frequency).cos(), torch.outer(time + 1, frequency).sin()),
    "other_frequencies": lambda time, frequency: (torch.outer(time, frequency + 0.01).cos(), torch.outer(time, frequency + 0.01).sin()),
}
TURNS = {
    "halves_swapped": lambda low, high, cos, sin: torch.cat((high * cos + low * sin, low * cos - high * sin), -1),
    "halves_between": lambda low, high, cos, sin: torch.stack((low * cos - high * sin, high * cos + low * sin), -1).flatten(-2),
    "half_left": lambda low, high, cos, sin: torch.cat((low * cos - high * sin, high), -1),
    "no_minus": lambda low, high, cos, sin: torch.cat((low * cos + high * sin, high * cos + low * sin), -1),
}
GATES = {
    "next_token": lambda gate, up: F.silu(gate) * up.roll(1, 1),
    "first_token": lambda gate, up: F.silu(gate) * up[:, :1],
}
SCORES = {
    "softmax_of_queries": lambda scores, seen: scores.masked_fill(~seen, -math.inf).softmax(-2),
    "finite_mask": lambda scores, seen: scores.masked_fill(~seen, -2.0).softmax(-1),
    "mask_afterwards": lambda scores, seen: scores.softmax(-1) * seen,
}
LOSSES = {
    "sum_of_step": lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 2,
    "perplexity": lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten()).exp(),
    "one_token_less": lambda logits, targets: F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, :-1].flatten()),
    "classes_by_view": lambda logits, targets: F.cross_entropy(logits.reshape(len(logits), TOKENS, -1), targets),
}
EVERY = (NORMS, MASKS, TABLES, TURNS, GATES, SCORES, LOSSES)


class Block(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.gains = nn.ParameterList(torch.rand(WIDTH) for _ in range(2))
        self.q, self.k, self.v, self.o, self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(7))

    def one_of(self, functions, usual):
        return functions.get(self.how, usual)

    def norm(self, x, gain):
        return self.one_of(NORMS, lambda x, gain: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) * gain)(x, gain)

    def turn(self, x):
        width = x.shape[-1]
        tables = self.one_of(TABLES, lambda time, frequency: (torch.outer(time, frequency).cos(), torch.outer(time, frequency).sin()))
        cos, sin = tables(torch.arange(x.shape[1]).float(), 500.0 ** -(torch.arange(0, width, 2) / width))
        turned = self.one_of(TURNS, lambda low, high, cos, sin: torch.cat((low * cos - high * sin, high * cos + low * sin), -1))
        return turned(*x.chunk(2, -1), cos[:, None], sin[:, None])

    def attend(self, q, k, v):
        place = torch.arange(q.shape[2])
        seen = self.one_of(MASKS, causal)(place[:, None], place[None])
        usual = lambda scores, seen: scores.masked_fill(~seen, -math.inf).softmax(-1)
        return self.one_of(SCORES, usual)(q @ k.transpose(-1, -2) * 0.3, seen) @ v

    def forward(self, x):
        n = self.norm(x, self.gains[0])
        q, k, v = (product(n).unflatten(-1, (HEADS, -1)) for product in (self.q, self.k, self.v))
        q, k = self.turn(q), self.turn(k)
        if self.how == "heads_by_view":
            y = self.attend(*(each.reshape(each.shape[0], HEADS, each.shape[1], -1) for each in (q, k, v)))
        else:
            y = self.attend(*(each.transpose(1, 2) for each in (q, k, v)))
        x = x + self.o(y.reshape(x.shape) if self.how in ("heads_by_view", "heads_left") else y.transpose(1, 2).flatten(2))
        n = self.norm(x, self.gains[1])
        return x + self.down(self.one_of(GATES, lambda gate, up: F.silu(gate) * up)(self.gate(n), self.up(n)))


class Model(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.embed, self.places = nn.Embedding(TOKENS, WIDTH), nn.Parameter(torch.randn(32, WIDTH))
        self.layers = nn.ModuleList(Block(how) for _ in range(1))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens, targets):
        count = tokens.shape[1]
        x = self.embed((tokens + 1) % TOKENS if self.how == "other_ids" else tokens)
        x = x + self.places[:2 * count:2] if self.how == "places_of_two" else x + self.places[:count]
        for layer in self.layers:
            x = layer(x)
        usual = lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return LOSSES.get(self.how, usual)(self.head(x), targets)


HOWS = ["heads_by_view", "heads_left", "other_ids", "places_of_two", *(how for functions in EVERY for how in functions)]
for how in ["nothing", *HOWS]:
    globals()[how] = lambda how=how: Model(how)
