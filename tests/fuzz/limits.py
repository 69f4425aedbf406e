#!/usr/bin/env python3
"""limits.py: settings at their limits, alone and in random combinations, through penstock-gen --check and penstock-plan.

    limits.py [--alone N] [--random N] [--plan PROGRAM] [--plans N] [--seed N] [--jobs N] [--without SETTING] GENERATOR SOURCE_FOLDER

Every run has to end with 0, or with 78 and a message that names a setting, within 60 s of processor time and 8 GiB. Values are those of
gen/topology/settings.def. --alone N: every N-th value of a setting alone, 0 for none. Settings that ask for time (search_seconds) are left
out, and so is that of --without. Prints a line for each run that does not; the status is 1 if there is one.
"""
import argparse
import concurrent.futures
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading

SECONDS, BYTES = 60, 8 << 30
ASK_FOR_TIME = {"pipeline.search_seconds"}
NUMBERS = {"INFINITY": "3.4028234663852886e38", "PEN_ABOVE_0": "4.9406564584124654e-324", "PEN_BELOW_1": "0.99999999999999989",
           "PEN_COST_LEAST": "1e-30", "PEN_COST_MOST": "1e30"}

BASE = """pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
model = { family = "llama"; layers = 2; hidden = 16; heads = 2; ffn = 32; vocab = 64; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 4; };
cluster = { device = "cpu"; };
"""
PLAN = """plan = { ranks = 4; sequences = 8; memory_mib = 1024; };
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; ffn = 32; vocab = 64; sequence = 16; };
optimizer = { learning_rate = 1e-3; steps = 4; };
cluster = { device = "cpu"; };
"""
# Random combinations begin with one of these, so that more than the first check is reached.
STARTS = [
    [],
    ["pipeline.schedule=zero_bubble_v", "pipeline.stages_per_rank=2", "model.layers=8"],
    ["pipeline.schedule=interleaved", "pipeline.stages_per_rank=2", "model.layers=8"],
    ["pipeline.schedule=search", "pipeline.search_seconds=1"],
    ["pipeline.schedule=inference"],
    ["pipeline.ranks=1", "data_parallel.replicas=2", "data_parallel.shard=weights"],
    ["tensor_parallel.ranks=2", "model.heads=4"],
    ["model.family=gpt2"], ["model.family=qwen3", "model.dtype=bf16"],
    ["model.family=gemma3_text", "model.window=8", "model.layers=12"],
    ["partition.balance=joint", "pipeline.search_seconds=1", "memory.recompute=auto"],
    ["cluster.hosts=[a,b]", "cluster.port=1234", "cluster.transport=ofi"],
]


def rows(path, macro):
    """The arguments of each row of a .def file, as text."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    for found in re.finditer(r"^%s\((.*?)\)$" % macro, text, flags=re.S | re.M):
        yield [a.strip() for a in re.findall(r'(?:"(?:\\.|[^"\\])*"|\((?:[^()"]|"(?:\\.|[^"\\])*")*\)|[^,"(])+', found.group(1))]


def choices_of(folder):
    """LIST: its texts, of those that settings.def writes out or takes from a column of another .def."""
    with open(folder + "/gen/topology/settings.def", encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    lists = {}
    for name, body in re.findall(r"^PEN_(?:PLAN_)?ENUM\((\w+)\)$(.*?)^PEN_(?:PLAN_)?ENUM_END$", text, flags=re.S | re.M):
        words = lists[name] = re.findall(r'^PEN_(?:PLAN_)?ENUMERATOR\(\w+, "(.*)"\)$', body, flags=re.M)
        for macro, columns, column, path in re.findall(r'^#define (\w+)\((.*?)\) .*, #?(\w+)\)\n#include "(.*)"$', body, flags=re.M):
            words[:0] = [row[columns.split(", ").index(column)].strip('"') for row in rows(folder + "/" + path, macro)]
    return lists


def settings_of(folder):
    """PATH: (type, values as of -s)."""
    lists = choices_of(folder)
    settings = {}
    for group, name, kind, least, most, _, choices, *_ in rows(folder + "/gen/topology/settings.def", "PEN_SETTING"):
        path = group + "." + name
        words = lists[choices] if choices != "0" else []
        least, most = (NUMBERS.get(value, value) for value in (least, most))
        if kind in ("INTEGER", "REAL"):
            values = [least, most]
        elif kind == "BOOLEAN":
            values = ["false", "true"]
        elif kind == "STRING":
            values = ["", "x" * 1000]
        elif kind == "CHOICE":
            values = words
        elif kind in ("INTEGERS", "REALS"):
            values = words + ["[]"] + ["[%s]" % ",".join([value] * count) for value in (least, most) for count in (1, 2, 4)]
            values += [least, most] if kind == "REALS" else []
        else:
            values = words + ["[]", "[x]"] + (["[%s]" % ",".join(words)] if words else ["[%s]" % ",".join(["x"] * 1000)])
        if path not in ASK_FOR_TIME:
            settings[path] = (kind, values)
    if len(settings) < 90:
        sys.exit("limits.py: settings.def has another form")
    return settings


def random_value(chance, kind, values):
    """A limit; or a number between the limits, small ones more often."""
    if kind not in ("INTEGER", "INTEGERS", "REAL", "REALS") or chance.random() < 0.5:
        return chance.choice(values)
    numbers = [float(word) for value in values for word in re.findall(r"[0-9][0-9.e+-]*", value)]
    least, most = (min(numbers), max(numbers)) if numbers else (0, 0)
    if kind in ("REAL", "REALS"):
        low, high = max(least, 1e-300), min(most, 1e300)
        value = "%.3g" % (low ** (1 - (part := chance.random())) * high ** part)
        return "[%s,%s]" % (value, value) if kind == "REALS" and chance.random() < 0.5 else value
    whole = int(max(least, min(most, 2 ** int(chance.random() ** 2 * most.__trunc__().bit_length()) - (chance.random() < 0.2))))
    return "[%d,%d]" % (whole, whole) if kind == "INTEGERS" else str(whole)


def cases_of(options, settings):
    """(program, topology, settings) of every run."""
    alone = [[path + "=" + value] for path, (_, values) in settings.items() for value in values]
    for index, case in enumerate(alone):
        if options.alone and index % options.alone == options.seed % options.alone:
            yield "gen", BASE, case
    chance = random.Random(options.seed)
    paths = sorted(path for path in settings if not path.startswith("plan."))
    for _ in range(options.random):
        start, changed = chance.choice(STARTS), chance.sample(paths, chance.randint(1, 5))
        yield "gen", BASE, start + [path + "=" + random_value(chance, *settings[path]) for path in changed]
    free = [path for path in sorted(settings) if path not in (
        "pipeline.ranks", "pipeline.stages_per_rank", "pipeline.microbatches", "pipeline.schedule", "batch.microbatch", "data_parallel.replicas",
        "tensor_parallel.ranks", "memory.limit_mib")]
    for _ in range(options.plans):
        yield "plan", PLAN, [path + "=" + random_value(chance, *settings[path]) for path in chance.sample(free, chance.randint(1, 3))]


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def watch(process, done):
    """Ends a process whose memory grows above the limit, before it takes that of others."""
    while not done.wait(0.05):
        try:
            with open("/proc/%d/statm" % process.pid, encoding="ascii") as file:
                if int(file.read().split()[1]) * resource.getpagesize() > BYTES:
                    process.send_signal(signal.SIGKILL)
        except (OSError, IndexError):
            return


def run(options, folder, case):
    """What is wrong with a run, or None."""
    program, topology, changes = case
    words = [options.generator, "--check"] if program == "gen" else [options.plan, "--refine=1", "--seconds=1"]
    words += [word for change in changes for word in ("-s", change)] + [os.path.join(folder, "gen.cfg" if topology is BASE else "plan.cfg")]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
        done = threading.Event()
        watcher = threading.Thread(target=watch, args=(process, done))
        watcher.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
        errors.seek(0)
        text = errors.read(1 << 16).decode(errors="replace")
    named = re.search(r"\b(?:%s)\.[a-z0-9_]+" % "|".join(options.groups), text)
    fine = process.returncode == 0 or (process.returncode == 78 and named)
    if fine and used.ru_maxrss <= BYTES >> 10:
        return None
    first = next((line for line in text.splitlines() if "ERROR" in line or "runtime error" in line), text.strip().splitlines()[-1] if text.strip() else "")
    return "%s %d, %.1f s, %d MiB: %s: %s" % (program, process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10,
                                           " ".join("-s '%s'" % change[:120] for change in changes), first[:300])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--alone", type=int, default=1)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--plan")
    parser.add_argument("--plans", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--without")
    parser.add_argument("generator")
    parser.add_argument("folder")
    options = parser.parse_args()
    settings = settings_of(options.folder)
    settings.pop(options.without, None)
    options.groups = sorted({path.split(".")[0] for path in settings})
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("gen.cfg", BASE), ("plan.cfg", PLAN)):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        cases = list(cases_of(options, settings))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            wrong = []
            for text in filter(None, pool.map(lambda case: run(options, folder, case), cases)):
                print(text, flush=True)
                wrong.append(text)
    print("%d runs, %d wrong" % (len(cases), len(wrong)))
    return 1 if wrong or not cases else 0


sys.exit(main())
