"""check.py: runs what was written beside the module: losses, logits and gradients, with weights drawn anew."""
from dataclasses import dataclass

import torch

import formulas
from graph import kind_of
from inputs import IGNORED, draw
from module import users_code, without_dropout
from ops import Data, Output
from refusal import Refusal

SEEDS = (1, 2)
VALUES_DIFFER, GRADIENTS_DIFFER = 1e-5, 1e-4
SMALL_GRADIENT = 1e-2  # of the largest: below it a tensor's own gradients count as so large
PARTED = 4  # samples whose loss is compared with the sum of those of its parts


def draw_weights(weights, generator):
    """None is 0 or 1, where a factor or an addend that is forgotten would not show."""
    with torch.no_grad():
        for parameter in weights:
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / min(parameter.shape) ** 0.5)
            else:
                sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
                parameter.copy_((0.2 + 0.7 * torch.rand(parameter.shape, generator=generator)) * sign)


def numbers_of(graph):
    """Small whole numbers among the arguments of ops: each may be a token."""
    found = set()
    for node in graph.nodes:
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, int) and not isinstance(value, bool):
                found.add(value)
    return sorted(found)


@dataclass
class Use:
    """How ops read an input: as ids below `limit`, 0: not as ids; with ids that are ignored; of an embedding, the numbers that its op names."""

    limit: int = 0
    ignores: bool = False
    said: list | None = None


class Comparison:
    def __init__(self, step, graphs, program, description, stored, users=None, biases=None, tables=None):
        """`users`: the user's own inputs. `biases`: buffers that are weights. `tables`: constants of the module that are weights and stay."""
        self.biases, self.name_in_files = biases or {}, stored
        self.step, self.graphs, self.program, self.description, self.users = step, graphs, program, description, users
        self.weights = {**dict(step.module.named_parameters(remove_duplicate=False)), **self.biases, **(tables or {})}
        self.trained = [parameter for parameter in step.module.parameters() if parameter.requires_grad]
        self.names = {each.key: each.name for each in step.inputs}
        self.bytes = {each.key for each in step.inputs if each.dtype == torch.uint8}

    def refusals(self, seeds=SEEDS):
        """The first difference: none, or one refusal."""
        for seed in seeds:
            for graph in self.graphs:
                generator = torch.Generator().manual_seed(seed)
                draw_weights([*self.step.module.parameters(), *self.biases.values()], generator)
                refusal = self.compare(graph, self.draw(graph.tokens, numbers_of(graph), generator, seed))
                if refusal:
                    return [refusal]
        refusal = self.compare_equal_tokens() if any(op.row == "MOE" for op in self.program.ops) else None
        return [refusal] if refusal else self.compare_parts()

    def compare_equal_tokens(self):
        """All tokens choose the same experts, and none the others, as far as tokens have no positions."""
        generator, graph = torch.Generator().manual_seed(SEEDS[0]), self.graphs[-1]
        values, uses = self.draw(graph.tokens, numbers_of(graph), generator, SEEDS[0]), self.uses([])
        return self.compare(graph, {key: torch.full_like(value, value.flatten()[0].item()) if uses.get(key, Use()).said is not None else value for key, value in values.items()})

    def draw(self, size, said, generator, seed):
        """Values of the inputs, by their keys; those of the user's own at the first seed, where they differ."""
        own = self.users.values(*size, seed) if self.users else {}
        uses = self.uses(said)
        return {each.key: draw(each, size, uses.get(each.key, Use()), own.get(each.name) if seed == SEEDS[0] or not each.dtype.is_floating_point else None, generator)
                for each in self.step.inputs}

    def uses(self, said):
        found = {}
        for op in self.program.ops:
            place = formulas.IDS.get(op.row)
            if op.row not in ("EMBEDDING", "CROSS_ENTROPY", "LOGP") or not isinstance(op.operands[place], Data):
                continue
            limit = self.weights[op.operands[1].name].shape[0] if op.row == "EMBEDDING" else op.operands[0].width
            key = op.operands[place].name
            use = found.setdefault(key, Use(limit, key in self.program.ignored and key not in self.bytes))
            use.limit = min(use.limit, limit)
            use.said = said if op.row == "EMBEDDING" else use.said
        return found

    def compare(self, graph, values):
        theirs, logits = self.modules(values)
        outputs = []
        keep = lambda row, made: row == "ROPE_TABLE" or outputs.append(made)
        ours = self.ours(values, keep)
        is_last = logits is not None and self.program.logits is not None and not self.program.losses
        if not is_near(ours, theirs, 1.0) or is_last and not is_near(outputs[-2][0].flatten(), logits.flatten(), 0.0):
            return self.first_difference(graph, values, outputs)
        return self.compare_gradients(theirs, ours)

    def ours(self, values, seen=None, part=slice(None)):
        inputs = {self.names[key]: value for key, value in values.items()}
        shares = formulas.shares_of(self.description, inputs, self.program.loss_is_sum)
        stacks = {name: stack.of(self.weights) for name, stack in self.program.stacks.items()}
        weights = {self.name_in_files(name): weight for name, weight in (self.weights | stacks).items()}
        return formulas.run(self.description, weights, {name: value[part] for name, value in inputs.items()}, shares, self.step.group, seen)

    def compare_parts(self):
        """The loss of several samples is the sum of those of its parts, with shares of the whole."""
        group = self.step.group
        count = PARTED if PARTED % group == 0 and PARTED > group else 2 * group
        values = self.draw((count, self.graphs[-1].sequence), numbers_of(self.graphs[-1]), torch.Generator().manual_seed(SEEDS[-1]), SEEDS[-1])
        with torch.no_grad():
            theirs = self.modules(values)[0]
            ours = sum(self.ours(values, part=slice(first, first + group)) for first in range(0, count, group))
        return [] if is_near(ours, theirs, 1.0) else [Refusal(None, f"the loss of {count} samples is not the sum of those of its parts, each over the same denominators")]

    def for_module(self, values):
        """The user's module has numbers of its own for ignored targets."""
        return {key: value.masked_fill(value == IGNORED, self.program.ignored[key]) if key in self.program.ignored else value for key, value in values.items()}

    def modules(self, values):
        """The loss, and the logits, if it gives them, of the user's module."""
        given = {self.names[key]: value for key, value in self.for_module(values).items()}
        with users_code(), without_dropout([]):
            output = self.step.output_of(given)
            loss = self.step.loss_of(output, given)
        return loss, self.step.parts_of(output)[1]

    def compare_gradients(self, theirs, ours):
        gradients = [torch.autograd.grad(loss, self.trained, allow_unused=True, materialize_grads=True) for loss in (theirs, ours)]
        largest = max(float(gradient.abs().max()) for gradient in gradients[0])
        for parameter, one, other in zip(self.trained, *gradients):
            allowed = GRADIENTS_DIFFER * max(float(one.abs().max()), SMALL_GRADIENT * largest)
            difference = float((one - other).abs().max())
            if not difference <= allowed:
                name = next(name for name, weight in self.weights.items() if weight is parameter)
                return Refusal(self.place_of_weight(parameter), f"the gradient of {name} is not the module's: it differs by {difference:.2g} of {float(one.abs().max()):.2g}")
        return None

    def place_of_weight(self, parameter):
        """The last op that reads it: what comes after has the fault."""
        for op in reversed(self.program.ops):
            read = [getattr(operand, "name", None) for operand in op.operands]
            read += [source for name in read if name in self.program.stacks for source in self.program.stacks[name].sources]
            if any(name in self.weights and self.weights[name] is parameter for name in read):
                return op.place
        return None

    def first_difference(self, graph, values, outputs):
        """The first op whose values are not those of its node in the graph."""
        made = Recorder(graph, self.step).values_of(self.for_module(values))
        nodes = {value.output: (node, value) for node, value in reversed(self.program.values.items())} if graph is self.graphs[0] else {}
        for op, ours in zip(self.program.ops, outputs):
            for index, one in enumerate(ours):
                node, value = nodes.get(Output(op, index), (None, None))
                if node is None or value.repeat != 1 or value.spread != 1 or not isinstance(made.get(node), torch.Tensor):
                    continue
                theirs = made[node].reshape([value.shape[axis] for axis in value.axes]).permute([value.axes.index(axis) for axis in range(len(value.axes))])
                if not is_near(one.flatten(), theirs.flatten(), 0.0):
                    return Refusal(op.place, f"{op.row} has other values than the module")
        return Refusal(None, f"with {graph.batch} samples of {graph.sequence} tokens the description has another loss than the module")


class Recorder(torch.fx.Interpreter):
    """Runs a graph with the module's present weights, and keeps what each node makes."""

    def __init__(self, graph, step):
        super().__init__(graph.exported.graph_module)
        self.traced, self.step, self.made = graph, step, {}
        self.names = {node.name: node for node in graph.nodes}

    def values_of(self, values):
        signature = self.traced.exported.graph_signature
        state = {**self.traced.exported.state_dict, **self.traced.exported.constants}
        buffers = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        read = []
        for node in self.traced.nodes:
            if node.op == "placeholder":
                name = signature.inputs_to_parameters.get(node.name)
                read.append(self.step.get_parameter(name) if name else state[buffers[node.name]] if node.name in buffers else values.get(self.traced.inputs.get(node)))
        with torch.no_grad():
            self.run(*read)
        return self.made

    def run_node(self, node):
        """But assertions: an expert may be without tokens."""
        value = None if kind_of(node) == "_assert_scalar" else super().run_node(node)
        self.made[self.names.get(node.name, node)] = value
        return value


def is_near(ours, theirs, least):
    """Within the bound of the largest, or of `least`."""
    ours, theirs = ours.detach(), theirs.detach()
    if ours.shape != theirs.shape or not bool(torch.isfinite(theirs).all()):
        return False
    return float((ours - theirs).abs().max()) <= VALUES_DIFFER * max(float(theirs.abs().max()), least)
