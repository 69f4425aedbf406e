"""penstock-log: the log of a run, while it grows, to TensorBoard or to Weights & Biases.

    command.py            the command line and its errors
    follow.py             the lines of logs that grow, and when a run has ended
    records.py            what a line says, as values by name
    to_tensorboard.py     the writer of TensorBoard
    to_wandb.py           that of Weights & Biases
    read_log.py, reading.py, failure.py, command_line.py    penstock-report's (tools/report): what a line must have

In: files of train --log. The two libraries are needed when they are asked for, and not before."""
import sys

from command import main

sys.exit(main(sys.argv[1:]))
