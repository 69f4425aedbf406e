"""generation.py: runs the binary's generate --stream, which reads a line of token ids for each reply and writes those of the reply."""
import json
import os
import subprocess
import sys

from failure import BAD_DATA, NO_INPUT, Failure

PART_BYTES = 1 << 16


def start(binary, arguments, stdin=subprocess.DEVNULL, launcher=()):
    path = binary if os.sep in binary or not os.path.exists(binary) else os.path.join(os.curdir, binary)
    try:
        return subprocess.Popen([*launcher, path, *arguments], stdin=stdin, stdout=subprocess.PIPE)
    except OSError as error:
        raise Failure(NO_INPUT, f"{launcher[0] if launcher else binary}: {error.strerror}") from error


def launcher_of(model, ssh):
    """What starts the binary: nothing, or for several hosts penstock-launch, which lies beside this program or in PATH."""
    if not model.get("hosts"):
        return []
    beside = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "penstock-launch")
    return [beside if os.path.exists(beside) else "penstock-launch", "--input", *(["--ssh", ssh] if ssh else [])]


def model_of(binary):
    """What info tells of the model."""
    with start(binary, ["info", "--json"]) as child:
        text = child.stdout.read()
    try:
        model = json.loads(text)
        if child.returncode == 0 and model["vocab"] > 0 and model["sequence"] > 0:
            return model
    except (ValueError, KeyError, TypeError):
        pass
    raise Failure(BAD_DATA, f"{binary}: no binary of a language model: info --json has no vocab and sequence")


class Generation:
    """A context, in which one process makes all replies; it starts with the first."""

    def __init__(self, binary, launcher, model, options, stops, more_stops, say):
        self.launcher = launcher
        self.binary, self.vocab, self.sequence, self.say = binary, model["vocab"], model["sequence"], say
        ids = [str(token) for token in stops if token < self.vocab] + ([more_stops] if more_stops else [])
        self.options = options + (["--stop", ",".join(ids)] if ids else []) + ["--quiet"]
        self.is_long = False
        self.child = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.child is not None:
            self.end(kind is None)

    def end(self, checks):
        """The end of its input ends the process. An error of it, which it has reported, is raised if asked for."""
        child, self.child = self.child, None
        for pipe in (child.stdin, child.stdout):
            pipe.close()
        status = child.wait()
        if checks and status != 0:
            raise Failure(status if status > 0 else 128 - status, "")

    def continue_ids(self, ids):
        """The ids of the reply, as they are drawn."""
        for token in ids:
            if token >= self.vocab:
                raise Failure(BAD_DATA, f"token {token} of the prompt: the model's vocab is {self.vocab}: the tokenizer is another model's")
        if len(ids) > self.sequence and not self.is_long:
            self.say(f"the text has {len(ids)} tokens: the model reads the last {self.sequence}")
            self.is_long = True
        if self.child is None:
            self.child = start(self.binary, ["generate", "--stream", *self.options], subprocess.PIPE, self.launcher)
        try:
            self.write(" ".join(map(str, ids)).encode() + b"\n")
        except BrokenPipeError:
            pass  # it has ended, which the next read says
        return self.read_ids()

    def write(self, line):
        while line:
            line = line[os.write(self.child.stdin.fileno(), line):]

    def read_ids(self):
        """Up to the end of a line, with a space after each id."""
        rest = b""
        while rest != b"\n":
            part = os.read(self.child.stdout.fileno(), PART_BYTES)
            if not part:
                self.end(True)
                raise Failure(0, "")  # a signal has ended it, or another host prints
            *whole, rest = (rest + part).split(b" ")
            yield from map(int, whole)
