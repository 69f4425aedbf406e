"""unread.py: starts commands whose standard error or output is a full pipe that nobody reads: unread.py BINARY DATA CHECKPOINT. Prints for each
what was tried, its status, and whether the ranks have ended before the words are waited for."""
import fcntl
import os
import signal
import subprocess
import sys
import time

binary, data, checkpoint = sys.argv[1:]
TRAIN = ["train", "--data", data, "--steps", "100000000", "--log", "log"]
GENERATE = ["generate", "--checkpoint", checkpoint, "--prompt", "abc", "--tokens", "40", "--seed", "7", "--quiet"]
EVAL = ["eval", "--checkpoint", checkpoint, "--data", data, "--steps", "100000000", "--quiet"]


def wait_for(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def ranks_of(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        return [int(child) for child in children.read().split()]


class Unread:
    """A command with a full pipe; it has four ranks, and a log of some steps where it trains."""

    def __init__(self, words, stream):
        self.reader, self.writer = os.pipe()
        self.filling = fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(self.writer, b"x" * self.filling)
        if os.path.exists("log"):
            os.remove("log")
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: self.writer}
        self.process = subprocess.Popen([binary] + words, **streams)
        wait_for(lambda: len(ranks_of(self.process)) == 4)
        self.ranks = ranks_of(self.process)
        wait_for(lambda: words[0] != "train" or (os.path.exists("log") and os.path.getsize("log") > 600))

    def send(self, what):
        if what == "rank":
            os.kill(self.ranks[-1], signal.SIGKILL)
        else:
            self.process.send_signal(getattr(signal, what))
        return self.process.wait(120)

    def read_all(self):
        os.close(self.writer)
        parts = []
        while part := os.read(self.reader, 65536):
            parts.append(part)
        return b"".join(parts)


for what in ("SIGTERM", "SIGINT", "rank"):
    command = Unread(TRAIN, "stderr")
    print("standard error", what, command.send(what), any(os.path.exists(f"/proc/{rank}") for rank in command.ranks))
for what in ("SIGTERM", "SIGINT", "SIGHUP", "rank"):
    command = Unread(GENERATE, "stdout")
    print("standard output", what, command.send(what), any(os.path.exists(f"/proc/{rank}") for rank in command.ranks))
for what in ("SIGTERM", "SIGINT"):
    command = Unread(EVAL, "stdout")
    print("a result", what, command.send(what), any(os.path.exists(f"/proc/{rank}") for rank in command.ranks))

expected = subprocess.run([binary] + GENERATE, stdout=subprocess.PIPE, check=True).stdout
command = Unread(GENERATE, "stdout")
print("a late reader has all", command.read_all()[command.filling:] == expected, command.process.wait(120))

command = Unread(TRAIN, "stderr")
os.read(command.reader, command.filling)
command.send("rank")
lines = command.read_all().decode().splitlines()
print("dropped words are counted", sum(" messages were dropped: nobody read standard error" in line for line in lines) > 0,
      any(" lost: signal 9 " in line for line in lines))
