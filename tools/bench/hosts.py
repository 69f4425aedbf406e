"""hosts.py: `make bench-hosts`: what it costs to train over two hosts, beside one.

hop: a message of each size within a host and between two, beside Open MPI and MPICH, alternately
between the same two processes. step: a training step over two hosts by libfabric, beside one host
by shared memory, and with --peer beside PyTorch's pipelining, over gloo between the same two hosts.
All alternately.

Runs on the controller of `tests/support/hosts.sh 2`, from the top of the build folder. Each rank has
a core of its own, the same ones in all cases. Prints each table as soon as it is measured, and on
standard error each start and pair. Writes bench-hosts.json.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys

import peer
import tokens
from child import FOLDER, fail, pair_figures, run_all

AIMS = {"bench_1f1b": 1.06, "bench_r2": 1.10}  # over shared memory
PEER_PLAN, PEER_LOSS_DIFFERENCE = "bench_1f1b", 1e-3  # the peer has no replicas
PLACES = ["within a host", "between hosts"]
TOKENS, LOG = FOLDER + "/tokens.bin", FOLDER + "/hosts.json"
TOKEN_COUNT, VOCABULARY = 8 * 4 * 256 * 8 + 1, 4096


# ---- a message ----

def namespaces():
    """The arguments of hop for both hosts, by the files that tests/support/hosts.sh keeps."""
    world = os.path.dirname(os.path.dirname(shutil.which("on")))
    return [word for host in ("1", "2") for word in (
        "/proc/%s/ns/net" % open("%s/host%s" % (world, host)).read().strip(), "10.78.0." + host)]


def hop_commands(turns):
    """{place: {library: command}}; without a library, "" for messages of ours alone."""
    commands = {place: {} for place in PLACES}
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


def measure_hops(settings, place, commands):
    """{library: {bytes: {"ours" or "mpi": [ns, ...]}}}, one value a turn. The processes are started
    several times, since the cores that a virtual machine has may differ."""
    hops = {}
    for start in range(settings.starts):
        for name, command in commands.items():
            lines = run_hop(["taskset", "-c", ",".join(settings.cores)] + command)
            for line in map(json.loads, lines):
                hops.setdefault(name, {}).setdefault(line["bytes"], {}).setdefault(
                    line["side"], []).append(line["hop_ns"])
        print("hops %s: start %d of %d" % (place, start + 1, settings.starts), file=sys.stderr)
    return hops


def print_hops(place, libraries):
    """Ours is printed once for each library, as measured beside it; the last column is the median
    of the ratios of the turns, for the faster library."""
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
    sys.stdout.flush()


# ---- a step ----

def train(plan, cores, steps):
    """Milliseconds of a step: the median without the first one, and the losses."""
    if os.path.exists(LOG):
        os.unlink(LOG)  # a run appends
    arguments = ["train", "--data", TOKENS, "--seed", "1", "--steps", str(steps), "--overwrite", "--log", LOG,
                 "--quiet"]
    if plan.endswith("_hosts"):
        run_all([["on", "host%d" % (i + 1), "taskset", "-c", core, "./penstock-" + plan] +
                 arguments + ["--no-secret"] for i, core in enumerate(cores)])
    else:
        run_all([["taskset", "-c", ",".join(cores), "./penstock-" + plan] + arguments])
    log = [line for line in map(json.loads, open(LOG)) if "event" not in line]
    return (statistics.median(line["step_ms"] for line in log[1:]),
            [line["loss"] for line in log])


def compare_losses(plan, result):
    """Ours have the same bits. The peer's, whose sums have another order, are nearly the same."""
    ours, others = result["shm"][1], result["ofi"][1]
    if ours != others:
        fail("%s: the losses differ: %s %s" % (plan, ours, others))
    theirs = result.get("gloo", (0, ours))[1]
    if any(abs(a - b) > PEER_LOSS_DIFFERENCE * b for a, b in zip(ours, theirs)):
        fail("%s: the losses differ from the peer's: %s %s" % (plan, ours, theirs))


def measure_pairs(plan, settings, gloo):
    """Alternate pairs: which is first changes. In the first --peer-runs of them the peer runs too."""
    pairs = []
    for pair in range(settings.pairs):
        trains = {"shm": lambda: train(plan, settings.cores, settings.steps),
                  "ofi": lambda: train(plan + "_hosts", settings.cores, settings.steps)}
        if gloo is not None and pair < settings.peer_runs:
            trains["gloo"] = gloo.train
        order = list(trains)
        order = order[pair % len(order):] + order[:pair % len(order)]
        result = {name: trains[name]() for name in order}
        compare_losses(plan, result)
        pairs.append({name + "_ms": result[name][0] for name in trains})
        pairs[-1]["load"] = os.getloadavg()[0]
        print("%s: pair %d of %d: %s ms" % (plan, pair + 1, settings.pairs, ", ".join(
            "%s %.1f" % (name, result[name][0]) for name in trains)), file=sys.stderr)
    return pairs


def print_pairs(pairs, plan, columns, aim):
    """A line with its headings: of two columns of the pairs that have both."""
    pairs = [pair for pair in pairs if all(name + "_ms" in pair for name in columns)]
    figures = pair_figures(pairs, *(name + "_ms" for name in columns))
    print("%-12s %8s %8s %8s %8s %8s %6s %6s %6s" % (
        "step, ms", *columns, "ratio", "25%", "75%", "aim", "pairs", "load"))
    print("%-12s %8.1f %8.1f %8.3f %8.3f %8.3f %6s %6d %6.2f" % (
        plan, *figures, aim, len(pairs), statistics.median(pair["load"] for pair in pairs)),
        flush=True)


def measure_plan(plan, settings):
    gloo = None
    if settings.peer and settings.peer_runs > 0 and plan == PEER_PLAN:
        gloo = peer.OverHosts(settings, plan, TOKENS, settings.steps)
    pairs = measure_pairs(plan, settings, gloo)
    print_pairs(pairs, plan, ("shm", "ofi"), "%.2f" % AIMS[plan])
    if gloo is not None:
        print_pairs(pairs, plan, ("ofi", "gloo"), "-")
    return pairs


# ---- the whole ----

def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    peer.add_options(parser)
    parser.add_argument("--pairs", type=int, default=20, help="of the steps")
    parser.add_argument("--peer-runs", type=int, default=9, help="of the peer, in the first pairs")
    parser.add_argument("--turns", type=int, default=5, help="of the messages, for each start")
    parser.add_argument("--starts", type=int, default=3, help="of the programs for messages")
    parser.add_argument("--steps", type=int, default=3, help="of a run; the first does not count")
    parser.add_argument("--cores", default="0,1", help="of rank 0 and rank 1")
    settings = parser.parse_args()
    settings.cores = settings.cores.split(",")
    if (settings.pairs < 0 or settings.peer_runs < 0 or settings.turns < 1 or
            settings.starts < 0 or not 2 <= settings.steps <= 8 or len(settings.cores) != 2):
        fail("--pairs, --peer-runs and --starts from 0, --turns from 1, --steps 2 to 8, "
             "--cores A,B")
    peer.check_options(settings)
    return settings


def main():
    settings = parse()
    os.makedirs(FOLDER, exist_ok=True)
    tokens.write(TOKENS, TOKEN_COUNT, VOCABULARY)
    prepare_hosts()
    document = {"load_before": os.getloadavg()[0], "hops": {}, "steps": {}}

    def keep(part, name, value):
        document[part][name] = value
        with open("bench-hosts.json", "w") as out:
            json.dump(document, out, indent=1)
    for place, commands in hop_commands(settings.turns).items() if settings.starts > 0 else ():
        hops = measure_hops(settings, place, commands)
        keep("hops", place, hops)
        print_hops(place, hops)
    if not settings.peer:
        print("PyTorch over gloo: skipped: no PEER=PYTHON")
    for plan in AIMS if settings.pairs > 0 else ():
        keep("steps", plan, measure_plan(plan, settings))


main()
