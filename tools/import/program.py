"""program.py: the forward ops of a graph: which pattern each node is the last one of, which of these the loss needs, and their ops in order."""
import math
from collections import ChainMap
from collections.abc import Mapping

import torch

from elementwise import steps_of
from graph import Call, kind_of, shape_of
from match import Found, match
from inputs import OF_VALUES
from layout import counts
from losses import append_losses, is_usual, terms_of
from ops import Data, Op, Output, Program, Weight, needs, plain
from patterns import BY_KIND, POINTWISE, WITHOUT_ROW
from refusal import Refusal, Refused, in_order, path_of, place_of
from tables import has_value, table_of
from views import view_of

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")  # which PyTorch takes for random, for the sake of dropout

REASONS = {
    "wrap_with_set_grad_enabled": "a region without gradients",
    "wrap_with_autocast": "a region of autocast; model.dtype says which dtype Penstock computes in",
    "detach": "a value without its gradient",
    **dict.fromkeys(("log_softmax", "kl_div"), "log-probabilities of a whole vocabulary, as a teacher's; of given tokens, by log_softmax and gather, they are taken"),
    "softmax": "a softmax of other values than the scores of attention or of a router, as of gates or of a whole vocabulary",
    **dict.fromkeys(("max", "amax", "min", "amin", "max_pool1d", "adaptive_max_pool1d"), "the largest or least of several values; the sum or mean over tokens, or of all elements of one, is taken"),
    **dict.fromkeys(("matmul", "mm", "bmm", "einsum"), "a product of two values other than attention, as a contrastive loss has, of samples with each other"),
    "topk": "a choice of the greatest that is no router of experts as MOE's",
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), "a convolution; of patches that do not overlap it is an nn.Linear of an input (batch, patches, elements of a patch)"),
    **dict.fromkeys(("index", "index_select", "take_along_dim"), "values at places that an input or other values say, and no experts of a router; a mask of them as a factor, and a sum over tokens, is taken"),
    "pad": "values of other tokens beside those of a token, as a shift has them; attention, and sums over tokens, are taken",
    "stack": "values stacked by a loop over tokens or heads, as a scan has them",
    "var": "a variance over other values than all elements of a token", "std": "a deviation over other values than all elements of a token",
    **dict.fromkeys(("select_scatter", "slice_scatter", "index_put", "copy", "fill"), "a write through a view"),
}
OF_ONE_DIM = ("softmax", "log_softmax", "max", "amax", "min", "amin", "var", "std")


class Match:
    """The pattern whose last node this is, or a view: what it reads, and the function that makes its value."""

    def __init__(self, make, reads, pattern=None, found=None):
        self.make, self.reads, self.pattern, self.found = make, reads, pattern, found or Found()


def find(graph, node):
    """The first pattern that reads all arguments; else as an element-wise op; else the first one, which is refused for what it does not read. So is
    a block of experts, of whose last node there is nothing else."""
    matches = list(patterns_of(graph, node))
    complete = next((each for each in matches if each.pattern.row == "MOE" or not any(unread(each))), None)
    if complete is None:
        known = steps_of(graph, node)
        if known:
            steps, calls = known
            reads = [operand for operand in steps.operands if not isinstance(operand, Weight)]
            return Match(POINTWISE.make, [each for each in reads if graph.input_of(each) is None], POINTWISE, Found({"steps": steps}, calls))
    view = view_of(graph, node)
    return complete or next(iter(matches), None) or (Match(view[1], [view[0]]) if view else None)


def patterns_of(graph, node):
    for pattern in BY_KIND.get(kind_of(node), ()):
        found = match(graph, pattern.expression, node, Found())
        if found is not None and pattern.when(found.bound):
            values = (value for name, value in found.bound.items()
                      if name[0] not in ".#@%&$" and (graph.ids_of(value) if name in ("ids", "targets") else graph.input_of(value)) is None)
            yield Match(pattern.make, list(values), pattern, found)
OF_INPUTS = ("mean", "sum", "std", "var", "max", "min", "amax", "amin")


class TableShapes(Mapping):
    def __init__(self, tables):
        self.tables = tables

    def __getitem__(self, name):
        return tuple(self.tables[name].shape)

    def __iter__(self):
        return iter(self.tables)

    def __len__(self):
        return len(self.tables)


class Maker:
    """What the functions of layout.py ask of a match, and where they add ops."""

    def __init__(self, graph, program, matches, scalings, shapes):
        self.graph, self.program, self.values, self.matches, self.splits = graph, program, program.values, matches, {}
        self.scalings, self.weight_shapes = scalings, ChainMap(shapes, TableShapes(graph.tables))
        self.without_weights = {}  # ops that the user's code may have several times: once is enough
        self.shapes = {}  # of what a node sums

    def begin(self, node, found):
        self.node, self.pattern, self.bound, self.calls = node, found.pattern, found.found.bound, found.found.calls
        self.shape, self.place = self.shapes.get(node, shape_of(node)), place_of(node)
        self.call = self.calls[-1] if self.calls else None
        self.source = found.reads[0] if found.reads else None

    def value(self, name, may_spread=False):
        value = self.value_of(self.bound[name])
        needs(may_spread or value.spread == 1, "it reads a sum of all tokens of a sample")
        return value

    def value_of(self, node):
        """Of an input by name, too."""
        if node in self.values:
            return self.values[node]
        given = self.graph.input[self.graph.input_of(node)]
        needs(not given.source, f"it reads the input {given.name}; an embedding or the loss does")
        needs(given.dtype in OF_VALUES, f"it reads the input {given.name} as values: f32, bf16, u8 or bool")
        return plain(self.data(given.key, math.prod(given.rest)), shape_of(node))

    def data(self, key, width=1):
        return Data(key, width, self.graph.has_tokens and not self.graph.input[key].has_tokens)

    def rows_of(self, value):
        """How many of the dims of a value are batch and sequence, or of samples batch alone."""
        return 2 if self.graph.has_tokens and not value.output.of_samples else 1

    def count_of(self, value):
        """The tokens of a value, or the samples."""
        return self.graph.batch * (1 if value.output.of_samples else self.graph.sequence)

    def ids_of_logits(self, logits):
        """An input of ids that are targets of logits."""
        found = [self.graph.ids_of(match.found.bound.get("targets", match.found.bound.get("ids"))) for match in self.matches.values()
                 if match.pattern and match.pattern.row in ("CROSS_ENTROPY", "LOGP") and len(match.found.bound) > 1]
        found = [key for key in found if key is not None] + [key for key, each in self.graph.input.items() if each.source == "targets"]
        return next(iter(found), None)

    def weight(self, name):
        return Weight(self.bound[name])

    def stack(self, name, stack):
        """A weight that is made of the module's."""
        self.program.stacks[name] = stack
        return Weight(name)

    def weight_shape(self, name):
        return self.weight_shapes[self.bound[name]]

    def table(self, name, value, fits=has_value):
        """The weight that a constant of several values is."""
        return table_of(self.graph, self.bound[name], value, path_of(self.node, self.graph.prefix), self.node, fits)

    def constant(self, name):
        return self.graph.constant[self.bound[name]]

    def input(self, name):
        return self.graph.input_of(self.bound[name])

    def bounds_of(self, source, axis):
        """(first, past) of the parts of a value that are read, along that axis."""
        known = [self.graph.part(node) for node, found in self.matches.items() if found.pattern is None and kind_of(node)]
        return sorted({(part[2], part[2] + part[3]) for part in known if part and self.graph.strip(part[0]) is source and part[1] == axis})

    def shape_before(self):
        return shape_of(self.graph.strip(self.node.args[0]))

    def attributes(self):
        said = {name: self.bound[f"#{name}"] for name in self.pattern.attributes.split() if f"#{name}" in self.bound}
        return {**self.pattern.others, **said}

    def add(self, operands, attributes=None, row=None, widths=None):
        op = Op(row or self.pattern.row, operands, attributes or {}, widths, self.place, path_of(self.node, self.graph.prefix))
        op.widths = widths or [math.prod(self.shape) // (self.graph.batch * (1 if op.of_samples else self.graph.sequence))]
        same = None if any(isinstance(operand, Weight) for operand in operands) else (op.row, *operands, repr(op.attributes))
        if same in self.without_weights:
            return Output(self.without_weights[same])
        if same:
            self.without_weights[same] = op
        self.program.ops.append(op)
        return Output(op)


def reason_of(graph, node):
    """Why a node that the loss needs has no op."""
    if node in graph.inputs:
        return f"the input {graph.input[graph.inputs[node]].name} is read by another operation than an embedding or the loss"
    if node in graph.parameters:
        return f"the weight {graph.parameters[node]} is read by an operation that Penstock has not"
    if node.op == "placeholder":
        return "a buffer that changes"
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and kind_of(node) not in RECURRENT:
        return f"random numbers, of aten.{kind_of(node)}"
    if graph.is_constant(node):
        return "a value that depends on no input"
    name = kind_of(node)
    if name == "einsum" and any(graph.parameter(read) for read in node.all_input_nodes):
        return "an einsum with a weight; an nn.Linear, or one with a matrix of (out, in), is taken"
    if name == "linear" and graph.strip(node.args[1]) in graph.of_weights and not graph.part(graph.strip(node.args[1])):
        return "a product by a weight that is computed of others"
    if node in graph.of_weights:
        return f"a weight that is computed of others, by aten.{name}, or is the same for all samples, as a token that is put before those of the input"
    if node in graph.of_inputs and name in OF_INPUTS:
        return f"{name} of an input over tokens or samples; data have what is computed of inputs alone as an input"
    if name == "linear" and graph.part(graph.strip(node.args[1])):
        return "a product by a part of a weight, as nn.MultiheadAttention has where keys are of another value than queries, a decoder's memory"
    if name in OF_ONE_DIM and is_of_tokens(graph, node):
        return f"{name} over the tokens or samples; over tokens the sum and the mean are taken, and the softmax of attention"
    if name == "slice" and Call(node).value["step"] != 1:
        if Call(node).value["dim"] % len(shape_of(node)) > 1:
            return "every second column, but for rotary positions; permute the rows of the weight that makes them, so that parts lie side by side"
        return "every second sample or token; an input of 1 and -1 as a factor, and view(-1, 2).sum(-1), says which is which (--loss-group)"
    return REASONS.get(name, f"Penstock has no operation for {'aten.' if hasattr(node.target, '_schema') else ''}{name}")


def is_of_tokens(graph, node):
    """Whether an op of one dim is over one of tokens or samples."""
    dim, rank = Call(node).value.get("dim"), len(shape_of(graph.strip(node.args[0])) or ())
    dim = dim[0] if isinstance(dim, list) and len(dim) == 1 else dim
    return isinstance(dim, int) and rank + dim < (2 if graph.has_tokens else 1)


def without_row(graph, node):
    """(the reason, what it reads) of an expression that is known to have no row; None: the node is the last one of none."""
    for expression, reason in WITHOUT_ROW:
        found = match(graph, expression, node, Found()) if kind_of(node) else None
        if found is not None:
            return reason, [value for name, value in found.bound.items() if name in "qkv"]
    return None


def place_within(graph, node):
    """Of a region the line of its first call."""
    for read in node.args:
        region = graph.constant.get(read) if isinstance(read, torch.fx.Node) else None
        if isinstance(region, torch.fx.GraphModule):
            return next((place for each in region.graph.nodes if each.op == "call_function" and (place := place_of(each))), None)
    return None


def needed(graph, roots):
    """The matches that these nodes need, and refusals of nodes without one."""
    matches, refusals, todo = {}, {}, [(graph.strip(root), root) for root in reversed(roots)]
    while todo:
        node, reader = todo.pop()
        if node in matches or node in refusals:
            continue
        try:
            found = None if graph.is_constant(node) else find(graph, node)
        except Refused as reason:
            refusals[node] = Refusal(place_of(node), str(reason))
            continue
        if found is None and kind_of(node) == "getitem":
            todo.append((node.args[0], reader))
        elif found is None:
            reason, before = without_row(graph, node) or (reason_of(graph, node), [] if graph.is_constant(node) else node.all_input_nodes)
            refusals[node] = Refusal(place_within(graph, node) or place_of(node) or place_of(reader), reason)
            todo += [(graph.strip(read), node) for read in before if computes(graph, graph.strip(read)) and graph.strip(read) not in graph.of_weights]
        else:
            matches[node] = found
            todo += [(graph.strip(read), node) for read in found.reads]
    return matches, refusals


def computes(graph, node):
    return not graph.is_constant(node) and node.op != "placeholder" and graph.input_of(node) is None


def unread(found):
    """Refusals of arguments that no pattern has read."""
    for call in found.found.calls:
        said = call.unread()
        if said:
            yield Refusal(place_of(call.node), f"{said[0]} = {said[1]} of aten.{kind_of(call.node)}: Penstock's {found.pattern.row} has no such argument")


def program_of(graph, scalings, shapes, may_be_usual=True):
    """The ops of a graph whose output is the loss, or refusals. `shapes`: of the weights. `scalings`: attributes of ROPE_TABLE to try.
    `may_be_usual`: whether one cross entropy needs no list of shares."""
    program = Program(graph.batch, graph.sequence)
    values = program.values
    loss = graph.nodes[-1].args[0][-1]
    terms, wrong = loss_terms(graph, loss)
    matches, refusals = needed(graph, [term.node for term in terms] or operands_of(loss))
    maker = Maker(graph, program, matches, scalings, shapes)
    maker.shapes = {term.node: term.shape for term in terms if shape_of(term.node) != term.shape}
    for node in in_order_of_use(graph, matches):
        found = matches[node]
        maker.begin(node, found)
        for refusal in unread(found):
            refusals[node] = refusal
        if any(graph.strip(read) not in values for read in found.reads):
            continue  # refused already
        try:
            values[node] = found.make(maker)
        except Refused as reason:
            refusals[node] = Refusal(place_of(node), str(reason))
    order = {node: index for index, node in enumerate(graph.nodes)}
    program.refusals = in_order(graph.refusals + [refusals[node] for node in sorted(refusals, key=order.get)] + wrong)
    is_one = may_be_usual and is_usual(graph, terms)
    program.loss_is_sum = is_one and terms[0].over is None
    if not program.refusals and not is_one:
        try:
            append_losses(program, graph, terms, values)
        except Refused as reason:
            program.refusals = reason.reasons
    if not program.refusals:
        refuse_parts(program)
    known = [values.get(graph.strip(each)) for each in graph.nodes[-1].args[0][-2:-1] if isinstance(each, torch.fx.Node)]
    program.logits = next((value.output for value in known if value is not None and value.is_plain), None)
    return program


def in_order_of_use(graph, matches):
    """The nodes with a match, in the order of the graph; but which targets are ignored, and what depends on that alone, where another node reads it: the
    log-probabilities say it, and the user's code may ask before it computes them."""
    order, late = [], {}

    def add(node):
        for read in matches[node].reads:
            if late.pop(graph.strip(read), False):
                add(graph.strip(read))
        order.append(node)

    for node in (node for node in graph.nodes if node in matches):
        reads = [graph.strip(read) for read in matches[node].reads]
        is_of_targets = matches[node].pattern is not None and matches[node].pattern.make is counts
        if is_of_targets or reads and all(read in late for read in reads):
            late[node] = True
        else:
            add(node)
    return order + list(late)


def loss_terms(graph, loss):
    """The terms of the loss; none, and refusals."""
    try:
        return terms_of(graph, loss), []
    except Refused as reason:
        return [], reason.reasons


def operands_of(loss):
    """What a loss that is refused reads: what is wrong there is said, too."""
    return [read for read in loss.all_input_nodes if shape_of(read)] if isinstance(loss, torch.fx.Node) else []


def refuse_parts(program):
    """Each output of an op has a reader."""
    readers = program.readers()
    for op in program.ops:
        if op.row != "LOGP" and len(op.widths) > 1 and any(Output(op, index) not in readers for index in range(len(op.widths))):
            program.refusals.append(Refusal(op.place, "a part of a split that nothing reads"))
