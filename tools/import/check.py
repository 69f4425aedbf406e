"""check.py: runs what was written beside the module: losses, logits and gradients, with weights drawn anew."""
import torch

import formulas
from module import IGNORED, without_dropout
from ops import Output
from refusal import Refusal

SEEDS = (1, 2)
VALUES_DIFFER, GRADIENTS_DIFFER = 1e-5, 1e-4
SMALL_GRADIENT = 1e-2  # of the largest: below it a tensor's own gradients count as so large
IGNORED_PART = 4  # one of so many targets is ignored


def draw_weights(module, generator):
    """None is 0 or 1, where a factor or an addend that is forgotten would not show."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / min(parameter.shape) ** 0.5)
            else:
                sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
                parameter.copy_((0.2 + 0.7 * torch.rand(parameter.shape, generator=generator)) * sign)


def draw_tokens(batch, sequence, vocabulary, said, generator):
    """Each token that an argument of an op names is among them; all tokens, if there is room."""
    count = batch * sequence
    tokens = torch.randint(0, vocabulary, (count,), generator=generator)
    first = [token for token in said if 0 <= token < vocabulary]
    first += torch.randperm(vocabulary, generator=generator).tolist() if vocabulary + len(first) <= count else []
    first = torch.tensor(first[:count], dtype=torch.long)
    tokens[: len(first)] = first
    return tokens[torch.randperm(count, generator=generator)].reshape(batch, sequence)


def draw_targets(batch, sequence, classes, generator):
    """Some are ignored, in the description's way."""
    targets = torch.randint(0, classes, (batch, sequence), generator=generator)
    ignored = torch.randint(0, IGNORED_PART, targets.shape, generator=generator) == 0
    ignored[0, 0], ignored[0, 1] = True, False
    return targets.masked_fill(ignored, IGNORED)


def numbers_of(graph):
    """Small whole numbers among the arguments of ops: each may be a token."""
    found = set()
    for node in graph.nodes:
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, int) and not isinstance(value, bool):
                found.add(value)
    return sorted(found)


class Comparison:
    def __init__(self, step, graphs, program, description, stored):
        self.step, self.graphs, self.program, self.description = step, graphs, program, description
        self.weights = dict(step.module.named_parameters(remove_duplicate=False))
        self.stored = {stored(name): weight for name, weight in self.weights.items()}
        self.trained = [parameter for parameter in step.module.parameters() if parameter.requires_grad]
        loss = next(op for op in program.ops if op.row == "CROSS_ENTROPY")
        self.classes = loss.operands[0].width
        self.vocabulary = next(self.weights[op.operands[1].name].shape[0] for op in program.ops if op.row == "EMBEDDING")

    def refusals(self):
        """The first difference: none, or one refusal."""
        for seed in SEEDS:
            for graph in self.graphs:
                generator = torch.Generator().manual_seed(seed)
                draw_weights(self.step.module, generator)
                tokens = draw_tokens(graph.batch, graph.sequence, self.vocabulary, numbers_of(graph), generator)
                targets = draw_targets(graph.batch, graph.sequence, self.classes, generator)
                refusal = self.compare(graph, tokens, targets)
                if refusal:
                    return [refusal]
        return []

    def compare(self, graph, tokens, targets):
        theirs, logits = self.modules(tokens, targets)
        outputs = []
        keep = lambda row, made: row == "ROPE_TABLE" or outputs.append(made)
        ours = formulas.run(self.description, self.stored, tokens, targets, self.program.loss_is_sum, keep)
        if not is_near(ours, theirs, 1.0) or logits is not None and not is_near(outputs[-2][0].flatten(), logits.flatten(), 0.0):
            return self.first_difference(graph, tokens, targets, outputs)
        return self.compare_gradients(theirs, ours)

    def modules(self, tokens, targets):
        """The loss and the logits, if it gives them, of the user's module, which has a number of its own for ignored targets."""
        targets = targets.masked_fill(targets == IGNORED, self.program.ignored)
        with without_dropout([]):
            output = self.step.output_of(tokens, targets)
            loss = self.step.loss_of(output, tokens, targets)
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
            if any(getattr(operand, "name", None) in self.weights and self.weights[operand.name] is parameter for operand in op.operands):
                return op.place
        return None

    def first_difference(self, graph, tokens, targets, outputs):
        """The first op whose values are not those of its node in the graph."""
        made = Recorder(graph, self.step).values_of(tokens, targets.masked_fill(targets == IGNORED, self.program.ignored))
        nodes = {value.output: (node, value) for node, value in reversed(self.program.values.items())} if graph is self.graphs[0] else {}
        for op, ours in zip(self.program.ops, outputs):
            for index, one in enumerate(ours):
                node, value = nodes.get(Output(op, index), (None, None))
                if node is None or value.repeat != 1 or not isinstance(made.get(node), torch.Tensor):
                    continue
                theirs = made[node].permute([value.axes.index(axis) for axis in range(len(value.axes))])
                if not is_near(one.flatten(), theirs.flatten(), 0.0):
                    return Refusal(op.place, f"{op.row} has other values than the module")
        return Refusal(None, f"with {graph.batch} sequences of {graph.sequence} tokens the description has another loss than the module")


class Recorder(torch.fx.Interpreter):
    """Runs a graph with the module's present weights, and keeps what each node makes."""

    def __init__(self, graph, step):
        super().__init__(graph.exported.graph_module)
        self.traced, self.step, self.made = graph, step, {}
        self.names = {node.name: node for node in graph.nodes}

    def values_of(self, tokens, targets):
        signature = self.traced.exported.graph_signature
        state = {**self.traced.exported.state_dict, **self.traced.exported.constants}
        buffers = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        given = {"tokens": tokens, "targets": targets}
        read = []
        for node in self.traced.nodes:
            if node.op == "placeholder":
                name = signature.inputs_to_parameters.get(node.name)
                read.append(self.step.get_parameter(name) if name else state[buffers[node.name]] if node.name in buffers else given.get(node.name))
        with torch.no_grad():
            self.run(*read)
        return self.made

    def run_node(self, node):
        value = super().run_node(node)
        self.made[self.names.get(node.name, node)] = value
        return value


def is_near(ours, theirs, least):
    """Within the bound of the largest, or of `least`."""
    ours, theirs = ours.detach(), theirs.detach()
    if ours.shape != theirs.shape or not bool(torch.isfinite(theirs).all()):
        return False
    return float((ours - theirs).abs().max()) <= VALUES_DIFFER * max(float(theirs.abs().max()), least)
