#!/usr/bin/env python3
"""tune.py: `make tune TOPOLOGY=x`: finds the fastest plan for this machine.

    tune.py [--turns N] [--steps N] [--seconds N] [--data FILE] [-s PATH=VALUE]... MAKE TOPOLOGY.cfg

TOPOLOGY.cfg has a group `plan` (man penstock-plan). From the build folder: builds the binary that
measures the model's blocks, measures them, asks penstock-plan for the best plans, builds the first
CANDIDATES of them and trains each for a few steps, alternately. The fastest is kept as
NAME-tuned.cfg, which `make TOPOLOGY=NAME-tuned.cfg` builds. Prints the predicted and the measured
time of a step of each. What it writes else is in tune/.

The candidates differ in replicas, stages on each rank, microbatch or schedule: of those that agree
in all four, only the best is built, as penstock-plan shows them. The others take as long, or nearly.

The text is made by tokens.py unless --data names a token file. --turns [3] is how often each is
run, --steps [8] how many steps are timed in each run, after WARM_STEPS. --seconds [40] is how long
the blocks are measured.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

import tokens

CANDIDATES, WARM_STEPS, TOKENS_OF_STEPS, FOLDER = 3, 2, 4, "tune"


def run(*command, output=None):
    """Runs a program, whose messages are shown. Ends with its status if that is not 0."""
    result = subprocess.run(command, stdout=subprocess.PIPE if output else None, text=True)
    if result.returncode != 0:
        sys.exit(result.returncode if result.returncode > 0 else 1)
    return result.stdout


def overrides(settings):
    return [word for setting in settings for word in ("-s", setting)]


def plan_command(settings, *options):
    return ["./penstock-plan", "--costs=" + settings.costs, "--top=%d" % CANDIDATES,
            *options, *overrides(settings.settings), settings.topology]


class Candidate:
    """One of the best plans: its topology, binary, prediction and measured steps in ms."""

    def __init__(self, number, plan, settings):
        self.name = "%s_%d" % (settings.name, number + 1)
        self.topology = os.path.join(FOLDER, self.name + ".cfg")
        self.plan, self.step_ms = plan, []
        run(*plan_command(settings, "--candidate=%d" % (number + 1), "-o", self.topology),
            output=True)
        run(settings.make, "--no-print-directory", "TOPOLOGY=" + self.topology, "NAME=" + self.name)

    def train(self, settings):
        log = os.path.join(FOLDER, self.name + ".jsonl")
        if os.path.exists(log):
            os.unlink(log)  # a run appends
        run("./penstock-" + self.name, "train", "--data", settings.data, "--steps",
            str(WARM_STEPS + settings.steps), "--overwrite", "--log", log, "--quiet")
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        steps = [line["step_ms"] for line in lines if "step_ms" in line]
        self.step_ms.append(statistics.median(steps[WARM_STEPS:]))

    def measured_ms(self):
        return statistics.median(self.step_ms)


def write_text(settings, name):
    info = json.loads(run("./penstock-" + name, "info", "--json", output=True))
    step = sum(shape["microbatches"] * shape["sequence"] for shape in info["shapes"])
    count = TOKENS_OF_STEPS * step * info["microbatch"] * info["replicas"] + 1
    settings.data = os.path.join(FOLDER, settings.name + ".bin")
    tokens.write(settings.data, count, info["vocab"])


def measure_and_plan(settings):
    """Builds the binary that measures, measures, and returns the best plans."""
    run(settings.make, "--no-print-directory", "TOPOLOGY=" + settings.topology,
        "SETTINGS=" + " ".join(settings.settings), "NAME=" + settings.name + "_measure")
    run("./penstock-%s_measure" % settings.name, "measure", "--seconds",
        str(settings.seconds), "--output", settings.costs)
    plans = json.loads(run(*plan_command(settings, "--print=json"), output=True))
    return plans["best"]


def print_table(candidates, fastest):
    print("plan             predicted ms  measured ms  error  settings")
    for candidate in candidates:
        predicted, measured = candidate.plan["step"], candidate.measured_ms()
        print("%-16s %12.1f %12.1f %+5.1f%%  %s%s" % (
            candidate.name, predicted, measured, 100 * (predicted / measured - 1),
            " ".join("%s=%s" % pair for pair in candidate.plan["settings"].items()),
            "  <- kept" if candidate is fastest else ""))


def parse_arguments():
    parser = argparse.ArgumentParser(description="finds the fastest plan for this machine")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--data")
    parser.add_argument("-s", dest="settings", action="append", default=[])
    parser.add_argument("make")
    parser.add_argument("topology")
    settings = parser.parse_args()
    settings.name = os.path.splitext(os.path.basename(settings.topology))[0]
    settings.costs = os.path.join(FOLDER, settings.name + "-costs.json")
    return settings


def main():
    settings = parse_arguments()
    os.makedirs(FOLDER, exist_ok=True)
    plans = measure_and_plan(settings)
    candidates = [Candidate(i, plan, settings) for i, plan in enumerate(plans)]
    if settings.data is None:
        write_text(settings, candidates[0].name)
    for _ in range(settings.turns):
        for candidate in candidates:
            candidate.train(settings)
    fastest = min(candidates, key=Candidate.measured_ms)
    kept = settings.name + "-tuned.cfg"
    shutil.copy(fastest.topology, kept)
    print_table(candidates, fastest)
    print("%s: make TOPOLOGY=%s" % (kept, kept))


main()
