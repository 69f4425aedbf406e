"""optimizer_groups.py: whether tensors were updated by the optimizer, rate and weight decay of their groups.

  optimizer_groups.py CHECKPOINTS LEARNING_RATE ENDING=NAME,RATE,DECAY...

Computes each tensor in f64 from the first of the checkpoints step-* in a folder, which follow each other, and the moments of all later ones, as AdamW
and SGD with momentum do; in the last it must be within 1e-5. A tensor has what the first ENDING of its name says.
"""
import glob
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from updates import BETA1, BETA2, EPSILON, load


def adamw(mean, square, updates):
    return mean / (1 - BETA1**updates) / (math.sqrt(square / (1 - BETA2**updates)) + EPSILON)


def step(values, moments, name, group, updates):
    """The tensor after one more step, which is number `updates`."""
    optimizer, rate, decay = group
    if optimizer == "sgd":
        by = moments[name + ".momentum_buffer"][1]
    else:
        pairs = zip(moments[name + ".exp_avg"][1], moments[name + ".exp_avg_sq"][1])
        by = (adamw(mean, square, updates) for mean, square in pairs)
    return [value * (1 - rate * decay) - rate * change for value, change in zip(values, by)]


def main(folder, learning_rate, *groups):
    steps = sorted(glob.glob(os.path.join(folder, "step-*")))
    start, end, moments = load(steps[0], "model"), load(steps[-1], "model"), [load(s, "optimizer") for s in steps]
    parsed = [(ending, optimizer, float(learning_rate) * float(rate), float(decay))
              for ending, values in (group.split("=") for group in groups) for optimizer, rate, decay in [values.split(",")]]
    wrong = []
    for name, (_, values) in start.items():
        group = next(group[1:] for group in parsed if name.endswith(group[0]))
        first = values
        for number in range(1, len(steps)):
            values = step(values, moments[number], name, group, number + 1)
        after = end[name][1]
        bad = sum(abs(a - b) > 1e-5 * max(abs(b), 1e-2) for a, b in zip(after, values))
        if bad or (group[1] and after == first):
            wrong.append(f"{name}: {bad} of {len(values)} elements are not those of {group}")
    print("".join(f"# {line}\n" for line in wrong), end="")
    return bool(wrong) or len(steps) < 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
