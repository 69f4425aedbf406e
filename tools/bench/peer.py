"""peer.py: the peer program, PyTorch's pipelining (torch_llama.py of --peer-folder), on the work of
a plan of ours: the same schedule, shapes, weights and tokens.
"""
import json
import os
import shutil
import statistics

from child import FOLDER, fail, run_all

# What the peer calls our schedules, and its options with the key of their value in our info.
SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved", "zero_bubble_v": "zbv",
             "gpipe": "gpipe", "looped_bfs": "looped_bfs"}
INFO_KEYS = {"ranks": "ranks", "stages-per-rank": "stages_per_rank", "threads": "threads_per_rank",
             "microbatches": "microbatches", "microbatch": "microbatch", "sequence": "sequence",
             "layers": "layers", "vocab": "vocab"}
MODEL_KEYS = ["hidden", "heads", "kv-heads", "ffn"]


def add_options(parser):
    parser.add_argument("--peer", help="Python with PyTorch; none: only ours")
    parser.add_argument("--peer-folder", default=".", help="where torch_llama.py is")


def check_options(settings):
    if settings.peer and not os.path.exists(settings.peer_folder + "/torch_llama.py"):
        fail("%s/torch_llama.py: no such file" % settings.peer_folder)


def can_run(info):
    """The peer has no replicas, and is not compared with one rank of one thread."""
    return info["ranks"] * info["threads_per_rank"] > 1 and info["replicas"] < 2 and info["schedule"] in SCHEDULES


def arguments(settings, info, model, files, steps, warm_steps):
    """The command. `info`: of the plan; `model`: a number for each of MODEL_KEYS, with "_" for "-";
    `files`: of the tokens and of the weights."""
    words = [settings.peer, settings.peer_folder + "/torch_llama.py", "--schedule",
             SCHEDULES[info["schedule"]], "--data", files[0], "--init", files[1], "--steps",
             str(steps), "--warm-up", str(warm_steps)]
    for option, key in INFO_KEYS.items():
        words += ["--" + option, "%.0f" % info[key]]
    for option in MODEL_KEYS:
        words += ["--" + option, "%.0f" % model[option.replace("-", "_")]]
    if info["dtype"] == "bf16":
        words += ["--dtype", "bf16", "--stream", "bf16"]
    return words


# ---- over emulated hosts ----

def model_of(plan):
    """What info does not tell of a plan's model: from a checkpoint."""
    folder = FOLDER + "/peer_model"
    shutil.rmtree(folder, ignore_errors=True)
    run_all([["./penstock-" + plan, "train", "--data", FOLDER + "/tokens.bin", "--steps", "1",
              "--checkpoint", folder, "--quiet"]])
    with open(folder + "/latest/config.json") as file:
        config = json.load(file)
    shutil.rmtree(folder)
    return {"hidden": config["hidden_size"], "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"], "ffn": config["intermediate_size"]}


class OverHosts:
    """The peer's run of a plan: two ranks, over gloo between host1 and host2."""

    def __init__(self, settings, plan, data, steps):
        weights, self.cores, self.steps = FOLDER + "/weights.safetensors", settings.cores, steps
        output, = run_all([["./penstock-" + plan, "info", "--json"]])
        info = json.loads(output)
        self.threads = "%.0f" % info["threads_per_rank"]
        run_all([["./penstock-" + plan, "init", "--seed", "1", "--output", weights]])
        self.command = arguments(settings, info, model_of(plan), (data, weights), steps, 1)
        self.reports = [os.path.abspath(FOLDER + "/peer_rank%d.json" % rank) for rank in (0, 1)]

    def environment(self, rank):
        """As launch.py of the peer's folder sets it for ranks on one host."""
        return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "10.78.0.1",
                "MASTER_PORT": "29519", "GLOO_SOCKET_IFNAME": "net0",
                "OMP_NUM_THREADS": self.threads, "MKL_NUM_THREADS": self.threads,
                "PEER_REPORT": self.reports[rank]}

    def train(self):
        """Milliseconds of a step: the median without the first one, and the losses."""
        run_all([["on", "host%d" % (rank + 1), "taskset", "-c", core, "env"] +
                 ["%s=%s" % pair for pair in self.environment(rank).items()] + self.command
                 for rank, core in enumerate(self.cores)])
        reports = [json.load(open(path)) for path in self.reports]
        ends = [max(times) for times in zip(*(report["step_end_s"] for report in reports))]
        return (statistics.median(1e3 * (b - a) for a, b in zip(ends, ends[1:])),
                next(report["losses"] for report in reports if report["losses"]))
