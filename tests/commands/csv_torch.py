"""Compute-only CSVs, with PyTorch's own schedules and pipeline runtime.

csv_torch.py read RANKS MICROBATCHES FILE...
    For each file it prints `FILE: RANK: ACTION ACTION ...`, the actions as PyTorch understood them, after its runtime has validated and
    lowered them. Forwards alone are no schedule for PyTorch, so of those it prints what the parser read.
csv_torch.py dump RANKS MICROBATCHES CLASS...
    Writes CLASS.csv of PyTorch's own schedules with two stages a rank.
"""
import logging
import re
import sys

import torch.distributed.pipelining.schedules as schedules

logging.disable(logging.WARNING)


class Stage:
    """What schedules ask their stages for when they are built and loaded."""

    def __init__(self, index, count, ranks):
        self.stage_index, self.num_stages, self.group_size, self.group_rank, self.submod = index, count, ranks, 0, None


def loss(output, target):
    return output


def read(path, ranks, microbatches):
    text = open(path).read()
    stages = 1 + max(int(stage) for stage in re.findall(r"(\d+)F\d", text))
    schedule = schedules._PipelineScheduleRuntime([Stage(0, stages, ranks)], microbatches, loss_fn=loss)
    if any(kind in text.replace("OVERLAP_F_B", "") for kind in "BIW"):
        schedule._load_csv(path, format="compute_only")
        lowered = schedule.pipeline_order_with_comms
        assert set(lowered) == set(range(ranks)) and all(lowered.values())
    else:
        schedule._validate_and_set_stage_mapping = lambda actions: None
        schedules.PipelineScheduleMulti._load_csv(schedule, path)
    for rank, actions in schedule.pipeline_order.items():
        print(f"{path}: {rank}:", *[action for action in actions if action is not None])


def dump(name, ranks, microbatches):
    stages = [Stage(index * ranks, 2 * ranks, ranks) for index in range(2)]
    schedule = getattr(schedules, name)(stages, microbatches, loss_fn=loss)
    schedules.PipelineScheduleMulti._dump_csv(schedule, f"{name}.csv")


for argument in sys.argv[4:]:
    {"read": read, "dump": dump}[sys.argv[1]](argument, int(sys.argv[2]), int(sys.argv[3]))
