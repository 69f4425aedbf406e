"""report_damage.py: report_damage.py PENSTOCK-REPORT LOG TRACE: draws damaged copies of both. Each is drawn or refused in one line."""
import io
import contextlib
import json
import os
import random
import sys

COPIES = 200
ODD = [None, True, -1, 0, 0.0, -0.5, 1 << 62, 1 << 64, 10**400, 5e-324, 1e300, float("nan"), float("inf"), "", "F", "0F0", "\ud800", "<b>\0",
       "x" * 5000, [], {}, [[]], {"ranks": 2}]
program, log, trace = sys.argv[1:]
sys.path.insert(0, program)
from command import main  # noqa: E402, of the program's archive

draw = random.Random(34)
lines = open(log, encoding="utf-8").read().splitlines()[:6]
events = json.load(open(trace, encoding="utf-8"))


def places(value):
    """Every list or object within a value, with each of its indices or keys."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in list(inner):
        yield value, key
        yield from places(one)


def damage(value):
    """One or two of its values become odd ones, or are removed."""
    for _ in range(draw.randint(1, 2)):
        where, key = draw.choice(list(places(value)))
        if draw.random() < 0.2:
            del where[key]
        else:
            where[key] = draw.choice(ODD)
    return value


statuses = []
for copy in range(COPIES):
    made = [json.loads(line) for line in lines]
    traced = copy % 2 == 1
    with open("damaged.log", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in (made if traced else damage(made)))
    with open("damaged.json", "w", encoding="utf-8") as file:
        whole = json.loads(json.dumps(events))
        json.dump(damage(whole["otherData"] if draw.random() < 0.7 else whole) and whole, file)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        statuses.append(main(["damaged.log", "-o", "damaged.html"] + (["--trace", "damaged.json"] if traced else [])))
    text = said.getvalue()
    assert statuses[-1] in (0, 65) and text.count("\n") <= 2 and len(text.encode()) <= 1501 * text.count("\n"), (copy, statuses[-1], text)
assert 0 in statuses and 65 in statuses
