"""passes.py: what is done to the ops of a program before they are described: the order and the addends that the families have, so that a model
of theirs has their bits; and the comparison of two sizes."""
from ops import Output, Table, Weight
from refusal import Refusal

PRODUCTS = {"LINEAR": 2, "AFFINE": 3, "MOE": 6}  # the operand that is added
BEFORE_ATTENTION = ("BIAS", "RMSNORM", "LAYERNORM", "ROPE", "ROPE_PART", "SCALE")


def add_residuals(program):
    """A product that is read by an ADD alone adds the other operand itself."""
    for add in [op for op in program.ops if op.row == "ADD"]:
        readers = program.readers()
        products = [operand for operand in add.operands if is_product(operand, readers) and add.operands[0] != add.operands[1]]
        if products:
            join(program, add, max(products, key=lambda product: program.ops.index(product.op)))


def is_product(output, readers):
    place = PRODUCTS.get(output.op.row) if isinstance(output, Output) else None
    return place is not None and len(readers[output]) == 1 and (len(output.op.operands) <= place or output.op.operands[place] is None)


def join(program, add, product):
    other = add.operands[1] if add.operands[0] == product else add.operands[0]
    add.row, add.path, add.attributes = product.op.row, product.op.path, product.op.attributes
    add.operands = product.op.operands[: PRODUCTS[add.row]] + [other]
    program.ops.remove(product.op)


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
