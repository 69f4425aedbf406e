"""layout.py: what each row reads and gives: where the user's values lie, and the attributes that follow from constants.

A function takes a Maker (program.py), which has the match, and returns the Value of its last node. It raises Refused with a reason."""
import math
from dataclasses import replace

import torch

import constants
from graph import shape_of
from ops import HEADS_FIRST, HEADS_TRANSPOSED, Data, Output, Table, Value, Weight, needs, plain

F32_EPSILON = torch.finfo(torch.float32).eps
MEAN, SUM = 1, 2


def operands_of(maker, **given):
    """The operands of the pattern: weights by name, values by what they lie in."""
    operands = []
    for name in maker.pattern.operands.split():
        if name == "-":
            operands.append(None)
        elif name in given:
            operands.append(given[name])
        elif name[0] == "." and name not in maker.bound:
            operands.append(None)
        else:
            operands.append(maker.weight(name) if name[0] == "." else maker.value(name).output)
    return operands


def rows(maker):
    """Of a value that lies token by token, the last dim changed or not."""
    needs(maker.value("x").is_plain, "it reads a value whose heads are transposed")
    return plain(maker.add(operands_of(maker)), maker.shape)


def product(maker):
    """LINEAR, and BIAS if it has one."""
    bias = maker.bound.get(".bias")
    made = rows(maker)
    if bias is None:
        return made
    return plain(maker.add([made.output, maker.weight(".bias")], {}, row="BIAS"), maker.shape)


def norm(maker):
    """Over the last dim, of which gain and bias have the extent."""
    x, width = maker.value("x"), maker.shape[-1]
    weights = [name for name in (".gain", ".bias") if name in maker.bound]
    needs(x.repeat == 1 and x.axes[-1] == len(x.shape) - 1 and tuple(maker.call.value.get("normalized_shape", [width])) == (width,),
          "a norm over another dim than the last")
    for name in weights:
        needs(maker.weight_shape(name) == (width,), f"a {name[1:]} that is not as long as the last dim")
    said = {} if weights or width == x.output.width else {"width": width}
    return Value(maker.add(operands_of(maker), {**maker.attributes(), **said}), x.shape, x.axes)


def elementwise(maker):
    values = [maker.value(name) for name in maker.pattern.operands.split()]
    first = values[0]
    for value in values:
        same = value.is_plain and first.is_plain or (value.shape, value.axes) == (first.shape, first.axes)
        needs(value.repeat == 1 and same and value.logical == maker.shape, "values of different shapes")
    return Value(maker.add(operands_of(maker), maker.attributes()), first.shape, first.axes)


def have_one_shape(bound):
    return shape_of(bound["x"]) == shape_of(bound["y"])


def pointwise(maker):
    """A program of values that lie alike; beside them values of one element for each token, and weights of the last dim."""
    steps = maker.bound["steps"]
    values = {operand: maker.value_of(operand) for operand in steps.operands if not isinstance(operand, Weight)}
    whole = [value for value in values.values() if value.logical == maker.shape]
    needs(maker.shape, "a loss that is no cross entropy of the targets")
    needs(whole, "no operand has the shape of the result")
    first = whole[0]
    for value in values.values():
        same = value.is_plain and first.is_plain or (value.shape, value.axes) == (first.shape, first.axes)
        needs(value.repeat == 1 and (same if value.logical == maker.shape else first.is_plain and is_column(maker, value)), "values of different shapes")
    for weight in steps.operands:
        if isinstance(weight, Weight):
            check_row(maker, maker.weight_shapes[weight.name], first)
    steps.operands = [values[each].output if each in values else each for each in steps.operands]
    needs(steps.fits(first.output.width, maker.weight_shapes), "weights, or values of one element for each token, that one program cannot have")
    return Value(maker.add(steps.operands, {"program": steps.program()}), first.shape, first.axes)


def is_column(maker, value):
    """One element for each token."""
    count = len(maker.shape)
    return value.is_plain and value.output.width == 1 and any(value.shape == maker.shape[:place] + (1,) * (count - place) for place in range(1, count))


def check_row(maker, shape, first):
    needs(len(shape) < 2, "a weight of several dims beside a value")
    needs(shape in ((), (1,)) or shape == maker.shape[-1:] and first.axes[-1] == len(first.shape) - 1, "a weight that is not as long as the last dim")


def of_row(maker, read=None):
    """Of x, or of a value that lies like it."""
    x = maker.value("x")
    needs(x.is_plain and x.shape[-1] == x.output.width, f"{maker.pattern.row} of another part than all elements of a token")
    return plain(maker.add([read or x.output], {}, widths=[1]), maker.shape)


def length(maker):
    """The root of the sum of squares."""
    x = maker.value("x")
    squares = maker.add([x.output], {"program": [["SQUARE", 0]]}, row="POINTWISE", widths=[x.output.width])
    total = of_row(maker, squares)
    return replace(total, output=maker.add([total.output], {"program": [["SQRT", 0]]}, row="POINTWISE", widths=[1]))


def division(maker):
    x = maker.value("x")
    needs(x.repeat == 1, "heads that are repeated")
    return Value(maker.add(operands_of(maker), {"factor": 1 / maker.bound["#divisor"]}), x.shape, x.axes)


def bias(maker):
    """A vector, or a row for each position, where there are as many as tokens."""
    if len(maker.weight_shape(".bias")) < 2:
        return rows(maker)
    return position(maker, "POSITION")


def embedding(maker):
    needs(maker.input("ids") == "tokens", "an embedding of other ids than the tokens")
    return plain(maker.add(operands_of(maker, ids=Data("tokens"))), maker.shape)


def position(maker, row=None):
    """A table's row of each token's position, added."""
    x, sequence = maker.value("x"), maker.graph.sequence
    needs(x.is_plain and x.shape == maker.shape and x.shape[:2] == (maker.graph.batch, sequence), "positions of another value than (batch, sequence, width)")
    if "@positions" in maker.bound:
        ids = maker.constant("@positions")
        needs(torch.equal(ids.reshape(-1, sequence), torch.arange(sequence).expand(ids.numel() // sequence, -1)), "positions that are not 0, 1, 2, ...")
    return plain(maker.add([*operands_of(maker), Data("starts")], row=row), maker.shape)


def heads_of(maker, name, axes):
    """A value of (batch, sequence, heads, head_dim) whose axes the user has in that order."""
    value = maker.value(name)
    tokens = (maker.graph.batch, maker.graph.sequence)
    needs(len(value.shape) == 4 and value.shape[:2] == tokens and value.axes == axes,
          f"{name} is not of (batch, heads, sequence, head_dim), transposed from (batch, sequence, heads, head_dim)")
    return value


def rotation(maker, pairs=False):
    x = maker.value("x")
    needs(len(x.shape) == 4 and x.repeat == 1, "rotary positions of another value than (batch, sequence, heads, head_dim)")
    heads_of(maker, "x", HEADS_FIRST if x.axes == HEADS_FIRST else (0, 1, 2, 3))
    rotated = maker.bound.get("#rotated", x.shape[-1])
    needs(maker.shape == x.logical and rotated % 2 == 0, "rotations that do not leave a head as it was")
    turn = maker.constant("@turn") if "@turn" in maker.bound else None
    cos, sin = (in_memory_order(x, table) for table in ((maker.constant("@cos"), maker.constant("@sin")) if turn is None else (turn.real, turn.imag)))
    if pairs and cos.shape[-1] == rotated:
        cos, sin = (torch.cat((table[:, ::2], table[:, 1::2]), -1) for table in (cos, sin))
    table = Table(constants.rope_table(cos, sin, rotated // 2, maker.scalings))
    attributes = {"heads": x.shape[2], "head_dim": x.shape[3], **({"pairs": 1} if pairs else {})}
    return Value(maker.add([x.output, table, Data("starts")], attributes), x.shape, x.axes)


def rotation_of_pairs(maker):
    """Of elements side by side; a table has an angle for each pair, or for each element."""
    return rotation(maker, True)


def in_memory_order(x, constant):
    """A constant that is broadcast to x, as (sequence, dims): the same for all sequences and heads."""
    width = constant.shape[-1]
    order = [x.axes.index(axis) for axis in range(4)]
    whole = constant.expand(*x.logical[:-1], width).permute(order)
    needs(torch.equal(whole, whole[:1, :, :1].expand_as(whole)), "rotations that differ between sequences or heads")
    return whole[0, :, 0]


def attention(maker):
    fused = "is_causal" in maker.call.value
    q, v = heads_of(maker, "q", HEADS_FIRST), heads_of(maker, "v", HEADS_FIRST)
    k = heads_of(maker, "k", HEADS_FIRST if fused else HEADS_TRANSPOSED)
    heads, kv_heads, head_dim = q.shape[2], k.shape[2], q.shape[3]
    grouped = heads // kv_heads if fused and maker.call.value["enable_gqa"] else 1
    needs(q.repeat == 1 and k.shape == v.shape and k.shape[3] == head_dim, "keys and values of other extents than the queries")
    needs(k.repeat == v.repeat and heads == kv_heads * k.repeat * grouped, "heads that keys and values do not divide")
    window = constants.window_of(*masks_of(maker, fused), maker.graph.sequence)
    attributes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, **({"window": window} if window else {})}
    query = scaled_query(maker, q, head_dim, fused)
    return Value(maker.add([query, k.output, v.output, Data("starts")], attributes), q.shape, q.axes)


def repeated(maker):
    """Keys or values of which each head is there several times in a row."""
    x = maker.value("x")
    needs(len(x.shape) == 4 and x.repeat == 1, "an expansion of another value than the heads of keys or values")
    at = x.axes.index(2)
    logical, times = x.logical, maker.shape[at] // x.logical[at]
    if maker.call.node.args and "repeats" in maker.call.value:
        side_by_side = maker.call.value["dim"] == at - 4
    else:
        expanded = maker.shape_before()
        side_by_side = expanded == (*logical[:at + 1], times, *logical[at + 1:])
    wanted = (*logical[:at], times * logical[at], *logical[at + 1:])
    needs(side_by_side and wanted == maker.shape, "an expansion that does not repeat each head in place")
    return replace(x, repeat=times)


def masks_of(maker, fused):
    """A mask of (sequence, sequence), true or 0 where a query sees a key, or None; and whether it is said to be causal besides."""
    bound, causal = maker.bound, fused and maker.call.value["is_causal"]
    needs(bound.get("#least", constants.HIDDEN) <= constants.HIDDEN, f"scores of {bound.get('#least')} where a query does not see a key; minus infinity")
    if "@hidden" in bound:
        return ~maker.constant("@hidden").bool(), causal
    for name in ("@mask", "@shown"):
        if name in bound:
            return maker.constant(name), causal
    return None, causal


def scaled_query(maker, q, head_dim, fused):
    """ATTENTION divides scores by the root of head_dim: q is scaled for another factor."""
    default = head_dim ** -0.5 if fused else 1.0
    scale = maker.bound.get("#scale", 1 / maker.bound["#divisor"] if "#divisor" in maker.bound else default)
    factor = scale * head_dim ** 0.5
    return q.output if abs(factor - 1) < 1e-7 else maker.add([q.output], {"factor": factor}, row="SCALE", widths=[q.output.width])


def cross_entropy(maker):
    logits = maker.value("logits")
    by_class = len(logits.shape) == 3 and logits.axes == (0, 2, 1)
    needs(by_class or len(logits.shape) == 2 and logits.is_plain, "logits that are neither (rows, vocabulary) nor (batch, vocabulary, sequence)")
    needs(maker.input("targets") == "targets", "a loss of other targets than the input")
    needs(maker.bound["#reduction"] in (MEAN, SUM), "a loss for each target, which Penstock has not; reduction is mean or sum")
    needs(maker.bound["#ignored"] < 0, f"ignore_index = {maker.bound['#ignored']}: a number below 0, which is no token")
    maker.program.loss_is_sum = maker.bound["#reduction"] == SUM
    maker.program.ignored = maker.bound["#ignored"]
    return plain(maker.add([logits.output, Data("targets"), Data("targets.share")], {}, widths=[1]), ())


def said_of(sizes, groups):
    return {**dict(zip(("first", "second", "third"), sizes)), **({"groups": groups} if groups > 1 else {})}


def join(maker):
    """Parts of each token, or of each block of its columns, side by side."""
    values = [maker.value(name) for name in maker.pattern.operands.split()]
    at = maker.call.value["dim"] + len(maker.shape)
    needs(all(value.is_plain for value in values), "it reads a value whose heads are transposed")
    needs(at >= 2, "parts of another dim than the columns of a token")
    groups, inner = math.prod(maker.shape[2:at]), math.prod(maker.shape[at + 1:])
    return plain(maker.add([value.output for value in values], said_of([value.shape[at] * inner for value in values], groups)), maker.shape)


def split_part(maker, source, axis, start, length, extent, remains):
    """One of the parts of each token, or of each block of its columns."""
    value = maker.values[source]
    at = value.axes[axis]
    needs(value.repeat == 1 and at >= 2, "parts of another dim than the columns of a token")
    bounds = maker.bounds_of(source, axis)
    whole = bounds[0][0] == 0 and bounds[-1][1] == extent and all(one[1] == other[0] for one, other in zip(bounds, bounds[1:]))
    needs(whole and len(bounds) > 1, f"columns {start} to {start + length} of {extent}: Penstock splits into parts that are all read")
    groups, inner = math.prod(value.shape[2:at]), math.prod(value.shape[at + 1:])
    sizes = [(end - begin) * inner for begin, end in bounds]
    key = (value.output, groups, *sizes)
    if key not in maker.splits:
        maker.splits[key] = parts_of(maker, value.output, groups, sizes)
    shape = value.shape[:at] + ((length,) if remains else ()) + value.shape[at + 1:]
    axes = tuple(other - (other > at and not remains) for other in value.axes if remains or other != at)
    return replace(value, output=maker.splits[key][bounds.index((start, start + length))], shape=shape, axes=axes)


def parts_of(maker, output, groups, sizes):
    """The parts of these sizes of each block; from the third on what is left is split again."""
    equal = groups == 1 and len(set(sizes)) == 1 and len(sizes) == 3
    own = sizes if len(sizes) <= 3 else [*sizes[:2], sum(sizes[2:])]
    op = maker.add([output], {} if equal else said_of(own, groups), row="SPLIT" if equal else f"SPLIT_{len(own)}", widths=[groups * size for size in own]).op
    outputs = [Output(op, index) for index in range(len(own))]
    return outputs if own is sizes else outputs[:2] + parts_of(maker, outputs[2], groups, sizes[2:])
