"""steps.py: programs of POINTWISE (docs/contracts.md, "Descriptions") while they are made."""
import math

from ops import Data, Output, Weight

STEPS_MOST, OPERANDS_MOST, WEIGHTS_MOST, COLUMNS_MOST = 32, 4, 2, 2
INPUTS = {
    **dict.fromkeys(("NEG", "EXP", "LOG", "TANH", "SQRT", "RSQRT", "SIGMOID", "SOFTPLUS", "ERF", "RELU", "ABS", "SQUARE"), 1),
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "MAX", "MIN", "CLAMP_MIN", "CLAMP_MAX", "LESS", "LESS_EQUAL", "EQUAL"), 2), "WHERE": 3,
}
# The generator checks these on both sides, and may find too few points on one where their input is of the others.
SIDED = ("RELU", "ABS", "MAX", "MIN", "CLAMP_MIN", "CLAMP_MAX", "LESS", "LESS_EQUAL", "EQUAL")
BOUNDED = ("SQRT", "RSQRT", "EXP", "SQUARE", "ABS", "RELU", "SIGMOID", "SOFTPLUS", "TANH", "ERF")
FOLDED = {"ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b}
IDENTITIES = (("MUL", 1.0), ("DIV", 1.0))  # an argument that is left out
# Rows that may be part of a program: the operands are a and b.
ROWS = {
    "ADD": "a b ADD", "SCALE": "a factor MUL", "GELU": "a 0.5 MUL a 0.7071067811865476 MUL ERF 1 ADD MUL",
    "GELU_TANH": "a 0.5 MUL a SQUARE a MUL 0.044715 MUL a ADD 0.7978845608028654 MUL TANH 1 ADD MUL",
}


class Steps:
    """A value is a number, ("operand", index) or ("step", index). Equal steps are one."""

    def __init__(self):
        self.operands, self.steps = [], []
        self.shapes = {}  # of weights, as they stand beside values

    def operand(self, operand):
        if operand not in self.operands:
            self.operands.append(operand)
        return "operand", self.operands.index(operand)

    def step(self, kind, *inputs):
        if inputs[-1] is None:
            return inputs[0]
        if kind in FOLDED and all(isinstance(each, float) for each in inputs):
            return FOLDED[kind](*inputs)
        if len(inputs) == 2 and (kind, inputs[1]) in IDENTITIES:
            return inputs[0]
        return self.placed((kind, *(self.placed(("CONST", each)) if isinstance(each, float) else each for each in inputs)))

    def placed(self, step):
        if step not in self.steps:
            self.steps.append(step)
        return "step", self.steps.index(step)

    def run(self, text, argument):
        """The result of reverse Polish, of which `argument` gives what is neither number nor step."""
        stack = []
        for word in text.split():
            if word in INPUTS:
                stack[-INPUTS[word]:] = [self.step(word, *stack[-INPUTS[word]:])]
            else:
                stack.append(argument(word) if word[0].isalpha() else float(word))
        return stack[0]

    def include(self, op, values):
        """The result of an op, of whose operands these are the values."""
        if op.row != "POINTWISE":
            return self.run(ROWS[op.row], lambda name: values["ab".index(name)] if name in "ab" else float(op.attributes[name]))
        made = []
        for kind, *inputs in op.attributes["program"]:
            read = inputs if kind == "CONST" else [values[index] if index < OPERANDS_MOST else made[index - OPERANDS_MOST] for index in inputs]
            made.append(float(read[0]) if kind == "CONST" else self.step(kind, *read))
        return made[-1]

    def program(self):
        """As a description has it."""
        numbers = {("operand", index): index for index in range(len(self.operands))}
        numbers.update({("step", index): OPERANDS_MOST + index for index in range(len(self.steps))})
        return [list(step) if step[0] == "CONST" else [step[0], *(numbers[each] for each in step[1:])] for step in self.steps]

    def fits(self, width, shapes):
        """Whether one op may have this program, of values of that width. `shapes`: of the weights."""
        weights = [each for each in self.operands if isinstance(each, Weight)]
        columns = [each for each in self.operands if isinstance(each, (Data, Output)) and each.width != width]
        extents = {(math.prod(shapes[weight.name]),) for weight in weights}
        few = len(self.steps) <= STEPS_MOST and len(self.operands) <= OPERANDS_MOST and len(weights) <= WEIGHTS_MOST and len(columns) <= COLUMNS_MOST
        return few and len(extents) <= 1 and (not columns or extents <= {(width,)})
