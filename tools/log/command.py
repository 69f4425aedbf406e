"""command.py: the command line of penstock-log."""
import argparse
import os
import re
import signal

from command_line import Once, Parser, say_as
from failure import CANNOT_WRITE, Failure
from follow import Follower
from records import Records
from version import VERSION

NAME = "penstock-log"
DESCRIPTION = "Send the log of a training run to TensorBoard or to Weights & Biases, while the run goes on."

say = say_as(NAME)


def seconds(text):
    value = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds from 0 to 1000000")
    return value


def parse(arguments):
    parser = Parser(prog=NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("logs", metavar="LOG", nargs="+", help="a file of train --log; of a run that was resumed with another log, all of them in order")
    parser.add_argument("--tensorboard", metavar="DIR", action=Once, help="write TensorBoard's event files into DIR")
    parser.add_argument("--wandb", metavar="PROJECT", action=Once, help="make a run of the project")
    parser.add_argument("--offline", action=Once, nargs=0, default=False, help="with --wandb: write it here, for wandb sync [as WANDB_MODE says]")
    parser.add_argument("--name", metavar="NAME", action=Once, help="with --wandb: the name of the run [that of the plan]")
    parser.add_argument("--wait", metavar="SECONDS", type=seconds, action=Once, default=10.0, help="how long to wait for a log that has no line yet [10]")
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {VERSION}")
    options = parser.parse_args(arguments)
    if (options.tensorboard is None) == (options.wandb is None):
        parser.error("choose one of --tensorboard DIR and --wandb PROJECT")
    for name in ("offline", "name"):
        if options.wandb is None and getattr(options, name):
            parser.error(f"--{name} needs --wandb PROJECT")
    return options


def sink_of(options):
    """What opens the place where values go. Its module is read here, since it needs a library."""
    if options.tensorboard is not None:
        from to_tensorboard import TensorBoard
        return lambda: TensorBoard(options.tensorboard)
    from to_wandb import Wandb
    return lambda: Wandb(options.wandb, options.name, options.offline)


def follow(options):
    """A signal ends it as the end of the run does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    open_sink, sink = sink_of(options), None
    follower, records = Follower(options.logs, options.wait, say), Records()
    try:
        for lines in follower.batches():
            if sink is None:
                sink = open_sink()
            records.send(lines, sink)
            sink.flush()
    except KeyboardInterrupt:
        pass
    finally:
        if sink is not None:
            sink.close()


def main(arguments):
    try:
        follow(parse(arguments))
    except Failure as failure:
        say(failure)
        return failure.status
    except OSError as error:
        say(f"cannot write: {error.strerror or error}{': ' + os.fsdecode(error.filename) if error.filename else ''}")
        return CANNOT_WRITE
    except KeyboardInterrupt:
        pass
    return 0
