"""full_terminal.py: runs PROGRAM ARGUMENT... with a terminal as standard error that is full and that nobody reads, and prints its status."""
import os
import pty
import select
import subprocess
import sys

reader, terminal = pty.openpty()
os.set_blocking(terminal, False)
while select.select([], [terminal], [], 0.5)[1]:  # what is written moves on to where the reader would find it
    try:
        os.write(terminal, b"x" * 256)
    except BlockingIOError:
        pass
os.set_blocking(terminal, True)
program = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=terminal)
try:
    print(program.wait(120))
except subprocess.TimeoutExpired:
    program.kill()
    print("waits for its reader")
