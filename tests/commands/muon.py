"""muon.py: whether the matrices of the layers were updated by Muon.

  muon.py CHECKPOINTS LEARNING_RATE MOMENTUM NESTEROV NS_STEPS WEIGHT_DECAY

Computes each in f64 from the first of the checkpoints step-* in a folder, which follow each other, and the momentum of all: b = momentum b + g gives the
gradients. In the last each element must be within 1e-5 of the matrix's greatest. All other tensors have the moments of AdamW, biases of routers none. Of GPT-2 q, k and v are
side by side in c_attn.
"""
import glob
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from updates import load


def product(x, y):
    columns = list(zip(*y))
    return [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in x]


def orthogonalized(x, steps):
    """By the coefficients of Jordan et al. 2024; the update has the factor of Liu et al. 2025."""
    rows, columns = len(x), len(x[0])
    if rows > columns:
        return [list(row) for row in zip(*orthogonalized([list(row) for row in zip(*x)], steps))]
    norm = math.sqrt(sum(a * a for row in x for a in row)) + 1e-7
    x = [[a / norm for a in row] for row in x]
    for _ in range(steps):
        gram = product(x, [list(row) for row in zip(*x)])
        square = product(gram, gram)
        mixed = [[-4.7750 * a + 2.0315 * b for a, b in zip(*rows)] for rows in zip(gram, square)]
        x = [[3.4445 * a + b for a, b in zip(*rows)] for rows in zip(x, product(mixed, x))]
    return [[0.2 * math.sqrt(columns) * a for a in row] for row in x]


def matrix(shape, values, part=slice(None)):
    return [list(values[r * shape[1]:(r + 1) * shape[1]])[part] for r in range(shape[0])]


def difference(p, last, buffers, settings):
    """The greatest between the matrix after all steps and the last, in units of that one's greatest element."""
    rate, momentum, nesterov, steps, decay = settings
    for old, new in zip(buffers, buffers[1:]):
        u = [[(1 + momentum) * b - momentum * a for a, b in zip(*rows)] for rows in zip(old, new)] if nesterov else new
        p = [[a * (1 - rate * decay) - rate * b for a, b in zip(*rows)] for rows in zip(p, orthogonalized(u, steps))]
    greatest = max(abs(a) for row in last for a in row)
    off = max(abs(a - b) for rows in zip(p, last) for a, b in zip(*rows))
    return off / greatest


def main(folder, rate, momentum, nesterov, ns_steps, decay):
    steps = sorted(glob.glob(os.path.join(folder, "step-*")))
    start, end, moments = load(steps[0], "model"), load(steps[-1], "model"), [load(s, "optimizer") for s in steps]
    settings = float(rate), float(momentum), nesterov == "true", int(ns_steps), float(decay)
    wrong, matrices = [], 0
    for name, (shape, values) in start.items():
        of_layer = re.search(r"\.(layers|h)\.\d+\.", "." + name) and len(shape) == 2
        kinds = {key[len(name) + 1:] for key in moments[0] if key.startswith(name + ".")}
        is_balanced = name.endswith(".e_score_correction_bias")
        if kinds != ({"momentum_buffer"} if of_layer else set() if is_balanced else {"exp_avg", "exp_avg_sq"}):
            wrong.append(f"{name} has {sorted(kinds)}")
        elif of_layer:
            matrices += 1
            width = shape[1] // (3 if name.endswith("c_attn.weight") else 1)
            for first in range(0, shape[1], width):
                part = slice(first, first + width)
                buffers = [matrix(shape, m[name + ".momentum_buffer"][1], part) for m in moments]
                off = difference(matrix(shape, values, part), matrix(shape, end[name][1], part), buffers, settings)
                if not off <= 1e-5:
                    wrong.append(f"{name}, columns from {first}: {off} from the formula")
    print("".join(f"# {line}\n" for line in wrong), end="")
    return bool(wrong) or len(steps) < 2 or not matrices


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
