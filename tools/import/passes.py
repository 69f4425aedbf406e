"""passes.py: what is done to the ops of a program before they are described: the order and the addends that the families have, so that a model
of theirs has their bits; and the comparison of two sizes."""
from ops import Output, Table, Weight
from refusal import Refusal

PRODUCTS = {"LINEAR": 2, "AFFINE": 3, "MOE": 6}  # the operand that is added
BEFORE_ATTENTION = ("BIAS", "RMSNORM", "LAYERNORM", "ROPE", "ROPE_PART", "SCALE")


def add_residuals(program):
    """A product that is read by an ADD alone adds the other operand itself: MOE of several, else the last."""
    for add in [op for op in program.ops if op.row == "ADD"]:
        readers, number = program.readers(), {op: index for index, op in enumerate(program.ops)}
        products = [(operand.op.row == "MOE", number[operand.op], operand.op) for operand, other in zip(add.operands, add.operands[::-1])
                    if operand != other and (adder := adder_of(operand, readers)) and (operand.op is adder or number[other.op] < number[adder])]
        if products:
            join(program, add, max(products)[2], readers)


def adder_of(output, readers):
    """The op that may add something to a product: it, or, where MOE adds another product, that one."""
    place = PRODUCTS.get(output.op.row) if isinstance(output, Output) else None
    if place is None or len(readers[output]) != 1:
        return None
    addend = output.op.operands[place] if len(output.op.operands) > place else None
    return output.op if addend is None else adder_of(addend, readers) if output.op.row == "MOE" else None


def join(program, add, product, readers):
    other = next(operand for operand in add.operands if operand != Output(product))
    adder = adder_of(Output(product), readers)
    adder.operands = adder.operands[: PRODUCTS[adder.row]] + [other]
    add.row, add.path, add.attributes, add.operands = product.row, product.path, product.attributes, product.operands
    program.ops.remove(product)


def gather_products(program):
    """Products of one value follow each other, also where norms and rotations of the first come between."""
    ops = program.ops
    for product in [op for op in ops if op.row == "LINEAR"]:
        at = ops.index(product)
        with_bias = 2 if at + 1 < len(ops) and reads(ops[at + 1], product) and ops[at + 1].row == "BIAS" else 1
        first = at
        while first > 0 and ops[first - 1].row in BEFORE_ATTENTION and not reads(product, ops[first - 1]):
            first -= 1
        if first == 0 or ops[first - 1].row != "LINEAR" or ops[first - 1].operands[0] != product.operands[0]:
            continue
        if ops[first].row == "BIAS" and reads(ops[first], ops[first - 1]):
            first += 1
        ops[first:at + with_bias] = ops[at:at + with_bias] + ops[first:at]


def reads(op, other):
    return any(isinstance(operand, Output) and operand.op is other for operand in op.operands)


# ---- two sizes ----

def compare(one, other):
    """Refusals of what depends on batch or sequence. `one` has the longer sequences: a window is as there."""
    reason = "the graph depends on batch or sequence"
    for op, same in zip(one.ops, other.ops):
        if op.row != same.row:
            return [Refusal(op.place, f"{reason}: {op.row} at one size, {same.row} at another")]
    if len(one.ops) != len(other.ops):
        return [Refusal(None, f"{reason}: {len(one.ops)} operations at one size, {len(other.ops)} at another")]
    number = {op: index for program in (one, other) for index, op in enumerate(program.ops)}
    return [Refusal(op.place, f"{reason}: {difference}") for op, same in zip(one.ops, other.ops) if (difference := differs(op, same, number, other))]


def differs(op, same, number, shorter):
    operands = [[(number[each.op], each.index) if isinstance(each, Output) else each for each in which.operands] for which in (op, same)]
    if operands[0] != operands[1]:
        return f"{op.row} reads other values"
    if op.widths != same.widths:
        return f"{op.row} makes {op.widths} elements for each token at one size, {same.widths} at another"
    for name in op.attributes.keys() | same.attributes.keys():
        values = [which.attributes.get(name, 0) for which in (op, same)]
        hidden = name == "window" and values[1] == 0 and values[0] >= shorter.sequence
        if values[0] != values[1] and not hidden:
            return f"{name} of {op.row} is {values[0]} at one size, {values[1]} at another"
    return None


def weights_of(program):
    """(op, weight) of each use, in order."""
    return [(op, operand.name) for op in program.ops for operand in op.operands if isinstance(operand, Weight)]


def tables_of(ops):
    return list(dict.fromkeys(operand for op in ops for operand in op.operands if isinstance(operand, Table)))
