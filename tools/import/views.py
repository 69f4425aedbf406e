"""views.py: nodes that compute nothing, but say in which order the axes of a value are: transpositions and views."""
from dataclasses import replace

import layout
from graph import VIEWS, Call, kind_of, shape_of
from ops import needs, plain

TRANSPOSITIONS = ("transpose", "swapaxes", "permute", "t", "numpy_T")


def order_of(node):
    """The axes of a transposition, in the order in which the result has them."""
    kind, rank = kind_of(node), len(shape_of(node))
    order = list(range(rank))
    if kind in ("t", "numpy_T"):
        return order[::-1]
    call = Call(node)
    if kind == "permute":
        return [axis % rank for axis in call.value["dims"]]
    one, other = list(call.value.values())[1:3]
    order[one % rank], order[other % rank] = order[other % rank], order[one % rank]
    return order


def transposed(maker):
    return maker.values[maker.source].permuted(order_of(maker.node))


def viewed(maker):
    value = maker.values[maker.source]
    without = [extent for extent in value.logical if extent != 1], [extent for extent in maker.shape if extent != 1]
    needs(value.repeat == 1 and (value.is_plain or without[0] == without[1]), "it reads the memory of a value whose heads are transposed")
    if value.is_plain:
        return plain(value.output, maker.shape)
    return with_ones(value, maker.shape)


def with_ones(value, shape):
    """Extents of 1, put in or left out: they have no place in memory, and come last there."""
    kept = [axis for axis in value.axes if value.shape[axis] != 1]
    order = sorted(kept)
    extents, axes, rank = [value.shape[axis] for axis in order], [], len(order)
    at = iter(order.index(axis) for axis in kept)
    for extent in shape:
        if extent == 1:
            axes.append(rank)
            rank += 1
            extents.append(1)
        else:
            axes.append(next(at))
    return replace(value, shape=tuple(extents), axes=tuple(axes))


def part(maker):
    source, *rest = maker.graph.part(maker.node)
    return layout.split_part(maker, maker.graph.strip(source), *rest)


def view_of(graph, node):
    """What a node that computes nothing reads, and its function; None: it computes."""
    kind = kind_of(node)
    if kind in TRANSPOSITIONS:
        return graph.strip(node.args[0]), transposed
    if kind in VIEWS:
        return graph.strip(node.args[0]), viewed
    known = graph.part(node)
    return (graph.strip(known[0]), part) if known else None
