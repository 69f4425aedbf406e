"""rewrite.py: nodes of a graph that are others put together: einsum of two values is a product between transpositions, glu a product of halves."""
import torch
from torch.fx.node import map_arg

aten = torch.ops.aten


class Writer:
    """Adds nodes before one, with its line and module, and the values that they would have."""

    def __init__(self, graph, node):
        self.graph, self.node = graph, node

    def call(self, target, *arguments):
        with self.graph.inserting_before(self.node):
            made = self.graph.call_function(target, arguments)
        made.meta = {**self.node.meta, "val": target(*map_arg(arguments, lambda each: each.meta["val"]))}
        return made

    def permuted(self, value, order):
        return value if list(order) == sorted(order) else self.call(aten.permute.default, value, list(order))


def einsum(writer, equation, values, path=None):
    """Of two values with one letter that is summed, and one more of each; others of both come first in the product. Of a matrix of (out, in): linear."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if not arrow or len(values) != 2 or "." in equation or any(len(set(each)) < len(each) for each in (*names, result)):
        return None
    one, other = names
    summed = [letter for letter in one if letter in other and letter not in result]
    both = [letter for letter in one if letter in other and letter in result]
    own, others = ([letter for letter in each if letter in result and letter not in both] for each in names)
    if len(summed) != 1 or {*one, *other} != {*result, *summed}:
        return None
    if not both and len(other) == 2 and one[-1:] == other[-1:] == summed[0] and result == one[:-1] + others[0]:
        return writer.call(aten.linear.default, *values)
    if not both or len(own) != 1 or len(others) != 1:
        return None
    first = writer.permuted(values[0], [one.index(letter) for letter in (*both, *own, *summed)])
    second = writer.permuted(values[1], [other.index(letter) for letter in (*both, *summed, *others)])
    order = [*both, *own, *others]
    return writer.permuted(writer.call(aten.matmul.default, first, second), [order.index(letter) for letter in result])


def glu(writer, value, dim=-1):
    half = value.meta["val"].shape[dim] // 2
    first, second = (writer.call(aten.slice.Tensor, value, dim, begin, begin + half) for begin in (0, half))
    return writer.call(aten.mul.Tensor, first, writer.call(aten.sigmoid.default, second))


REWRITTEN = {aten.einsum.default: einsum, aten.glu.default: glu}


def rewrite(graph):
    """Of an exported graph."""
    for node in list(graph.nodes):
        function = REWRITTEN.get(node.target) if node.op == "call_function" else None
        made = function(Writer(graph, node), *node.args, **node.kwargs) if function else None
        if made is not None:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
