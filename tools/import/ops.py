"""ops.py: the ops of a description while it is made, and how a value of the user's graph lies in what an op gives."""
from dataclasses import dataclass, field, replace

from refusal import Place, Refused

HEADS_FIRST = (0, 2, 1, 3)  # (batch, heads, sequence, head_dim) of (batch, sequence, heads, head_dim)
HEADS_TRANSPOSED = (0, 2, 3, 1)


@dataclass(eq=False)
class Op:
    row: str
    operands: list  # Output, Weight, Data, Table or None, in the order of the row
    attributes: dict
    widths: list  # of each output: elements for each token
    place: Place | None = None
    path: str = ""  # of the module that runs it


@dataclass(frozen=True)
class Output:
    op: Op
    index: int = 0

    @property
    def width(self):
        return self.op.widths[self.index]


@dataclass(frozen=True)
class Weight:
    name: str


@dataclass(frozen=True)
class Data:
    """An input of the step: "tokens", "targets", "targets.share" or "starts"."""

    name: str


@dataclass(frozen=True)
class Table:
    """What ROPE_TABLE makes."""

    attributes: tuple


@dataclass(frozen=True)
class Value:
    """A node of the graph: the output's elements row by row, of `shape`, with its axes in the order `axes`; each head `repeat` times."""

    output: Output
    shape: tuple
    axes: tuple
    repeat: int = 1

    @property
    def is_plain(self):
        return self.axes == tuple(range(len(self.shape))) and self.repeat == 1

    @property
    def logical(self):
        return tuple(self.shape[axis] for axis in self.axes)

    def permuted(self, order):
        return replace(self, axes=tuple(self.axes[axis] for axis in order))


def plain(output, shape):
    return Value(output, tuple(shape), tuple(range(len(shape))))


@dataclass
class Program:
    """The forward ops at one size, in order."""

    sequence: int
    ops: list = field(default_factory=list)
    refusals: list = field(default_factory=list)
    values: dict = field(default_factory=dict)  # of the nodes of the graph
    loss_is_sum: bool = False
    ignored: int = -100  # the target that the module's loss leaves out

    def readers(self):
        """Of each output the ops that read it, once for each operand."""
        found = {}
        for op in self.ops:
            for operand in op.operands:
                if isinstance(operand, Output):
                    found.setdefault(operand, []).append(op)
        return found


def needs(condition, reason):
    if not condition:
        raise Refused(reason)
