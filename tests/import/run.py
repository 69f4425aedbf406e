"""run.py: runs penstock-import as often as there are lines of standard input, in one process, so that PyTorch is loaded once.

run.py PROGRAM FILE.py FOLDER BUILD...: save_folders() of the file makes folders of models in FOLDER. Of each line NAME ARGUMENT..., writes NAME.status,
NAME.out and NAME.err; with --inputs NAME.safetensors, four samples. Then compares descriptions of these modules of the file, each with one number, operand or step changed, and prints those that
the comparison takes for the module."""
import contextlib
import importlib
import importlib.util
import json
import os
import shlex
import sys

program, cases, folder, *builds = sys.argv[1:]


def save_folders():
    spec = importlib.util.spec_from_file_location("models", cases)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    models.save_folders(folder)


def program_modules():
    """The program's files, which hide themselves from the user's code once that is loaded."""
    sys.path.insert(0, program)
    before = set(sys.modules)
    for name in ("command", "hf", "importer", "write"):
        importlib.import_module(name)
    return {name: module for name, module in sys.modules.items() if name not in before and str(getattr(module, "__file__", "")).startswith(program)}


def run(arguments):
    sys.modules.update(modules)
    return modules["command"].main(arguments)


def save_samples(name, build, function):
    """The inputs of the description, of 4 samples of 16 tokens; truth as u8."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    made = getattr(sys.modules[os.path.splitext(os.path.basename(build.rpartition(":")[0]))[0]], function)(4, 16)
    with open(f"{name}.json") as file:
        read = {entry["name"] for entry in json.load(file)["inputs"]}
    save_file({each: value.to(torch.uint8) if value.dtype == torch.bool else value for each, value in made.items() if each in read}, f"{name}.safetensors")


def run_lines(lines):
    for line in lines:
        name, *arguments = shlex.split(line)
        with open(f"{name}.out", "w") as out, open(f"{name}.err", "w") as err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = run(arguments)
            except SystemExit as end:
                status = end.code or 0
        with open(f"{name}.status", "w") as file:
            print(status, file=file)
        if "--inputs" in arguments and status == 0:
            save_samples(name, arguments[0], arguments[arguments.index("--inputs") + 1])


# ---- changed descriptions ----

FACTORS = {"epsilon": 1000, "theta": 1.5, "window": 2, "choices": 2, "scale": 1.5}
FLAGS = {"normalize", "sigmoid"}
STEPS = {"CONST": lambda kind, number: [kind, 1.1 * number], "RELU": lambda kind, a: ["ABS", a], "MUL": lambda kind, a, b: ["ADD", a, b]}
OPERANDS = {"SWIGLU": [1, 0], "ATTENTION": [0, 2, 1, 3], "ADD": [0, 0], "LINEAR": [0, 1], "MOE": [0, 1, 2, 4, 3, 5, 6]}


def ops_of(description):
    return [op for kind in description["kinds"].values() for op in kind["ops"]]


def changes(text):
    """What is changed, and the description with it: a number, a step, or the operands of the first op of a row."""
    for index, op in enumerate(ops_of(json.loads(text))):
        for name in FACTORS.keys() & op[2].keys():
            changed = json.loads(text)
            ops_of(changed)[index][2][name] *= FACTORS[name]
            yield f"{name} of {op[0]}", changed
        for name in FLAGS & op[2].keys():
            changed = json.loads(text)
            del ops_of(changed)[index][2][name]
            yield f"{name} of {op[0]}", changed
        for place, step in enumerate(op[2].get("program", [])):
            if step[0] in STEPS:
                changed = json.loads(text)
                ops_of(changed)[index][2]["program"][place] = STEPS[step[0]](*step)
                yield f"step {place} of {op[0]}", changed
    for row, order in OPERANDS.items():
        changed = json.loads(text)
        op = next((op for op in ops_of(changed) if op[0] == row and len(op[1]) >= len(order) and (row != "LINEAR" or len(op[1]) > 2)), None)
        if op:
            op[1] = [op[1][place] for place in order]
            yield f"operands of {row}", changed


def run_changes(build):
    sys.modules.update(modules)
    from importer import Import
    from module import build as make, load
    from refusal import Refused

    imported = Import(make(load(cases), cases, build), None, 16, [], "x")
    imported.trace()
    imported.divide()
    imported.describe()
    text, count = imported.text, 0
    for what, changed in changes(text):
        imported.text, count = json.dumps(changed), count + 1
        try:
            imported.check()
            print("not found:", what)
        except Refused:
            pass
    print(count, "changes")


modules = program_modules()
save_folders()
run_lines(sys.stdin)
for build in builds:
    run_changes(build)
