"""command_line.py: what the command lines of the commands in Python share."""
import argparse
import re
import sys

from failure import USAGE, Failure

MESSAGE_BYTES_MAX = 1500


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(USAGE, f"{message}; {self.prog} --help lists the options")


class Once(argparse.Action):
    """Stores the value of an option, or True, which may be given once."""

    def __call__(self, parser, options, value, word=None):
        given = options.__dict__.setdefault("given", set())
        if self.dest in given:
            parser.error(f"{word}: given twice")
        given.add(self.dest)
        setattr(options, self.dest, value if self.nargs is None else True)


def say_as(name):
    """The function by which a command says something: one line, of bounded length, without what a terminal would act on."""

    def say(message):
        line = re.sub("[^\x20-\x7e\xa0-\uffff]", "?", f"{name}: {message}")
        print(line.encode("utf-8", "replace")[:MESSAGE_BYTES_MAX].decode("utf-8", "ignore"), file=sys.stderr, flush=True)

    return say
