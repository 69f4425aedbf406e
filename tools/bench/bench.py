"""bench.py: `make bench`: measures the bench plans of this build, and PyTorch's pipelining beside
them, in turns. It runs from the top of the build folder, where the binaries are.

A round is a hop, the matrix products, and for each plan the dispatch, a start, a training run, and
the peer's run. Each waits until other processes leave the machine alone, and is measured again if
they did not. bench.json has all rounds; the table has medians over the rounds.
"""
import argparse
import json
import math
import os
import platform
import statistics
import time

import peer
import tokens
from child import CORES, FOLDER, Run, fail, wait_for_quiet

WARM_STEPS, SHARDED_STEPS, QUIET_WAIT_S, OTHERS_SHARE_MAX = 3, 6, 20, 0.05
TOKENS, WEIGHTS = FOLDER + "/tokens.bin", FOLDER + "/weights.safetensors"
LOG, TRACE = FOLDER + "/log.json", FOLDER + "/trace.json"


def cpu_info(key):
    return next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                 if line.startswith(key)), "unknown")


# ---- measurements: each returns a dictionary with others_share ----

def measure_program(*arguments):
    return Run(list(arguments)).json()


def measure_training(plan, steps):
    if os.path.exists(LOG):
        os.unlink(LOG)  # a run appends
    run = Run(["./penstock-" + plan, "train", "--data", TOKENS, "--init", WEIGHTS, "--steps",
               str(steps), "--overwrite", "--log", LOG, "--quiet"], sampled=True)
    log = [json.loads(line) for line in open(LOG)]
    step_ms = [line["step_ms"] for line in log[WARM_STEPS:]]
    return {"step_ms_median": statistics.median(step_ms), "step_ms": step_ms,
            "losses": [line["loss"] for line in log],
            "rank_peak_resident_bytes": run.process_peaks[1:],
            "launcher_peak_resident_bytes": run.process_peaks[0],
            "others_share": run.others_share}


def start_once(plan):
    """Seconds from exec to the start of the first action and to the end of the last."""
    run = Run(["./penstock-" + plan, "train", "--data", TOKENS, "--init", WEIGHTS, "--steps", "1",
               "--trace", TRACE, "--quiet"])
    trace = json.load(open(TRACE))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    zero_s = (int(trace["otherData"]["zero_monotonic_ns"]) - run.start_ns) / 1e9
    first_us = min(event["ts"] for event in events)
    last_us = max(event["ts"] + event["dur"] for event in events)
    return zero_s + first_us / 1e6, zero_s + last_us / 1e6, run.others_share


def measure_start(plan):
    """Two starts: the first follows an idle time, after which a virtual machine may have returned
    free memory to its host."""
    idle_first_s, _, idle_share = start_once(plan)
    first_s, last_s, share = start_once(plan)
    return {"exec_to_first_action_s": first_s, "exec_to_first_step_end_s": last_s,
            "exec_to_first_action_after_idle_s": idle_first_s,
            "others_share": max(share, idle_share)}


def peer_can(info):
    """Without instructions for bf16 the peer takes minutes a step."""
    return peer.can_run(info) and (info["dtype"] != "bf16" or
                                   "avx512_bf16" in cpu_info("flags").split())


def measure_peer(settings, model, info):
    return measure_program(*peer.arguments(settings, info, model, (TOKENS, WEIGHTS),
                                           settings.steps, WARM_STEPS))


def undisturbed(settings, label, measure, *arguments):
    """Measures until others leave the machine alone, or --patience ends; the run that they disturbed
    least counts."""
    best = None
    print(" " + label, end="", flush=True)
    for _ in range(settings.patience + 1):
        wait_for_quiet(settings.quiet_wait_s)
        result = measure(*arguments)
        if best is None or result["others_share"] < best["others_share"]:
            best = result
        if best["others_share"] <= OTHERS_SHARE_MAX:
            break
        print("*", end="", flush=True)
    return best


def measure_plan(settings, plan, model, info):
    round_ = {}
    sharded = info["shard"] != "none"
    print("; %s:" % plan, end="")
    if info["replicas"] * info["tensor_ranks"] < 2:  # the dispatch program is one process: it has no peers
        round_["dispatch"] = undisturbed(settings, "dispatch", measure_program,
                                         "tools/bench/dispatch_" + plan)
    if not sharded:
        round_["start"] = undisturbed(settings, "start", measure_start, plan)
    steps = min(settings.steps, SHARDED_STEPS) if sharded else settings.steps
    round_["ours"] = undisturbed(settings, "training", measure_training, plan, steps)
    if settings.peer and peer_can(info):
        round_["peer"] = undisturbed(settings, "peer", measure_peer, settings, model, info)
    return round_


def measure_round(settings, document, number):
    print("bench: round %d of %d (*: disturbed, measured again):" % (number, settings.rounds),
          end="")
    document["hop"]["rounds"].append(undisturbed(settings, "hop", measure_program,
                                                 "tools/bench/hop"))
    document["experts"]["rounds"].append(undisturbed(
        settings, "experts", measure_program, "tools/bench/experts", "1" if settings.brief else "15"))
    products = {
        key: undisturbed(settings, label, measure_program, program, processes)
        for key, label, program, processes in (
            ("one_process", "product", "tools/bench/matmul", "1"),
            ("two_processes", "two products", "tools/bench/matmul", "2"),
            ("two_processes_bf16", "two of bf16", "tools/bench/matmul_bf16", "2"))}
    document["matrix_products"]["rounds"].append(products)
    for name, plan in document["plans"].items():
        plan["rounds"].append(measure_plan(settings, name, products["one_process"]["model"],
                                           plan["info"]))
    print()


# ---- figures: medians over the rounds ----

def value_at(document, path):
    for key in path.split("."):
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def over_rounds(rounds, path):
    """The median over the rounds that have a number (or a list, which is summed) at the path."""
    values = [value_at(round_, path) for round_ in rounds]
    values = [sum(value) if isinstance(value, list) else value for value in values
              if value is not None]
    return statistics.median(values) if values else math.nan


def loss_difference(rounds):
    """The largest |ours - theirs| / |theirs| over all steps of all rounds."""
    differences = [abs(ours - theirs) / abs(theirs) for round_ in rounds if "peer" in round_
                   for ours, theirs in zip(round_["ours"]["losses"], round_["peer"]["losses"])]
    return max(differences, default=math.nan)


def processes_of(info):
    return info["ranks"] * info["replicas"] * info["tensor_ranks"]


def plan_figures(plan, products):
    info, report, rounds = plan["info"], plan["report"], plan["rounds"]
    tokens_a_step = (info["microbatches"] * info["microbatch"] * info["sequence"] *
                     info["replicas"])
    step_ms = over_rounds(rounds, "ours.step_ms_median")
    peer_step_ms = over_rounds(rounds, "peer.step_ms.median")
    attainable = over_rounds(products, (
        "one_process" if processes_of(info) * info["threads_per_rank"] == 1 else
        "two_processes_bf16" if info["dtype"] == "bf16" else "two_processes") + ".gflop_per_s")
    product_flop = over_rounds(products, "one_process.product_flop_per_step")
    attention_flop = over_rounds(products, "one_process.attention_flop_per_step")
    fraction = product_flop / step_ms / 1e6 / attainable
    busy = sum(rank["busy"] for rank in report["rank"])
    utilisation = busy / (report["span"] * len(report["rank"]))
    resident = over_rounds(rounds, "ours.rank_peak_resident_bytes")
    peer_resident = over_rounds(rounds, "peer.peak_rss_mib") * 2**20
    return {
        "tokens_per_step": tokens_a_step,
        "step_ms": step_ms,
        "tokens_per_s": tokens_a_step / step_ms * 1e3,
        "peer_step_ms": peer_step_ms,
        "peer_tokens_per_s": tokens_a_step / peer_step_ms * 1e3,
        "tokens_per_s_ratio": peer_step_ms / step_ms,
        "product_gflop_per_s": product_flop / step_ms / 1e6,
        "attainable_product_gflop_per_s": attainable,
        "fraction_of_product_peak": fraction,
        "fraction_with_attention": fraction * (1 + attention_flop / product_flop),
        "peer_fraction_of_product_peak": product_flop / peer_step_ms / 1e6 / attainable,
        "planned_bubble": report["bubble"],
        "planned_utilisation": utilisation,
        "fraction_within_utilisation": fraction / utilisation,
        "dispatch_of_an_action_ns": over_rounds(rounds, "dispatch.row_ns"),
        "dispatch_of_an_operation_ns": over_rounds(rounds, "dispatch.operation_ns"),
        "planned_bytes": sum(rank["arena_bytes"] for rank in info["rank"]) * info["replicas"] * info["tensor_ranks"],
        "peak_resident_bytes": resident,
        "launcher_peak_resident_bytes": over_rounds(rounds, "ours.launcher_peak_resident_bytes"),
        "peer_peak_resident_bytes": peer_resident,
        "peak_resident_ratio": resident / peer_resident,
        "exec_to_first_action_s": over_rounds(rounds, "start.exec_to_first_action_s"),
        "exec_to_first_action_after_idle_s":
            over_rounds(rounds, "start.exec_to_first_action_after_idle_s"),
        "exec_to_first_step_end_s": over_rounds(rounds, "start.exec_to_first_step_end_s"),
        "peer_launch_to_first_step_end_s": over_rounds(rounds, "peer.launch_to_first_step_s"),
        "others_share": over_rounds(rounds, "ours.others_share"),
        "peer_others_share": over_rounds(rounds, "peer.others_share"),
        "largest_relative_loss_difference": loss_difference(rounds),
    }


def add_figures(document):
    for plan in document["plans"].values():
        figures = plan_figures(plan, document["matrix_products"]["rounds"])
        plan.update({key: value for key, value in figures.items() if math.isfinite(value)})
    for name, plan in document["plans"].items():
        if name.endswith("_threads") and name[:-len("_threads")] in document["plans"]:
            one = document["plans"][name[:-len("_threads")]]
            plan["tokens_per_s_over_one_thread"] = plan["tokens_per_s"] / one["tokens_per_s"]
        if name.endswith("_bf16") and name[:-len("_bf16")] in document["plans"]:
            f32 = document["plans"][name[:-len("_bf16")]]
            plan["tokens_per_s_over_f32"] = plan["tokens_per_s"] / f32["tokens_per_s"]
    for dtype in "f32", "bf16":
        document["experts"][dtype] = {key: over_rounds(document["experts"]["rounds"], dtype + "." + key)
                                      for _, key, *_ in EXPERT_ROWS}
    hop = document["hop"]
    for key in "median_ns", "p99_ns", "asleep_median_ns":
        hop[key] = over_rounds(hop["rounds"], "hop_" + key)


# ---- the table: label, key, factor, format, target ----

ROWS = [
    ("tokens/s", "tokens_per_s", 1, "%.0f", ""),
    ("  peer", "peer_tokens_per_s", 1, "%.0f", ""),
    ("  ratio", "tokens_per_s_ratio", 1, "%.2f", "1.5 (1f1b), 1.6 (zbv), 1.7 (bf16), 1.4 (threads)"),
    ("  over one thread", "tokens_per_s_over_one_thread", 1, "%.2f", "1.8"),
    ("  over f32", "tokens_per_s_over_f32", 1, "%.2f", "1.6"),
    ("step, ms", "step_ms", 1, "%.1f", ""),
    ("  peer", "peer_step_ms", 1, "%.1f", ""),
    ("matrix products, GFLOP/s", "product_gflop_per_s", 1, "%.1f", ""),
    ("  attainable here", "attainable_product_gflop_per_s", 1, "%.1f", ""),
    ("  fraction of it, %", "fraction_of_product_peak", 100, "%.1f", ""),
    ("  peer's fraction, %", "peer_fraction_of_product_peak", 100, "%.1f", ""),
    ("  attention counted too, %", "fraction_with_attention", 100, "%.1f", ""),
    ("planned bubble, %", "planned_bubble", 100, "%.1f", ""),
    ("planned utilisation, %", "planned_utilisation", 100, "%.1f", ""),
    ("  fraction of the peak within it, %", "fraction_within_utilisation", 100, "%.1f", ""),
    ("dispatch of an action, ns", "dispatch_of_an_action_ns", 1, "%.1f", "200"),
    ("  of an operation in it, ns", "dispatch_of_an_operation_ns", 1, "%.2f", ""),
    ("planned memory of all ranks, MiB", "planned_bytes", 2**-20, "%.1f", ""),
    ("peak resident of all ranks, MiB", "peak_resident_bytes", 2**-20, "%.1f", ""),
    ("  peer", "peer_peak_resident_bytes", 2**-20, "%.1f", ""),
    ("  ratio", "peak_resident_ratio", 1, "%.3f", "0.25"),
    ("exec to first action, s", "exec_to_first_action_s", 1, "%.4f", "0.15"),
    ("  after idle, s", "exec_to_first_action_after_idle_s", 1, "%.4f", ""),
    ("exec to end of first step, s", "exec_to_first_step_end_s", 1, "%.2f", ""),
    ("  peer", "peer_launch_to_first_step_end_s", 1, "%.2f", ""),
    ("others' share of the cores, %", "others_share", 100, "%.1f", "0"),
    ("  while the peer ran", "peer_others_share", 100, "%.1f", "0"),
    ("largest relative difference of losses", "largest_relative_loss_difference", 1, "%.1e",
     "1e-4 (f32)"),
]
HOP_ROWS = [
    ("hop of 4 KiB, both spinning, us", "median_ns", 1e-3, "%.2f", "3"),
    ("  99th percentile, us", "p99_ns", 1e-3, "%.2f", ""),
    ("  both asleep before, us", "asleep_median_ns", 1e-3, "%.2f", ""),
]

EXPERT_ROWS = [
    ("LINEAR of 512 rows, GFLOP/s", "linear_gflop_per_s", 1, "%.1f", ""),
    ("EXPERTS over LINEAR, 64 rows an expert", "experts_64", 1, "%.2f", "0.65 (f32)"),
    ("  256 rows an expert", "experts_256", 1, "%.2f", "0.85 (f32)"),
    ("  2048 rows at one expert", "experts_on_one", 1, "%.2f", "0.97 (f32)"),
    ("  weight gradients, 64 rows an expert", "weights_64", 1, "%.2f", "0.70 (f32)"),
]


def print_row(row, columns):
    label, key, factor, form, target = row
    cells = [form % (column[key] * factor) if key in column else "-" for column in columns]
    print("%-38s" % label + "".join(" %16s" % cell for cell in cells) + "  " + target)


def print_table(document):
    plans = document["plans"]
    print("%-38s" % "" + "".join(" %16s" % name for name in plans) + "  target")
    for row in ROWS:
        if any(row[1] in plan for plan in plans.values()):
            print_row(row, plans.values())
    for row in HOP_ROWS:
        print_row(row, [document["hop"]])
    print("%-38s %16s %16s" % ("experts, one thread, 1024 x 2048", "f32", "bf16"))
    for row in EXPERT_ROWS:
        print_row(row, [document["experts"]["f32"], document["experts"]["bf16"]])


# ---- the whole ----

def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--topologies", default="topologies")
    peer.add_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="of a run, warm-up included")
    parser.add_argument("--brief", action="store_true", help="whether it works, no figures to keep: "
                        "one round of %d steps, disturbed or not" % (WARM_STEPS + 1))
    parser.add_argument("--plans", required=True, help="of topologies, separated by blanks")
    parser.add_argument("-s", dest="settings", action="append", default=[],
                        help="what the plans were built with")
    parser.add_argument("--patience", type=int, default=2,
                        help="how often a disturbed run is measured again")
    settings = parser.parse_args()
    settings.plans, settings.quiet_wait_s = settings.plans.split(), QUIET_WAIT_S
    if settings.brief:
        settings.rounds, settings.steps, settings.patience = 1, WARM_STEPS + 1, 0
        settings.quiet_wait_s = 0
    if settings.rounds < 1 or settings.steps <= WARM_STEPS or settings.patience < 0:
        fail("--rounds from 1, --steps from %d, --patience from 0" % (WARM_STEPS + 1))
    peer.check_options(settings)
    return settings


def describe_plan(settings, plan):
    overrides = [word for setting in settings.settings for word in ("-s", setting)]
    report = Run(["./penstock-gen", "--print=report", *overrides,
                  "%s/%s.cfg" % (settings.topologies, plan)])
    return {"info": measure_program("./penstock-" + plan, "info", "--json"),
            "report": json.loads(report.output), "rounds": []}


def main():
    settings = parse()
    os.makedirs(FOLDER, exist_ok=True)
    plans = {plan: describe_plan(settings, plan) for plan in settings.plans}
    info = plans[settings.plans[0]]["info"]
    document = {
        "machine": {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                    "cpu": cpu_info("model name"), "cores_online": CORES,
                    "system": "%s %s" % (platform.system(), platform.release()),
                    "load_average_before": os.getloadavg()[0], "kernels": info["kernels"]},
        "settings": {"rounds": settings.rounds, "steps": settings.steps,
                     "warm_steps": WARM_STEPS, "peer": settings.peer},
        "plans": plans, "matrix_products": {"rounds": []}, "hop": {"rounds": []},
        "experts": {"rounds": []}}
    step_tokens = info["microbatches"] * info["microbatch"] * info["sequence"]
    tokens.write(TOKENS, step_tokens * settings.steps + 1, info["vocab"])
    Run(["./penstock-" + settings.plans[0], "init", "--seed", "1", "--output", WEIGHTS])
    for number in range(1, settings.rounds + 1):
        measure_round(settings, document, number)
    add_figures(document)
    print_table(document)
    with open("bench.json", "w") as out:
        json.dump(document, out, indent=1)


main()
