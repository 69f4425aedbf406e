"""recovery.py: `make bench-recovery`: how long a run stands still when ranks are killed, and what
the copies in memory cost.

loss: `train --restarts` runs; after two steps, at a random instant of the next one, a rank is
killed, or on emulated hosts the command and the rank of a host, whose place a spare takes. Measured
are seconds from the kill to the first action of the step that is made again; "noticed" is the part
of it before the commands know of the loss.

copies: steps with and without `--recover-every 1`, in pairs of runs, which of the two is first
alternates. On several hosts each copy also goes to the next host.

Runs on the controller of tests/support/hosts.sh, from the top of the build folder, or on one host
with --one-host. Writes bench-recovery.json.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

import tokens
from child import FOLDER, fail, pair_figures

DATA, LOG, SAVED = FOLDER + "/recovery.bin", FOLDER + "/recovery.log", FOLDER + "/recovery.saved"
TOKEN_COUNT, WAIT_S = 8 * 4 * 256 * 8 + 1, 120
AIMS = {("one host", "memory"): 0.5, ("two hosts", "memory"): 1.0}
COPY_AIMS = {"one host": 1.02}
KEEPING = {"memory": ["--recover-every", "1"], "checkpoint": ["--save-every", "2"]}


def remove(path):
    subprocess.run(["rm", "-rf", path], check=True)


def children(process):
    try:
        with open("/proc/%d/task/%d/children" % (process, process)) as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def with_descendants(process):
    return [process] + [one for child in children(process) for one in with_descendants(child)]


def kill_all(processes):
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Training:
    """A run: one command, or one for each host and spare. `lines` are what the commands print, each
    with the time."""

    def __init__(self, binary, hosts, options, cores=None):
        for path in LOG, SAVED:
            remove(path)
        arguments = [binary, "train", "--data", DATA, "--seed", "1", "--overwrite", "--log", LOG, "--quiet"]
        places = [["on", host] for host in hosts] or [[]]
        if hosts:
            arguments += ["--no-secret"]
        reading, writing = os.pipe()
        self.commands = [subprocess.Popen(
            place + (["taskset", "-c", cores[i]] if cores else []) + arguments + options,
            stdin=subprocess.DEVNULL, stderr=writing) for i, place in enumerate(places)]
        os.close(writing)
        self.lines = []
        self.reader = threading.Thread(target=self.read, args=(reading,))
        self.reader.start()

    def read(self, descriptor):
        with os.fdopen(descriptor) as file:
            for line in file:
                self.lines.append((time.monotonic(), line.rstrip("\n")))

    def entries(self):
        try:
            with open(LOG) as file:
                return [json.loads(line) for line in file.read().split("\n")[:-1] if line]
        except FileNotFoundError:
            return []

    def steps(self):
        return [entry for entry in self.entries() if "event" not in entry]

    def restarts(self):
        return [entry for entry in self.entries() if entry.get("event") == "restart"]

    def await_that(self, condition, what):
        """Waits until the condition's value is true, and returns it."""
        end = time.monotonic() + WAIT_S
        while not (value := condition()):
            if time.monotonic() > end or all(one.poll() is not None for one in self.commands):
                self.end()
                fail("%s: not so:\n%s" % (what, "\n".join(line for _, line in self.lines)))
            time.sleep(0.002)
        return value

    def ranks(self):
        """{index of a command: its ranks' processes}, without those that have none."""
        found = {}
        for i, command in enumerate(self.commands):
            below = children(command.pid)
            while len(below) == 1 and not self.is_rank(below[0]):
                below = children(below[0])
            if command.poll() is None and below:
                found[i] = below
        return found

    def two_hosts(self):
        """ranks(), once they are on two hosts."""
        def found():
            ranks = self.ranks()
            return ranks if len(ranks) == 2 else None
        return self.await_that(found, "two hosts with ranks")

    def is_rank(self, process):
        """Ranks are children of a command, and run the same program."""
        try:
            parent = int(open("/proc/%d/stat" % process).read().rpartition(")")[2].split()[1])
            return os.readlink("/proc/%d/exe" % process) == os.readlink("/proc/%d/exe" % parent)
        except OSError:
            return False

    def end(self):
        for command in self.commands:
            if command.poll() is None:
                kill_all(with_descendants(command.pid))
        for command in self.commands:
            command.wait()
        self.reader.join()


# ---- losses ----

def lose(training, kill):
    """Kills, and waits for the restart. Returns seconds, those until it was noticed, and the source
    of the state."""
    before, start_s = len(training.restarts()), time.monotonic()
    kill()
    training.await_that(lambda: len(training.restarts()) > before, "a restart")

    def said():
        return [at_s for at_s, line in training.lines
                if at_s > start_s and line.startswith("penstock: restart ")]
    total_s = training.await_that(said, "a line on the restart")[0] - start_s
    event = training.restarts()[-1]
    return {"seconds": total_s, "noticed": max(0, total_s - event["seconds"]),
            "source": event["source"]}


def await_instant(training, draw):
    """Two steps after the last restart, and a part of one."""
    count = len(training.steps()) + 2
    training.await_that(lambda: len(training.steps()) >= count, "a step")
    time.sleep(draw.random() * training.steps()[-1]["step_ms"] / 1e3)


def lose_ranks(settings, source):
    """On one host; both ranks alternately."""
    draw, losses = random.Random(1), []
    options = ["--steps", "100000", "--restarts", "10000", "--checkpoint", SAVED]
    training = Training(settings.one, [], options + KEEPING[source])
    try:
        while len(losses) < settings.kills:
            await_instant(training, draw)
            ranks = training.ranks()[0]
            losses.append(lose(training, lambda: kill_all([ranks[len(losses) % len(ranks)]])))
    finally:
        training.end()
    return losses


def lose_hosts(settings, source):
    """The hosts of both ranks alternately, until no spare is left; then a run with all spares."""
    draw, losses = random.Random(1), []
    hosts = ["host%d" % (i + 1) for i in range(2 + settings.spare_count)]
    options = ["--steps", "100000", "--restarts", "10000", "--checkpoint", SAVED]
    while len(losses) < settings.kills:
        training = Training(settings.spares, hosts, options + KEEPING[source])
        try:
            training.two_hosts()
            of_rank = [0, 1]  # the command of each rank
            for _ in range(min(settings.spare_count, settings.kills - len(losses))):
                await_instant(training, draw)
                rank = len(losses) % 2
                lost = of_rank[rank]
                processes = [one for child in children(training.commands[lost].pid)
                             for one in with_descendants(child)]
                losses.append(lose(training, lambda: kill_all(processes)))
                of_rank[rank] = next(i for i in training.two_hosts() if i != of_rank[1 - rank])
        finally:
            training.end()
    return losses


def print_losses(place, source, losses):
    seconds = sorted(loss["seconds"] for loss in losses)
    print("%-10s %-11s %6d %8.3f %8.3f %8.3f %8.3f %6s %6d" % (
        place, source, len(losses), statistics.median(seconds),
        seconds[min(len(seconds) - 1, len(seconds) * 9 // 10)], seconds[-1],
        statistics.median(loss["noticed"] for loss in losses), AIMS.get((place, source), "-"),
        sum(loss["source"] != source for loss in losses)), flush=True)


# ---- copies ----

def step_ms(settings, place, copies):
    """The median step of a run without its first one, and the losses."""
    options = ["--steps", str(settings.steps)] + (
        ["--restarts", "1", "--recover-every", "1"] if copies else [])
    binary, hosts = (settings.one, []) if place == "one host" else (settings.hosts,
                                                                     ["host1", "host2"])
    cores = settings.cores if hosts else [",".join(settings.cores)]
    training = Training(binary, hosts, options, cores)
    statuses = [command.wait() for command in training.commands]
    training.reader.join()
    if any(statuses):
        fail("%s: status %s\n%s" % (binary, statuses, "\n".join(text for _, text in training.lines)))
    steps = training.steps()
    return statistics.median(step["step_ms"] for step in steps[1:]), [s["loss"] for s in steps]


def measure_copies(settings, place):
    pairs = []
    for pair in range(settings.pairs):
        result = {copies: step_ms(settings, place, copies)
                  for copies in ((False, True) if pair % 2 == 0 else (True, False))}
        if result[False][1] != result[True][1]:
            fail("%s: the losses differ with and without copies" % place)
        pairs.append({"without_ms": result[False][0], "with_ms": result[True][0],
                      "load": os.getloadavg()[0]})
        print("%s: pair %d of %d" % (place, pair + 1, settings.pairs), file=sys.stderr)
    return pairs


def print_copies(place, pairs):
    print("%-10s %9.1f %9.1f %8.3f %8.3f %8.3f %6s %6d %6.2f" % (
        place, *pair_figures(pairs, "without_ms", "with_ms"), COPY_AIMS.get(place, "-"), len(pairs),
        statistics.median(pair["load"] for pair in pairs)), flush=True)


# ---- the whole ----

def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=10, help="for each place and source")
    parser.add_argument("--pairs", type=int, default=20, help="of runs with and without copies")
    parser.add_argument("--steps", type=int, default=4, help="of a run; the first does not count")
    parser.add_argument("--cores", default="0,1", help="of rank 0 and rank 1, for the pairs")
    parser.add_argument("--one-host", action="store_true", help="without emulated hosts")
    parser.add_argument("--one", default="./penstock-bench_1f1b", help="a binary for one host")
    parser.add_argument("--hosts", default="./penstock-bench_1f1b_hosts",
                        help="the same for host1 and host2")
    parser.add_argument("--spares", default="./penstock-bench_1f1b_spares",
                        help="the same with spares: host3 and so on")
    parser.add_argument("--spare-count", type=int, default=8)
    settings = parser.parse_args()
    settings.cores = settings.cores.split(",")
    if (settings.kills < 0 or settings.pairs < 0 or settings.steps < 2 or settings.spare_count < 1 or
            len(settings.cores) != 2):
        fail("--kills and --pairs from 0, --steps from 2, --spare-count from 1, --cores A,B")
    return settings


def main():
    settings = parse()
    os.makedirs(FOLDER, exist_ok=True)
    info = json.loads(subprocess.run([settings.one, "info", "--json"], check=True,
                                     stdout=subprocess.PIPE).stdout)
    tokens.write(DATA, TOKEN_COUNT, int(info["vocab"]))
    places = ["one host"] if settings.one_host else ["one host", "two hosts"]
    document = {"load_before": os.getloadavg()[0], "losses": {}, "copies": {}}
    if settings.kills > 0:
        print("%-10s %-11s %6s %8s %8s %8s %8s %6s %6s" % (
            "loss, s", "state from", "kills", "median", "90%", "most", "noticed", "aim", "other"))
    for place in places if settings.kills > 0 else []:
        for source in KEEPING:
            losses = (lose_ranks if place == "one host" else lose_hosts)(settings, source)
            document["losses"].setdefault(place, {})[source] = losses
            print_losses(place, source, losses)
    if settings.pairs > 0:
        print("%-10s %9s %9s %8s %8s %8s %6s %6s %6s" % (
            "copies, ms", "without", "with", "ratio", "25%", "75%", "aim", "pairs", "load"))
    for place in places if settings.pairs > 0 else []:
        document["copies"][place] = measure_copies(settings, place)
        print_copies(place, document["copies"][place])
    with open("bench-recovery.json", "w") as out:
        json.dump(document, out, indent=1)


main()
