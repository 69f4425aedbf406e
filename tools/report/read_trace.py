"""read_trace.py: the steps of train --trace, and the step that the plan predicts.

The file has one event a line; each is an action of a rank. A step of a rank begins at the first action of its plan that computes.
A long run keeps its last events alone, so steps are counted from the end, and only those that are complete on all ranks are used."""
import re

from failure import BAD_DATA, Failure
from read_log import PLAN_FIELDS, fits_plan
from reading import RANKS_MAX, is_count, is_finite, parse_json, read_file, shown

COMPUTING = ("F", "B", "I", "W")
COMPUTED = re.compile("[0-9]{1,9}([FBIW])[0-9]{1,9}")  # the name of an action that computes
MADE_BY = "expected the file of train --trace"


class Action:
    """What a rank does, in milliseconds from the start of its step."""

    def __init__(self, name, kind, start, end):
        self.name, self.kind, self.start, self.end = name, kind, start, end

    def computes(self):
        return self.kind in COMPUTING


class Trace:
    """`planned`: the actions of each rank of a replica, in the unit of the plan. `steps`: of each complete step the actions of
    each process, whose rank is that of the process modulo the ranks."""

    def __init__(self, plan, planned, steps):
        self.plan, self.planned, self.steps = plan, planned, steps


def kind_of(name):
    """The kind of an action that computes: F of 12F3. None: it is none."""
    match = COMPUTED.fullmatch(name)
    return match and match[1]


def parse_trace(path, text):
    try:
        trace = parse_json(text)
    except ValueError as error:
        raise Failure(BAD_DATA, f"--trace {path}:{getattr(error, 'lineno', 1)}: not JSON ({getattr(error, 'msg', error)}); {MADE_BY}") from error
    head = trace.get("otherData") if isinstance(trace, dict) else None
    if not isinstance(head, dict) or not isinstance(trace.get("traceEvents"), list):
        raise Failure(BAD_DATA, f'--trace {path}:1: no "otherData" and "traceEvents"; {MADE_BY}')
    if "simulated" in head:
        raise Failure(BAD_DATA, f"--trace {path}:1: a simulated step of penstock-gen --print=trace; {MADE_BY}, which has it too")
    return head, trace["traceEvents"]


def check_planned(path, head):
    """The plan of the trace and the actions of its ranks."""
    plan = head.get("plan")
    fields = {field: kind for field, kind in PLAN_FIELDS.items() if field != "bytes"}
    if not isinstance(plan, dict) or not all(fits_plan(plan, field, kind) for field, kind in fields.items()):
        raise Failure(BAD_DATA, f'--trace {path}:2: no "plan" with {", ".join(fields)}; {MADE_BY}')
    if plan["ranks"] * plan["replicas"] > RANKS_MAX:
        raise Failure(BAD_DATA, f'--trace {path}:2: {plan["ranks"]} ranks, {plan["replicas"]} replicas; expected at most {RANKS_MAX} in all')
    if "times" not in plan:
        raise Failure(BAD_DATA, f"--trace {path}:2: the plan does not predict this step: it is of another shape than the plan's first")
    lists = plan["times"]
    whole = isinstance(lists, list) and len(lists) == plan["ranks"] and all(
        isinstance(rank, list) and rank and all(isinstance(a, list) and len(a) == 3 and isinstance(a[0], str) and kind_of(a[0]) and
                                                is_finite(a[1]) and is_finite(a[2]) for a in rank) for rank in lists)
    if not whole or not is_finite(plan.get("makespan")):
        raise Failure(BAD_DATA, f'--trace {path}:2: "times": expected [action, start, end] of the actions of {plan["ranks"]} ranks')
    return plan, [[Action(name, kind_of(name), start, end) for name, start, end in rank] for rank in lists]


def actions_by_process(path, events, first_line, count):
    """The actions of each process in the order of time."""
    lists = [[] for _ in range(count)]
    for index, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        where = f"--trace {path}:{first_line + index}"
        name, kind, process, start, length = (event.get(field) for field in ("name", "cat", "pid", "ts", "dur"))
        if not (is_finite(process) and is_finite(start) and is_finite(length) and isinstance(name, str) and isinstance(kind, (str, type(None)))):
            raise Failure(BAD_DATA, f'{where}: expected "name", "pid", "ts" and "dur" of an action')
        if not is_count(process, 0, count - 1):
            raise Failure(BAD_DATA, f'{where}: "pid": {shown(process)}; the plan has processes 0 to {count - 1}')
        if kind in COMPUTING and kind_of(name) != kind:
            raise Failure(BAD_DATA, f'{where}: "name": {shown(name)}; expected that of an action of kind {kind}')
        lists[process].append(Action(name, kind, start / 1e3, (start + length) / 1e3))
    for actions in lists:
        actions.sort(key=lambda action: action.start)
    return lists


def prepares(action):
    """Whether an action after the end of a step belongs to the next one."""
    return action.kind in ("UNSHARD", "GRAD_READY") or (action.kind or "").startswith(("RECV_", "WAIT_F", "WAIT_B"))


def steps_of_process(actions, planned):
    """The steps of a process, the last one first; of one that is not complete None."""
    names = [action.name for action in planned]
    starts = [index for index, action in enumerate(actions) if action.name == names[0]]
    steps = []
    for begin, end in zip(starts, starts[1:] + [len(actions)]):
        while end > begin + 1 and prepares(actions[end - 1]):
            end -= 1
        whole = [action.name for action in actions[begin:end] if action.computes()] == names
        steps.append(actions[begin:end] if whole else None)
    return steps[::-1]


def from_start(step):
    """The actions of all processes from the first one on."""
    zero = min(actions[0].start for actions in step)
    return [[Action(a.name, a.kind, a.start - zero, a.end - zero) for a in actions] for actions in step]


def read_trace(path, log):
    text = read_file(path, "--trace ")
    head, events = parse_trace(path, text)
    plan, planned = check_planned(path, head)
    if log.plans and plan["digest"] not in [known["digest"] for known in log.plans]:
        raise Failure(BAD_DATA, f'--trace {path}:2: of the plan {plan["name"][:100]} with digest {plan["digest"][:16]}; expected that of the log, '
                      f'{log.plans[-1]["name"][:100]} with digest {log.plans[-1]["digest"][:16]}')
    first_line = text[:text.find(b'"traceEvents"')].count(b"\n") + 2
    lists = actions_by_process(path, events, first_line, plan["ranks"] * plan["replicas"])
    by_process = [steps_of_process(actions, planned[process % plan["ranks"]]) for process, actions in enumerate(lists)]
    steps = [from_start(step) for step in zip(*by_process) if None not in step][::-1]
    if not steps:
        raise Failure(BAD_DATA, f"--trace {path}: no step that is complete on all {len(lists)} ranks; expected one at least")
    return Trace(plan, planned, steps)
