"""graph.py: the graph of a module at one size, as torch.export gives it, not decomposed.

What depends on no weight and on no value of an input is folded: masks, positions, tables of rotations. Nodes that compute nothing, such as a
cast to the dtype that a value has, are seen through."""
import math
import operator
import sys

import torch

from inputs import IGNORED
from refusal import Refusal, Refused, place_of

NO_OPS = ("contiguous", "clone", "alias", "lift_fresh_copy")
CASTS = ("to", "_to_copy", "type_as")
SAME_IF_SAME_SHAPE = ("view", "reshape", "_unsafe_view", "expand", "slice", "expand_as", "view_as")
VIEWS = ("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as")
BROADCASTS = ("expand", "expand_as", "broadcast_to")
SHAPE_ALONE = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
OF_FIRST = ("type_as", "expand_as", "view_as", "reshape_as")  # of the second value they read the shape or dtype alone
DROPOUTS = ("dropout", "feature_dropout", "native_dropout")
OF_DIMS = ("dim", "dims", "dim0", "dim1")
OF_MACHINES = ("device", "pin_memory", "layout", "memory_format", "non_blocking", "copy", "cudnn_enable", "cudnn_enabled")  # change no value


def kind_of(node):
    """The ATen op of a node without its overload: "linear"; of a higher-order op its name; None: it is no call."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return None
    if node.target is operator.getitem:
        return "getitem"
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return getattr(node.target, "__name__", str(node.target))
    name = schema.name.split("::")[1]
    return name if name.startswith("_") else name.rstrip("_")


def shape_of(node):
    """An extent that values choose is its name."""
    return extents_of(node.meta.get("val"))


def extents_of(value):
    return tuple(extent if isinstance(extent, int) else str(extent) for extent in value.shape) if isinstance(value, torch.Tensor) else None


class Call:
    """A node's arguments, by the names of its schema, and which of them a pattern has read."""

    def __init__(self, node):
        self.node, self.value, self.default, self.read = node, {}, {}, set()
        for index, argument in enumerate(node.target._schema.arguments):
            name = argument.name
            self.default[name] = argument.default_value if argument.has_default_value() else None
            given = node.args[index] if index < len(node.args) else node.kwargs.get(name, self.default[name])
            self.value[name] = self.from_the_end(name, given)

    def from_the_end(self, name, value):
        """Dims count from the end: -1 is the last."""
        if name not in OF_DIMS:
            return value
        first = self.node.args[0] if self.node.args else None
        rank = len(shape_of(first if isinstance(first, torch.fx.Node) else self.node) or ())
        if isinstance(value, int):
            return value - rank if value >= 0 else value
        return [each - rank if each >= 0 else each for each in value] if isinstance(value, (list, tuple)) else value

    def __getitem__(self, name):
        self.read.add(name)
        return self.value[name]

    def unread(self):
        """The first argument that says something and was not read: its name and value; None: there is none."""
        for name, value in self.value.items():
            said = value is not None and value != self.from_the_end(name, self.default[name])
            if said and name not in self.read and name not in OF_MACHINES:
                return name, value
        return None


class Constants:
    """Of nodes that depend on no weight and no value of an input, their values, which are computed when they are asked for."""

    def __init__(self):
        self.known, self.nodes = {}, set()

    def __contains__(self, node):
        return node in self.nodes

    def __setitem__(self, node, value):
        self.known[node] = value
        self.nodes.add(node)

    def get(self, node):
        return self[node] if node in self.nodes else None

    def __getitem__(self, node):
        if node not in self.known:
            self.known[node] = self.compute(node)
        return self.known[node]

    def compute(self, node):
        """What comes before is dropped again: a mask may be large."""
        order, todo = {}, [node]
        while todo:
            each = todo[-1]
            before = [] if each in self.known else reads_of(each)
            missing = [read for read in before if read not in order]
            todo += missing
            if not missing:
                order[todo.pop()] = None
        made = {}
        with torch.no_grad():
            for each in order:
                made[each] = self.known[each] if each in self.known else self.run(each, made)
        return made[node]

    @staticmethod
    def run(node, made):
        try:
            return run_node(node, made)
        except Exception as error:
            raise Refused(f"a value that depends on no input cannot be computed: {error}") from None


def reads_of(node):
    """The nodes whose values it depends on."""
    return [] if kind_of(node) in SHAPE_ALONE else node.all_input_nodes[:1] if kind_of(node) in OF_FIRST else node.all_input_nodes


def run_node(node, made):
    if kind_of(node) in OF_FIRST:
        like, value = node.meta["val"], made[node.args[0]].to(node.meta["val"].dtype)
        return value.expand(like.shape) if kind_of(node) == "expand_as" else value.reshape(like.shape)
    if kind_of(node) in SHAPE_ALONE:
        like = node.args[0].meta["val"]
        return node.target(torch.empty(like.shape, dtype=like.dtype), *node.args[1:], **on_cpu(node.kwargs))
    return node.target(*torch.fx.map_arg(on_cpu(node.args), made.__getitem__), **torch.fx.map_arg(on_cpu(node.kwargs), made.__getitem__))


class Graph:
    def __init__(self, exported, batch, sequence, prefix, buffers, inputs, group):
        """`buffers`: the values of buffers, by their names in the graph, where the module has none. `inputs`: of the step, in order. `group`: the
        samples that the loss takes together."""
        self.group, self.tokens = group, (batch, sequence)
        self.input = {each.key: each for each in inputs}
        self.batch, self.sequence = batch, sequence
        self.has_tokens = any(each.has_tokens for each in inputs)
        self.exported, self.nodes, self.buffers = exported, list(exported.graph.nodes), buffers
        self.constant, self.parameters, self.inputs, self.refusals = Constants(), {}, {}, []
        self.buffer_names = {}  # of placeholders
        self.tables, self.table_names = {}, {}  # the weights that constants become (tables.py), by name; names by the constant's node and its reader
        self.of_weights = set()  # nodes that depend on weights, and on no value
        self.of_inputs = set()  # nodes that depend on inputs, and on no weight
        self.prefix = prefix
        self.changed = dict(exported.graph_signature.buffers_to_mutate)
        self.read_placeholders()
        self.fold()
        self.refuse_changes()

    def with_buffers(self, values):
        """The same graph of a module with these values of buffers, by their names there."""
        return Graph(self.exported, self.batch, self.sequence, self.prefix, {self.prefix + name: value for name, value in values.items()}, self.input.values(), self.group)

    # ---- what the graph reads ----

    def read_placeholders(self):
        signature = self.exported.graph_signature
        state = {**self.exported.state_dict, **self.exported.constants, **self.buffers}
        buffers = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        keys = dict(zip(signature.user_inputs, self.input))
        for node in self.nodes:
            if node.op == "get_attr":
                self.constant[node] = getattr(self.exported.graph_module, node.target)
            if node.op != "placeholder":
                continue
            if node.name in signature.inputs_to_parameters:
                self.parameters[node] = signature.inputs_to_parameters[node.name].removeprefix(self.prefix)
            elif node.name in buffers:
                if node.name in signature.inputs_to_buffers:
                    self.buffer_names[node] = buffers[node.name].removeprefix(self.prefix)
                if buffers[node.name] not in self.changed.values():
                    self.constant[node] = state[buffers[node.name]]
            elif isinstance(node.meta.get("val"), torch.Tensor):
                self.inputs[node] = keys[node.name]
            else:
                self.constant[node] = None

    def fold(self):
        for node in self.nodes:
            if node.op != "call_function" or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                continue
            if all(read in self.constant for read in reads_of(node)):
                self.constant.nodes.add(node)
            elif all(read in self.constant or read in self.parameters or read in self.of_weights for read in node.all_input_nodes):
                self.of_weights.add(node)
            elif all(read in self.constant or read in self.inputs or read in self.of_inputs for read in node.all_input_nodes):
                self.of_inputs.add(node)

    def refuse_changes(self):
        output = self.nodes[-1]
        made = {node.name: node for node in output.all_input_nodes}
        for name, buffer in self.changed.items():
            place = place_of(made[name]) if name in made else None
            self.refusals.append(Refusal(place, f"the buffer {buffer.removeprefix(self.prefix)} changes in a step"))

    # ---- what patterns ask ----

    def strip(self, node):
        """The node that computes what this one is."""
        while kind_of(node) and node not in self.constant:
            if kind_of(node) == "cat":
                parts = [part for part in node.args[0] if not any(isinstance(extent, int) and extent == 0 for extent in shape_of(part))]
                if len(parts) != 1:
                    return node
                node = parts[0]  # the others have no elements
            elif kind_of(node) in NO_OPS or self.is_same(node):
                node = node.args[0] if kind_of(node) != "getitem" else node.args[0].args[0][node.args[1]]
            else:
                return node
        return node

    def is_same(self, node):
        kind = kind_of(node)
        if kind == "getitem" and kind_of(node.args[0]) == "broadcast_tensors":
            return shape_of(node) == shape_of(node.args[0].args[0][node.args[1]])
        before, after = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None, node.meta.get("val")
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            return False
        if kind in CASTS:
            return before.dtype == after.dtype
        if kind in SAME_IF_SAME_SHAPE:
            return extents_of(before) == extents_of(after) and (kind != "slice" or is_whole(Call(node)))
        return kind in DROPOUTS and is_idle_dropout(node)

    def parameter(self, node):
        """Also where a vector is expanded to the shape of what it is added to."""
        node = self.strip(node) if isinstance(node, torch.fx.Node) else None
        while kind_of(node) in BROADCASTS and shape_of(node)[-1:] == shape_of(node.args[0]):
            node = self.strip(node.args[0])
        return self.parameters.get(node)

    def parameter_or_buffer(self, node):
        """Its name, also behind views."""
        while isinstance(node, torch.fx.Node) and kind_of(node) in (*VIEWS, *CASTS, *NO_OPS):
            node = node.args[0]
        return self.parameters.get(node) or self.buffer_names.get(node)

    def is_zeros(self, node):
        return self.is_constant(node) and not bool(self.constant[node].any())

    def is_constant(self, node):
        return isinstance(node, torch.fx.Node) and node in self.constant

    def number(self, value):
        """A number of the user's code, or a constant of one element; None: it is neither."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        is_one = self.is_constant(value) and shape_of(value) is not None and math.prod(shape_of(value)) == 1
        tensor = self.constant[value] if is_one else None
        if tensor is not None and tensor.dtype != torch.bool:
            return shortest(tensor.item()) if tensor.dtype == torch.float32 else tensor.item()
        return None

    def input_of(self, node):
        """The input that a node is, whatever its shape, or cast to a dtype that has its values: its key; None: it is none."""
        return self.inputs.get(self.without_views(node))

    def ids_of(self, node):
        """The input that ids are, or are raised to 0 from: those below 0 are ignored."""
        node = self.without_views(node)
        least = Call(node) if kind_of(node) in ("clamp", "clamp_min", "clip") and node not in self.constant else None
        if least is not None and self.number(least["min"]) == 0 and least.value.get("max") is None:
            node = node.args[0]
        return self.input_of(node)

    def mask_of_targets(self, node):
        """Where ids are not ignored: the comparison, behind casts and views; None: the node is none."""
        node = self.without_views(node)
        is_one = kind_of(node) in ("ne", "not_equal") and node not in self.constant and self.number(node.args[1]) == IGNORED
        return node if is_one and self.input_of(node.args[0]) is not None else None

    def without_views(self, node):
        node = self.strip(node)
        while node not in self.constant and (kind_of(node) in VIEWS or kind_of(node) in CASTS and keeps_values(node)):
            node = self.strip(node.args[0])
        return node

    def run_of_inputs(self, node, values):
        """The value of a node of of_inputs, of these values of inputs, by their keys."""
        made, todo = {placeholder: values[key] for placeholder, key in self.inputs.items() if key in values}, [node]
        with torch.no_grad():
            while todo:
                missing = [read for read in todo[-1].all_input_nodes if read not in made and read not in self.constant]
                if missing:
                    todo += missing
                    continue
                each = todo.pop()
                if each not in made:
                    made.update({read: self.constant[read] for read in each.all_input_nodes if read in self.constant})
                    made[each] = run_node(each, made)
        return made[node]

    def inputs_before(self, node):
        """The keys of the inputs that a node depends on."""
        found, seen, todo = [], set(), [node]
        while todo:
            each = todo.pop()
            if each in self.inputs:
                found.append(self.inputs[each])
            if each not in seen and each not in self.constant:
                seen.add(each)
                todo += each.all_input_nodes
        return sorted(set(found))

    def part(self, node):
        """Of a slice, or an output of a split: (source, axis from the end, start, length, extent, whether the axis remains); None: it is none."""
        kind = kind_of(node)
        if kind == "getitem" and kind_of(node.args[0]) in ("split", "split_with_sizes", "chunk", "tensor_split", "unbind"):
            split, index = node.args
            parts = split.meta["val"]
            call, source, remains = Call(split), split.args[0], kind_of(split) != "unbind"
            axis = call.value.get("dim", 0)
            lengths = [part.shape[axis] if remains else 1 for part in parts]
            if not all(isinstance(length, int) for length in lengths):
                return None
            return source, axis, sum(lengths[:index]), lengths[index], sum(lengths), remains
        if kind in ("slice", "select", "narrow"):
            return self.part_of_slice(node, Call(node), kind)
        return None

    def part_of_slice(self, node, call, kind):
        source, axis = node.args[0], call.value["dim"]
        extent = (shape_of(source) or {axis: None})[axis]
        if not isinstance(extent, int):
            return None
        if kind == "select":
            return source, axis, call.value["index"] % extent, 1, extent, False
        start = call.value["start"] or 0
        if kind == "slice" and call.value["step"] != 1:
            return None
        return source, axis, start % extent if start else 0, shape_of(node)[axis], extent, True

    def every_second(self, node, first):
        """What a node has elements first, first + 2, ... of the last dim of: by a slice, or as one of each pair; None: it has others."""
        node = self.strip(node) if isinstance(node, torch.fx.Node) else node
        if kind_of(node) == "slice":
            value = Call(node).value
            extent = shape_of(node.args[0])[-1]
            is_whole = value["end"] is None or value["end"] >= extent
            return node.args[0] if (value["dim"], value["start"] or 0, value["step"]) == (-1, first, 2) and is_whole and extent % 2 == 0 else None
        known = self.part(node) if isinstance(node, torch.fx.Node) and kind_of(node) else None
        if known is None or known[1:] != (-1, first, 1, 2, False):
            return None
        return self.paired(known[0])

    def paired(self, node):
        """What a node has the adjacent elements of as a last dim of 2; None: it has others."""
        node = self.strip(node) if isinstance(node, torch.fx.Node) else node
        before = self.strip(node.args[0]) if kind_of(node) in VIEWS else None
        is_paired = before is not None and shape_of(node)[-1] == 2 and shape_of(before)[:-1] == shape_of(node)[:-2]
        return before if is_paired else None


def is_whole(call):
    """Whether a slice with as many elements as what it reads has all of it: of an extent that values choose, only one without bounds."""
    is_known = isinstance(shape_of(call.node)[call.value["dim"]], int)
    return is_known or not call.value["start"] and call.value["end"] in (None, sys.maxsize)


def keeps_values(node):
    """Whether a cast's result has the values of what it reads."""
    before, after = node.args[0].meta["val"].dtype, node.meta["val"].dtype
    return before == torch.bool or after.is_floating_point or not before.is_floating_point and after in (torch.int64, torch.int32)


def is_idle_dropout(node):
    call = Call(node)
    return call.value.get("p") == 0 or call.value.get("train") is False


def on_cpu(arguments):
    """Arguments with the CPU for any device."""
    if isinstance(arguments, torch.device):
        return torch.device("cpu")
    if isinstance(arguments, dict):
        return {name: torch.device("cpu") if name == "device" and value is not None else value for name, value in arguments.items()}
    return tuple(on_cpu(each) for each in arguments) if isinstance(arguments, tuple) else arguments


def shortest(value):
    """The shortest decimal that is this f32."""
    wanted = torch.tensor(value, dtype=torch.float32)
    for digits in range(1, 10):
        decimal = float(f"{value:.{digits}g}")
        if torch.equal(torch.tensor(decimal, dtype=torch.float32), wanted):
            return decimal
    return value
