"""views.py: nodes that compute nothing, but say in which order the axes of a value are: transpositions and views."""
from dataclasses import replace

import parts
from graph import VIEWS, Call, kind_of, shape_of
from ops import needs, of_dims

TRANSPOSED = "it reads the memory of a value whose heads are transposed"
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
    needs(value.repeat == 1, TRANSPOSED)
    if value.is_plain:
        return replace(value, shape=maker.shape, axes=tuple(range(len(maker.shape))), counts=())
    return regrouped(value, maker.shape)


def regrouped(value, shape):
    """The same elements in the same order with other dims. Axes of memory are divided, but those of batch and sequence, or joined. Extents
    of 1 have no place in memory, and come last there."""
    todo = [[axis, value.shape[axis]] for axis in value.axes if value.shape[axis] != 1]
    pieces = [[] for _ in value.shape]  # of each axis of memory the dims that its parts are in, and their extents
    for dim, missing in enumerate(shape):
        while missing > 1:
            needs(todo, TRANSPOSED)
            axis, extent = todo[0]
            taken = min(extent, missing)
            needs(extent % taken == 0 and missing % taken == 0 and (taken == extent or axis > 1), TRANSPOSED)
            pieces[axis].append((dim, taken))
            missing //= taken
            todo[0][1] //= taken
            if todo[0][1] == 1:
                todo.pop(0)
    return joined(value, pieces, shape)


def joined(value, pieces, shape):
    """Parts that follow each other in memory and in a dim are one axis."""
    places = [(axis, index) for axis, parts in enumerate(pieces) for index in range(len(parts))]
    order = [(axis, index) for axis in value.axes for index in range(len(pieces[axis]))]
    memory, number = [], {}
    for place in places:
        dim, extent = pieces[place[0]][place[1]]
        before = order[order.index(place) - 1] if order.index(place) > 0 else None
        if before in number and number[before] == len(memory) - 1 and pieces[before[0]][before[1]][0] == dim:
            memory[-1] *= extent
        else:
            memory.append(extent)
        number[place] = len(memory) - 1
    dims = [list(dict.fromkeys(number[place] for place in order if pieces[place[0]][place[1]][0] == dim)) for dim in range(len(shape))]
    for dim in dims:
        if not dim:
            dim.append(len(memory))
            memory.append(1)
    return of_dims(value, memory, dims)


def part(maker):
    source, *rest = maker.graph.part(maker.node)
    return parts.split_part(maker, maker.graph.strip(source), *rest)


def view_of(graph, node):
    """What a node that computes nothing reads, and its function; None: it computes."""
    kind = kind_of(node)
    if kind in TRANSPOSITIONS:
        return graph.strip(node.args[0]), transposed
    if kind in VIEWS:
        return graph.strip(node.args[0]), viewed
    known = graph.part(node)
    return (graph.strip(known[0]), part) if known else None
