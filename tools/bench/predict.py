"""predict.py: `make bench-predict`: predicts the steps of topologies/predict/ from the costs of
blocks, one `measure` for each dtype, number of threads and of tensor ranks, and measures them. It
runs from the top of the build folder, where the binaries are.

A turn trains each topology once, so that a clock that changes is shared by all. The error is that of
the median of all measured steps. bench-predict.json has a row for each topology.
"""
import argparse
import json
import os
import statistics
import subprocess

import tokens
from child import FOLDER, Run, fail, wait_for_quiet

WARM_STEPS, STEPS_LEAST, QUIET_WAIT_S, OTHERS_SHARE_MAX = 2, 6, 20, 0.05
TOKENS, LOG = FOLDER + "/predict-tokens.bin", FOLDER + "/predict-log.json"
TOKEN_COUNT, VOCAB = 200_000, 1024


def binary(name):
    return "./penstock-predict_" + name


def info(name):
    return json.loads(subprocess.check_output([binary(name), "info", "--json"]))


def kind(deployed):
    """What the costs of blocks depend on, besides the model, which is the same."""
    return "%s-%d-%d" % (deployed["dtype"], deployed["threads_per_rank"], deployed["tensor_ranks"])


def measure_costs(name):
    """Measures the costs of blocks by that topology's binary. Returns their file."""
    path = "%s/predict-costs-%s.json" % (FOLDER, name)
    wait_for_quiet(QUIET_WAIT_S)
    run = Run([binary(name), "measure", "--output", path, "--quiet"])
    print("# costs of %s: %.0f s, others had %.1f%% of the cores" %
          (name, run.passed_s, 100 * run.others_share), flush=True)
    return path


def predict(folder, name, costs):
    """The report of a topology by these costs."""
    return json.loads(subprocess.check_output(
        ["./penstock-gen", "--print=report", "--costs=" + costs, "%s/%s.cfg" % (folder, name)]))


def train(name, steps):
    """The times of steps, and the part of the cores that others had."""
    wait_for_quiet(QUIET_WAIT_S)
    run = Run([binary(name), "train", "--data", TOKENS, "--steps", str(steps), "--overwrite", "--log", LOG, "--quiet"])
    times = [json.loads(line)["step_ms"] for line in open(LOG)]
    return times[WARM_STEPS:], run.others_share


def row(folder, name, deployed, costs, turns):
    report = predict(folder, name, costs[kind(deployed)])
    quiet = [times for times, share in turns if share <= OTHERS_SHARE_MAX]
    measured = statistics.median(sum(quiet or [times for times, _ in turns], []))
    arena = max(rank["arena_bytes"] for rank in deployed["rank"])
    placed = max(rank["placed_bytes"] for rank in report["rank"])
    return {"topology": name, "predicted_ms": report["step"], "measured_ms": measured,
            "error": report["step"] / measured - 1, "arena_bytes": arena,
            "predicted_arena_bytes": placed, "quiet_turns": len(quiet)}


def print_rows(rows, turns):
    print("%-20s %12s %12s %8s %12s %6s" % ("topology", "predicted ms", "measured ms", "error", "arena MiB", "quiet"))
    for r in rows:
        print("%-20s %12.2f %12.2f %7.2f%% %12.1f %2d of %d" %
              (r["topology"], r["predicted_ms"], r["measured_ms"], 100 * r["error"], r["arena_bytes"] / 2**20,
               r["quiet_turns"], turns))
    errors = sorted(abs(r["error"]) for r in rows)
    exact = sum(r["arena_bytes"] == r["predicted_arena_bytes"] for r in rows)
    print("error: median %.2f%%, worst %.2f%%; memory exact: %d of %d" %
          (100 * statistics.median(errors), 100 * errors[-1], exact, len(rows)))


def main():
    parser = argparse.ArgumentParser(prog="make bench-predict PREDICT_OPTIONS=...")
    parser.add_argument("--topologies", required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12, help="of a training run")
    parser.add_argument("--only", nargs="*", default=None, help="names of topologies")
    options = parser.parse_args()
    if options.turns < 1 or options.steps < STEPS_LEAST:
        fail("at least 1 turn, and %d steps" % STEPS_LEAST)
    names = sorted(name[:-4] for name in os.listdir(options.topologies) if name.endswith(".cfg"))
    names = [name for name in names if options.only is None or name in options.only]
    os.makedirs(FOLDER, exist_ok=True)
    tokens.write(TOKENS, TOKEN_COUNT, VOCAB)
    deployed = {name: info(name) for name in names}
    measuring = {kind(deployed[name]): name for name in names}
    costs = {of: measure_costs(name) for of, name in measuring.items()}
    turns = {name: [] for name in names}
    for turn in range(options.turns):
        print("# turn %d of %d" % (turn + 1, options.turns), flush=True)
        for name in names:
            turns[name].append(train(name, options.steps))
    rows = [row(options.topologies, name, deployed[name], costs, turns[name]) for name in names]
    json.dump(rows, open("bench-predict.json", "w"), indent=1)
    print_rows(rows, options.turns)


if __name__ == "__main__":
    main()
