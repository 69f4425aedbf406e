"""elementwise.py: which steps of POINTWISE (kernels/steps.def) element-wise ATen ops are."""
import math

import torch

from graph import BROADCASTS, CASTS, VIEWS, Call, keeps_values, kind_of, shape_of
from ops import Weight, needs
from refusal import path_of
from steps import Steps
from tables import table_of, without_equal

# Of each op its result in reverse Polish: arguments by their names, numbers, steps. A step does nothing whose last argument is absent.
ELEMENTWISE = {
    "add": "self other alpha MUL ADD", "sub|subtract": "self other alpha MUL SUB", "rsub": "other self alpha MUL SUB",
    "mul|multiply": "self other MUL", "div|divide|true_divide": "self other DIV", "neg|negative": "self NEG", "reciprocal": "1 self DIV",
    "addcmul": "self tensor1 tensor2 MUL value MUL ADD", "addcdiv": "self tensor1 tensor2 DIV value MUL ADD",
    "lerp": "self end self SUB weight MUL ADD", "square": "self SQUARE", "sqrt": "self SQRT", "rsqrt": "self RSQRT", "abs|absolute": "self ABS",
    "exp": "self EXP", "log": "self LOG", "log1p": "self 1 ADD LOG", "expm1": "self EXP 1 SUB", "erf|special_erf": "self ERF",
    "tanh": "self TANH", "sigmoid|special_expit": "self SIGMOID", "relu": "self RELU", "silu": "self self SIGMOID MUL",
    "mish": "self self SOFTPLUS TANH MUL", "log_sigmoid": "self NEG SOFTPLUS NEG",
    "leaky_relu": "0 self LESS self self negative_slope MUL WHERE", "prelu|_prelu_kernel": "0 self LESS self self weight MUL WHERE",
    "elu": "0 self LESS self self input_scale MUL EXP 1 SUB alpha MUL WHERE scale MUL",
    "celu": "0 self LESS self self alpha DIV EXP 1 SUB alpha MUL WHERE",
    "selu": "0 self LESS self self EXP 1 SUB 1.6732632423543772 MUL WHERE 1.0507009873554805 MUL",
    "hardtanh": "self min_val LESS_EQUAL min_val max_val self LESS_EQUAL max_val self WHERE WHERE",
    "relu6": "self 0 LESS_EQUAL 0 6 self LESS_EQUAL 6 self WHERE WHERE",
    "hardsigmoid": "self -3 LESS_EQUAL 0 3 self LESS_EQUAL 1 self 3 ADD 6 DIV WHERE WHERE",
    "hardswish": "self -3 LESS 0 self 3 LESS_EQUAL self 3 ADD self MUL 6 DIV self WHERE WHERE",
    "threshold": "threshold self LESS self value WHERE",
    "maximum|max": "self other MAX", "minimum|min": "self other MIN", "clamp|clip": "self min CLAMP_MIN max CLAMP_MAX",
    "clamp_min": "self min CLAMP_MIN", "clamp_max": "self max CLAMP_MAX",
    "lt|less": "self other LESS", "gt|greater": "other self LESS", "le|less_equal": "self other LESS_EQUAL",
    "ge|greater_equal": "other self LESS_EQUAL", "eq": "self other EQUAL", "ne|not_equal": "1 self other EQUAL SUB",
    "logical_and|bitwise_and|__and__": "self other MUL", "logical_or|bitwise_or|__or__": "self other MAX",
    "mse_loss": "self target SUB SQUARE", "l1_loss": "self target SUB ABS",
    "huber_loss": "self target SUB ABS delta LESS self target SUB SQUARE 0.5 MUL self target SUB ABS delta 0.5 MUL SUB delta MUL WHERE",
    "smooth_l1_loss": "self target SUB ABS beta LESS self target SUB SQUARE 0.5 MUL beta DIV self target SUB ABS beta 0.5 MUL SUB WHERE",
    "binary_cross_entropy_with_logits": "self SOFTPLUS self target MUL SUB weight MUL",
    "logical_not|bitwise_not": "1 self SUB", "where": "condition self other WHERE", "masked_fill": "mask value self WHERE",
}
ELEMENTWISE = {kind: text for kinds, text in ELEMENTWISE.items() for kind in kinds.split("|")}
POWERS = {0.5: "self SQRT", -0.5: "self RSQRT", 1.5: "self self SQRT MUL", 2: "self SQUARE", 3: "self SQUARE self MUL", 4: "self SQUARE SQUARE",
          -1: "1 self DIV", -2: "1 self SQUARE DIV"}
BY_ARGUMENT = {"pow": ("exponent", POWERS), "softplus": ("threshold", {20: "self beta MUL SOFTPLUS beta DIV"})}


def text_of(graph, call, kind):
    """None: the op is none of these."""
    if kind in CASTS and keeps_values(call.node):
        call.read.update(call.value)
        return "self"
    if kind not in BY_ARGUMENT:
        return ELEMENTWISE.get(kind)
    name, texts = BY_ARGUMENT[kind]
    return texts.get(graph.number(call[name]))


def is_of_numbers(node):
    """Of whole numbers only counts are values, as the sum of a mask, with a bound."""
    value = node.meta.get("val")
    is_bound = kind_of(node) in ("clamp", "clamp_min", "clip")
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype == torch.bool or is_bound and value.dtype == torch.int64)


class Reader:
    """The steps of a node, and of what it reads as far as that has no op of its own: comparisons, and what depends on weights alone."""

    def __init__(self, graph):
        self.graph, self.steps, self.calls, self.reader = graph, Steps(), [], None

    def result(self, node):
        """None: the op is not element by element."""
        if not hasattr(node.target, "_schema") or not is_of_numbers(node):
            return None
        call = Call(node)
        text = text_of(self.graph, call, kind_of(node))
        if text is None or any(word.islower() and word not in call.value for word in text.split()):
            return None
        call.read.add("reduction")  # losses.py reads it
        self.reader = self.reader or node
        self.calls.append(call)
        return self.steps.run(text, lambda name: self.argument(call[name]))

    def argument(self, value):
        if value is None:
            return None
        if not isinstance(value, torch.fx.Node):
            needs(isinstance(value, (int, float)) and math.isfinite(value), f"the argument {value}; a finite number")
            return float(value)
        value = self.without_broadcast(value)
        if self.graph.input_of(value) is not None:
            return self.steps.operand(value)
        mask = self.graph.mask_of_targets(value)
        if mask is not None:
            return self.steps.operand(mask)
        weight = self.weight_of(value)
        if weight is not None:
            return self.row(Weight(self.graph.parameters[weight]), shape_of(value))
        if self.graph.is_constant(value):
            return self.number(value)
        if value.meta["val"].dtype == torch.bool or value in self.graph.of_weights:
            result = self.result(value)
            needs(result is not None, f"aten.{kind_of(value)} in a condition, or of a weight alone")
            return result
        return self.steps.operand(value)

    def without_broadcast(self, node):
        """Copies of a value are nothing."""
        node = self.graph.strip(node)
        while not self.graph.is_constant(node) and kind_of(node) in BROADCASTS:
            node = self.graph.strip(node.args[0])
        return node

    def weight_of(self, node):
        """The parameter that a node is, whatever its shape; None: it is none."""
        while node not in self.graph.parameters and not self.graph.is_constant(node) and kind_of(node) in VIEWS:
            node = self.graph.strip(node.args[0])
        return node if node in self.graph.parameters else None

    def row(self, weight, shape):
        needs(self.steps.shapes.setdefault(weight, shape) == shape, "a weight with two shapes")
        return self.steps.operand(weight)

    def number(self, node):
        """Or a row of a constant."""
        value = self.graph.constant[node]
        first = value.flatten()[:1]
        needs(value.numel() > 0 and bool(torch.isfinite(value).all()), "a constant that is not finite, or has no elements")
        if not bool((value == first).all()):
            row = without_equal(value)
            return self.row(table_of(self.graph, node, row, path_of(self.reader, self.graph.prefix), self.reader), tuple(row.shape))
        known = self.graph.number(node) if value.numel() == 1 and value.dtype != torch.bool else first.item()
        return self.steps.placed(("CONST", float(known)))


def steps_of(graph, node):
    """The steps of a node, whose operands are weights and nodes, and the calls that were read; None: it is not element by element."""
    if graph.is_constant(node) or node in graph.of_weights:
        return None
    reader = Reader(graph)
    result = reader.result(node)
    return (reader.steps, reader.calls) if result and result[0] == "step" else None
