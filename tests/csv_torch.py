"""Reads compute-only CSVs with PyTorch's own pipeline runtime: csv_torch.py RANKS MICROBATCHES FILE...

For each file it prints `FILE: RANK: ACTION ACTION ...`, the actions as PyTorch understood them, after its runtime has validated and
lowered them. Forwards alone are no schedule for PyTorch, so of those it prints what the parser read.
"""
import logging
import re
import sys
from types import SimpleNamespace

from torch.distributed.pipelining.schedules import PipelineScheduleMulti, _PipelineScheduleRuntime

logging.disable(logging.WARNING)


def runtime(ranks, stages, microbatches):
    """A runtime on rank 0 whose stages hold nothing: loading a schedule asks them for numbers alone."""
    stage = SimpleNamespace(
        num_stages=stages, group_size=ranks, group_rank=0, has_backward=True, stage_index=0, is_first=True, is_last=False, submod=None
    )
    return _PipelineScheduleRuntime([stage], microbatches, loss_fn=lambda output, target: None)


def load(path, ranks, microbatches):
    text = open(path).read()
    stages = 1 + max(int(stage) for stage in re.findall(r"(\d+)F\d", text))
    schedule = runtime(ranks, stages, microbatches)
    if any(kind in text.replace("OVERLAP_F_B", "") for kind in "BIW"):
        schedule._load_csv(path, format="compute_only")
        lowered = schedule.pipeline_order_with_comms
        assert set(lowered) == set(range(ranks)) and all(lowered.values())
    else:
        schedule._validate_and_set_stage_mapping = lambda actions: None
        PipelineScheduleMulti._load_csv(schedule, path)
    return schedule.pipeline_order


for file in sys.argv[3:]:
    order = load(file, int(sys.argv[1]), int(sys.argv[2]))
    for rank, actions in order.items():
        print(f"{file}: {rank}:", *[action for action in actions if action is not None])
