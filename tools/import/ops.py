"""ops.py: the ops of a description while it is made, and how a value of the user's graph lies in what an op gives."""
import math
import pkgutil
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice

import torch

from refusal import Place, Refused

HEADS_FIRST = (0, 2, 1, 3)  # (batch, heads, sequence, head_dim) of (batch, sequence, heads, head_dim)
HEADS_TRANSPOSED = (0, 2, 3, 1)


def turns(which):
    """The rows of PEN_DESCRIBED_TURN, of the table that is packed with this program."""
    table = pkgutil.get_data(__name__, "described.def").decode()
    return re.findall(rf"^PEN_DESCRIBED_TURN\((\w+), {which}\)", table, re.MULTILINE)


TO_SAMPLES, TO_TOKENS = turns("TO_SAMPLES"), turns("TO_TOKENS")


@dataclass(eq=False)
class Op:
    row: str
    operands: list  # Output, Weight, Data, Table or None, in the order of the row
    attributes: dict
    widths: list  # of each output: elements for each token, or sample
    place: Place | None = None
    path: str = ""  # of the module that runs it

    @cached_property
    def of_samples(self):
        return self.row in TO_SAMPLES or self.row not in TO_TOKENS and any(getattr(operand, "of_samples", False) for operand in self.operands)


@dataclass(frozen=True)
class Output:
    op: Op
    index: int = 0

    @property
    def width(self):
        return self.op.widths[self.index]

    @property
    def of_samples(self):
        return self.op.of_samples


@dataclass(frozen=True)
class Weight:
    name: str


@dataclass(frozen=True)
class Stack:
    """A weight of three dims, of rows `first` to `past` of a matrix of each expert: a tensor of the module for each, or one tensor of all."""

    sources: tuple
    first: int = 0
    past: int | None = None

    def of(self, tensors):
        """`tensors`: of the module, by name."""
        if len(self.sources) > 1:
            return torch.stack([tensors[name][self.first:self.past] for name in self.sources])
        return tensors[self.sources[0]][:, self.first:self.past]


@dataclass(frozen=True)
class Data:
    """An input of the step, by its key, with .share or without; or "starts"."""

    name: str
    width: int = 1  # elements for each token, or sample
    of_samples: bool = field(default=False, compare=False)  # it has no tokens, as others of the step have


@dataclass(frozen=True)
class Share:
    """What a loss is multiplied with (docs/contracts.md, "shares")."""

    over: str
    input: str | None = None
    factor: float = 1.0
    least: float = 0.0


@dataclass(frozen=True)
class Table:
    """What ROPE_TABLE makes."""

    attributes: tuple


@dataclass(frozen=True)
class Value:
    """A node of the graph: the output's elements row by row, of `shape`, with its axes in the order `axes`; each head `repeat` times.
    `counts`: of how many of these axes, one after the other, each dim of the node is made; (): of one."""

    output: Output
    shape: tuple
    axes: tuple
    repeat: int = 1
    counts: tuple = ()
    spread: int = 1  # tokens at which each element stands: those of a sample, or of a group of them
    is_due: bool = False  # each element is the sum of these tokens, which no op has taken yet

    @property
    def is_plain(self):
        return self.axes == tuple(range(len(self.shape))) and self.repeat == 1

    @property
    def dims(self):
        axes = iter(self.axes)
        return [tuple(islice(axes, count)) for count in self.counts or (1,) * len(self.axes)]

    @property
    def logical(self):
        return tuple(math.prod(self.shape[axis] for axis in dim) for dim in self.dims)

    @property
    def last_is_last(self):
        """Whether the last dim is the last one in memory, too."""
        return self.repeat == 1 and self.dims[-1] == (len(self.shape) - 1,)

    def lies_like(self, other):
        return self.is_plain and other.is_plain or (self.shape, self.axes, self.counts) == (other.shape, other.axes, other.counts)

    def permuted(self, order):
        return of_dims(self, self.shape, [self.dims[place] for place in order])


def of_dims(value, shape, dims):
    """A value with another shape in memory, whose dims are made of these axes of it."""
    counts = tuple(map(len, dims))
    return replace(value, shape=tuple(shape), axes=tuple(chain(*dims)), counts=() if all(count == 1 for count in counts) else counts)


def matrix(shape):
    """A weight's shape as an operand of two extents reads it, extents of 1 left out; None: it is no matrix."""
    wide = tuple(extent for extent in shape if extent > 1)
    if len(shape) == 2:
        return tuple(shape)
    return (1,) * (2 - len(wide)) + wide if len(shape) > 1 and len(wide) <= 2 else None


def plain(output, shape):
    return Value(output, tuple(shape), tuple(range(len(shape))))


@dataclass
class Program:
    """The forward ops at one size, in order."""

    batch: int
    sequence: int
    ops: list = field(default_factory=list)
    refusals: list = field(default_factory=list)
    values: dict = field(default_factory=dict)  # of the nodes of the graph
    loss_is_sum: bool = False
    stacks: dict = field(default_factory=dict)  # Stack, by the names of weights that are none of the module's
    losses: list = field(default_factory=list)  # Loss; without any the last op is a cross entropy, of which the generator knows the share
    ignored: dict = field(default_factory=dict)  # of inputs that are targets the number that the module's loss leaves out
    logits: Output | None = None  # what the module gives as such
    chosen: set = field(default_factory=set)  # inputs that are ids of logits

    def readers(self):
        """Of each output the ops that read it, once for each operand."""
        found = {}
        for op in self.ops:
            for operand in op.operands:
                if isinstance(operand, Output):
                    found.setdefault(operand, []).append(op)
        return found


@dataclass
class Loss:
    """An op whose sum over the step is multiplied with `factor`, and divided by `over`: a Share without factor, or None."""

    op: Op
    factor: float
    over: Share | None


def needs(condition, reason):
    if not condition:
        raise Refused(reason)
