"""follow.py: the lines of logs, as they are written.

The command that trains holds a lock on its log (flock) as long as it runs. So a run has ended when its last log can be locked, and
has not grown for a moment: a command that starts again, perhaps on another host, takes the lock anew."""
import fcntl
import os
import stat
import time

from failure import NO_INPUT, Failure
from reading import MARK
from read_log import parse_line

POLL_S = 0.25
QUIET_S = 2.0  # a log without a lock that has not changed for so long has ended
PART_BYTES = 1 << 20


class Follower:
    def __init__(self, paths, wait_s, say):
        self.paths, self.wait_s, self.say = paths, wait_s, say

    def batches(self):
        """Lists of lines; the first is not empty. All logs but the last are read to their ends."""
        lines = []
        for path in self.paths[:-1]:
            with open_log(path) as file:
                for more in Tail(path, file, self.say).read():
                    lines += more
        yield from joined(lines, self.of_last(self.paths[-1]))

    def of_last(self, path):
        with self.await_line(path) as file:
            tail = Tail(path, file, self.say)
            while True:
                ended = has_ended(file)  # before what is left is read
                yield from tail.read()
                if ended:
                    return
                time.sleep(POLL_S)

    def await_line(self, path):
        """The log, once it has a line."""
        end, said = time.monotonic() + self.wait_s, False
        while True:
            try:
                file = open_log(path)
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or b"\n" in file.read(PART_BYTES):
                    return file
                cause = "no complete line"
                held = is_held(file)
                file.close()
            except Failure:
                if time.monotonic() >= end:
                    raise
                cause, held = "no such file", False
            if not held and time.monotonic() >= end:
                raise Failure(NO_INPUT, f"{path}: {cause}")
            if not said:
                self.say(f"{path}: {cause} yet: waits")
                said = True
            time.sleep(POLL_S)


def joined(first, batches):
    """`first` is read together with the first of the batches."""
    for batch in batches:
        if first or batch:
            yield first + batch
            first = []


def open_log(path):
    try:
        return open(path, "rb")
    except OSError as error:
        raise Failure(NO_INPUT, f"{path}: {error.strerror}") from error


def is_held(file):
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def has_ended(file):
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return True  # a pipe is read to its end
    return not is_held(file) and time.time() - status.st_mtime >= QUIET_S


class Tail:
    """What a log has got since it was read before."""

    def __init__(self, path, file, say):
        self.path, self.file, self.say = path, file, say
        self.rest, self.number = b"", 0
        if file.seekable():
            file.seek(0)

    def read(self):
        """Lists of lines. A log that is shorter than before was begun anew."""
        status = os.fstat(self.file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size < self.file.tell():
            self.file.seek(0)
            self.rest, self.number = b"", 0
        while True:
            part = self.file.read(PART_BYTES)
            if not part:
                return
            *whole, self.rest = (self.rest + part).split(b"\n")
            yield [line for line in map(self.parse, whole) if line is not None]

    def parse(self, text):
        self.number += 1
        where = f"{self.path}:{self.number}"
        line = parse_line(text[len(MARK):] if text.startswith(MARK) else text, where)
        if line is None:
            self.say(f"{where}: no JSON: left out")
        return line
