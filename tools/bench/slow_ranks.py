#!/usr/bin/env python3
"""slow_ranks.py: `make bench-slow`: how often a slow rank or link is named.

    slow_ranks.py [--one PENSTOCK] [--hosts PENSTOCK] [OPTION...] CASE[:RUNS]...
    sh tests/support/hosts.sh 2 python3 slow_ranks.py ...

--one is a binary for one host with two ranks on CPUs, --hosts the same model for host1 and host2
with a rank on each; steps should take 0.1 s or more. Each rank has a core of its own, if there are
so many (--cores). In each run, rank 1 (of a link: the sender, rank 0) is slowed after ONSET steps.

    quota-F      the rank is in a cgroup with a quota of 1/F of a core, in periods of 10 ms
    stops-F      signals stop the rank in a part 1 - 1/F of each 20 ms
    busy         another program has half of the rank's core
    link-F       the rate of the link falls from 1 Gbit/s to 1/F of that
    start-F      it is 1/F of that from the start, and 1 Gbit/s in the other direction
    quiet        nothing is slowed
    hosts-quiet  the same on two hosts

Prints a count while it runs. Each run is noted in --state: started again, it continues from there;
--fresh forgets the runs. The table has a line a case: the runs, those in which the rank or link was
named by an event of the right kind, those in which this was within five steps (after the one in
which the slowdown began), those in which anything else was named, the medians of the steps, of the
event's ratio and of a step's milliseconds, and how many more runs were left out since they were
disturbed: other programs used more than OTHERS cores on average [0.25]. A run starts when the
machine is idle; of a case at most as many are left out as are wanted, then it ends with fewer. With
--weight the ranks run in a cgroup that other programs leave nearly all of the cores to.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

import tokens
from child import FOLDER, fail

ONSET, AFTER, QUIET_STEPS = 20, 10, 30
DATA, SECRET = FOLDER + "/slow.bin", FOLDER + "/slow.secret"
LOG, ERRORS = FOLDER + "/slow.log", [FOLDER + "/slow.err%d" % i for i in (0, 1)]
IDLE_S, POLL_S = 0.5, 0.02
CGROUP = "/sys/fs/cgroup/cpu/penstock-slow-%d" % os.getpid()  # of version 1


def write_file(path, text):
    with open(path, "w") as out:
        out.write(text)


class Lines:
    """The whole lines of a file that grows; polling costs the ranks no time while it does not."""

    def __init__(self, path):
        self.path, self.size, self.rest, self.lines = path, 0, "", []

    def read(self):
        if os.path.exists(self.path) and os.stat(self.path).st_size > self.size:
            with open(self.path) as file:
                file.seek(self.size)
                text = file.read()
            self.size += len(text.encode())
            *whole, self.rest = (self.rest + text).split("\n")
            self.lines += whole
        return self.lines


def children(process):
    with open("/proc/%d/task/%d/children" % (process, process)) as file:
        return sorted(int(child) for child in file.read().split())


def busy_seconds():
    """Of all programs, and of a hypervisor's other guests, since the machine was started."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = file.readline().split()[1:9]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


def used_seconds(process):
    """Of a process and its children."""
    try:
        with open("/proc/%d/stat" % process) as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        return ((int(user) + int(system)) / os.sysconf("SC_CLK_TCK") +
                sum(used_seconds(child) for child in children(process)))
    except FileNotFoundError:
        return 0


def others_since(start):
    """The cores that other programs have used, on average, since `start` = now()."""
    busy, own, wall = (a - b for a, b in zip(now(), start))
    return (busy - own) / wall


def now():
    return busy_seconds(), used_seconds(os.getpid()), time.monotonic()


def await_idle(cores):
    start = now()
    time.sleep(IDLE_S)
    while others_since(start) > cores:
        start = now()
        time.sleep(IDLE_S)


class Quota:
    def __init__(self, process, factor):
        self.folder = os.path.join(CGROUP, "rank")
        os.makedirs(self.folder, exist_ok=True)
        write_file(self.folder + "/cpu.cfs_period_us", "10000")
        write_file(self.folder + "/cpu.cfs_quota_us", "%d" % (10000 / factor))
        write_file(self.folder + "/cgroup.procs", str(process))

    def end(self):
        os.rmdir(self.folder)


class Stops:
    PERIOD = 0.02

    def __init__(self, process, factor):
        self.process, self.factor, self.ending = process, factor, False
        self.thread = threading.Thread(target=self.repeat)
        self.thread.start()

    def repeat(self):
        start = time.monotonic()
        while not self.ending:
            try:
                os.kill(self.process, signal.SIGSTOP)
                time.sleep(max(0, start + self.PERIOD * (1 - 1 / self.factor) - time.monotonic()))
                os.kill(self.process, signal.SIGCONT)
                start += self.PERIOD
                time.sleep(max(0, start - time.monotonic()))
            except ProcessLookupError:
                return

    def end(self):
        self.ending = True
        self.thread.join()


class Busy:
    def __init__(self, process, _factor):
        cores = os.sched_getaffinity(process)
        self.loop = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                     preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def end(self):
        self.loop.kill()
        self.loop.wait()


class Link:
    """The rate of what host1 sends."""

    def __init__(self, _process, factor):
        self.set_rate("host1", 1000 / factor)

    @staticmethod
    def set_rate(host, mbit):
        subprocess.run("on %s tc qdisc replace dev net0 root tbf rate %dmbit burst 64kb "
                       "latency 400ms" % (host, mbit), shell=True, check=True)

    def end(self):
        self.set_rate("host1", 1000)


TROUBLES = {"quota": Quota, "stops": Stops, "busy": Busy, "link": Link}
OVER_HOSTS = ["link", "start", "hosts"]


class Run:
    def __init__(self, settings, case):
        for path in [LOG] + ERRORS:
            if os.path.exists(path):
                os.unlink(path)
        self.log, self.errors = Lines(LOG), [Lines(path) for path in ERRORS]
        over_hosts = case in OVER_HOSTS
        command = [os.path.abspath(settings.hosts if over_hosts else settings.one), "train",
                   "--data", DATA, "--overwrite", "--log", LOG, "--quiet", "--steps",
                   str(ONSET + AFTER + QUIET_STEPS)]
        prefixes = [["taskset", "-c", ",".join(settings.cores)]]
        if over_hosts:
            command += ["--secret-file", SECRET]
            prefixes = [["on", "host%d" % (i + 1), "taskset", "-c",
                         settings.cores[i % len(settings.cores)]] for i in (0, 1)]
        self.commands = [subprocess.Popen(prefix + command, stderr=open(errors, "w"))
                         for prefix, errors in zip(prefixes, ERRORS)]

    def step_lines(self):
        return [line for line in self.log.read() if '"event"' not in line]

    def steps(self):
        return len(self.step_lines())

    def step_ms(self):
        """The median before the slowdown, without the first steps."""
        return statistics.median(json.loads(line)["step_ms"]
                                 for line in self.step_lines()[2:ONSET])

    def events(self):
        lines = self.log.read() + [line for errors in self.errors for line in errors.read()]
        return [json.loads(line) for line in lines if line.startswith('{"event":"slow"')]

    def await_steps(self, count):
        while self.steps() < count:
            if self.commands[0].poll() is not None:
                fail("a run ended early:\n" + "\n".join(
                    line for errors in self.errors for line in errors.read()))
            time.sleep(POLL_S)

    def end(self):
        for command in self.commands:
            command.terminate()
        for command in self.commands:
            command.wait()


def watch(run, trouble_of, case):
    """Slows a run down. Returns the trouble, the steps until it was named or None, the event's
    ratio, and whether anything else was named."""
    run.await_steps(ONSET)
    rank = None if case == "link" else children(run.commands[0].pid)[1]
    trouble, began, steps, ratio = trouble_of(rank), run.steps(), None, None
    kind, wanted = ("link", 0) if case == "link" else ("compute", 1)

    def is_right(event):
        return (event["kind"] == kind and event["rank"] == wanted and
                event["since_step"] >= began - 1)
    while steps is None and run.steps() < began + AFTER and run.commands[0].poll() is None:
        named = [event for event in run.events() if is_right(event)]
        if named:
            steps, ratio = run.steps() - began, named[0]["ratio"]
        time.sleep(POLL_S)
    return trouble, (steps, ratio, not all(is_right(event) for event in run.events()))


def find_start(run):
    """Of a link that is slow from the start: the steps in the log before it was named or None, the
    event's ratio, and whether anything else was named."""
    run.await_steps(QUIET_STEPS)
    steps, found, others = 0, (None, None), False
    for line in map(json.loads, run.log.read()):
        if "event" not in line:
            steps += 1
        elif line["event"] == "slow":
            right = line["kind"] == "link" and line["rank"] == 0 and line["since_step"] == 1
            others = others or not right
            if right and found[0] is None:
                found = steps, line["ratio"]
    return found + (others,)


def set_rates(case, factor):
    Link.set_rate("host1", 1000 / factor if case == "start" else 1000)
    Link.set_rate("host2", 1000)


def run_once(settings, name):
    """What --state keeps of a run."""
    case, _, factor = name.partition("-")
    if case in OVER_HOSTS:
        set_rates(case, float(factor) if case == "start" else 1)
    start, trouble = now(), None
    run = Run(settings, case)
    try:
        if case in TROUBLES:
            trouble, result = watch(
                run, lambda rank: TROUBLES[case](rank, float(factor or 0)), case)
        elif case == "start":
            result = find_start(run)
        else:
            run.await_steps(QUIET_STEPS)
            result = None, None, len(run.events()) > 0
        return {"case": name, "steps": result[0], "ratio": result[1], "other": result[2],
                "step_ms": run.step_ms(), "others": others_since(start), "events": run.events()}
    finally:
        run.end()
        if trouble:
            trouble.end()


# ---- the cases ----

class State:
    """The runs so far, in a file."""

    def __init__(self, settings):
        self.path, self.others, self.runs = settings.state, settings.others, []
        if os.path.exists(self.path) and not settings.fresh:
            with open(self.path) as file:
                self.runs = [json.loads(line) for line in file]
        else:
            write_file(self.path, "")

    def add(self, run):
        self.runs.append(run)
        with open(self.path, "a") as out:
            out.write(json.dumps(run) + "\n")

    def of(self, name):
        """The runs of a case, and how many were disturbed."""
        runs = [run for run in self.runs if run["case"] == name]
        good = [run for run in runs if run["others"] <= self.others]
        return good, len(runs) - len(good)


def named(runs, steps_max=None):
    return sum(run["steps"] is not None and (steps_max is None or run["steps"] <= steps_max)
               for run in runs)


def measure_case(settings, state, name, wanted):
    runs, disturbed = state.of(name)
    while len(runs) < wanted and disturbed < max(wanted, settings.disturbed_max):
        await_idle(settings.others)
        state.add(run_once(settings, name))
        runs, disturbed = state.of(name)
        print("%-12s %d of %d, %d named, %d others, %d disturbed" % (
            name, len(runs), wanted, named(runs), sum(run["other"] for run in runs), disturbed),
            file=sys.stderr, flush=True)


def print_table(state, names):
    print("%-12s %5s %6s %7s %6s %6s %6s %8s %9s" % (
        "case", "runs", "named", "5 steps", "others", "steps", "ratio", "step, ms", "disturbed"))
    for name in names:
        runs, disturbed = state.of(name)

        def median(key, form):
            values = [run[key] for run in runs if run[key] is not None]
            return form % statistics.median(values) if values else "-"
        print("%-12s %5d %6d %7d %6d %6s %6s %8s %9d" % (
            name, len(runs), named(runs), named(runs, 6), sum(run["other"] for run in runs),
            median("steps", "%g"), median("ratio", "%.2f"), median("step_ms", "%.1f"), disturbed))


def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=10, help="of a case that names no number")
    parser.add_argument("--others", type=float, default=0.25)
    parser.add_argument("--disturbed-max", type=int, default=0,
                        help="of a case; at least as many as are wanted")
    parser.add_argument("--weight", action="store_true")
    parser.add_argument("--one", default="./penstock-bench_slow")
    parser.add_argument("--hosts", default="./penstock-bench_slow_hosts")
    parser.add_argument("--cores", default=",".join(map(str, sorted(os.sched_getaffinity(0)))),
                        help="of rank 0, rank 1")
    parser.add_argument("--state", default="bench-slow.jsonl")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("case", nargs="+")
    settings = parser.parse_args()
    settings.cores = settings.cores.split(",")[:2]
    cases = {}
    for case in settings.case:
        name, _, runs = case.partition(":")
        kind, _, factor = name.partition("-")
        if name not in ("quiet", "hosts-quiet") and kind != "start" and kind not in TROUBLES:
            parser.error("%s: no case of this name" % name)
        if kind in ("quota", "stops", "link", "start") and not factor:
            parser.error("%s: a factor is missing, as in %s-1.5" % (name, kind))
        if kind in OVER_HOSTS and shutil.which("on") is None:
            print("%s: skipped: it needs tests/support/hosts.sh" % name)
            continue
        cases[name] = int(runs or settings.runs)
    settings.case = cases
    return settings


def main():
    settings = parse()
    os.makedirs(FOLDER, exist_ok=True)
    needs_group = settings.weight or any(name.startswith("quota") for name in settings.case)
    if needs_group and not os.path.exists(os.path.dirname(CGROUP) + "/cpu.shares"):
        fail("quotas need the controller cpu of cgroups, version 1, at " + os.path.dirname(CGROUP))
    if needs_group:
        os.makedirs(CGROUP)
    if settings.weight:
        write_file(CGROUP + "/cpu.shares", "262144")
        write_file(CGROUP + "/cgroup.procs", str(os.getpid()))
    state = State(settings)
    tokens.write(DATA, 200000, 256)
    if os.path.exists(SECRET):
        os.unlink(SECRET)
    with os.fdopen(os.open(SECRET, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as secret:
        secret.write(os.urandom(32))
    try:
        for name, wanted in settings.case.items():
            measure_case(settings, state, name, wanted)
    finally:
        if os.path.exists(CGROUP):
            write_file(os.path.dirname(CGROUP) + "/cgroup.procs", str(os.getpid()))
            os.rmdir(CGROUP)
        print_table(state, settings.case)


if __name__ == "__main__":
    main()
