"""read_log.py: the lines of train --log.

A line is a step, an evaluation, or an event (restart, slow, sample). The first step that a command writes has the plan. Steps after a
resume from an older checkpoint are in the log twice: the later ones count. A line that the run has not finished is left out, and
so are lines that are no JSON, as a crash may leave them."""
from failure import BAD_DATA, Failure
from reading import RANKS_MAX, VALUE_LEAST, VALUE_MAX, is_count, parse_json, read_file, shown

KINDS_MAX = 64

# Of a line of each kind: the fields that it must have. True: a number, or `null` if it is not finite or there is none (a step, or
# an evaluation, without targets has neither loss nor norm); False: a whole number.
STEP_FIELDS = {"step": False, "loss": True, "grad_norm": True, "lr": True, "tokens": False, "step_ms": True,
               "tokens_per_second": True}
SOME_FIELDS = ("mfu", "aux_loss", "z_loss", "expert_load", "idle_experts")  # numbers that a step may have
EVALUATION_FIELDS = {"step": False, "eval_loss": True}
OF_TARGETS = ("loss", "grad_norm")
EVENT_FIELDS = {"restart": {"from_step": False, "seconds": True}, "slow": {"rank": False, "ratio": True, "since_step": False},
                "sample": {"step": False}}
KINDS_OF_SLOW = ("compute", "data", "link")
PLAN_FIELDS = {"name": str, "digest": str, "schedule": str, "unit": str, "ranks": int, "stages_per_rank": int, "microbatches": int,
               "replicas": int, "bytes": dict}


class Log:
    """What the lines say."""

    def __init__(self):
        self.steps = {}  # step: its line
        self.evaluations = {}  # step: its line
        self.events = []
        self.plans = []
        self.starts = []  # the first step of each command after the first
        self.restarting = False  # a restart was read, and no step after it
        self.repeated = 0  # steps that were in the log already
        self.unfinished = False  # the last line is not complete
        self.damaged = 0  # lines that are no JSON


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def check_numbers(line, fields, where):
    for field, is_measured in fields.items():
        value = line.get(field)
        if is_measured:
            fits = is_number(value) or (field in line and value is None)
            if fits and value is not None:
                line[field] = None if abs(value) > VALUE_MAX else value if abs(value) >= VALUE_LEAST else 0.0
        else:
            fits = is_count(value)
        if not fits:
            found = shown(value) if field in line else "no such field"
            raise Failure(BAD_DATA, f'{where}: "{field}": {found}; expected a {"number or null" if is_measured else "whole number"}')


def fits_plan(plan, field, kind):
    value = plan.get(field)
    return is_count(value, 1) if kind is int else isinstance(value, kind) and (kind is str or len(value) <= KINDS_MAX)


def check_plan(plan, where):
    if not isinstance(plan, dict):
        raise Failure(BAD_DATA, f'{where}: "plan": expected an object')
    for field, kind in PLAN_FIELDS.items():
        if not fits_plan(plan, field, kind):
            expected = {int: "a whole number, 1 or more", str: "a text", dict: f"an object of at most {KINDS_MAX} kinds"}[kind]
            raise Failure(BAD_DATA, f'{where}: "plan": "{field}": {shown(plan.get(field))}; expected {expected}')
    if plan["ranks"] * plan["replicas"] > RANKS_MAX:
        raise Failure(BAD_DATA, f'{where}: "plan": {plan["ranks"]} ranks, {plan["replicas"]} replicas; expected at most {RANKS_MAX} in all')
    for kind, ranks in plan["bytes"].items():
        if not (isinstance(ranks, list) and len(ranks) == plan["ranks"] and all(map(is_count, ranks))):
            raise Failure(BAD_DATA, f'{where}: "plan": "bytes": {shown(kind)}: expected the bytes of {plan["ranks"]} ranks')


def check_step(line, where):
    check_numbers(line, STEP_FIELDS, where)
    check_numbers(line, {field: True for field in SOME_FIELDS if field in line}, where)
    if line["tokens"] == 0 and not line.get("samples"):  # older versions wrote 0
        line["loss"] = line["grad_norm"] = None
    if "plan" in line:
        check_plan(line["plan"], where)


def add_step(log, line):
    step = line["step"]
    if "plan" in line:
        if log.plans and not log.restarting:
            log.starts.append(step)
        log.plans.append(line["plan"])
    log.restarting = False
    log.repeated += step in log.steps
    log.steps[step] = line


def without(line, field):
    """What a field of a step is that is `null`, for people."""
    if field not in line:
        return "not in the log"
    return "none: no targets" if field in OF_TARGETS and line["tokens"] == 0 else "not finite"


def check_evaluation(line, where):
    check_numbers(line, EVALUATION_FIELDS, where)


def add_evaluation(log, line):
    log.evaluations[line["step"]] = line


def check_event(line, where):
    fields = EVENT_FIELDS.get(line["event"]) if isinstance(line["event"], str) else None
    if fields is None:
        raise Failure(BAD_DATA, f'{where}: "event": {shown(line["event"])}; expected one of {", ".join(EVENT_FIELDS)}')
    check_numbers(line, fields, where)
    if line["event"] == "slow" and line.get("kind") not in KINDS_OF_SLOW:
        raise Failure(BAD_DATA, f'{where}: "kind": {shown(line.get("kind"))}; expected one of {", ".join(KINDS_OF_SLOW)}')


def add_event(log, line):
    log.restarting = log.restarting or line["event"] == "restart"
    log.events.append(line)


CHECKS = {"event": check_event, "evaluation": check_evaluation, "step": check_step}
ADDS = {"event": add_event, "evaluation": add_evaluation, "step": add_step}


def kind_of(line):
    return "event" if "event" in line else "evaluation" if "eval_loss" in line else "step"


def parse_line(text, where):
    """A line that has what its kind must have. None: it is no JSON."""
    try:
        line = parse_json(text)
    except ValueError:
        return None
    if not isinstance(line, dict) or not ("event" in line or "eval_loss" in line or "step" in line):
        raise Failure(BAD_DATA, f'{where}: expected an object with "step", "eval_loss" or "event", as train --log writes')
    CHECKS[kind_of(line)](line, where)
    return line


def is_whole(text):
    """Whether the last line, which has no line end, is complete nevertheless, or empty."""
    try:
        return text == b"" or isinstance(parse_json(text), dict)
    except ValueError:
        return False


def read_log(path):
    log = Log()
    lines = read_file(path, "").split(b"\n")
    log.unfinished = not is_whole(lines[-1])
    if log.unfinished or not lines[-1]:
        lines.pop()
    for number, text in enumerate(lines, 1):
        where = f"{path}:{number}"
        line = parse_line(text, where)
        if line is None:
            log.damaged += 1
            continue
        ADDS[kind_of(line)](log, line)
    if not log.steps:
        damaged = f" ({log.damaged} that are no JSON)" if log.damaged else ""
        raise Failure(BAD_DATA, f"{path}: no complete line of a step{damaged}; expected the file of train --log")
    return log


def is_skipped(step):
    """Whether the step changed no weights."""
    return step["grad_norm"] is None
