"""command.py: the command line of penstock-report."""
import argparse
import os
import sys

from compare import compare
from failure import CANNOT_CREATE, CANNOT_WRITE, USAGE, Failure
from page import make_page
from read_log import read_log
from read_trace import read_trace
from version import VERSION

NAME = "penstock-report"
DESCRIPTION = "Draw a training run as one HTML page that needs no network and no scripts."


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(USAGE, f"{message}; {NAME} --help lists the options")


def parse(arguments):
    parser = Parser(prog=NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("log", metavar="LOG", help="the file of train --log")
    parser.add_argument("--trace", metavar="FILE", help="the file of train --trace: also draw a step beside the planned one")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="the page [standard output]")
    parser.add_argument("--version", action="version", version=f"{NAME} {VERSION}")
    return parser.parse_args(arguments)


def write_page(path, text):
    """The file is replaced whole."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    new = f"{path}.new"
    try:
        file = open(path if os.path.exists(path) and not os.path.isfile(path) else new, "w", encoding="utf-8")
    except OSError as error:
        raise Failure(CANNOT_CREATE, f"-o {path}: {error.strerror}") from error
    with file:
        file.write(text)
    if file.name == new:
        os.replace(new, path)


def main(arguments):
    try:
        options = parse(arguments)
        log = read_log(options.log)
        comparison = compare(read_trace(options.trace, log)) if options.trace is not None else None
        write_page(options.output, make_page(log, comparison, options.log, VERSION))
    except Failure as failure:
        print(f"{NAME}: {failure}", file=sys.stderr)
        return failure.status
    except OSError as error:
        print(f"{NAME}: cannot write the page: {error.strerror}", file=sys.stderr)
        return CANNOT_WRITE
    return 0
