"""compare.py: measured steps against the one that the plan predicts.

Each figure is the median over the steps of the trace, the first left out if there are enough. If the plan counts flops, its unit is
drawn as the time that makes the computing of all ranks take as long as measured: what differs is then the share of each."""
import statistics

from read_trace import Action


class Difference:
    """A part of a step: of `process`, all actions of one kind of a stage (`kind`, `stage`), or what lies between its actions."""

    def __init__(self, process, what, planned, measured, kind=None, stage=None):
        self.process, self.what, self.planned, self.measured = process, what, planned, measured
        self.kind, self.stage, self.is_gap = kind, stage, False

    def excess(self):
        return self.measured - self.planned


class Comparison:
    """`step`: the step of median length, its actions by process. `planned`: the predicted actions of each process, in
    milliseconds. `unit_ms`: of a unit of the plan. `differences`: the largest first."""

    def __init__(self, trace, step, planned, unit_ms, differences):
        self.trace, self.step, self.planned, self.unit_ms, self.differences = trace, step, planned, unit_ms, differences
        self.length = step_length(step)
        self.planned_length = trace.plan["makespan"] * unit_ms


def step_length(step):
    return max(actions[-1].end for actions in step)


def stage_of(name):
    return int(name[:len(name) - len(name.lstrip("0123456789"))])


def computing(actions):
    return [action for action in actions if action.computes()]


def median_actions(steps, process):
    """The computing actions of a process, each with the medians of its start and its length."""
    lists = [computing(step[process]) for step in steps]
    medians = []
    for same in zip(*lists):
        start = statistics.median(action.start for action in same)
        medians.append(Action(same[0].name, same[0].kind, start, start + statistics.median(a.end - a.start for a in same)))
    return medians


def total(actions):
    return sum(action.end - action.start for action in actions)


def separate_pairs(planned, measured):
    """Planned actions one after the other: the time of two that overlap is split as the measured ones share it."""
    apart = []
    for action, same in zip(planned, measured):
        before = apart[-1] if apart else None
        if before and action.start < before.end * (1 - 1e-6):
            other = measured[len(apart) - 1]
            share = total([other]) / (total([other, same]) or 1)
            end = max(before.end, action.end)
            before.end = before.start + share * (end - before.start)
            action = Action(action.name, action.kind, before.end, end)
        apart.append(Action(action.name, action.kind, action.start, action.end))
    return apart


def gaps(actions):
    """Before each action: how long after the one before it, or after the start of the step, it begins."""
    end, lengths = 0.0, []
    for action in actions:
        lengths.append(max(action.start - end, 0.0))
        end = max(end, action.end)
    return lengths


def stage_sums(actions):
    """The time of all actions of each kind and stage."""
    sums = {}
    for action in actions:
        group = (action.kind, stage_of(action.name))
        sums[group] = sums.get(group, 0.0) + action.end - action.start
    return sums


def median_sums(process, steps):
    lists = [stage_sums(computing(step[process])) for step in steps]
    return {group: statistics.median(sums[group] for sums in lists) for group in lists[0]}


def stage_differences(process, planned, measured):
    before = stage_sums(planned)
    return [Difference(process, f"{kind} of stage {stage}", before[kind, stage], length, kind, stage)
            for (kind, stage), length in measured.items()]


def gap_difference(process, planned, steps):
    lists = [gaps(computing(step[process])) for step in steps]
    measured = [statistics.median(same) for same in zip(*lists)]
    before = gaps(planned)
    largest = max(range(len(planned)), key=lambda index: abs(measured[index] - before[index]))
    what = f"waiting and sending, which differs most before {planned[largest].name}"
    difference = Difference(process, what, sum(before), sum(measured))
    difference.is_gap = True
    return difference


def end_differences(process, steps):
    """The end of a step, which is not simulated."""
    differences = []
    for kind in ("NORM", "UPDATE"):
        measured = statistics.median(total(action for action in step[process] if action.kind == kind) for step in steps)
        if measured > 0:
            differences.append(Difference(process, kind, 0.0, measured))
    return differences


def scaled(actions, unit_ms):
    return [Action(a.name, a.kind, a.start * unit_ms, a.end * unit_ms) for a in actions]


def compare(trace):
    ranks, steps = trace.plan["ranks"], trace.steps[1:] if len(trace.steps) > 2 else trace.steps
    processes = range(len(steps[0]))
    planned = [separate_pairs(trace.planned[process % ranks], median_actions(steps, process)) for process in processes]
    measured = [median_sums(process, steps) for process in processes]
    unit_ms = 1.0
    if trace.plan["unit"] != "in ms":
        unit_ms = sum(sum(sums.values()) for sums in measured) / (sum(map(total, planned)) or 1)
    planned = [scaled(actions, unit_ms) for actions in planned]
    differences = []
    for process in processes:
        differences += stage_differences(process, planned[process], measured[process])
        differences += [gap_difference(process, planned[process], steps)] + end_differences(process, steps)
    differences.sort(key=lambda difference: -abs(difference.excess()))
    by_length = sorted(steps, key=step_length)
    return Comparison(trace, by_length[(len(by_length) - 1) // 2], planned, unit_ms, differences)
