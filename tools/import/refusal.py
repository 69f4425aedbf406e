"""refusal.py: what Penstock cannot do of a module, and where the user's code says it."""
import functools
import os
import re
import sysconfig
from dataclasses import dataclass

import torch

OWN_FOLDERS = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, torch.__file__))
LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)')


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    number: int
    code: str

    def __str__(self):
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Refusal:
    place: Place | None
    reason: str

    def __str__(self):
        return f"{self.place}: {self.place.code}: {self.reason}" if self.place else self.reason


class Refused(Exception):
    """The module is not imported: a list of Refusal, or a reason, whose place whoever catches it knows."""

    def __init__(self, reasons):
        super().__init__(str(reasons))
        self.reasons = reasons


@functools.cache
def is_users(path):
    """Whether a file is none of PyTorch, of Python's library, or ours."""
    path = os.path.abspath(path)
    in_library = path.startswith(LIBRARY) and "-packages" + os.sep not in path
    return not in_library and not path.startswith(OWN_FOLDERS) and "<" not in path


def innermost(frames):
    """The last of these (path, number, code) that is the user's; None: there is none."""
    for path, number, code in reversed(frames):
        if is_users(path):
            return Place(os.path.basename(path), int(number), " ".join(code.split()))
    return None


def place_of(node):
    """The user's line that made a node of a graph."""
    return innermost(FRAME.findall(node.meta.get("stack_trace") or ""))


def path_of(node, prefix):
    """The module that runs a node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0].removeprefix(prefix) if stack else ""


def in_order(refusals):
    """Each of them once."""
    return list(dict.fromkeys(refusals))
