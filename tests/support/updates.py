"""updates.py: whether a step of AdamW, between two checkpoints, counts the updates of each tensor.

  updates.py BEFORE AFTER LEARNING_RATE UPDATES [ENDING=UPDATES]...

Computes each tensor of AFTER from that of BEFORE and the moments of AFTER as PyTorch's AdamW does, with the topology's default settings, in f64:
the tensors with that ending of their names have had so many updates, AFTER's included, all others UPDATES. manifest.json must say the same.
"""
import json
import math
import struct
import sys

BETA1, BETA2, EPSILON, DECAY = 0.9, 0.95, 1e-8, 0.1


def load(folder, file):
    """{NAME: (shape, values)} of a safetensors file of f32."""
    with open(f"{folder}/{file}.safetensors", "rb") as stream:
        data = stream.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, past = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = entry["shape"], struct.unpack(f"<{(past - first) // 4}f", data[first:past])
    return tensors


def differs(parameter, mean, square, updated, rate, decay, updates):
    divisor = math.sqrt(square / (1 - BETA2**updates)) + EPSILON
    wanted = parameter * (1 - rate * decay) - rate * mean / (1 - BETA1**updates) / divisor
    return abs(updated - wanted) > 1e-6 * (abs(parameter) + rate)


def main(before, after, rate, updates, *exceptions):
    old, new, moments = load(before, "model"), load(after, "model"), load(after, "optimizer")
    with open(f"{after}/manifest.json", encoding="utf-8") as stream:
        counted = json.load(stream)["updates"]
    trained = {name for name in new if name + ".exp_avg" in moments}
    wrong = [f"the manifest counts {set(counted) ^ trained}"] if set(counted) != trained else []
    for name in sorted(trained):
        number = next((int(e.split("=")[1]) for e in exceptions if name.endswith(e.split("=")[0])), int(updates))
        shape, values = old[name]
        decay = DECAY if len(shape) == 2 else 0
        rows = zip(values, moments[name + ".exp_avg"][1], moments[name + ".exp_avg_sq"][1], new[name][1])
        bad = sum(differs(*row, float(rate), decay, number) for row in rows)
        if bad or counted.get(name) != number:
            wrong.append(f"{name}: {bad} of {len(values)} elements are not of update {number}; the manifest has {counted.get(name)}")
    print("".join(f"# {line}\n" for line in wrong), end="")
    return bool(wrong) or not trained


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
