"""layout.py: what each row reads and gives: where the user's values lie, and the attributes that follow from constants.

A function takes a Maker (program.py), which has the match, and returns the Value of its last node. It raises Refused with a reason."""
import math
from dataclasses import replace

import torch

import constants
from graph import kind_of, shape_of
from inputs import IGNORED
from losses import NONE
from ops import HEADS_FIRST, HEADS_TRANSPOSED, Data, Output, Table, Value, Weight, needs, plain

F32_EPSILON = torch.finfo(torch.float32).eps
MASKS_TRIED = 4


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
    for name in weights:
        needs(maker.weight_shape(name) == (width,), f"a {name[1:]} that is not as long as the last dim")
    said = {} if weights or width == x.output.width else {"width": width}
    return replace(x, output=maker.add(operands_of(maker), {**maker.attributes(), **said}))


def length_one(maker):
    """x over the root of its sum of squares and epsilon: of their means, over the root of the width."""
    x, width = maker.value("x"), maker.shape[-1]
    needs(x.last_is_last, "a norm over another dim than the last")
    said = {} if width == x.output.width else {"width": width}
    made = maker.add([x.output], {"epsilon": maker.bound["#epsilon"] / width, **said}, widths=[x.output.width])
    return replace(x, output=maker.add([made], {"factor": width ** -0.5}, row="SCALE", widths=[x.output.width]))


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
            check_row(maker, maker.weight_shapes[weight.name], first)
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
    needs(value.spread == maker.graph.group * maker.graph.sequence, "a sum of one sample, where the loss takes several together (--loss-group)")
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
    graph, tokens = maker.graph, math.prod(maker.graph.tokens)
    needs(maker.shape and x.is_plain and x.output.width == 1, "a sum over samples or tokens of several elements; of one for each token Penstock has it")
    spread = tokens // math.prod(maker.shape)
    needs(x.spread == 1 and maker.shape[0] == graph.batch and spread == graph.sequence
          or x.is_due and maker.shape[0] == graph.batch // graph.group and spread == graph.group * graph.sequence,
          "a sum over samples, as a loss that balances a batch has; of all tokens of a sample, or of a group of samples (--loss-group)")
    return Value(x.output, maker.shape, tuple(range(len(maker.shape))), spread=spread, is_due=True)


def is_column(maker, value):
    """One element for each token, or for each sample."""
    count = len(maker.shape)
    if value.spread > 1 and not value.output.of_samples:
        return value.spread == maker.graph.sequence and value.shape == (maker.graph.batch,) + (1,) * (count - 1)
    return value.is_plain and value.output.width == 1 and any(value.shape == maker.shape[:place] + (1,) * (count - place) for place in range(1, count))


def check_row(maker, shape, first):
    needs(len(shape) < 2, "a weight of several dims beside a value")
    needs(shape in ((), (1,)) or shape == maker.shape[-1:] and first.last_is_last, "a weight that is not as long as the last dim")


def of_row(maker, read=None):
    """Of x, or of a value that lies like it."""
    x = maker.value("x", True)
    is_one = x.is_plain and x.output.width == 1 and not x.output.of_samples
    if is_one and maker.pattern.row == "ROW_MEAN" and x.shape[:2] == maker.graph.tokens and maker.call["dim"] in (1 - len(x.shape), [1 - len(x.shape)]):
        return pooled(maker)
    if maker.pattern.row == "ROW_SUM" and not read and (x.spread > 1 or is_one):
        return over_tokens(maker, x) if math.prod(maker.shape) < math.prod(maker.graph.tokens) else plain(x.output, maker.shape)
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


def division(maker):
    return elementwise_of(maker, {"factor": 1 / maker.bound["#divisor"]})


def bias(maker):
    """A vector, or a row for each position, where there are as many as tokens."""
    return rows(maker) if len(maker.weight_shape(".bias")) < 2 else position(maker, ".bias")


def embedding(maker):
    ids = maker.input("ids")
    needs(ids is not None and maker.graph.input[ids].source in ("", "tokens"), "an embedding of other ids than the tokens")
    padding = maker.bound["#padding"]
    return plain(maker.add(operands_of(maker, ids=maker.data(ids)), {"padding": padding + 1} if padding >= 0 else {}), maker.shape)


def position(maker, name=".table"):
    """A table's row of each token's position, or one row, added."""
    x, shape = maker.value("x"), maker.weight_shape(name)
    needs(x.is_plain and x.shape == maker.shape and x.shape[:2] == (maker.graph.batch, maker.graph.sequence), "positions of another value than (batch, sequence, width)")
    needs(len(shape) == 2, "a table of positions that has not two dims")
    offset, is_one = offset_of(maker, shape[0])
    said = {**({"sequence": 1} if is_one else {}), **({"offset": offset} if offset else {})}
    return plain(maker.add([x.output, maker.weight(name), *([] if is_one else [Data("starts")])], said, row="POSITION"), maker.shape)


def offset_of(maker, rows):
    """The row of a table of position 0, or of all tokens; and whether it is that of all."""
    bound, sequence = maker.bound, maker.graph.sequence
    if "#row" in bound:
        return bound["#row"] % rows, True
    if "@positions" not in bound:
        count = next((shape_of(call.node)[-2] for call in maker.calls if kind_of(call.node) == "slice"), rows)
        return bound.get("#first", 0) % rows, count == 1
    ids = maker.constant("@positions")
    first = int(ids.flatten()[0])
    needs(not bool((ids == bound["#padding"]).any()), f"padding_idx = {bound['#padding']} among positions")
    if bool((ids == first).all()):
        return first, True
    needs(ids.shape[-1] == sequence and torch.equal(ids.reshape(-1, sequence), first + torch.arange(sequence).expand(ids.numel() // sequence, -1)), "positions that are not 0, 1, 2, ..., nor begin with another number")
    return first, False


def heads_of(maker, name, axes):
    """A value of (batch, sequence, heads, head_dim) whose axes the user has in that order, batch and heads as one dim or as two."""
    value, tokens = with_one_head(maker, maker.value(name)), (maker.graph.batch, maker.graph.sequence)
    needs(len(value.shape) == 4 and value.shape[:2] == tokens and value.axes == axes,
          f"{name} is not of (batch, heads, sequence, head_dim), transposed from (batch, sequence, heads, head_dim)")
    return value


def with_one_head(maker, value):
    """Of (batch, 1, sequence, head_dim), as of several heads."""
    batch, sequence = maker.graph.batch, maker.graph.sequence
    is_one = value.shape[:3] == (batch, 1, sequence) and value.axes == (0, 1, 2, 3) and sequence > 1 and value.repeat == 1 and not value.counts
    return replace(value, shape=(batch, sequence, 1, value.shape[3]), axes=HEADS_FIRST) if is_one and len(value.shape) == 4 else value


def rotation(maker, pairs=False):
    x = maker.value("x")
    needs(len(x.shape) == 4 and x.repeat == 1 and not x.counts, "rotary positions of another value than (batch, sequence, heads, head_dim)")
    heads_of(maker, "x", HEADS_FIRST if x.axes == HEADS_FIRST else (0, 1, 2, 3))
    rotated = maker.bound.get("#rotated", x.shape[-1])
    needs(maker.shape == x.logical and rotated % 2 == 0, "rotations that do not leave a head as it was")
    turn = maker.constant("@turn") if "@turn" in maker.bound else None
    cos, sin = (in_memory_order(x, table) for table in ((maker.constant("@cos"), maker.constant("@sin")) if turn is None else (turn.real, turn.imag)))
    if pairs and cos.shape[-1] == rotated:
        cos, sin = (torch.cat((table[:, ::2], table[:, 1::2]), -1) for table in (cos, sin))
    table = Table(constants.rope_table(cos, sin, rotated // 2, maker.scalings))
    attributes = {"heads": x.shape[2], "head_dim": x.shape[3], **({"pairs": 1} if pairs else {})}
    return replace(x, output=maker.add([x.output, table, Data("starts")], attributes))


def rotation_of_pairs(maker):
    """Of elements side by side; a table has an angle for each pair, or for each element."""
    return rotation(maker, True)


def in_memory_order(x, constant):
    """A constant that is broadcast to x, as (sequence, dims): the same for all sequences and heads."""
    width = constant.shape[-1]
    order = [x.axes.index(axis) for axis in range(4)]
    whole = constant.expand(*x.logical[:-1], width).permute(order)
    needs(torch.equal(whole, whole[:1, :, :1].expand_as(whole)), "rotations that differ between sequences or heads")
    return whole[0, :, 0]


def attention(maker):
    fused = "is_causal" in maker.call.value
    q, v = heads_of(maker, "q", HEADS_FIRST), heads_of(maker, "v", HEADS_FIRST)
    k = heads_of(maker, "k", HEADS_FIRST if fused else HEADS_TRANSPOSED)
    heads, kv_heads, head_dim = q.shape[2], k.shape[2], q.shape[3]
    grouped = heads // kv_heads if fused and maker.call.value["enable_gqa"] else 1
    needs(q.repeat == 1 and k.shape == v.shape and k.shape[3] == head_dim, "keys and values of other extents than the queries")
    needs(q.counts == k.counts, "keys of other dims than the queries")
    q = replace(q, counts=v.counts)  # and so the result
    needs(k.repeat == v.repeat and heads == kv_heads * k.repeat * grouped, "heads that keys and values do not divide")
    attributes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, **({"cap": maker.bound["#cap"]} if "#cap" in maker.bound else {})}
    read = [scaled_query(maker, q, head_dim, fused), k.output, v.output]
    if "%mask" in maker.bound:
        read.append(Data(key_mask(maker, fused and maker.call.value["is_causal"])))
        return replace(q, output=maker.add(read, attributes, row="ATTENTION_FULL"))
    window = constants.window_of(*masks_of(maker, fused), maker.graph.sequence)
    if window is None:
        return replace(q, output=maker.add([*read, None], attributes, row="ATTENTION_FULL"))
    return replace(q, output=maker.add([*read, Data("starts")], {**attributes, **({"window": window} if window else {})}))


def repeated(maker):
    """Keys or values of which each head is there several times in a row."""
    x = with_one_head(maker, maker.value("x"))
    needs(len(x.shape) == 4 and x.repeat == 1 and not x.counts, "an expansion of another value than the heads of keys or values")
    at = x.axes.index(2)
    logical, times = x.logical, maker.shape[at] // x.logical[at]
    if maker.call.node.args and "repeats" in maker.call.value:
        side_by_side = maker.call.value["dim"] == at - 4
    else:
        expanded = maker.shape_before()
        side_by_side = expanded == (*logical[:at + 1], times, *logical[at + 1:])
    wanted = (*logical[:at], times * logical[at], *logical[at + 1:])
    needs(side_by_side and wanted == maker.shape, "an expansion that does not repeat each head in place")
    return replace(x, repeat=times)


def key_mask(maker, is_causal):
    """The input that is not 0 where its mask lets all queries see a key: found by values."""
    graph, node = maker.graph, maker.bound["%mask"]
    before = graph.inputs_before(node)
    needs(len(before) == 1 and not is_causal, "a mask of several inputs, or a causal one besides; of keys alone, or causal")
    each = graph.input[before[0]]
    needs(not each.source and each.has_tokens and not each.rest and not each.dtype.is_floating_point, f"{each.name} as a mask of keys: bool or u8 of (batch, sequence)")
    generator, found = torch.Generator().manual_seed(1), []
    for _ in range(MASKS_TRIED):
        shown = torch.randint(0, 2, graph.tokens, generator=generator)
        shown[:, 0], shown[:, 1] = 1, 0
        found.append(constants.is_mask_of_keys(graph.run_of_inputs(node, {each.key: shown.to(each.dtype)}), shown.bool()))
    needs("hidden" not in found or len(set(found)) > 1, f"{each.name} is true where a key is hidden: give an input that is true where it is seen, and its complement here")
    needs(set(found) == {"seen"}, f"a mask of {each.name} that is no mask of keys, the same for all queries and heads")
    return each.key


def masks_of(maker, fused):
    """A mask of (sequence, sequence), true or 0 where a query sees a key, or None; and whether it is said to be causal besides."""
    bound, causal = maker.bound, fused and maker.call.value["is_causal"]
    needs(bound.get("#least", constants.HIDDEN) <= constants.HIDDEN, f"scores of {bound.get('#least')} where a query does not see a key; minus infinity")
    masks = [~maker.constant("@hidden").bool()] if "@hidden" in bound else []
    masks += [maker.constant(name) for name in ("@mask", "@shown") if name in bound]
    masks += [maker.constant("@factor") != 0] if "@factor" in bound else []
    needs("@factor" not in bound or torch.equal(masks[-1].to(maker.constant("@factor").dtype), maker.constant("@factor")), "scores times other numbers than 0 and 1")
    needs("@zeros" not in bound or not bool(maker.constant("@zeros").any()), "scores with a bias")
    if len(masks) < 2:
        return masks[0] if masks else None, causal
    seen = [constants.sees(mask) for mask in masks]  # eager GPT-2 of transformers 4 has both
    needs(all(each is not None for each in seen), "a mask of other values than 0 and minus infinity")
    return seen[0] & seen[1], causal


def scaled_query(maker, q, head_dim, fused):
    """ATTENTION divides scores by the root of head_dim: q is scaled for another factor."""
    default = head_dim ** -0.5 if fused else 1.0
    scale = maker.bound.get("#scale", 1 / maker.bound["#divisor"] if "#divisor" in maker.bound else default)
    factor = scale * head_dim ** 0.5
    return q.output if abs(factor - 1) < 1e-7 else maker.add([q.output], {"factor": factor}, row="SCALE", widths=[q.output.width])


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
    needs(ignored < 0, f"ignore_index = {ignored}: a number below 0, which is no token")
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
