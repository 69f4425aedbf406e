#!/usr/bin/env python3
"""slow_ranks.py: how often a slow rank or link is named.

    slow_ranks.py [--runs N] [--others CORES] [--weight] PENSTOCK CASE...
    sh tests/support/hosts.sh 2 python3 slow_ranks.py [...] PENSTOCK link-3 hosts-quiet

PENSTOCK is a binary for CPUs with several ranks, each on a core of its own, whose steps take 0.3 s
or more; for the cases of the second line one for the hosts host1 and host2 with a rank on each.
In each run, rank 1 (of a link: the sender, rank 0) is slowed after ONSET steps.

    quota-F      the rank is in a cgroup with a quota of 1/F of a core, in periods of 10 ms
    stops-F      signals stop the rank in a part 1 - 1/F of each 20 ms
    busy         another program has half of the rank's core
    link-F       the rate of the link falls from 1 Gbit/s to 1/F of that
    quiet        nothing is slowed
    hosts-quiet  the same on two hosts

One line a case: the runs, those in which the rank or link was named by an event of the right kind,
those in which this was within five steps (after the one in which the slowdown began), those in
which anything else was named, the medians of the steps and of the event's ratio, and how many more
runs were left out since they were disturbed: other programs used more than CORES cores on average
[0.25]. A run starts when the machine is idle. With --weight the ranks run in a cgroup that other
programs leave nearly all of the cores to.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import tokens

ONSET, AFTER, QUIET_STEPS = 20, 10, 30
CGROUP = "/sys/fs/cgroup/cpu/penstock-slow-%d" % os.getpid()  # of version 1


def write_file(path, text):
    with open(path, "w") as out:
        out.write(text)


def read_lines(path):
    try:
        with open(path) as file:
            return [line for line in file.read().split("\n") if line]
    except FileNotFoundError:
        return []


def children(process):
    with open("/proc/%d/task/%d/children" % (process, process)) as file:
        return sorted(int(child) for child in file.read().split())


def busy_seconds():
    """Of all programs since the machine was started."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = file.readline().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")


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
    time.sleep(1)
    while others_since(start) > cores:
        start = now()
        time.sleep(1)


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
        self.set_rate(1000 / factor)

    @staticmethod
    def set_rate(mbit):
        subprocess.run("on host1 tc qdisc replace dev net0 root tbf rate %dmbit burst 64kb "
                       "latency 400ms" % mbit, shell=True, check=True)

    def end(self):
        self.set_rate(1000)


TROUBLES = {"quota": Quota, "stops": Stops, "busy": Busy, "link": Link}


class Run:
    def __init__(self, folder, binary, case):
        self.log = os.path.join(folder, "log")
        self.errors = [os.path.join(folder, "err%d" % i) for i in (0, 1)]
        for path in [self.log] + self.errors:
            if os.path.exists(path):
                os.unlink(path)
        command = [binary, "train", "--data", os.path.join(folder, "data"), "--log", self.log,
                   "--quiet", "--steps", str(ONSET + AFTER + QUIET_STEPS)]
        hosts = [[]]
        if case in ("link", "hosts"):
            command += ["--secret-file", os.path.join(folder, "secret")]
            hosts = [["on", "host1"], ["on", "host2"]]
        self.commands = [
            subprocess.Popen(host + command, stderr=open(errors, "w"))
            for host, errors in zip(hosts, self.errors)]

    def steps(self):
        return sum('"event"' not in line for line in read_lines(self.log))

    def events(self):
        lines = read_lines(self.log) + [line for path in self.errors for line in read_lines(path)]
        return [json.loads(line) for line in lines if line.startswith('{"event":"slow"')]

    def await_steps(self, count):
        while self.steps() < count and self.commands[0].poll() is None:
            time.sleep(0.005)

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
        time.sleep(0.005)
    return trouble, (steps, ratio, not all(is_right(event) for event in run.events()))


def run_once(folder, binary, name):
    """Returns what watch() does, and the cores that other programs used."""
    case, _, factor = name.partition("-")
    start, trouble = now(), None
    run = Run(folder, binary, case)
    try:
        if case in TROUBLES:
            trouble, result = watch(
                run, lambda rank: TROUBLES[case](rank, float(factor or 0)), case)
        else:
            run.await_steps(QUIET_STEPS)
            result = None, None, len(run.events()) > 0
        return result + (others_since(start),)
    finally:
        run.end()
        if trouble:
            trouble.end()


def print_case(folder, options, name):
    results, disturbed = [], 0
    while len(results) < options.runs:
        await_idle(options.others)
        result = run_once(folder, os.path.abspath(options.penstock), name)
        if result[3] > options.others:
            disturbed += 1
        else:
            results.append(result)
    steps = [result[0] for result in results if result[0] is not None]
    ratios = [result[1] for result in results if result[0] is not None]
    print("%-12s %5d %6d %7d %6d %6s %6s %9d" % (
        name, options.runs, len(steps), sum(count <= 6 for count in steps),
        sum(result[2] for result in results), statistics.median(steps) if steps else "-",
        "%.2f" % statistics.median(ratios) if ratios else "-", disturbed), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--others", type=float, default=0.25)
    parser.add_argument("--weight", action="store_true")
    parser.add_argument("penstock")
    parser.add_argument("case", nargs="+")
    options = parser.parse_args()
    if any(case.startswith("quota") for case in options.case) or options.weight:
        os.makedirs(CGROUP)
        if options.weight:
            write_file(CGROUP + "/cpu.shares", "262144")
            write_file(CGROUP + "/cgroup.procs", str(os.getpid()))
    try:
        with tempfile.TemporaryDirectory() as folder:
            tokens.write(os.path.join(folder, "data"), 200000, 256)
            with os.fdopen(os.open(os.path.join(folder, "secret"), os.O_CREAT | os.O_WRONLY, 0o600),
                           "wb") as secret:
                secret.write(os.urandom(32))
            print("%-12s %5s %6s %7s %6s %6s %6s %9s" % (
                "case", "runs", "named", "5 steps", "others", "steps", "ratio", "disturbed"),
                flush=True)
            for name in options.case:
                if name == "hosts-quiet" or name.startswith("link-"):
                    Link.set_rate(1000)
                print_case(folder, options, name)
    finally:
        if os.path.exists(CGROUP):
            write_file("/sys/fs/cgroup/cpu/cgroup.procs", str(os.getpid()))
            os.rmdir(CGROUP)


if __name__ == "__main__":
    main()
