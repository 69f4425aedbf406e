"""step.py: the loss and the gradient norm of a module's first step, by PyTorch in f64: the reference of tests/commands/import.t.

step.py TOKENS SEQUENCE SEQUENCES MODULE...: of each FILE.py:BUILD[:LOSS[:SAMPLES.safetensors]], or folder of transformers, which lacks no weight and has none too many,
prints LOSS NORM of the first sequences of the tokens."""
import importlib.util
import inspect
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F


def windows(path, sequence, count):
    data = open(path, "rb").read()[1024:]
    tokens = torch.tensor(struct.unpack(f"<{len(data) // 2}H", data))
    first = torch.arange(count)[:, None] * sequence + torch.arange(sequence)
    return tokens[first], tokens[first + 1]


def loss_of(module, output, targets):
    if isinstance(output, tuple):
        return output[1]
    logits = getattr(output, "logits", output)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load(path):
    spec = importlib.util.spec_from_file_location("models", path)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    return models


def from_folder(folder):
    import transformers

    module, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(info.values()), info
    if hasattr(module, "set_experts_implementation"):
        module.set_experts_implementation("eager")  # others have no f64
    return module


def without_dropout(module):
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return module.eval()


def named_loss(module, loss, path):
    """Of samples by name."""
    from safetensors.torch import load_file

    given = {name: value.double() if value.is_floating_point() else value.bool() if name in ("mask", "shown") else value for name, value in load_file(path).items()}
    named = lambda function: {name: value for name, value in given.items() if name in inspect.signature(function).parameters}
    output = module(**named(module.forward))
    return loss(output, **named(loss)) if loss else F.cross_entropy(output.flatten(0, 1), given["labels"].flatten())


def main(tokens, sequence, count, builds):
    inputs, targets = windows(tokens, int(sequence), int(count))
    for build in builds:
        if os.path.isdir(build):
            module, loss = from_folder(build), []
        else:
            path, name, *loss = build.split(":")
            models = load(path)
            module = getattr(models, name)()
        module = without_dropout(module).double()
        if len(loss) > 1:
            report(module, named_loss(module, getattr(models, loss[0], None), loss[1]))
            continue
        output = module(inputs, targets) if type(module).__name__ == "Nano" else module(inputs)
        report(module, getattr(models, loss[0])(output, inputs, targets) if loss else loss_of(module, output, targets))


def report(module, loss):
    loss.backward()
    squares = (float(parameter.grad.square().sum()) for parameter in module.parameters() if parameter.grad is not None)
    print(repr(loss.item()), repr(math.sqrt(sum(squares))))


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
