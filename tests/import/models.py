"""models.py: modules that penstock-import takes: some written as users do, some of transformers."""
import math

import torch
import torch.nn.functional as F
from torch import nn

TOKENS, WIDTH, POSITIONS = 200, 32, 32


class Attention(nn.Module):
    """One product for q, k and v; written out, or PyTorch's."""

    def __init__(self, heads, fused):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.heads, self.fused = heads, fused
        self.drop = nn.Dropout(0.1)
        if not fused:
            self.register_buffer("seen", torch.tril(torch.ones(POSITIONS, POSITIONS)).view(1, 1, POSITIONS, POSITIONS))

    def forward(self, x):
        batch, count, width = x.size()
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (each.view(batch, count, self.heads, width // self.heads).transpose(1, 2) for each in (q, k, v))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            scores = scores.masked_fill(self.seen[:, :, :count, :count] == 0, float("-inf"))
            y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.drop(self.c_proj(y.transpose(1, 2).contiguous().view(batch, count, width)))


class Block(nn.Module):
    def __init__(self, heads, fused):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH), Attention(heads, fused)
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Nano(nn.Module):
    """A GPT with the loss inside, and one matrix for embedding and head."""

    def __init__(self, layers=2, fused=True, ignored=-1):
        super().__init__()
        self.ignored = ignored
        self.wte, self.wpe = nn.Embedding(TOKENS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList(Block(4, fused) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS, bias=False)
        self.lm_head.weight = self.wte.weight
        self.spare = nn.Linear(WIDTH, 1)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1)

    def forward(self, idx, targets=None):
        count = idx.size(1)
        assert count <= POSITIONS
        x = self.wte(idx) + self.wpe(torch.arange(count))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=self.ignored)


def nano():
    torch.manual_seed(1)
    return Nano()


def written_out():
    """Attention without PyTorch's, some weights frozen."""
    torch.manual_seed(1)
    model = Nano(fused=False)
    for block in model.h:
        block.mlp.requires_grad_(False)
    return model


class Rotary(nn.Module):
    """A block of another style: norms without a module or a gain, rotations of half a head, attention and a squared ReLU side by side, residuals in the parent."""

    def __init__(self, heads=4):
        super().__init__()
        self.gain, self.scale, self.heads = nn.Parameter(torch.rand(WIDTH)), nn.Parameter(torch.rand(WIDTH)), heads
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.register_buffer("frequency", 500.0 ** -(torch.arange(0, WIDTH // heads, 4) / (WIDTH // heads)))

    def turn(self, x):
        angle = torch.outer(torch.arange(x.shape[1]), self.frequency)[:, None]
        turning, rest = x.chunk(2, -1)
        low, high = turning.chunk(2, -1)
        return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin(), rest), -1)

    def forward(self, x):
        n = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-4) * self.gain
        q, k, v = (product(n).unflatten(-1, (self.heads, -1)) for product in (self.q, self.k, self.v))
        q, k = (F.rms_norm(each, each.shape[-1:], eps=1e-6) for each in (q, k))
        y = F.scaled_dot_product_attention(self.turn(q).transpose(1, 2), self.turn(k).transpose(1, 2), v.transpose(1, 2), is_causal=True, scale=0.2)
        return self.scale * (self.o(y.transpose(1, 2).flatten(2)) + self.down(F.relu(self.up(n)).square()))


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.blocks = nn.ModuleList(Rotary() for _ in range(3))
        self.out = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = F.embedding(tokens, self.table) * 0.5
        for block in self.blocks:
            x = x + block(x)
        return 15 * torch.tanh(self.out(x) / 15)


def odd():
    torch.manual_seed(2)
    return Odd()


def odd_loss(output, tokens, targets):
    return F.cross_entropy(output.transpose(1, 2), targets, reduction="sum")


class Headed(nn.Module):
    """Attention of heads of length one, with a gain and a bias of each head; a row of a table of constants."""

    def __init__(self, heads=4):
        super().__init__()
        self.gain, self.bias, self.scale = nn.Parameter(torch.rand(heads, 1, WIDTH // heads)), nn.Parameter(torch.rand(1, heads, 1, WIDTH // heads)), nn.Parameter(torch.rand(1, 1, WIDTH))
        self.gains = nn.Parameter(torch.rand(heads, WIDTH // heads))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.register_buffer("means", torch.rand(3, WIDTH))
        self.heads = heads

    def forward(self, x):
        q, k, v = self.qkv((x - self.means[0]) / (self.means[0] + 1)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = F.normalize(q, dim=-1) * self.gain, F.rms_norm(k, k.shape[-1:], eps=1e-5) * self.gains.unsqueeze(1)
        return F.scaled_dot_product_attention(q, k, v + self.bias, is_causal=True, scale=3.0).transpose(1, 2).flatten(2) * self.scale


class Placed(nn.Module):
    """A padding token; positions that begin with another row of their table, one row for all tokens; tables of constants; buffers of one number."""

    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(TOKENS, WIDTH, padding_idx=3), nn.Embedding(2, WIDTH)
        self.places, self.more = nn.Embedding(POSITIONS, WIDTH, padding_idx=1), nn.Parameter(torch.randn(1, POSITIONS, WIDTH))
        self.row, self.rows = nn.Parameter(torch.randn(1, WIDTH)), nn.Parameter(torch.randn(3, WIDTH))
        self.blocks, self.out = nn.ModuleList([Rotary(), Headed()]), nn.Linear(WIDTH, TOKENS)
        self.register_buffer("waves", torch.outer(torch.arange(POSITIONS), 0.9 ** torch.arange(WIDTH)).sin()[None])
        self.register_buffer("bias", torch.rand(WIDTH))  # a name with which others end
        self.register_buffer("one", torch.ones(()))
        self.register_buffer("zero", torch.zeros(WIDTH))

    def forward(self, tokens):
        count = tokens.shape[1]
        x = self.words(tokens) + self.types(torch.zeros_like(tokens)) + self.places(torch.arange(2, count + 2))
        x = (x + self.more[:, 1:count + 1] + self.row + self.rows[1]) * self.one + self.zero
        x = x + self.waves[:, :count] + 0.1 * torch.arange(count)[:, None] * torch.linspace(1, 2, WIDTH)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x * self.bias)


def placed():
    torch.manual_seed(9)
    return Placed()


# ---- parts ----

class Parts(nn.Module):
    """Norms without weights, rotations of adjacent elements in several ways, parts of any width."""

    class Layer(nn.Module):
        def __init__(self, turn, rotated, heads=4):
            super().__init__()
            self.turn, self.rotated, self.heads = turn, rotated, heads
            self.norm, self.last = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(2 * WIDTH, elementwise_affine=False)
            self.qkv, self.o = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.up, self.down = nn.Linear(WIDTH, 5 * WIDTH, bias=False), nn.Linear(2 * WIDTH + WIDTH // 2, WIDTH, bias=False)

        def forward(self, x):
            n = self.norm(x)
            q, k, v = (each.unflatten(-1, (-1, WIDTH // self.heads)).transpose(1, 2) for each in self.qkv(n).split((WIDTH, WIDTH // 2, WIDTH // 2), -1))
            frequency = 100.0 ** -(torch.arange(0, self.rotated, 2) / self.rotated)
            angle = torch.outer(torch.arange(x.shape[1]), frequency)
            q, k = (self.turn(each, angle.cos(), angle.sin()) for each in (q, k))
            k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-3)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            if self.rotated == 4:
                gate, up, more, rest = self.up(n).split((2 * WIDTH, WIDTH // 2) * 2, -1)
            else:
                (gate, up), (more, rest) = (each.split((2 * WIDTH, WIDTH // 2), -1) for each in self.up(n).unflatten(-1, (2, -1)).unbind(2))
            rest = torch.cat((rest[..., 1:5], rest[..., 9:13], rest[..., 3:7], rest[..., 12:16]), -1)
            return x + self.o(y.transpose(1, 2).flatten(2)) + self.down(torch.cat((self.last(gate) * more, rest), -1)) * up.mean(-1, keepdim=True)

    def every_second(x, cos, sin):
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * cos.repeat_interleave(2, -1) + turned * sin.repeat_interleave(2, -1)

    def as_pairs(x, cos, sin):
        one, other = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((one * cos - other * sin, other * cos + one * sin), -1).flatten(-2)

    def by_complex(x, cos, sin):
        turn = torch.complex(cos, sin)
        return torch.view_as_real(torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * turn).flatten(3).type_as(x)

    def first_four(x, cos, sin):
        return torch.cat((Parts.every_second(x[..., :4], cos, sin), x[..., 4:]), -1)

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList(Parts.Layer(*of) for of in ((Parts.every_second, 8), (Parts.as_pairs, 8), (Parts.by_complex, 8), (Parts.first_four, 4)))

    def forward(self, tokens):
        x = F.layer_norm(self.table(tokens), (WIDTH,))
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def parts():
    torch.manual_seed(5)
    return Parts()


# ---- element by element ----

class Programs(nn.Module):
    """A layer for each of these functions of two products."""

    FUNCTIONS = (
        lambda layer, a, b: F.gelu(a) * b,
        lambda layer, a, b: F.elu(a, 0.7) + F.selu(b) - F.celu(a, 0.5),
        lambda layer, a, b: F.hardswish(a) + F.hardsigmoid(b) + F.hardtanh(b) / F.relu6(a).add(1),
        lambda layer, a, b: F.softplus(a) - F.mish(b) + F.logsigmoid(b) * F.softsign(a),
        lambda layer, a, b: F.leaky_relu(a, 0.1) + F.prelu(b, layer.slope),
        lambda layer, a, b: a.clamp(-0.5, 0.7) + torch.maximum(a, b) + b.exp().clamp(max=2) - torch.minimum(b, 0.1 * a),
        lambda layer, a, b: torch.where((a > b) & ~(a < -0.3), a, b.new_zeros(())) + b.masked_fill(a >= 0.2, 0.1) * (b != 0).float(),
        lambda layer, a, b: F.normalize(a, dim=-1) + b * torch.sigmoid(a.mean(-1, keepdim=True)),
        lambda layer, a, b: (a - a.mean(-1, keepdim=True)) * torch.rsqrt((a - a.mean(-1)[..., None]).pow(2).mean(-1, keepdim=True) + 1e-3) * layer.gain + b,
        lambda layer, a, b: (a - a.mean(-1, keepdim=True)) / (a.std(-1, keepdim=True) + 1e-3) * layer.gain + b / torch.sqrt(b.var(-1, keepdim=True, unbiased=False) + 1e-3),
        lambda layer, a, b: a / (a.square().mean(-1, keepdim=True).sqrt() + 1e-3) * layer.gain - b * torch.rsqrt((b + b).square().mean(-1, keepdim=True).clamp_min(1e-3)),
        lambda layer, a, b: 0.5 * a * (1 + torch.tanh(0.8 * (a + 0.044715 * a**3))) + a * torch.sigmoid(b) * b,
        lambda layer, a, b: torch.add(a * layer.slope, b, alpha=2) * layer.scalar / (1 + torch.exp(-layer.gain)),
        lambda layer, a, b: torch.addcmul(a, a, b, value=0.5).tanh() ** 3 + (1 - b) * torch.erf(a * layer.ones),
    )

    class Layer(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function, self.norm = function, nn.RMSNorm(WIDTH)
            self.a, self.b, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
            self.slope, self.scalar, self.gain = nn.Parameter(torch.rand(1)), nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.rand(2 * WIDTH))
            self.register_buffer("ones", torch.ones(2 * WIDTH))

        def forward(self, x):
            n = self.norm(x)
            return x + self.down(self.function(self, self.a(n), self.b(n)))

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList(map(self.Layer, self.FUNCTIONS))

    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def programs():
    torch.manual_seed(4)
    return Programs()


# ---- PyTorch's own layers ----

class Attended(nn.Module):
    """nn.MultiheadAttention, with the weights that it averages or without."""

    def __init__(self, first, **others):
        super().__init__()
        self.attention, self.others, self.first = nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=first), others, first

    def forward(self, x, src_mask=None, is_causal=False):
        x = x if self.first else x.transpose(0, 1)
        y = x + self.attention(x, x, x, attn_mask=src_mask if self.first else None, **self.others)[0]
        return y if self.first else y.transpose(0, 1)


class Standard(nn.Module):
    """Layers that see all tokens or those before, with batch or sequence as their first dim."""

    def __init__(self):
        super().__init__()
        layer = lambda **others: nn.TransformerEncoderLayer(WIDTH, 4, 48, **others)
        self.embed, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList([
            layer(batch_first=True, norm_first=True, activation="gelu"), Attended(True), Attended(False, need_weights=False), layer(batch_first=True)])
        self.encoder = nn.TransformerEncoder(layer(activation=F.gelu), 2, norm=nn.LayerNorm(WIDTH))

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        x = self.encoder(x.transpose(0, 1), mask=mask)
        return F.cross_entropy(self.head(x).transpose(0, 1).flatten(0, 1), targets.flatten())


def standard():
    torch.manual_seed(5)
    return Standard()


class Lecture(nn.Module):
    """As lectures write it: heads one by one, attention by einsum with scores that are scaled after the mask, a gated layer."""

    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(3))
            self.register_buffer("seen", torch.ones(POSITIONS, POSITIONS).tril())

        def forward(self, x):
            scores = self.q(x) @ self.k(x).transpose(-2, -1) * (WIDTH // 2) ** -0.5
            return scores.masked_fill(self.seen[:x.shape[1], :x.shape[1]] == 0, float("-inf")).softmax(-1) @ self.v(x)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.single, self.qkv, self.gated = nn.ModuleList(Lecture.Single() for _ in range(2)), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
            self.o = nn.Parameter(torch.randn(WIDTH, WIDTH))

        def forward(self, x):
            x = x + torch.cat([head(x) for head in self.single], -1)
            q, k, v = (part.unflatten(-1, (4, -1)) for part in self.qkv(x).chunk(3, -1))
            scores = torch.einsum("nqhd,nkhd->nhqk", q, k).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) == 1, -1e20) / 5.0
            y = torch.einsum("nhqk, nkhd -> nqhd", scores.softmax(-1), v).flatten(2)
            return x + torch.einsum("btc,oc->bto", y, self.o) + F.glu(self.gated(x))

    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Embedding(TOKENS, WIDTH), nn.ModuleList(Lecture.Layer() for _ in range(2)), nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens, start=0):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)[:, start:]


def lecture():
    torch.manual_seed(6)
    return Lecture()


# ---- transformers: the sizes of tests/models ----

SIZES = {"vocab_size": TOKENS, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 3, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}


def of_transformers(name, attention="sdpa", **others):
    import transformers

    config = getattr(transformers, name + "Config")(**{**SIZES, **others})
    torch.manual_seed(3)
    language = name.removesuffix("Text") + ("LMHeadModel" if name == "GPT2" else "ForCausalLM")
    return getattr(transformers, language)._from_config(config, attn_implementation=attention)


def llama():
    return of_transformers("Llama")


def gpt2():
    import transformers

    config = transformers.GPT2Config(vocab_size=TOKENS, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(3)
    return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager")


def gemma3():
    return of_transformers("Gemma3Text", head_dim=16, sliding_window=5, query_pre_attn_scalar=32, num_hidden_layers=6, rms_norm_eps=1e-5)


def save_folders(folder):
    """Folders of transformers: names without the prefix of the class, one matrix for two; several files, scaled rotations, a padding token;
    rotations of a half of each head, whose q, k and v are side by side."""
    gpt2().transformer.save_pretrained(f"{folder}/bare")
    stretched = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    gpt_neox().save_pretrained(f"{folder}/neox")
    of_transformers("Llama", head_dim=16, rope_scaling=stretched, pad_token_id=0, initializer_range=0.2).save_pretrained(f"{folder}/scaled", max_shard_size="20KB")


def mistral():
    return of_transformers("Mistral", "eager", num_hidden_layers=1, sliding_window=6)


def gemma2():
    return of_transformers("Gemma2", "eager", num_hidden_layers=1, head_dim=8, sliding_window=6)


def qwen2():
    return of_transformers("Qwen2", num_hidden_layers=1)


def qwen3():
    return of_transformers("Qwen3", "eager", num_hidden_layers=1, head_dim=8)


def olmo2():
    return of_transformers("Olmo2")


def phi3():
    return of_transformers("Phi3", num_hidden_layers=1)


def gpt_neox():
    return of_transformers("GPTNeoX", num_hidden_layers=1, rotary_pct=0.5)


def stablelm():
    return of_transformers("StableLm", num_hidden_layers=1, partial_rotary_factor=0.25)


def phi():
    return of_transformers("Phi", num_hidden_layers=1, partial_rotary_factor=0.5)
