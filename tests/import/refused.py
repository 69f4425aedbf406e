"""refused.py: modules that penstock-import refuses. A comment #> has the words of the reason; the line after it is the one that is named."""
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

TOKENS, WIDTH = 40, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("count", torch.zeros(()))
        self.row = nn.Parameter(torch.rand(1, WIDTH))


class Model(nn.Module):
    """Embedding, two layers of that function, head."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = self.function(layer, x)
        return self.head(x)


class Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def plain(layer, x):
    return x + layer.down(F.gelu(layer.up(x)))


def sum_of(layer, x):
    #> Penstock has no operation for aten.cumsum
    return layer.down(torch.cumsum(layer.up(x), 1))


def several(layer, x):
    #> Penstock has no operation for aten.erfinv
    x = layer.up(x).erfinv()
    #> Penstock has no operation for aten.sin
    return layer.down(x.sin())


def buffer(layer, x):
    #> the buffer layers.0.count changes
    layer.count += 1
    return plain(layer, x)


def noise(layer, x):
    #> random numbers
    return plain(layer, x + torch.randn_like(x))


def custom(layer, x):
    #> a gradient of its own, of Steps
    return plain(layer, Steps.apply(x))


def branch(layer, x):
    x = layer.up(x)
    #> depends on values
    if x.sum() > 0:
        x = x * 2
    return layer.down(x)


def number(layer, x):
    #> depends on values
    return layer.up(x) * float(x.max())


def view(layer, x):
    y = layer.up(x)
    #> a write through a view
    y[:, 0] = 0
    return layer.down(y)


def region(layer, x):
    with torch.no_grad():
        #> a region without gradients
        y = layer.up(x)
    return layer.down(x) + y


def stopped(layer, x):
    #> a value without its gradient
    return layer.up(x) + layer.down(x.detach())


def size(layer, x):
    #> the graph depends on batch or sequence: factor of SCALE
    return layer.up(x) * (1 / x.shape[1])


def twice(layer, x):
    x = layer.up(x)
    #> the weight layers.0.up.weight is read a second time
    return layer.up(F.gelu(x))


def part(layer, x):
    #> ROW_MEAN of another part than all elements of a token
    return layer.down(x - x.view(*x.shape[:2], 2, -1).mean(-1, keepdim=True).expand(-1, -1, -1, WIDTH // 2).flatten(2))


def over_samples(layer, x):
    #> a sum or mean over another dim than the last, or the tokens of a sample
    return layer.down(x) * x.mean(0, keepdim=True)


def heads(layer, x):
    q = layer.up(x).view(*x.shape[:2], 2, WIDTH // 2)
    #> q is not of (batch, heads, sequence, head_dim)
    y = F.scaled_dot_product_attention(q, q, q)
    return layer.down(y.flatten(2))


def scaled(layer, x):
    #> a weight, or a constant, of other dims than the last ones of a token
    return layer.up(x) * torch.linspace(0, 1, x.shape[1])[:, None]


def stretched(layer, x):
    #> a constant has other values in sequences of another length
    return layer.up(x) + torch.linspace(0, 1, x.shape[1])[:, None] * torch.linspace(1, 2, WIDTH)


def strided(layer, x):
    y = layer.up(x)
    #> every second column
    return layer.down(torch.cat((y[..., ::2], y[..., 1::2]), -1))


def gates(layer, x):
    #> a softmax of other values than the scores of attention
    return layer.down(layer.up(x).softmax(-1))


def over_tokens(layer, x):
    #> softmax over the tokens or samples
    return layer.down(x * layer.up(x).softmax(1))


def largest(layer, x):
    #> max over the tokens or samples
    return layer.down(x + layer.up(x).max(1, keepdim=True).values)


def parts_of(layer, x):
    q = layer.up(x).view(*x.shape[:2], 2, WIDTH // 2).transpose(1, 2)
    return q, q @ q.transpose(-1, -2), torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)


def sinks(layer, x):
    q, scores, mask = parts_of(layer, x)
    scores = torch.cat((scores + mask, layer.row[:, :2, None, None].expand(len(x), -1, x.shape[1], 1)), -1)
    #> attention sinks
    return layer.down(((scores - scores.amax(-1, keepdim=True)).softmax(-1)[..., :-1] @ q).transpose(1, 2).flatten(2))


def alibi(layer, x):
    q, scores, mask = parts_of(layer, x)
    scores = scores + torch.arange(x.shape[1]) * torch.tensor([0.5, 0.25])[:, None, None] + mask
    #> scores with a constant bias, as ALiBi's
    return layer.down((scores.softmax(-1) @ q).transpose(1, 2).flatten(2))


def temperature(layer, x):
    q, scores, mask = parts_of(layer, x)
    #> scores times a value or weights
    return layer.down(((scores * layer.row[0, :2, None, None] + mask).softmax(-1) @ q).transpose(1, 2).flatten(2))


def matrix(layer, x):
    #> a product by a matrix of (in, out) without a bias
    return layer.down(F.relu(x @ layer.up.weight))


def shifted(layer, x):
    x = layer.up(x)
    #> values of other tokens beside those of a token
    return layer.down(x + F.pad(x, (0, 0, 1, -1)))


def relative(layer, x):
    q, scores, mask = parts_of(layer, x)
    #> scores with a bias that depends on values or weights
    return layer.down((((scores + layer.row[0, (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])).clamp(0, 9)]) + mask).softmax(-1) @ q).transpose(1, 2).flatten(2))


def bound(layer, x):
    #> the argument inf; a finite number
    return layer.down(x.masked_fill(layer.up(x) > 0, float("inf")))


def twisted(layer, x):
    #> heads are transposed
    return layer.down(layer.up(x).transpose(0, 1).reshape(x.shape))


class Apart(Model):
    def __init__(self):
        super().__init__(plain)
        self.places = nn.Embedding(3 * TOKENS, WIDTH)

    def forward(self, tokens):
        #> positions that are not 0, 1, 2, ...
        x = self.embed(tokens) + self.places(2 * torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = plain(layer, x)
        return self.head(x)


class Unplaced(Model):
    def __init__(self):
        super().__init__(plain)
        self.places = nn.Embedding(TOKENS, WIDTH, padding_idx=4)

    def forward(self, tokens):
        #> padding_idx = 4 among positions
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = plain(layer, x)
        return self.head(x)


class Valid(Model):
    def forward(self, tokens, targets):
        logits = super().forward(tokens)
        #> ignore_index = 7
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=7)


class Balanced(Model):
    def forward(self, tokens, targets):
        logits = super().forward(tokens)
        #> weight = 
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), weight=torch.rand(TOKENS))


class Squared(Model):
    def forward(self, tokens, targets):
        logits = super().forward(tokens)
        #> it reads the input targets
        return F.mse_loss(logits.sum(-1), targets.float())


class Skips(Model):
    """Two tensors pass from one layer to the next."""

    def forward(self, tokens):
        x = self.embed(tokens)
        y = plain(self.layers[0], x)
        #> 2 tensors pass from layers.0 to layers.1
        y = self.layers[1].down(F.gelu(self.layers[1].up(y)))
        return self.head(y + x)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens):
        return self.head(self.second(self.first(self.embed(tokens)).relu()))


FUNCTIONS = (sum_of, several, buffer, noise, custom, branch, number, view, region, stopped, size, twice, part, over_samples, heads, scaled, stretched, gates, over_tokens, largest, sinks, alibi, relative, temperature, matrix, shifted, bound, twisted)
CLASSES = (Apart, Unplaced, Valid, Balanced, Squared, Skips)
for function in FUNCTIONS:
    globals()["build_" + function.__name__] = lambda function=function: Model(function)
for model in CLASSES:
    globals()["build_" + model.__name__.lower()] = lambda model=model: model() if model in (Apart, Unplaced) else model(plain)


def build_flat():
    return Flat()


def raises():
    raise ValueError("of the user")
