"""child.py: runs the programs that a benchmark measures, and tells how much of the cores others
had."""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = "bench"  # what a benchmark writes, in the build folder
CORES = os.sysconf("SC_NPROCESSORS_ONLN")


def fail(text):
    sys.exit("bench: " + text)


def pair_figures(pairs, first, second):
    """Of two alternate measurements: their medians; the median and the quartiles of the ratio
    second/first of each pair."""
    ratios = [pair[second] / pair[first] for pair in pairs]
    quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
    return (statistics.median(pair[first] for pair in pairs),
            statistics.median(pair[second] for pair in pairs), quartiles[1], quartiles[0], quartiles[2])


def machine_busy_s():
    """Seconds for which the cores worked, for every process and for a hypervisor's other guests."""
    user, nice, system, _, _, interrupts, soft, steal = map(
        float, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")


def children_busy_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_for_quiet(seconds_max):
    """Returns when the cores have been idle for two seconds, or after so many seconds."""
    quiet = 0
    for _ in range(seconds_max):
        before_s = machine_busy_s()
        time.sleep(1)
        quiet = 0 if machine_busy_s() - before_s > 0.05 * CORES else quiet + 1
        if quiet == 2:
            return


def run_all(commands):
    """Runs the commands together. Returns what each printed. Fails as soon as one does, for which
    the others may wait."""
    files = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in commands]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=error)
               for command, (output, error) in zip(commands, files)]
    while (any(process.poll() is None for process in running) and
           not any(process.returncode for process in running)):
        time.sleep(0.05)
    for command, process, (_, error) in zip(commands, running, files):
        if process.returncode:
            error.seek(0)
            fail("%s: status %d\n%s" % (" ".join(command), process.returncode, error.read()))
    for output, _ in files:
        output.seek(0)
    return [output.read() for output, _ in files]


class Run:
    """One run of a program to its end, which must be with status 0.

    start_ns: CLOCK_MONOTONIC before fork; output: its standard output; cpu_s: user and system time
    of all its processes; peak_bytes: resident, of the largest of its processes; others_share: the
    part of the cores' time that other processes had meanwhile. With sampled=True also
    process_peaks: resident bytes of the process, then of its children in the order of their start.
    """

    def __init__(self, arguments, sampled=False):
        machine_s, children_s = machine_busy_s(), children_busy_s()
        errors = open(os.path.join(FOLDER, "errors"), "w+")
        self.start_ns = time.monotonic_ns()
        self.peaks = {}
        with open(os.path.join(FOLDER, "output"), "w+") as output:
            child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=errors)
            status, usage = self._wait(child, sampled)
            output.seek(0)
            self.output = output.read()
        if status != 0:
            errors.seek(0)
            ended = ("signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else
                     "status %d" % os.WEXITSTATUS(status))
            fail("%s: ended with %s\n%s" % (arguments[0], ended, errors.read()))
        passed_s = (time.monotonic_ns() - self.start_ns) / 1e9
        self.passed_s = passed_s
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak_bytes = usage.ru_maxrss * 1024
        others_s = (machine_busy_s() - machine_s) - (children_busy_s() - children_s)
        self.others_share = max(0.0, others_s) / (passed_s * CORES)
        self.process_peaks = list(self.peaks.values())

    def _wait(self, child, sampled):
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG if sampled else 0)
            if pid == child.pid:
                child.returncode = status  # wait4() has reaped it
                return status, usage
            self._sample(child.pid)
            time.sleep(0.05)

    def _sample(self, pid):
        """Notes the greatest resident size so far of the process and of its children."""
        try:
            listed = open("/proc/%d/task/%d/children" % (pid, pid)).read().split()
        except OSError:
            return
        for process in [pid] + [int(child) for child in listed]:
            try:
                for line in open("/proc/%d/status" % process):
                    if line.startswith("VmHWM:"):
                        self.peaks[process] = int(line.split()[1]) * 1024
            except OSError:
                pass

    def json(self):
        """The last line of the output that starts a JSON object; others_share is added to it."""
        lines = [line for line in self.output.split("\n") if line.startswith("{")]
        first = self.output.rfind("\n" + lines[-1]) + 1 if lines else None
        if first is None:
            fail("no JSON object in the output: " + self.output)
        document = json.JSONDecoder().raw_decode(self.output, first)[0]
        document["others_share"] = self.others_share
        return document
