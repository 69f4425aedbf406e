"""write.py: the files: the description, a topology that names it, and weights. Each replaces another of its name only when it is complete."""
import json
import os
import struct

import torch

from failure import CANNOT_CREATE, CANNOT_WRITE, Failure


def replace(path, write):
    """`write`: a function that gets the open file."""
    new = f"{path}.new"
    try:
        file = open(new, "wb")
    except OSError as error:
        raise Failure(CANNOT_CREATE, f"{path}: {error.strerror}") from None
    try:
        with file:
            write(file)
        os.replace(new, path)
    except OSError as error:
        if os.path.exists(new):
            os.remove(new)
        raise Failure(CANNOT_WRITE, f"{path}: {error.strerror}") from None


def description_path(cfg):
    return os.path.splitext(cfg)[0] + ".json"


def topology_text(cfg, source, sequence, frozen, loss_is_sum, group=1):
    together = f" loss_group = {group};" if group > 1 else ""
    others = "  loss = \"cross_entropy_sum\";\n" if loss_is_sum else ""
    if frozen:
        others += "  frozen = [" + ", ".join(json.dumps(name) for name in frozen) + "];\n"
    return (f"# {source}, by penstock-import\n"
            f"model = {{\n  family = \"described\";\n  description = {json.dumps(os.path.basename(description_path(cfg)))};\n  sequence = {sequence};\n{others}}};\n"
            "pipeline = { ranks = 1; microbatches = 8; schedule = \"1f1b\"; };\n"
            f"batch = {{ microbatch = {group};{together} }};\n"
            "optimizer = { learning_rate = 1e-4; steps = 1000; warmup_steps = 100; decay = \"cosine\"; };\n")


def write_weights(path, tensors):
    """A safetensors file of f32 tensors: (name, tensor), in order."""
    header, at = {}, 0
    for name, tensor in tensors:
        header[name] = {"dtype": "F32", "shape": list(tensor.shape) or [1], "data_offsets": [at, at + 4 * tensor.numel()]}
        at += 4 * tensor.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def write(file):
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in tensors:
            file.write(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())

    replace(path, write)
