"""command.py: the command line of penstock-report."""
import argparse
import os
import re
import sys

from command_line import Once, Parser, say_as
from compare import compare
from curves import AXES, RUNS_MAX, Drawn
from failure import CANNOT_CREATE, CANNOT_WRITE, INTERRUPTED, NO_MEMORY, USAGE, Failure
from page import make_page
from read_log import read_log
from read_trace import read_trace
from version import VERSION

NAME = "penstock-report"
DESCRIPTION = "Draw a training run as one HTML page that needs no network and no scripts."

say = say_as(NAME)


def factor(text):
    value = float(text) if re.fullmatch(r"0(\.\d+)?|\.\d+", text) else -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: a number from 0 to below 1")
    return value


def parse(arguments):
    parser = Parser(prog=NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("logs", metavar="LOG", nargs="+", help=f"the file of train --log; of several runs one each, at most {RUNS_MAX}")
    parser.add_argument("--trace", metavar="FILE", action=Once, help="the file of train --trace: also draw a step beside the planned one")
    parser.add_argument("--x", choices=list(AXES), action=Once, default="step", help="the horizontal axis of the curves: steps, tokens, or time in steps [step]")
    parser.add_argument("--smooth", metavar="FACTOR", type=factor, action=Once, default=0.0, help="smooth the curves by a moving average, from 0, none, to below 1 [0]")
    parser.add_argument("--title", metavar="TEXT", action=Once, help="the title of the page [the name of the plan]")
    parser.add_argument("-o", "--output", metavar="FILE", action=Once, default="-", help="the page [standard output]")
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {VERSION}")
    options = parser.parse_args(arguments)
    if len(options.logs) > RUNS_MAX:
        parser.error(f"{len(options.logs)} logs: at most {RUNS_MAX}")
    if len(options.logs) > 1 and options.trace is not None:
        parser.error("--trace needs one LOG: it is of one run")
    return options


def temporary_of(path):
    """The page is written there first, unless the file is a device or a pipe."""
    return path if os.path.exists(path) and not os.path.isfile(path) else f"{path}.new"


def check_output(output, inputs):
    """No input is written over, and no checkpoint."""
    for written in (output, temporary_of(output)):
        for path in inputs:
            if os.path.isfile(written) and os.path.exists(path) and os.path.samefile(written, path):
                raise Failure(USAGE, f"-o {output}: {'' if written == output else 'its temporary file is '}the same file as {path}")
    folder = os.path.dirname(output)
    if all(os.path.exists(os.path.join(folder, name)) for name in ("manifest.json", "model.safetensors")):
        raise Failure(USAGE, f"-o {output}: in the folder of a checkpoint")


def write_page(path, text):
    """The file is replaced whole."""
    page = text.encode("utf-8")
    if path == "-":
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
        return
    new = temporary_of(path)
    try:
        file = open(new, "wb")
    except OSError as error:
        raise Failure(CANNOT_CREATE, f"-o {path}: {error.strerror}") from error
    with file:
        file.write(page)
    if new != path:
        os.replace(new, path)


def draw(arguments):
    options = parse(arguments)
    if options.output != "-":
        check_output(options.output, [path for path in (*options.logs, options.trace) if path is not None])
    logs = [read_log(path) for path in options.logs]
    for path, log in zip(options.logs, logs):
        if log.damaged:
            say(f"{path}: lines that are no JSON are left out: {log.damaged}")
    comparison = compare(read_trace(options.trace, logs[0])) if options.trace is not None else None
    write_page(options.output, make_page(logs, options.logs, comparison, Drawn(options.x, options.smooth), options.title, VERSION))


def main(arguments):
    try:
        draw(arguments)
    except Failure as failure:
        say(failure)
        return failure.status
    except OSError as error:
        say(f"cannot write the page: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered is not written a second time
        return CANNOT_WRITE
    except MemoryError:
        say("no memory for the page")
        return NO_MEMORY
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
