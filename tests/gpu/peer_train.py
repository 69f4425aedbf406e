# peer_train.py: the models of gpt2_124m.cfg and llama_1b.cfg trained by PyTorch under torch.compile: f32 weights, products in bf16 by
# autocast, attention by scaled_dot_product_attention, fused AdamW, gradients clipped to 1, the same tokens a step. Prints one line: the median
# step of those after the first three. The model is written here so that nothing needs installing.
#
#     peer_train.py NAME [STEPS]
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    "gpt2_124m": dict(layers=12, hidden=768, heads=12, kv_heads=12, ffn=3072, vocab=50304, sequence=1024, microbatch=16, microbatches=2, llama=False),
    "llama_1b": dict(layers=16, hidden=2048, heads=32, kv_heads=8, ffn=8192, vocab=128256, sequence=2048, microbatch=4, microbatches=4, llama=True),
    "tiny": dict(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256, sequence=32, microbatch=2, microbatches=2, llama=True),
    "tiny_gpt2": dict(layers=2, hidden=64, heads=4, kv_heads=4, ffn=128, vocab=256, sequence=32, microbatch=2, microbatches=2, llama=False),
}


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def rotated(x, cosine, sine):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, bias, head_dim = s, not s["llama"], s["hidden"] // s["heads"]
        norm = Rms if s["llama"] else nn.LayerNorm
        self.norm1, self.norm2 = norm(s["hidden"]), norm(s["hidden"])
        self.qkv = nn.Linear(s["hidden"], (s["heads"] + 2 * s["kv_heads"]) * head_dim, bias=bias)
        self.out = nn.Linear(s["hidden"], s["hidden"], bias=bias)
        self.wide = nn.Linear(s["hidden"], s["ffn"] * (2 if s["llama"] else 1), bias=bias)
        self.narrow = nn.Linear(s["ffn"], s["hidden"], bias=bias)

    def forward(self, x, cosine, sine):
        s, (batch, sequence, _) = self.s, x.shape
        joined = self.qkv(self.norm1(x)).view(batch, sequence, s["heads"] + 2 * s["kv_heads"], -1).transpose(1, 2)
        q, k, v = joined.split((s["heads"], s["kv_heads"], s["kv_heads"]), 1)
        if s["llama"]:
            q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s["heads"] != s["kv_heads"])
        x = x + self.out(o.transpose(1, 2).reshape(batch, sequence, -1))
        wide = self.wide(self.norm2(x))
        if s["llama"]:
            gate, up = wide.chunk(2, -1)
            return x + self.narrow(F.silu(gate) * up)
        return x + self.narrow(F.gelu(wide, approximate="tanh"))


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.tokens = nn.Embedding(s["vocab"], s["hidden"])
        self.positions = None if s["llama"] else nn.Embedding(s["sequence"], s["hidden"])
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.norm = (Rms if s["llama"] else nn.LayerNorm)(s["hidden"])
        half = s["hidden"] // s["heads"] // 2
        angle = torch.outer(torch.arange(s["sequence"]).float(), 500000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angle.cos().bfloat16())
        self.register_buffer("sine", angle.sin().bfloat16())
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        x = x.bfloat16()
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = F.linear(self.norm(x).bfloat16(), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, self.s["vocab"]).float(), targets.reshape(-1))


def main():
    name, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 13
    s, device = SHAPES[name], "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Model(s).to(device)
    loss_of = torch.compile(model) if device == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(s["vocab"], (s["microbatches"], s["microbatch"], s["sequence"] + 1), device=device)
    times = []
    for step in range(steps):
        begin = time.perf_counter()
        for part in tokens:
            with torch.autocast(device, torch.bfloat16):
                loss = loss_of(part[:, :-1], part[:, 1:]) / s["microbatches"]
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.append(time.perf_counter() - begin)
    timed = sorted(times[3:])
    median = timed[len(timed) // 2]
    count = s["microbatches"] * s["microbatch"] * s["sequence"]
    print(f"{name} torch.compile: median step {1e3 * median:.2f} ms, {count / median:.0f} tokens/s, first step {times[0]:.1f} s", flush=True)


main()
