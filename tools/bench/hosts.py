"""hosts.py: `make bench-hosts`: what it costs to train over two hosts, beside one.

hop: a message of each size within a host and between two, beside Open MPI and MPICH, by turns
between the same two processes. step: a training step over two hosts by libfabric, beside one host by shared memory. All by turns.

Runs on the controller of `tests/support/hosts.sh 2`, from the top of the build folder. Each rank has
a core of its own, the same ones in all cases. Writes bench-hosts.json.
"""
import argparse
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys

import tokens
from child import FOLDER, fail, pair_figures

AIMS = {"bench_1f1b": 1.06, "bench_r2": 1.10}  # over shared memory
TOKENS, LOG = FOLDER + "/tokens.bin", FOLDER + "/hosts.json"
TOKEN_COUNT, VOCABULARY = 8 * 4 * 256 * 8 + 1, 4096


def run_all(commands):
    """Runs the commands together; fails if one does. Returns the output of each."""
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate() for process in running]
    for command, process, (_, error) in zip(commands, running, outputs):
        if process.returncode != 0:
            fail("%s: status %d\n%s" % (" ".join(command), process.returncode, error))
    return [output for output, _ in outputs]


# ---- a message ----

def namespaces():
    """The arguments of hop for both hosts, by the files that tests/support/hosts.sh keeps."""
    world = os.path.dirname(os.path.dirname(shutil.which("on")))
    return [word for host in ("1", "2") for word in (
        "/proc/%s/ns/net" % open("%s/host%s" % (world, host)).read().strip(), "10.78.0." + host)]


def hop_commands(turns):
    """{place: {library: command}}; without a library, "" for messages of ours alone."""
    commands = {"within a host": {}, "between hosts": {}}
    for name, within, between in (
            ("openmpi", ["mpirun.openmpi", "--bind-to", "none", "--oversubscribe", "-n", "2"],
             ["mpirun.openmpi", "--mca", "plm_rsh_agent", "rsh_to_host", "--mca", "plm", "rsh",
              "--mca", "btl_tcp_if_include", "net0", "--bind-to", "none", "--host",
              "host1:1,host2:1", "-n", "2", "--map-by", "node"]),
            ("mpich", ["mpiexec.hydra", "-launcher", "fork", "-n", "2"],
             ["mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", "rsh_to_host", "-hosts",
              "host1:1,host2:1", "-n", "2"])):
        program = "tools/bench/hop_mpi_" + name
        if os.path.exists(program) and shutil.which(within[0]):
            commands["within a host"][name] = (
                ["on", "host1"] + within + [program, "shm", "/dev/shm/hop", str(turns)])
            commands["between hosts"][name] = (
                between + [program, "ofi", os.path.abspath(FOLDER + "/hop"), str(turns),
                           "10.78.0.1", "10.78.0.2"])
        else:
            print("%s: skipped: it is not installed" % name)
    if not commands["within a host"]:
        commands = {"within a host": {"": ["tools/bench/hop", "shm"]},
                    "between hosts": {"": ["tools/bench/hop", "ofi"] + namespaces()}}
    return commands


def prepare_hosts():
    """One congestion control for all, and for UCX, which MPICH uses, the hosts' own interfaces."""
    for host in "host1", "host2":
        run_all([["on", host, "sh", "-c", "mount -t sysfs sysfs /sys; "
                  "echo reno >/proc/sys/net/ipv4/tcp_congestion_control"]])
    os.environ.update(UCX_NET_DEVICES="net0", OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run_hop(command):
    """The lines of a program for messages. One that has measured all may still wait for ever in
    MPI_Finalize (MPICH 4.0 over UCX): it is ended a while after its last line."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    lines = []
    for line in process.stdout:
        if line == "end\n":
            break
        lines.append(line)
    else:
        if process.wait() != 0:
            fail("%s: status %d\n%s" % (" ".join(command), process.returncode,
                                        process.stderr.read()))
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return lines


def measure_hops(settings):
    """{place: {library: {bytes: {"ours" or "mpi": [ns, ...]}}}}, one value a turn. The processes
    are started several times, since the cores that a virtual machine has may differ."""
    hops = {}
    for start in range(settings.starts):
        for place, programs in hop_commands(settings.turns).items():
            for name, command in programs.items():
                lines = run_hop(["taskset", "-c", ",".join(settings.cores)] + command)
                for line in map(json.loads, lines):
                    hops.setdefault(place, {}).setdefault(name, {}).setdefault(
                        line["bytes"], {}).setdefault(line["side"], []).append(line["hop_ns"])
        print("hops: start %d of %d" % (start + 1, settings.starts), file=sys.stderr)
    return hops


def print_hops(hops):
    """Ours is printed once for each library, as measured beside it; the last column is the median
    of the ratios of the turns, for the faster library."""
    for place, libraries in hops.items():
        print("%-14s" % place + "".join("%12s %12s %7s" % (
            "ours, us", name and name + ", us", "ratio") for name in libraries) + "   worst")
        for size in next(iter(libraries.values())):
            cells, worst = [], None
            for values in (sizes[size] for sizes in libraries.values()):
                ours, mpi = values["ours"], values.get("mpi", [])
                ratio = statistics.median(a / b for a, b in zip(ours, mpi)) if mpi else None
                worst = max(filter(None, (worst, ratio)), default=None)
                cells.append("%12.2f %12s %7s" % (
                    statistics.median(ours) / 1e3,
                    "%.2f" % (statistics.median(mpi) / 1e3) if mpi else "-",
                    "%.2f" % ratio if ratio else "-"))
            print("%14d" % size + "".join(cells) + "%8s" % ("%.2f" % worst if worst else "-"))


# ---- a step ----

def train(plan, cores, steps):
    """Milliseconds of a step: the median without the first one, and the losses."""
    if os.path.exists(LOG):
        os.unlink(LOG)  # a run appends
    arguments = ["train", "--data", TOKENS, "--seed", "1", "--steps", str(steps), "--log", LOG,
                 "--quiet"]
    if plan.endswith("_hosts"):
        run_all([["on", "host%d" % (i + 1), "taskset", "-c", core, "./penstock-" + plan] +
                 arguments + ["--no-secret"] for i, core in enumerate(cores)])
    else:
        run_all([["taskset", "-c", ",".join(cores), "./penstock-" + plan] + arguments])
    log = [line for line in map(json.loads, open(LOG)) if "event" not in line]
    return (statistics.median(line["step_ms"] for line in log[1:]),
            [line["loss"] for line in log])


def measure(plan, settings):
    """The pairs, which of the two is first alternates."""
    pairs = []
    for pair in range(settings.pairs):
        order = [plan, plan + "_hosts"] if pair % 2 == 0 else [plan + "_hosts", plan]
        result = {name: train(name, settings.cores, settings.steps) for name in order}
        shm, ofi = result[plan], result[plan + "_hosts"]
        if shm[1] != ofi[1]:
            fail("%s: the losses differ: %s %s" % (plan, shm[1], ofi[1]))
        pairs.append({"shm_ms": shm[0], "ofi_ms": ofi[0], "load": os.getloadavg()[0]})
    return pairs


def print_row(plan, pairs):
    print("%-12s %8.1f %8.1f %8.3f %8.3f %8.3f %6.2f %6d %6.2f" % (
        plan, *pair_figures(pairs, "shm_ms", "ofi_ms"), AIMS[plan], len(pairs),
        statistics.median(pair["load"] for pair in pairs)), flush=True)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--pairs", type=int, default=20, help="of the steps")
    parser.add_argument("--turns", type=int, default=5, help="of the messages, for each start")
    parser.add_argument("--starts", type=int, default=3, help="of the programs for messages")
    parser.add_argument("--steps", type=int, default=3, help="of a run; the first does not count")
    parser.add_argument("--cores", default="0,1", help="of rank 0 and rank 1")
    settings = parser.parse_args()
    settings.cores = settings.cores.split(",")
    if (settings.pairs < 0 or settings.turns < 1 or settings.starts < 0 or
            not 2 <= settings.steps <= 8 or len(settings.cores) != 2):
        fail("--pairs and --starts from 0, --turns from 1, --steps 2 to 8, --cores A,B")
    os.makedirs(FOLDER, exist_ok=True)
    tokens.write(TOKENS, TOKEN_COUNT, VOCABULARY)
    prepare_hosts()
    document = {"load_before": os.getloadavg()[0], "hops": measure_hops(settings), "steps": {}}
    print_hops(document["hops"])
    print("PyTorch over gloo: skipped: " + (
        "no PyTorch here" if importlib.util.find_spec("torch") is None else
        "its pipeline is not started over hosts"))
    if settings.pairs > 0:
        print("%-12s %8s %8s %8s %8s %8s %6s %6s %6s" % (
            "step, ms", "shm", "ofi", "ratio", "25%", "75%", "aim", "pairs", "load"), flush=True)
    for plan in AIMS if settings.pairs > 0 else ():
        document["steps"][plan] = measure(plan, settings)
        print_row(plan, document["steps"][plan])
    with open("bench-hosts.json", "w") as out:
        json.dump(document, out, indent=1)


main()
