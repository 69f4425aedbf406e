"""fixed_order.py: `make bench-order`: what the fixed order of all sums costs.

A binary with our own products, whose bits are the same with every compiler, is compared with one
whose compiler may reorder sums (-O3 -ffast-math), and with one whose products are the libraries'
(CBLAS for f32, oneDNN for bf16), in pairs of runs; which of the two runs first alternates. Of a run
the median of its steps after the first counts.

Runs at the top of the build folder, where penstock-bench_order_DTYPE and
penstock-bench_order_DTYPE_free are. Writes bench-order.json.
"""
import argparse
import json
import os
import statistics

import tokens
from child import FOLDER, Run, fail, pair_figures, wait_for_quiet

DATA, LOG = FOLDER + "/order.bin", FOLDER + "/order.log"
TOKEN_COUNT, VOCAB = 8 * 4 * 256 * 8 + 1, 4096


def step_ms(binary, products, steps):
    os.environ["PEN_PRODUCTS"] = products
    run = Run(["./" + binary, "train", "--data", DATA, "--quiet", "--steps", str(steps), "--overwrite", "--log", LOG])
    times = [json.loads(line)["step_ms"] for line in open(LOG)]
    if len(times) != steps:
        fail("%s: %d steps in the log" % (binary, len(times)))
    return statistics.median(times[1:]), run.others_share


def compare(fixed, other, options):
    """Both: (binary, products). Pairs of step times."""
    pairs, others = [], []
    while len(pairs) < options.pairs:
        wait_for_quiet(10)
        order = [0, 1] if len(pairs) % 2 == 0 else [1, 0]
        ran = {i: step_ms(*(fixed, other)[i], options.steps) for i in order}
        pairs.append((ran[0][0], ran[1][0]))
        others += [ran[0][1], ran[1][1]]
    return pairs, statistics.median(others)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    os.makedirs(FOLDER, exist_ok=True)
    tokens.write(DATA, TOKEN_COUNT, VOCAB)
    results = []
    print("%-40s %12s %12s %8s %18s" % ("", "fixed, ms", "other, ms", "ratio", "quartiles"))
    for dtype in "f32", "bf16":
        binary = "penstock-bench_order_" + dtype
        for name, other in (("-O3 -ffast-math", (binary + "_free", "own")), ("library products", (binary, "library"))):
            pairs, others = compare((binary, "own"), other, options)
            first, second, ratio, low, high = pair_figures(pairs, 1, 0)
            print("%-40s %12.1f %12.1f %8.3f %8.3f to %.3f" % (dtype + ", " + name, second, first, ratio, low, high), flush=True)
            results.append({"dtype": dtype, "other": name, "pairs": pairs, "ratio": ratio, "quartiles": [low, high],
                            "others_share": others})
    json.dump(results, open("bench-order.json", "w"), indent=1)


main()
