"""inputs.py: the inputs of a step: the tokens and targets of token files, or those that --inputs names; their values in exports and comparisons."""
import re
from dataclasses import dataclass

import torch

from failure import BAD_DATA, USAGE, Failure

IGNORED = -100
DTYPES = {torch.int32: "i32", torch.int64: "i64", torch.float32: "f32", torch.bfloat16: "bf16", torch.uint8: "u8", torch.bool: "u8"}
OF_VALUES = (torch.float32, torch.bfloat16, torch.uint8, torch.bool)  # dtypes that operations read as values; as ids those that are no floats
MOST = 15  # and where documents start
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
TRIED = (8, 12)  # sequences, to see whether shapes depend on them
IGNORED_PART = 4  # one of so many targets is ignored


@dataclass(frozen=True)
class Input:
    """`key`: how ops call it. `source`: of token files, "tokens" or "targets"; "": data have it by its name."""

    key: str
    name: str
    dtype: torch.dtype = torch.int64
    has_tokens: bool = True
    rest: tuple = ()  # the extents after batch and sequence
    source: str = ""

    def shape(self, batch, sequence):
        return (batch, *([sequence] if self.has_tokens else []), *self.rest)

    @property
    def entry(self):
        """As the description has it."""
        if self.source:
            return {"name": self.name, "dtype": "i32", "shape": ["batch", "sequence"], "from": self.source}
        return {"name": self.name, "dtype": DTYPES[self.dtype], "shape": [*self.shape("batch", "sequence")]}


def of_token_files(names):
    return [Input(key, name, source=key) for key, name in zip(("tokens", "targets"), names)]


class Inputs:
    """What FUNCTION(batch, sequence) returns, at any size."""

    def __init__(self, function, users_code):
        self.function, self.users_code = function, users_code
        shapes = [self.values(2, sequence) for sequence in TRIED]
        self.list = [self.input_of(name, value, shapes[1][name]) for name, value in shapes[0].items()]
        if not 1 <= len(self.list) <= MOST:
            raise Failure(BAD_DATA, f"{function.__name__}() returns {len(self.list)} tensors: from 1 to {MOST}")
        self.need_sequence = any(each.has_tokens for each in self.list)

    def values(self, batch, sequence, seed=0):
        with self.users_code():
            torch.manual_seed(seed)
            made = self.function(batch, sequence)
        if not isinstance(made, dict) or not all(isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in made.items()):
            raise Failure(BAD_DATA, f"{self.function.__name__}() returns no dict of tensors by their names")
        return made

    def input_of(self, name, value, other):
        needs(NAME.fullmatch(name) and name != "starts", f"the input {name!r}: a name of letters, digits and _, not starts")
        needs(value.dtype in DTYPES, f"the input {name}: {str(value.dtype).removeprefix('torch.')}; one of i32, i64, f32, bf16, u8, bool")
        needs(value.dim() > 0 and value.shape[0] == 2, f"the input {name}: its first extent is batch")
        has_tokens = value.shape != other.shape
        needs(not has_tokens or (value.shape[1], other.shape[1]) == TRIED and value.shape[2:] == other.shape[2:], f"the input {name}: only its second extent is sequence")
        return Input(name, name, value.dtype, has_tokens, tuple(value.shape[2 if has_tokens else 1:]))


def needs(condition, reason):
    if not condition:
        raise Failure(BAD_DATA, f"--inputs: {reason}")


def need_sequence(given, inputs):
    """The sequence of the import: 1 where no input has one."""
    if inputs is not None and not inputs.need_sequence:
        return 1
    if given is None:
        raise Failure(USAGE, "--sequence N is missing" + (", which the inputs have" if inputs else ""))
    return given


def example(inputs, batch, sequence, device="cpu"):
    """Of an export, which reads no value."""
    return tuple(torch.zeros(each.shape(batch, sequence), dtype=each.dtype, device=device) for each in inputs)


# ---- values for comparisons ----

def draw(each, size, use, users, generator):
    """Values of an input. `use`: what reads it. `users`: the values of the user's own function, or None."""
    shape = each.shape(*size)
    if use.limit:
        ids = draw_ids(shape, use, generator)
        return ids.to(each.dtype)
    if not each.dtype.is_floating_point:
        return draw_shown(shape, 2 if each.dtype == torch.bool or users is None or int(users.max()) <= 1 else 256, generator).to(each.dtype)
    if users is not None and float(users.float().std()) > 0:
        return users
    return (0.7 + 0.3 * torch.randn(shape, generator=generator)).to(each.dtype)


def draw_shown(shape, past, generator):
    """Numbers of a mask, or bytes: some are 0, but not the first of a sample."""
    values = torch.randint(1, past, shape, generator=generator) * (torch.randint(0, 4, shape, generator=generator) > 0)
    values.view(shape[0], -1)[:, 0] = past - 1
    return values


def draw_ids(shape, use, generator):
    """Each number that an argument of an op names is among them; all, if there is room. Some targets are ignored, in the description's way."""
    ids = torch.randint(0, use.limit, shape, generator=generator)
    if use.said is not None:
        count = ids.numel()
        first = [token for token in use.said if 0 <= token < use.limit]
        first += torch.randperm(use.limit, generator=generator).tolist() if use.limit + len(first) <= count else []
        first = torch.tensor(first[:count], dtype=torch.long)
        ids.view(-1)[: len(first)] = first
        ids = ids.view(-1)[torch.randperm(count, generator=generator)].reshape(shape)
    if use.ignores:
        ignored = torch.randint(0, IGNORED_PART, shape, generator=generator) == 0
        ignored.view(-1)[0], ignored.view(-1)[1] = True, False
        ids = ids.masked_fill(ignored, IGNORED)
    return ids
