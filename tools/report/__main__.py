"""penstock-report: one page with the curves of a run, a step of it beside its plan, and its memory; or the curves of several runs.

    command.py      the command line
    command_line.py, failure.py    what the commands in Python share
    reading.py      files and JSON that may be damaged
    read_log.py     the lines of train --log: steps, evaluations, events, plans
    curves.py       loss, norm, learning rate and tokens/s over steps, tokens or time
    read_trace.py   train --trace: measured steps, and the planned one
    compare.py      what differs between them
    step_chart.py   both, drawn
    memory.py       bytes by kind and rank
    svg.py          elements, scales and axes
    page.py         the page around the charts
    pack.py         makes penstock-report of these files

Standard library alone. In: text files. Out: HTML without scripts and without references to other files."""
import sys

from command import main

sys.exit(main(sys.argv[1:]))
