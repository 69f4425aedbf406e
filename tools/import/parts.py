"""parts.py: parts of the columns of each token, split or joined, and some of the tokens of a sample, as layout.py has other rows."""
import math
from dataclasses import replace

from ops import Output, needs, plain

OF_ROWS = "parts of another dim than the columns of a token; an input of 1 and -1 as a factor, and view(-1, 2).sum(-1), says which of two samples is which (--loss-group)"


def said_of(sizes, groups):
    return {**dict(zip(("first", "second", "third"), sizes)), **({"groups": groups} if groups > 1 else {})}


def join(maker):
    """Parts of each token, or of each block of its columns, side by side."""
    values = [maker.value(name) for name in maker.pattern.operands.split()]
    at = maker.call.value["dim"] + len(maker.shape)
    needs(all(value.is_plain for value in values), "it reads a value whose heads are transposed")
    first = max(map(maker.rows_of, values))
    needs(at >= first, OF_ROWS)
    groups, inner = math.prod(maker.shape[first:at]), math.prod(maker.shape[at + 1:])
    sizes = [value.shape[at] * inner for value in values]
    if len(values) < 4:
        return plain(maker.add([value.output for value in values], said_of(sizes, groups)), maker.shape)
    made, target = None, 0
    for value, size in zip(values, sizes):
        made = maker.add([value.output, *([made] if made else [])], block_of(sum(sizes), groups, target=target))
        target += size
    return plain(made, maker.shape)


def block_of(to, groups, **places):
    return {"to": to, **({"groups": groups} if groups > 1 else {}), **{name: place for name, place in places.items() if place}}


def split_part(maker, source, axis, start, length, extent, remains):
    """One of the parts of each token, or of each block of its columns; or some of the tokens."""
    value = maker.value_of(source)
    at = value.axes[axis]
    needs(not value.counts, "a part of a dim of several")
    if at == 1 and maker.rows_of(value) == 2:
        return selected(maker, value, start, length, extent)
    rows, count = math.prod(value.shape[:at]), maker.count_of(value)
    needs(value.repeat == 1 and value.spread == 1 and at > 0 and rows % count == 0, OF_ROWS)
    bounds = maker.bounds_of(source, axis)
    whole = bounds[0][0] == 0 and bounds[-1][1] == extent and all(one[1] == other[0] for one, other in zip(bounds, bounds[1:]))
    groups, inner = rows // count, math.prod(value.shape[at + 1:])
    shape = value.shape[:at] + ((length,) if remains else ()) + value.shape[at + 1:]
    axes = tuple(other - (other > at and not remains) for other in value.axes if remains or other != at)
    return replace(value, output=part_of(maker, value.output, groups, [(begin * inner, end * inner) for begin, end in bounds] if whole else [], start * inner, length * inner), shape=shape, axes=axes)


def selected(maker, value, start, length, extent):
    """Some of the tokens of each sample, counted from the first or from the last: a value of samples."""
    needs(value.is_plain and value.spread == 1 and length < extent, "some of the tokens of a value whose heads are transposed, or that is a sum over tokens")
    said = {**({"tokens": length} if length > 1 else {}), **({} if start + length == extent else {"first": start})}
    return plain(maker.add([value.output], said, row="SELECT_TOKENS", widths=[length * value.output.width]), maker.shape)


def part_of(maker, output, groups, bounds, start, length):
    """One part of what is split at these bounds; without bounds a slice, of which nothing may read the rest."""
    if len(bounds) < 2:
        return maker.add([output], block_of(length, groups, source=start), row="COPY_BLOCKS", widths=[groups * length])
    key = (output, groups, *bounds)
    if key not in maker.splits:
        maker.splits[key] = parts_of(maker, output, groups, [end - begin for begin, end in bounds])
    return maker.splits[key][bounds.index((start, start + length))]


def parts_of(maker, output, groups, sizes):
    """The parts of these sizes of each block; from the third on what is left is split again."""
    equal = groups == 1 and len(set(sizes)) == 1 and len(sizes) == 3
    own = sizes if len(sizes) <= 3 else [*sizes[:2], sum(sizes[2:])]
    op = maker.add([output], {} if equal else said_of(own, groups), row="SPLIT" if equal else f"SPLIT_{len(own)}", widths=[groups * size for size in own]).op
    outputs = [Output(op, index) for index in range(len(own))]
    return outputs if own is sizes else outputs[:2] + parts_of(maker, outputs[2], groups, sizes[2:])
