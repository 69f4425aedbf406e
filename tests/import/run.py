"""run.py: runs penstock-import as often as there are lines of standard input, in one process, so that PyTorch is loaded once.

run.py PROGRAM: of each line NAME ARGUMENT..., writes NAME.status, NAME.out and NAME.err."""
import contextlib
import shlex
import sys

program = sys.argv[1]
before = set(sys.modules)


def forget_program():
    """The program's files are loaded anew each time, as if it had been started."""
    sys.path.insert(0, program)
    for name, module in list(sys.modules.items()):
        if name not in before and str(getattr(module, "__file__", "")).startswith(program):
            del sys.modules[name]


def run(arguments):
    forget_program()
    from command import main

    return main(arguments)


for line in sys.stdin:
    name, *arguments = shlex.split(line)
    with open(f"{name}.out", "w") as out, open(f"{name}.err", "w") as err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = run(arguments)
        except SystemExit as end:
            status = end.code or 0
    with open(f"{name}.status", "w") as file:
        print(status, file=file)
