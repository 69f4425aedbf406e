"""layout.py: what each row reads and gives: where the user's values lie, and the attributes that follow from constants.

A function takes a Maker (program.py), which has the match, and returns the Value of its last node. It raises Refused with a reason."""
import math
from dataclasses import replace

import torch

from graph import kind_of, shape_of
from inputs import IGNORED
from losses import NONE
from ops import Data, Output, Value, Weight, matrix, needs, plain
from tables import begins_with, without_equal

F32_EPSILON = torch.finfo(torch.float32).eps
LENGTH_LEAST = (1e-16, 1e-8)  # where it counts, elements are below 1e-8


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
    x = maker.value("x")
    needs(x.is_plain or x.last_is_last, "it reads a value whose heads are transposed")
    made = maker.add(operands_of(maker))
    return plain(made, maker.shape) if x.is_plain else replace(x, output=made, shape=x.shape[:-1] + maker.shape[-1:])


def product(maker):
    """LINEAR, and BIAS if it has one."""
    bias = maker.bound.get(".bias")
    made = rows(maker)
    if bias is None:
        return made
    return replace(made, output=maker.add([made.output, maker.weight(".bias")], {}, row="BIAS"))


def norm(maker):
    """Over the last dim, of which gain and bias have the extent."""
    x, width = maker.value("x"), maker.shape[-1]
    weights = [name for name in (".gain", ".bias") if name in maker.bound]
    needs(x.last_is_last and tuple(maker.call.value.get("normalized_shape", [width])) == (width,),
          "a norm over another dim than the last")
    of_width = {} if width == x.output.width else {"width": width}
    if weights == [".gain"] and maker.weight_shape(".gain") != (width,):
        return with_gain(maker, x, of_width)
    for name in weights:
        needs(maker.weight_shape(name) == (width,), f"a {name[1:]} that is not as long as the last dim")
    return replace(x, output=maker.add(operands_of(maker), {**maker.attributes(), **({} if weights else of_width)}))


def with_gain(maker, x, of_width):
    """A gain of more than the last dim, as one of each head, is a factor behind the norm."""
    said = maker.attributes()
    offset = said.pop("offset", 0)
    check_row(maker, maker.weight_shape(".gain"), x)
    made = maker.add([x.output], {**said, **of_width}, widths=[x.output.width])
    program = [["CONST", offset], ["ADD", 1, 4], ["MUL", 0, 5]] if offset else [["MUL", 0, 1]]
    return replace(x, output=maker.add([made, maker.weight(".gain")], {"program": program}, row="POINTWISE", widths=[x.output.width]))


def length_one(maker):
    """x over the root of its sum of squares and epsilon: of their means, over the root of the width."""
    x, width = maker.value("x"), maker.shape[-1]
    needs(x.last_is_last, "a norm over another dim than the last")
    said = {} if width == x.output.width else {"width": width}
    made = maker.add([x.output], {"epsilon": maker.bound["#epsilon"] / width, **said}, widths=[x.output.width])
    return replace(x, output=maker.add([made], {"factor": width ** -0.5}, row="SCALE", widths=[x.output.width]))


def normalized(maker):
    """x over its length, which is at least a small number: over the root of the sum of squares and that number's square, as far as f32 can tell."""
    least = maker.bound.get("#least", 0.0)
    needs(least == 0 or LENGTH_LEAST[0] <= least <= LENGTH_LEAST[1], f"a length of at least {least:g}, of a part of a token; at least {LENGTH_LEAST[0]:g} to {LENGTH_LEAST[1]:g}, it is taken")
    maker.bound["#epsilon"] = least * least
    return length_one(maker)


def has_heads(bound):
    return len(shape_of(bound["x"])) > 3


def elementwise(maker):
    return elementwise_of(maker, maker.attributes())


def elementwise_of(maker, attributes):
    values = {name: maker.value(name, True) for name in maker.pattern.operands.split()}
    if not (maker.pattern.row in ("ADD", "SCALE") and all(value.is_due for value in values.values())):
        values = {name: sum_of_tokens(maker, value) for name, value in values.items()}
    first = next(iter(values.values()))
    for value in values.values():
        same = value.lies_like(first) and (value.spread, value.is_due) == (first.spread, first.is_due)
        needs(value.repeat == 1 and same and value.logical == maker.shape, "values of different shapes")
    made = maker.add(operands_of(maker, **{name: value.output for name, value in values.items()}), attributes, widths=[first.output.width])
    return replace(first, output=made)


def have_one_shape(bound):
    return shape_of(bound["x"]) == shape_of(bound["y"])


def are_ids(bound):
    return not bound["ids"].meta["val"].dtype.is_floating_point


def pointwise(maker):
    """A program of values that lie alike; beside them values of one element for each token, and weights of the last dim."""
    steps = maker.bound["steps"]
    values = {operand: maker.value_of(operand) for operand in steps.operands if not isinstance(operand, Weight)}
    is_of_tokens = any(not value.output.of_samples and value.spread == 1 for value in values.values())
    is_due = bool(values) and all(value.is_due for value in values.values()) and is_linear(steps)
    if not is_due:
        values = {operand: at_each_token(maker, value) if is_of_tokens else at_each_sample(maker, value) for operand, value in values.items()}
    whole = [value for value in values.values() if value.logical == maker.shape]
    needs(maker.shape, "a loss that is no cross entropy of the targets")
    needs(whole, "no operand has the shape of the result")
    first = whole[0]
    for value in values.values():
        needs(value.repeat == 1 and (value.lies_like(first) and value.spread == first.spread if value.logical == maker.shape else first.is_plain and is_column(maker, value)), "values of different shapes")
    for weight in steps.operands:
        if isinstance(weight, Weight):
            check_row(maker, steps.shapes[weight], first)
    steps.operands = [values[each].output if each in values else each for each in steps.operands]
    needs(steps.fits(first.output.width, maker.weight_shapes), "weights, or values of one element for each token, that one program cannot have")
    made = maker.add(steps.operands, {"program": steps.program()}, widths=[first.output.width])
    return replace(first, output=made, is_due=is_due)


def is_linear(steps):
    """Whether a sum over tokens may come before or after."""
    def numbers(inputs):
        return [each[0] == "step" and steps.steps[each[1]][0] == "CONST" for each in inputs]

    wanted = {"ADD": [[False, False]], "SUB": [[False, False]], "NEG": [[False]], "MUL": [[False, True], [True, False]], "DIV": [[False, True]]}
    return all(kind == "CONST" or numbers(inputs) in wanted.get(kind, []) for kind, *inputs in steps.steps)


def sum_of_tokens(maker, value):
    """GROUP_SUM of a value that is due."""
    if not value.is_due:
        return value
    needs(value.spread == maker.graph.group * (1 if value.output.of_samples else maker.graph.sequence), "a sum of one sample, where the loss takes several together (--loss-group)")
    return replace(value, output=maker.add([value.output], {}, row="GROUP_SUM", widths=[1]), is_due=False)


def at_each_token(maker, value):
    """A value of samples, (batch, 1, ...), beside values of tokens; a sum that is due is taken."""
    if not value.output.of_samples or not maker.graph.has_tokens:
        return sum_of_tokens(maker, value)
    needs(value.is_plain and value.shape[:2] == (maker.graph.batch, 1), "a value of samples beside one of tokens, without a dim of 1 in place of the tokens")
    made = maker.add([value.output], {}, row="REPEAT_TOKENS", widths=[value.output.width])
    return plain(made, (value.shape[0], maker.graph.sequence, *value.shape[2:]))


def at_each_sample(maker, value):
    """A sum over the tokens of a sample beside values of samples."""
    if value.spread == 1 or not maker.graph.has_tokens or value.shape[0] != maker.graph.batch:
        return sum_of_tokens(maker, value)
    row, said = ("SUM_TOKENS", {}) if value.is_due else ("SELECT_TOKENS", {"first": 0})
    return plain(maker.add([value.output], said, row=row, widths=[1]), value.shape)


def over_tokens(maker, x):
    """A sum of all tokens of each sample, and of the samples of a group. What is done by elements before it is taken may be done before."""
    graph, of_sample = maker.graph, maker.count_of(x) // maker.graph.batch
    needs(maker.shape and x.is_plain and x.output.width == 1, "a sum over samples or tokens of several elements; of one for each token Penstock has it")
    spread = maker.count_of(x) // math.prod(maker.shape)
    needs(x.spread == 1 and maker.shape[0] == graph.batch and spread == of_sample
          or (x.is_due or x.output.of_samples) and maker.shape[0] == graph.batch // graph.group and spread == graph.group * of_sample,
          "a sum over samples, as a loss that balances a batch has; of all tokens of a sample, or of a group of samples (--loss-group)")
    return Value(x.output, maker.shape, tuple(range(len(maker.shape))), spread=spread, is_due=True)


def over_samples(maker, x):
    """A sum of one element of each sample over those that the loss takes together."""
    group, first = maker.graph.group, maker.graph.batch // maker.graph.group
    if math.prod(maker.shape) == maker.graph.batch:
        return plain(x.output, maker.shape)
    needs(group > 1 and x.shape == (first, group) and maker.shape in ((first,), (first, 1)), "a sum over samples, as a loss that balances a batch has; of a group of samples (--loss-group)")
    return Value(x.output, maker.shape, tuple(range(len(maker.shape))), spread=group, is_due=True)


def is_column(maker, value):
    """One element for each token, or for each sample."""
    count = len(maker.shape)
    if value.spread > 1 and not value.output.of_samples:
        return value.spread == maker.graph.sequence and value.shape == (maker.graph.batch,) + (1,) * (count - 1)
    return value.is_plain and value.output.width == 1 and any(value.shape == maker.shape[:place] + (1,) * (count - place) for place in range(1, count))


def check_row(maker, shape, first):
    """A weight beside a value: one number, or as long as the last dims of each token, in memory as there."""
    axes, wide = covered(shape, first), wide_axes(first)
    needs(axes is not None and axes == wide[len(wide) - len(axes):] and math.prod(shape) <= first.output.width,
          "a weight, or a constant, of other dims than the last ones of a token; a table of positions that is added is taken")


def wide_axes(value):
    return [axis for axis, extent in enumerate(value.shape) if extent > 1]


def covered(shape, value):
    """Along which axes of a value's memory what has that shape beside it differs, in the order of the shape; None: it does not fit."""
    extents = (1,) * (len(value.logical) - len(shape)) + tuple(shape)
    if len(extents) != len(value.dims) or value.repeat != 1 or any(extent not in (1, whole) for extent, whole in zip(extents, value.logical)):
        return None
    return [axis for dim, extent in zip(value.dims, extents) if extent > 1 for axis in dim if value.shape[axis] > 1]


def of_row(maker, read=None):
    """Of x, or of a value that lies like it."""
    x = maker.value("x", True)
    is_one = x.is_plain and x.output.width == 1
    if is_one and not x.output.of_samples and maker.pattern.row == "ROW_MEAN" and x.shape[:2] == maker.graph.tokens and maker.call["dim"] in (1 - len(x.shape), [1 - len(x.shape)]):
        return pooled(maker)
    if maker.pattern.row == "ROW_SUM" and not read and x.output.of_samples and x.is_plain and x.output.width == 1 and x.spread == 1:
        return over_samples(maker, x)
    if maker.pattern.row == "ROW_SUM" and not read and (x.spread > 1 or is_one):
        return over_tokens(maker, x) if math.prod(maker.shape) < maker.count_of(x) else plain(x.output, maker.shape)
    needs(x.spread == 1 and x.is_plain and x.shape[-1] == x.output.width, f"{maker.pattern.row} of another part than all elements of a token")
    return plain(maker.add([read or x.output], {}, widths=[1]), maker.shape)


def pooled(maker):
    """The sum or the mean over the tokens of each sample: a value of samples."""
    x, rank = maker.value("x"), len(shape_of(maker.graph.strip(maker.bound["x"])))
    needs(maker.call["dim"] in (1 - rank, [1 - rank]) and x.is_plain and x.shape[:2] == maker.graph.tokens and maker.graph.has_tokens,
          "a sum or mean over another dim than the last, or the tokens of a sample")
    said = {"mean": 1} if kind_of(maker.call.node) == "mean" else {}
    return plain(maker.add([x.output], said, row="SUM_TOKENS", widths=[x.output.width]), maker.shape)


def length(maker):
    """The root of the sum of squares."""
    x = maker.value("x")
    squares = maker.add([x.output], {"program": [["SQUARE", 0]]}, row="POINTWISE", widths=[x.output.width])
    total = of_row(maker, squares)
    return replace(total, output=maker.add([total.output], {"program": [["SQRT", 0]]}, row="POINTWISE", widths=[1]))


def variance(maker):
    """Of all elements of a token, or its root: the mean of the squares of what is left without the mean, over one less where that is said."""
    x, call = maker.value("x"), maker.call
    said = call["correction"] if "correction" in call.value else call["unbiased"]
    less = 1 if said is None else int(said)
    squares = maker.add([x.output, of_row(maker).output], {"program": [["SUB", 0, 1], ["SQUARE", 4]]}, row="POINTWISE", widths=[x.output.width])
    total, count = of_row(maker, squares), maker.graph.strip(maker.bound["x"]).meta["val"].shape[-1]
    needs(less < count, f"a variance of {count} elements over {less} less")
    steps = ([["CONST", count / (count - less)], ["MUL", 0, 4]] if less else []) + ([["SQRT", 5 if less else 0]] if kind_of(call.node) == "std" else [])
    return replace(total, output=maker.add([total.output], {"program": steps}, row="POINTWISE", widths=[1])) if steps else total


def division(maker):
    return elementwise_of(maker, {"factor": 1 / maker.bound["#divisor"]})


def bias(maker):
    """A vector, or one of several dims, as long as each token or parts of it; or a row for each position, where there are as many as tokens."""
    x, shape = maker.value("x"), maker.weight_shape(".bias")
    if len(shape) < 2:
        return rows(maker)
    needs(x.logical == maker.shape, "values of different shapes")
    if covered(shape, x) == wide_axes(x)[1:] and maker.graph.has_tokens and x.shape[:2] == maker.graph.tokens:
        return position(maker, ".bias")
    check_row(maker, shape, x)
    return replace(x, output=maker.add([x.output, maker.weight(".bias")], {}, widths=[x.output.width]))


def positions(maker):
    """A constant that is added: a row of each position, which is a weight that stays; or a row for all tokens, or one number."""
    x, value = maker.value("x"), maker.constant("@rows").float()
    needs(x.logical == maker.shape and x.repeat == 1, "values of different shapes")
    needs(bool(torch.isfinite(value).all()), "a constant that is not finite")
    row = without_equal(value)
    if bool((value == value.flatten()[0]).all()):
        program = [["CONST", float(value.flatten()[0])], ["ADD", 0, 4]]
        return replace(x, output=maker.add([x.output], {"program": program}, row="POINTWISE", widths=[x.output.width]))
    if covered(tuple(row.shape), x) != wide_axes(x)[1:] or not maker.graph.has_tokens or x.shape[:2] != maker.graph.tokens:
        check_row(maker, tuple(row.shape), x)
        return replace(x, output=maker.add([x.output, maker.table("@rows", row)], {}, row="BIAS", widths=[x.output.width]))
    return replace(x, output=maker.add([x.output, maker.table("@rows", row.reshape(maker.graph.sequence, -1), begins_with), Data("starts")], {}, widths=[x.output.width]))


def is_table(bound):
    """A constant of several values."""
    return math.prod(shape_of(bound["@rows"])) > 1 and bound["@rows"].meta["val"].dtype.is_floating_point


def embedding(maker):
    ids = maker.input("ids")
    needs(ids is not None and maker.graph.input[ids].source in ("", "tokens"), "an embedding of other ids than the tokens")
    padding = maker.bound["#padding"]
    return plain(maker.add(operands_of(maker, ids=maker.data(ids)), {"padding": padding + 1} if padding >= 0 else {}), maker.shape)


def position(maker, name=".table"):
    """A table's row of each token's position, or one row, added."""
    x, shape = maker.value("x"), matrix(maker.weight_shape(name))
    needs(x.logical == maker.shape and x.repeat == 1 and x.shape[:2] == maker.graph.tokens, "positions of another value than (batch, sequence, width)")
    needs(shape, "a table of positions that has not two dims, extents of 1 left out")
    offset, is_one = offset_of(maker, shape[0])
    said = {**({"sequence": 1} if is_one else {}), **({"offset": offset} if offset else {})}
    return replace(x, output=maker.add([x.output, maker.weight(name), *([] if is_one else [Data("starts")])], said, row="POSITION", widths=[x.output.width]))


def offset_of(maker, rows):
    """The row of a table of position 0, or of all tokens; and whether it is that of all."""
    bound, sequence = maker.bound, maker.graph.sequence
    if "#row" in bound:
        return bound["#row"] % rows, True
    if "@positions" not in bound:
        count = next((matrix(shape_of(call.node))[0] for call in maker.calls if kind_of(call.node) == "slice"), rows)
        return bound.get("#first", 0) % rows, count == 1
    ids = maker.constant("@positions")
    first = int(ids.flatten()[0])
    needs(not bool((ids == bound["#padding"]).any()), f"padding_idx = {bound['#padding']} among positions")
    if bool((ids == first).all()):
        return first, True
    needs(ids.shape[-1] == sequence and torch.equal(ids.reshape(-1, sequence), first + torch.arange(sequence).expand(ids.numel() // sequence, -1)), "positions that are not 0, 1, 2, ..., nor begin with another number")
    return first, False


def logits_of(maker):
    """Logits that lie token by token, whatever dims the user has for batch and sequence."""
    logits = maker.value("logits")
    by_class = len(logits.shape) == 3 and logits.axes == (0, 2, 1) and not logits.counts
    needs(by_class or logits.is_plain and logits.shape[-1] == logits.output.width,
          "logits that are neither (rows, vocabulary) nor (batch, vocabulary, sequence)")
    return logits.output


def targets_of(maker, name="targets"):
    """Ids of logits: the targets of token files, or an input."""
    key = maker.graph.ids_of(maker.bound[name])
    given = maker.graph.input.get(key)
    needs(given is not None and given.source != "tokens", "a loss of other targets than the input")
    needs(not given.dtype.is_floating_point and given.dtype != torch.bool, f"{given.name} as ids: i32, i64 or u8")
    maker.program.chosen.add(key)
    return key


def cross_entropy(maker):
    """Of all targets, or the loss of each one."""
    logits, key = logits_of(maker), targets_of(maker)
    ignored, smoothing = maker.bound["#ignored"], maker.bound.get("#smoothing", 0.0)
    needs(ignored < 0, f"ignore_index = {ignored}: a number below 0, as -100, which is no token, and which data have")
    needs(maker.program.ignored.setdefault(key, ignored) == ignored, f"ignore_index = {ignored}, but {maker.program.ignored[key]} before")
    if maker.bound["#reduction"] == NONE or smoothing:
        return each_loss(maker, logits, key, smoothing)
    return plain(maker.add([logits, maker.data(key), Data(key + ".share")], {}, widths=[1]), ())


def log_probabilities(maker, logits, key):
    width = maker.graph.input[key].rest
    return maker.add([logits, maker.data(key)], {}, row="LOGP", widths=[math.prod(width), 1])


def each_loss(maker, logits, key, smoothing):
    """-log p, or (1-s)(-log p) + s (log-sum-exp - the mean logit), 0 for a target that is ignored: its log p is 0, that of others is below."""
    logp = log_probabilities(maker, logits, key)
    operands, program = [logp], [["NEG", 0]]
    if smoothing:
        operands = [logp, Output(logp.op, 1), maker.add([logits], {}, row="ROW_MEAN", widths=[1])]
        program = [["CONST", smoothing - 1], ["MUL", 0, 4], ["SUB", 1, 2], ["CONST", smoothing], ["MUL", 6, 7], ["CONST", 0.0], ["LESS", 0, 9], ["MUL", 8, 10], ["ADD", 5, 11]]
    return plain(maker.add(operands, {"program": program}, row="POINTWISE", widths=[1]), maker.shape)


def gathered(maker):
    """The log-probabilities of ids, by log_softmax and gather. Those of ids that are ignored are 0, whatever number they are raised to."""
    key = targets_of(maker, "ids")
    if maker.graph.input_of(maker.bound["ids"]) is None:
        maker.program.ignored.setdefault(key, IGNORED)
    return plain(log_probabilities(maker, logits_of(maker), key), maker.shape)


def counts(maker):
    """1 for a target that is not ignored: its log p is below 0."""
    key = maker.input("ids")
    known = next((op for op in maker.program.ops if op.row == "LOGP" and op.operands[1] == Data(key)), None)
    needs(known is not None and known.widths[0] == 1, "which targets are ignored, before their log-probabilities, as cross_entropy or gather has them")
    maker.program.ignored.setdefault(key, IGNORED)
    return plain(maker.add([Output(known)], {"program": [["CONST", 0.0], ["LESS", 0, 4]]}, widths=[1]), maker.shape)


def log_sum(maker):
    """Log-sum-exp of logits, which LOGP gives beside those of any ids."""
    key = maker.ids_of_logits(maker.bound["logits"])
    needs(key is not None, "log-sum-exp of logits of which no loss reads targets")
    maker.program.chosen.add(key)
    return plain(Output(log_probabilities(maker, logits_of(maker), key).op, 1), maker.shape)
