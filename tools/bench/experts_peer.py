#!/usr/bin/env python3
"""experts_peer.py: `make bench-experts PEER=PYTHON`: tokens/s of training a small Mixtral, and of
transformers' implementation with the same weights, tokens, microbatches and cores, by turns.

    experts_peer.py [--turns 5] [--steps 6] --peer PYTHON

The peer is torch.compile of MixtralForCausalLM with two of transformers' ways to compute experts
once each; the faster runs in the turns. Both train with AdamW and log a loss a step: the losses differ
by at most 1e-4, else the comparison fails. Prints a table; bench-experts.json has all turns.
"""
import argparse
import json
import os
import shutil
import statistics
import sys

import tokens
from child import CORES, FOLDER, Run, fail, pair_figures

PLAN, MODEL, LOG = "./penstock-bench_experts", FOLDER + "/mixtral", FOLDER + "/experts.log"
DATA, WARM_STEPS, LOSS_TOLERANCE = FOLDER + "/tokens.bin", 2, 1e-4
WAYS = ("eager", "grouped_mm")  # not batched_mm, which copies the weights for each choice of a token: 13 GB here


def write_model(steps):
    """The folder from which both sides read their first weights; returns what info tells."""
    os.makedirs(FOLDER, exist_ok=True)
    shutil.rmtree(MODEL, ignore_errors=True)
    info = Run([PLAN, "info", "--json"]).json()
    row = info["microbatches"] * info["microbatch"] * info["sequence"]
    tokens.write(DATA, row * steps + 1, int(info["vocab"]))
    Run([PLAN, "train", "--data", DATA, "--steps", "1", "--checkpoint", MODEL, "--quiet"])
    shutil.copy(MODEL + "/latest/config.json", MODEL)
    Run([PLAN, "init", "--seed", "1", "--output", MODEL + "/model.safetensors"])
    return info


def ours(steps):
    if os.path.exists(LOG):
        os.unlink(LOG)  # a run appends
    run = Run([PLAN, "train", "--data", DATA, "--init", MODEL + "/model.safetensors", "--steps",
               str(steps), "--overwrite", "--log", LOG, "--quiet"])
    lines = [json.loads(line) for line in open(LOG)]
    return {"step_ms": statistics.median(line["step_ms"] for line in lines[WARM_STEPS:]),
            "losses": [line["loss"] for line in lines], "others_share": run.others_share}


def peer(settings, info, way, steps):
    return Run([settings.peer, os.path.abspath(__file__), "--as-peer", json.dumps(
        {"way": way, "steps": steps, "microbatches": int(info["microbatches"]),
         "microbatch": int(info["microbatch"]), "sequence": int(info["sequence"])})]).json()


# ---- the peer's process ----

def train_peer(options):
    import time

    import numpy
    import torch
    import transformers
    torch.set_num_threads(CORES)
    model = transformers.MixtralForCausalLM.from_pretrained(
        MODEL, dtype=torch.float32, attn_implementation="sdpa", experts_implementation=options["way"])
    model.train()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    data = torch.from_numpy(numpy.fromfile(DATA, dtype=numpy.uint16, offset=1024).astype(numpy.int64))
    rows, length = options["microbatch"], options["sequence"]

    def loss_of(ids, targets):
        logits = model(input_ids=ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    compiled = torch.compile(loss_of)
    losses, times, sample = [], [], 0
    for _ in range(options["steps"]):
        start, total = time.perf_counter(), 0.0
        for _ in range(options["microbatches"]):
            part = data[sample * length:(sample + rows) * length + 1]
            sample += rows
            loss = compiled(part[:-1].view(rows, length), part[1:].view(rows, length)) / options["microbatches"]
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1e3 * (time.perf_counter() - start))
        losses.append(total)
    print(json.dumps({"step_ms": statistics.median(times[WARM_STEPS:]), "losses": losses}))


# ---- the comparison ----

def losses_agree(turn):
    return all(abs(a - b) <= LOSS_TOLERANCE * abs(b) for a, b in zip(turn["ours"]["losses"], turn["peer"]["losses"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="Python with PyTorch and transformers")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.as_peer:
        return train_peer(json.loads(settings.as_peer))
    if not settings.peer:
        fail("--peer PYTHON is needed: Python with PyTorch and transformers")
    if settings.steps <= WARM_STEPS:
        fail("--steps is greater than %d" % WARM_STEPS)
    info = write_model(settings.steps)
    row = info["microbatches"] * info["microbatch"] * info["sequence"]
    ways = {way: peer(settings, info, way, WARM_STEPS + 1)["step_ms"] for way in WAYS}
    fastest = min(ways, key=ways.get)
    for way, step_ms in ways.items():
        print("transformers, %-10s %8.0f tokens/s" % (way, row / step_ms * 1e3))
    turns = []
    for _ in range(settings.turns):
        turns.append({"ours": ours(settings.steps), "peer": peer(settings, info, fastest, settings.steps)})
        turns[-1].update(ours_ms=turns[-1]["ours"]["step_ms"], peer_ms=turns[-1]["peer"]["step_ms"])
        if not losses_agree(turns[-1]):
            fail("the losses differ: %s" % json.dumps(turns[-1]))
    ours_ms, peer_ms, ratio, low, high = pair_figures(turns, "ours_ms", "peer_ms")
    print("penstock                 %8.0f tokens/s\ntransformers, %-10s %8.0f tokens/s" % (
        row / ours_ms * 1e3, fastest, row / peer_ms * 1e3))
    print("ratio %.2f (quartiles %.2f and %.2f of %d turns); others had at most %.0f%% of the cores" % (
        ratio, low, high, len(turns), 100 * max(t[s]["others_share"] for t in turns for s in ("ours", "peer"))))
    with open("bench-experts.json", "w") as out:
        json.dump({"info": info, "ways_ms": ways, "turns": turns}, out, indent=1)


sys.exit(main())
