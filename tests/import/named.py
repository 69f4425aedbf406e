"""named.py: modules with inputs and losses of their own, by --inputs and --loss."""
import torch
import torch.nn.functional as F
from torch import nn

TOKENS, WIDTH, CLASSES, CHOICES = 40, 16, 11, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.logits, self.value, self.label, self.reward = (nn.Linear(WIDTH, width, bias=False) for width in (CLASSES, 1, 1, 1))

    def forward(self, idx):
        x = self.embed(idx)
        for layer in self.layers:
            x = layer(x)
        return {"state": x, "heads": {name: getattr(self, name)(x) for name in ("logits", "value", "label", "reward")}}


class Takes(Model):
    """Whatever the loss does not name."""

    def forward(self, idx, **others):
        assert "old" not in others, others
        return super().forward(idx)["heads"]


def takes():
    torch.manual_seed(6)
    return Takes()


def model():
    torch.manual_seed(6)
    return Model()


def shown(batch, sequence):
    mask = torch.rand(batch, sequence) < 0.7
    mask[:, 0] = True
    return mask


def regression_inputs(batch, sequence):
    return {"idx": torch.randint(TOKENS, (batch, sequence), dtype=torch.int32), "value": torch.randn(batch, sequence), "old": torch.randn(batch, sequence),
            "weight": torch.rand(batch, sequence), "state": torch.randn(batch, sequence, WIDTH).bfloat16(), "label": torch.randint(2, (batch, sequence), dtype=torch.uint8),
            "mask": shown(batch, sequence), "kind": torch.randint(CLASSES, (batch, sequence))}


def regression(output, value, old, weight, state, label, mask, kind):
    """Masked MSE, BCE, weighted Huber, the value of PPO, weighted and smoothed tokens, z-loss."""
    y, v, logits = (output["heads"][name].squeeze(-1) for name in ("label", "value", "logits"))
    clipped = old + (v - old).clamp(-0.5, 0.5)
    tokens = F.cross_entropy(logits.transpose(1, 2), kind, reduction="none")
    return (
        F.mse_loss(output["state"], state.to(output["state"].dtype))
        + F.binary_cross_entropy_with_logits(y, label.to(y.dtype), weight=mask.to(y.dtype), reduction="sum") / mask.sum().clamp(min=1)
        + 0.25 * (F.huber_loss(v, value, reduction="none", delta=0.5) * weight).sum() / weight.sum()
        + 0.5 * (torch.maximum((v - value) ** 2, (clipped - value) ** 2) * mask).sum() / mask.sum()
        + 0.75 * F.cross_entropy(logits.flatten(0, 1), kind.flatten())
        + (tokens * weight).sum() / (weight.sum() + 1e-8)
        + 0.1 * F.cross_entropy(logits.flatten(0, 1), kind.flatten(), label_smoothing=0.1)
        + 1e-2 * (logits.logsumexp(-1) ** 2).mean()
    )


def counted(output, kind):
    """The mean over targets, written out."""
    return F.cross_entropy(output["heads"]["logits"].flatten(0, 1), kind.flatten(), reduction="sum") / (kind != -100).sum().clamp(min=1)


def policy_inputs(batch, sequence):
    sign = (1 - 2 * (torch.arange(batch) % 2)).float()[:, None].expand(batch, sequence).clone()
    return {"idx": torch.randint(TOKENS, (batch, sequence)), "taken": torch.randint(CLASSES, (batch, sequence)), "old": -2 + torch.randn(batch, sequence),
            "reference": -2 + torch.randn(batch, sequence), "advantage": torch.randn(batch, sequence), "mask": shown(batch, sequence), "sign": sign,
            "teacher": torch.randint(CLASSES, (batch, sequence, CHOICES)), "probability": torch.rand(batch, sequence, CHOICES)}


def taken_of(output, taken):
    return output.get("heads", output)["logits"].log_softmax(-1).gather(-1, taken.unsqueeze(-1)).squeeze(-1)


def grpo(output, taken, old, reference, advantage, mask):
    """Clipped, with a divergence; each sample has its mean."""
    logp = taken_of(output, taken)
    ratio, kl = (logp - old).exp(), reference - logp
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    each = -surrogate + 0.1 * (kl.exp() - kl - 1)
    return ((each * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean() - 0.1 * (surrogate * mask).sum() / mask.sum()


def distilled(output, teacher, probability):
    logp = output["heads"]["logits"].log_softmax(-1).gather(-1, teacher)
    return -(probability * logp).sum(-1).mean()


def raised(output, taken, old):
    """Of ids that are raised to 0, those below are ignored, which the code asks for first; and over a sum below 0."""
    shown = taken != -100
    logp = taken_of(output, taken.clamp(min=0))
    return ((logp - old).square() * shown).sum() / shown.sum() - (logp * shown.float()).sum() / shown.sum().clamp(min=1) + 0.1 * (logp * old * shown).sum() / old.sum()


def squared_value(output, old):
    """The logits are no part of a cross entropy, but of a penalty."""
    return F.mse_loss(output["value"].squeeze(-1), old) + 0.1 * output["logits"].mean(-1).square().mean()


def dpo(output, taken, reference, mask, sign):
    """Of pairs of samples, the first of which is preferred; and their rewards."""
    chosen, given = (taken_of(output, taken) * mask * sign).sum(-1), (reference * mask * sign).sum(-1)
    margin = (chosen - given).view(-1, 2).sum(-1)
    reward = (output["heads"]["reward"].squeeze(-1) * sign * mask).sum(-1).view(-1, 2).sum(-1)
    return -F.logsigmoid(0.2 * margin).mean() - F.logsigmoid(reward).mean()


def smoothed(output, targets):
    """Of token files."""
    logits = output["heads"]["logits"]
    return sum((F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1), 1e-3 * (logits.logsumexp(-1) ** 2).mean()))


# ---- masks of keys, samples without tokens ----

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True), 2)

    def forward(self, tokens, shown):
        return self.head(self.encoder(self.embed(tokens), src_key_padding_mask=~shown))


def encoder():
    torch.manual_seed(7)
    return Encoder()


def encoder_inputs(batch, sequence):
    return {"tokens": torch.randint(TOKENS, (batch, sequence)), "shown": shown(batch, sequence), "labels": torch.randint(CLASSES, (batch, sequence))}


def regressor():
    torch.manual_seed(8)
    module = nn.Sequential(nn.Linear(6, WIDTH), *(Block() for _ in range(2)), nn.Linear(WIDTH, 2))
    module.forward = lambda x: nn.Sequential.forward(module, x)
    return module


def regressor_inputs(batch, sequence):
    return {"x": torch.randn(batch, 6), "y": torch.randn(batch, 2), "kind": torch.randint(2, (batch,), dtype=torch.uint8)}


class Pooled(nn.Module):
    """Values of samples: ids and numbers of a user beside each token; masked and plain means of tokens, the first and the last; slices, five parts."""

    def __init__(self):
        super().__init__()
        self.words, self.users, self.side = nn.Embedding(TOKENS, WIDTH), nn.Embedding(10, WIDTH), nn.Linear(5, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.rate = nn.LayerNorm(WIDTH), nn.Linear(4 * (WIDTH // 2) + WIDTH, 1)

    def forward(self, tokens, shown, user, numbers):
        x = self.words(tokens) + self.users(user)[:, None] + self.side(numbers).unsqueeze(1)
        for layer in self.layers:
            x = layer(x)
        x, half = self.norm(x), WIDTH // 2
        mean = (x * shown[..., None]).sum(1) / shown.float().sum(1, keepdim=True).clamp(min=1)
        last = x[:, -1]
        return self.rate(torch.cat([mean[:, 3:3 + half], last[:, :half], x[:, 0, :half], torch.tanh(x.mean(1))[:, half:], last], -1)).squeeze(-1)


def pooled():
    torch.manual_seed(9)
    return Pooled()


def pooled_inputs(batch, sequence):
    return {"tokens": torch.randint(TOKENS, (batch, sequence)), "shown": shown(batch, sequence), "user": torch.randint(10, (batch,)),
            "numbers": torch.randn(batch, 5), "y": torch.randn(batch)}


class Scores(Pooled):
    """Of each sample the mean over its tokens: no logits of tokens, so that no text is scored."""

    def forward(self, tokens, user):
        x = self.words(tokens) * self.users(user)[:, None]
        for layer in self.layers:
            x = layer(x)
        return self.side(x[..., :5])[..., 0].mean(1)


def scores():
    torch.manual_seed(10)
    return Scores()


def squares(output, y):
    return F.mse_loss(output, y)


def classes(output, kind):
    return F.cross_entropy(output, kind.long())


# ---- what is refused ----

def pairs(output, taken, mask):
    reward = (taken_of(output, taken) * mask).sum(-1)
    #> an input of 1 and -1
    return -F.logsigmoid(reward[0::2] - reward[1::2]).mean()


def contrastive(output, mask):
    x = output["state"][:, 0]
    #> a product of two values other than attention, as a contrastive loss has
    return -(x @ x.T).log_softmax(-1).diagonal().mean()


def whole_teacher(output, probability):
    #> log-probabilities of a whole vocabulary
    return -(output["heads"]["logits"].log_softmax(-1) * probability.sum(-1, keepdim=True)).sum(-1).mean()


def balance(output, mask):
    #> Penstock has no operation for aten.mean
    return output["heads"]["logits"].mean((0, 1)).square().sum()


def raised_alone(output, taken):
    #> LOGP has other values than the module
    return -taken_of(output, taken.clamp(min=0)).mean()


def whole_sum(output, mask):
    #> a loss over another number than that of the samples
    return (output["heads"]["value"].squeeze(-1) * mask).sum()
