"""bench_gen.py: `make bench-gen`: times each pass of the generator over topologies and over
pipelines of growing size, and beside them the plan builders of PyTorch and d9d.

Times are processor seconds, the least of several runs; a run is `penstock-gen --print=report`, which
includes all passes, the proof and the report. "order" is what the builders do: compose, simulate and
lower. "growth" is the exponent e of whole ~ actions^e between a pipeline and the next smaller one of
its schedule; n log n is about 1.1 here. The peers time themselves by wall-clock time: "core,%" is
the part of a core that they had meanwhile. With --cc the C of each pipeline is emitted and compiled
too, as make does it. --large adds 1024 ranks with 1024 microbatches.
"""
import argparse
import functools
import json
import math
import os

from child import FOLDER, Run

RUNS, ENOUGH_S = 9, 4  # no further run once the runs of a case took so long
TIMES, PLAN = FOLDER + "/times.json", FOLDER + "/plan"

# schedule, the peer's name of it, ranks, stages a rank, microbatches
PIPELINES = [
    ("1f1b", "interleaved", 8, 2, 32), ("1f1b", "interleaved", 16, 2, 64),
    ("1f1b", "interleaved", 32, 2, 192), ("1f1b", "interleaved", 64, 2, 512),
    ("zero_bubble_v", "zbv", 8, 2, 32), ("zero_bubble_v", "zbv", 16, 2, 64),
    ("zero_bubble_v", "zbv", 64, 2, 512), ("looped_bfs", "looped_bfs", 8, 2, 32),
    ("looped_bfs", "looped_bfs", 64, 2, 512), ("1f1b", "1f1b", 64, 1, 512),
]
LARGE = ("1f1b", "1f1b", 1024, 1, 1024)

# Columns of the table, each of one or more passes; what no column names is "rest".
COLUMNS = {"settings": ["topology", "partition"], "model": ["model and derive", "costs"],
           "compose": ["compose"], "simulate": ["simulate"], "lower": ["lower"],
           "layout": ["layout"], "digest": ["digest"], "verify": ["verify"], "report": ["report"]}
ORDER = ["compose", "simulate", "lower"]


def seconds_of(times, names):
    return sum(pass_["seconds"] for pass_ in times["passes"] if pass_["name"] in names)


# ---- cases ----

def time_gen(arguments):
    """The document of --times, of the fastest of several runs."""
    best, spent_s = None, 0
    for _ in range(RUNS):
        Run(["./penstock-gen", "--print=report", "--times=" + TIMES] + arguments)
        times = json.load(open(TIMES))
        spent_s += times["seconds"]
        if best is None or times["seconds"] < best["seconds"]:
            best = times
        if spent_s >= ENOUGH_S:
            break
    return best


def time_compiler(cc, arguments, result):
    Run(["./penstock-gen", "--output=%s.c" % PLAN, "--times=" + TIMES] + arguments)
    result["emit_s"] = seconds_of(json.load(open(TIMES)), ["c"])
    result["source_bytes"] = os.path.getsize(PLAN + ".c")
    compiled = Run(["/bin/sh", "-c", "CCACHE_DISABLE=1 %s -c -o %s.o %s.c" % (cc, PLAN, PLAN)])
    result["compile_s"], result["compile_peak_bytes"] = compiled.cpu_s, compiled.peak_bytes


@functools.lru_cache(maxsize=None)
def peer_lines(peer, folder, size):
    """What a peer's script prints for one size: a line a schedule and maker."""
    run = Run([peer, folder + "/torch_plan.py", "--only", size, "--skip-simulate-above", "0"])
    return [json.loads(line) for line in run.output.splitlines()], run.cpu_s / run.passed_s


def time_pipeline(settings, pipeline):
    schedule, peer, ranks, stages, microbatches = pipeline
    arguments = ["-spipeline.schedule=" + schedule, "-spipeline.ranks=%d" % ranks,
                 "-spipeline.stages_per_rank=%d" % stages,
                 "-spipeline.microbatches=%d" % microbatches,
                 "-smodel.layers=%d" % (ranks * stages), settings.topologies + "/scale.cfg"]
    result = time_gen(arguments)
    result["name"] = "%s %dx%dx%d" % (schedule, ranks, stages, microbatches)
    if settings.cc and pipeline is not LARGE:
        time_compiler(settings.cc, arguments, result)
    if settings.peer and pipeline is not LARGE:
        lines, result["peer_core_share"] = peer_lines(
            settings.peer, settings.peer_folder, "%d,%d,%d" % (ranks, stages, microbatches))
        for line in lines:
            if line.get("schedule") == peer and "build_s" in line:
                result[line["maker"] + "_s"] = line["build_s"]
    return result


# ---- the tables ----

def print_head():
    print("%-28s %9s %8s" % ("milliseconds", "actions", "rest") +
          "".join(" %8s" % name for name in COLUMNS) +
          " %8s %9s %6s %8s" % ("order", "whole", "growth", "peak MiB"))


def print_case(times, smaller=None):
    columns = [seconds_of(times, passes) for passes in COLUMNS.values()]
    growth = "" if smaller is None else "%.2f" % (
        math.log(times["seconds"] / smaller["seconds"]) / math.log(times["rows"] / smaller["rows"]))
    print("%-28s %9d %8.2f" % (times["name"], times["rows"],
                               1e3 * (times["seconds"] - sum(columns))) +
          "".join(" %8.2f" % (1e3 * column) for column in columns) +
          " %8.2f %9.2f %6s %8.1f" % (1e3 * seconds_of(times, ORDER), 1e3 * times["seconds"],
                                      growth, times["peak_kib"] / 1024), flush=True)


def ratio_text(times, key, order_s):
    return " %10s %7s" % ("-", "") if key not in times else " %10.1f %6.0fx" % (
        1e3 * times[key], times[key] / order_s)


def print_others(cases, settings):
    """The peers' builders beside ours, and the compiler."""
    print("\n%-28s %10s" % ("milliseconds", "order") +
          (" %10s %7s %10s %7s %6s" % ("PyTorch", "ratio", "d9d", "ratio", "core,%")
           if settings.peer else "") +
          (" %9s %9s %9s %9s" % ("emit", "C, MiB", "compile", "peak MiB") if settings.cc else ""))
    for times in cases:
        order_s = seconds_of(times, ORDER)
        line = "%-28s %10.2f" % (times["name"], 1e3 * order_s)
        if settings.peer:
            line += (ratio_text(times, "torch_s", order_s) + ratio_text(times, "d9d_s", order_s) +
                     " %6.0f" % (100 * times.get("peer_core_share", math.nan)))
        if "compile_s" in times:
            line += " %9.1f %9.1f %9.1f %9.1f" % (
                1e3 * times["emit_s"], times["source_bytes"] / 2**20, 1e3 * times["compile_s"],
                times["compile_peak_bytes"] / 2**20)
        print(line)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--topologies", default="topologies")
    parser.add_argument("--cc", help="the command that compiles a plan")
    parser.add_argument("--peer", help="Python with PyTorch; none: only ours")
    parser.add_argument("--peer-folder", default=".", help="where torch_plan.py is")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("files", nargs="*")
    settings = parser.parse_args()
    os.makedirs(FOLDER, exist_ok=True)
    print_head()
    topologies, pipelines = [], []
    for path in settings.files:
        times = time_gen([path])
        times["name"] = os.path.basename(path)
        print_case(times)
        topologies.append(times)
    print()
    previous = None
    for pipeline in PIPELINES + ([LARGE] if settings.large else []):
        times = time_pipeline(settings, pipeline)
        same_schedule = previous is not None and previous[1] == pipeline[1]
        print_case(times, pipelines[-1] if same_schedule else None)
        pipelines.append(times)
        previous = pipeline
    if settings.peer or settings.cc:
        print_others(pipelines, settings)
    with open("bench-gen.json", "w") as out:
        json.dump({"topologies": topologies, "pipelines": pipelines}, out, indent=1)


main()
