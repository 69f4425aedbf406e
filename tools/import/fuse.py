"""fuse.py: programs of POINTWISE include what they alone read, so that one op has no intermediate value in memory."""
from ops import Output
from steps import BOUNDED, ROWS, SIDED, Steps
from units import label_of

SIDED_MOST = 2  # of a program, so that the generator finds points on all sides


def fuse(program, shapes, cuts):
    """Of a program and a row of ROWS, too, one includes the other. `shapes`: of the weights."""
    for consumer in list(program.ops):
        while consumer.row in ("POINTWISE", *ROWS) and include_one(program, consumer, shapes, cuts):
            pass


def include_one(program, consumer, shapes, cuts):
    readers = program.readers()
    for operand in dict.fromkeys(consumer.operands):
        if isinstance(operand, Output) and set(readers[operand]) == {consumer} and may_include(consumer, operand.op, cuts):
            steps = union(consumer, operand.op)
            if steps.fits(consumer.widths[0], shapes) and sum(kind in SIDED for kind, *_ in steps.steps) <= SIDED_MOST:
                include(program, consumer, operand.op, steps, cuts)
                return True
    return False


def may_include(consumer, producer, cuts):
    """They are of one unit, or the consumer is of none."""
    rows = {consumer.row, producer.row}
    return (rows <= {"POINTWISE", *ROWS} and "POINTWISE" in rows and consumer.widths == producer.widths
            and label_of(consumer, cuts) in (None, label_of(producer, cuts)) and not hides_sides(consumer, producer))


def hides_sides(consumer, producer):
    if consumer.row != "POINTWISE":
        return False
    last = producer.attributes["program"][-1][0] if producer.row == "POINTWISE" else producer.row
    read = {index for index, operand in enumerate(consumer.operands) if isinstance(operand, Output) and operand.op is producer}
    return last in BOUNDED and any(kind in (*SIDED, "WHERE") and read.intersection(inputs) for kind, *inputs in consumer.attributes["program"])


def union(consumer, producer):
    steps = Steps()

    def result_of(op):
        return steps.include(op, [result_of(producer) if isinstance(each, Output) and each.op is producer else steps.operand(each) for each in op.operands])

    result_of(consumer)
    return steps


def include(program, consumer, producer, steps, cuts):
    if label_of(consumer, cuts) is None:
        consumer.path = producer.path
    consumer.row, consumer.operands, consumer.attributes = "POINTWISE", steps.operands, {"program": steps.program()}
    program.ops.remove(producer)
