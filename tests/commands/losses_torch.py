"""The loss and gradient norm of tests/models/losses.json, or policy.json, in f64, by PyTorch's own losses of the whole batch: the figures of tests/commands/losses.t.

losses_torch.py WEIGHTS.safetensors SAMPLES.safetensors COUNT: prints LOSS NORM of the first samples."""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8}


def read(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = tensor.double() if tensor.is_floating_point() else tensor.long()
    return tensors


def trunk():
    x = weight["wte.weight"][data["idx"]]
    for layer in range(3):
        x = x + F.gelu(x @ weight[f"h.{layer}.up.weight"].T) @ weight[f"h.{layer}.down.weight"].T
    return x


def project(x, name):
    return (x @ weight[f"{name}.weight"].T).squeeze(-1)


def regression(x):
    mask = data["mask"].double()
    y, v = project(x, "label"), project(x, "value")
    clipped = data["old"] + (v - data["old"]).clamp(-0.5, 0.5)
    return [
        F.mse_loss(x * mask[..., None], data["state"] * mask[..., None]),
        F.binary_cross_entropy_with_logits(y, data["label"].double(), weight=mask, reduction="sum") / mask.sum().clamp(min=1),
        0.25 * (F.huber_loss(v, data["value"], reduction="none", delta=0.5) * data["weight"]).sum() / data["weight"].sum(),
        0.5 * (torch.maximum((v - data["value"]) ** 2, (clipped - data["value"]) ** 2) * mask).sum() / mask.sum(),
        0.75 * F.cross_entropy(project(x, "class").flatten(0, 1), data["class"].flatten()),
        0.2 * F.cross_entropy(project(x[:, 0], "topic") + weight["topic.bias"], data["topic"]),
        0.02 * F.mse_loss(project(x[:, -2:].flatten(1), "score"), data["score"]),
    ]


def policy(x):
    logits, taken, mask = project(x, "lm_head"), data["taken"], data["mask"].double()
    every = logits.log_softmax(-1)
    logp = every.gather(-1, taken.clamp(min=0)[..., None]).squeeze(-1) * (taken != -100)
    ratio, kl = (logp - data["old"]).exp(), data["reference"] - logp
    surrogate = torch.minimum(ratio * data["advantage"], ratio.clamp(0.8, 1.2) * data["advantage"])
    # Of the smoothed loss F.cross_entropy takes the mean; the z-loss is that of the valid tokens.
    smooth = F.cross_entropy(logits.flatten(0, 1), taken.flatten(), label_smoothing=0.1)
    z = (logits.logsumexp(-1)[taken != -100] ** 2).mean()
    margin = ((logp - data["reference"]) * mask).sum(-1)
    reward = project(x, "reward")[:, -1]
    losses = [
        -(surrogate * mask).sum() / mask.sum(),
        0.1 * ((kl.exp() - kl - 1) * mask).sum() / mask.sum(),
        0.01 * z,
        -F.logsigmoid(0.2 * (margin[0::2] - margin[1::2])).mean(),
        -F.logsigmoid(reward[0::2] - reward[1::2]).mean(),
    ]
    if "teacher" in data:
        likely = (every.gather(-1, data["teacher"].clamp(min=0)) * (data["teacher"] != -100) * data["probability"]).sum()
        losses += [smooth, -0.5 * likely / taken.numel()]
    return losses


weight = {name: tensor.requires_grad_() for name, tensor in read(sys.argv[1]).items()}
data = {name: tensor[:int(sys.argv[3])] for name, tensor in read(sys.argv[2]).items()}
loss = sum((policy if "taken" in data else regression)(trunk()))
loss.backward()
print(repr(loss.item()), repr(math.sqrt(sum(float((tensor.grad ** 2).sum()) for tensor in weight.values()))))
