"""importer.py: from the user's module to a description: the steps, in order."""
import contextlib
import copy
import json

import torch

from check import SEEDS, Comparison
from describe import describe, text_of
from experts import refusals_of_experts
from fuse import fuse
from losses import data_of, share_losses
from module import Step, UsersError, export, run_once
from ops import Weight
from passes import add_residuals, compare, gather_products, weights_of
from program import program_of
from refusal import Refusal, Refused, in_order
from scaling import scalings_of
from tables import begins_with, has_value
from units import name_weights, rename, units_of

BATCHES = (2, 3)
GROUPS_TRIED = 8
SHORT = 20  # tokens of the second size, where the first has more than twice as many


def sizes_of(sequence, group=1):
    """Two sizes, (batch, sequence), in which batch, sequence and their product differ by other factors. `group`: batch is a multiple of it."""
    if sequence == 1:
        return tuple((batch * group, 1) for batch in BATCHES)
    short = SHORT if sequence > 2 * SHORT else sequence // 2 + 1
    batch = BATCHES[1] if BATCHES[0] * sequence != BATCHES[1] * short else BATCHES[1] + 2
    return (BATCHES[0] * group, sequence), (batch * group, short)


class Import:
    """A module, and what has been found of it."""

    def __init__(self, module, loss, sequence, cuts, source, config=None, stored=lambda name: name, buffers=None, users=None, group=None, loss_of="step"):
        """`users`: Inputs; None: of token files. `group`: samples that the loss takes together; None: it is found. `loss_of`: what denominators are of. `config`: of the checkpoints. `stored`: the name that files have for a name of the module. `buffers`: their values, of a module
        without memory, which is not compared with the description."""
        self.step, self.sequence, self.cuts, self.users = Step(module.float(), loss, users and users.list), sequence, cuts, users
        self.source, self.config, self.stored, self.buffers = source, config, stored, buffers
        self.is_compared, self.loss_of = buffers is None, loss_of
        self.groups = [group] if group else range(1, GROUPS_TRIED + 1) if self.is_compared else [1]
        self.scalings = scalings_of(getattr(module, "config", None))
        self.dropouts, self.graphs, self.programs, self.tables = [], [], [], {}
        self.tensors = {**dict(module.named_parameters(remove_duplicate=False)), **{name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}}
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        self.aliases = {name: [other for other, same in self.tensors.items() if same is tensor] for name, tensor in self.tensors.items()}

    def trace(self):
        """The graphs and programs at two sizes. Refuses what has no op."""
        self.find_group()
        for size in sizes_of(self.sequence, self.step.group):
            self.read(export(self.step, *size, self.dropouts, self.buffers or {}))
        self.join()

    def read(self, graph):
        """The program at one size."""
        self.programs.append(program_of(graph, self.scalings, self.shapes, self.loss_of == "step"))
        refuse_if(self.programs[-1].refusals)
        refuse_if(of_other_sizes(self.programs[-1], self.tables, graph.tables))
        self.tables = {**graph.tables, **self.tables}  # those of the longer sequences
        if self.buffers is None:
            self.graphs.append(graph)
        else:
            self.programs[-1].values = {}

    def join(self):
        """What the two sizes have in common."""
        refuse_if(compare(*self.programs))
        self.fixed_sequence = share_losses(*self.programs, self.step.inputs)
        self.program = self.programs[0]
        add_residuals(self.program)
        gather_products(self.program)
        fuse(self.program, {**self.shapes, **{name: tuple(tensor.shape) for name, tensor in self.tables.items()}}, self.cuts)

    def find_group(self):
        """The fewest samples together with which the module runs; what is wrong with one sample is said if there are none."""
        wrong = None
        for group in self.groups:
            self.step.group = group
            try:
                for size in sizes_of(self.sequence, self.step.group) if self.buffers is None else ():
                    run_once(self.step, *size)
                return
            except UsersError as error:
                wrong = wrong or error
        raise wrong

    def divide(self):
        self.add_stacks()
        self.units = units_of(self.program, self.cuts)
        self.names = name_weights(self.units, {**self.aliases, **{name: [name] for name in self.tables}})
        rename(self.units, self.names, self.stored)
        self.refuse_endings()
        refuse_if(refusals_of_experts(self.units, self.tensors))

    def add_stacks(self):
        """Weights that are made of the module's tensors, which nothing else reads."""
        for name, stack in self.program.stacks.items():
            self.tensors[name], self.aliases[name] = stack.of(self.tensors).detach(), [name]
            self.tensors[name].requires_grad = all(self.tensors[source].requires_grad for source in stack.sources)
        read = [(self.aliases[source][0], stack.first) for stack in self.program.stacks.values() for source in stack.sources]
        read += [(self.aliases[name][0], 0) for _, name in weights_of(self.program) if name not in self.program.stacks and name not in self.tables]
        refuse_if(Refusal(None, f"the weight {name} of experts is read a second time") for name, first in read if read.count((name, first)) > 1 and any(name in stack.sources for stack in self.program.stacks.values()))

    def describe(self):
        source = self.source + (f"; the loss is over {self.fixed_sequence} tokens of a sample: model.sequence stays so" if self.fixed_sequence else "")
        description = describe(self.units, self.names, self.step.inputs, {**self.tensors, **self.tables}, self.sequence, source, self.config, self.loss_of, self.program.logits, self.tables)
        self.text = text_of(description)

    def check(self):
        """Of what will be written. The module has its weights again afterwards."""
        if self.buffers is not None:
            return
        with values_of({**dict(self.step.module.named_parameters()), **self.biases()}):
            self.compare()
            self.compare_with_drawn_buffers()

    def biases(self):
        """Buffers that are weights: of a router, which a step does not change."""
        return {name: tensor for name, tensor in self.step.module.named_buffers() if name not in self.tables and any(Weight(name) in op.operands for op in self.program.ops)}

    def compare(self, seeds=SEEDS):
        graphs = self.graphs[:1] if self.fixed_sequence else self.graphs
        refuse_if(Comparison(self.step, graphs, self.program, json.loads(self.text), self.stored, self.users, self.biases(), self.tables).refusals(seeds))

    def compare_with_drawn_buffers(self):
        """Float buffers of one number, as a factor or an epsilon, become other numbers, in the module and in what is written of it: a 0 or 1 hides
        what is forgotten. Others, as a table of rotations, are functions of positions, and stay. So does a number that says what an operation is, as
        those of a mask: without it the module is another one, which is refused."""
        other, generator = copy.copy(self), torch.Generator().manual_seed(SEEDS[0])
        numbers = {name: buffer for name, buffer in self.step.module.named_buffers() if name not in self.biases() and buffer.is_floating_point() and buffer.numel() and bool((buffer == buffer.flatten()[0]).all())}
        if not numbers:
            return
        drawn = {name: torch.full_like(buffer, float(buffer.flatten()[0]) * 1.25 + 0.2 + 0.1 * float(torch.rand((), generator=generator))) for name, buffer in numbers.items()}
        with values_of(numbers, drawn):
            try:
                other.programs, graphs, other.graphs, other.tables = [], self.graphs, [], {}
                for graph in graphs:
                    other.read(graph.with_buffers(drawn))
                other.join()
                other.divide()
                other.describe()
            except Refused:
                return
            other.compare(SEEDS[:1])

    # ---- what is said and written besides ----

    def weights(self):
        """(name, tensor) of each tensor of the files, in the order of the description's ops."""
        found = {}
        for number, unit in enumerate(self.units):
            for op in unit.ops:
                for operand in op.operands:
                    if isinstance(operand, Weight):
                        name = self.names.of_use[number, op, operand.name]
                        if not self.names.tied or name != self.names.tied[1]:
                            tensor, stack = {**self.tensors, **self.tables}[operand.name], self.program.stacks.get(operand.name)
                            found.update({name: tensor} if stack is None else {name.replace("*", str(number)): each for number, each in enumerate(tensor)})
        return list(found.items())

    def frozen(self):
        """But a router's biases, which no gradient changes."""
        biases = {id(self.tensors[op.operands[2].name]) for op in self.program.ops if op.row == "MOE" and op.operands[2]}
        return [name for name, tensor in self.weights() if not tensor.requires_grad and id(tensor) not in biases]

    def refuse_endings(self):
        """model.frozen has endings of names."""
        trained = [name for name, tensor in self.weights() if tensor.requires_grad]
        refuse_if(Refusal(None, f"{name} is frozen, but not {other}, which ends with that name")
                  for name in self.frozen() for other in trained if other.endswith(name))

    def tables_read(self):
        """Names of the weights that are constants of the module."""
        return [name for name, tensor in self.weights() if any(tensor is table for table in self.tables.values())]

    def unused_inputs(self):
        """Names of inputs that data need not have."""
        read = {data_of(operand) for op in self.program.ops for operand in op.operands}
        return [each.name for each in self.step.inputs if not each.source and each.key not in read]

    def unused(self):
        used = {id(tensor) for _, tensor in self.weights()} | {id(self.tensors[name]) for stack in self.program.stacks.values() for name in stack.sources}
        return [name for name, tensor in self.step.module.named_parameters() if id(tensor) not in used]


def of_other_sizes(program, longer, shorter):
    """Refusals of constants that are no part of those of longer sequences."""
    for op in program.ops:
        for operand in op.operands:
            if isinstance(operand, Weight) and operand.name in shorter and operand.name in longer and not any(fits(longer[operand.name], shorter[operand.name]) for fits in (has_value, begins_with)):
                yield Refusal(op.place, "the graph depends on batch or sequence: a constant has other values in sequences of another length")


@contextlib.contextmanager
def values_of(buffers, values=None):
    """Tensors, by name, have these values within it, or others, and again theirs afterwards."""
    kept = {name: buffer.detach().clone() for name, buffer in buffers.items()}
    for name in values or ():
        buffers[name].data.copy_(values[name])
    try:
        yield
    finally:
        for name, buffer in buffers.items():
            buffer.data.copy_(kept[name])


def layers_of_each_kind(description):
    """The number of the first layer of each kind."""
    first, count = {}, 0
    for unit in description["units"]:
        if unit["prefix"]:
            first.setdefault(unit["kind"], count)
            count += unit.get("count", 1)
    return list(first.values())


def have_same_kinds(one, other):
    """Whether two descriptions have the same kinds but for numbers, and windows, which a short sequence has not."""
    def kinds(description):
        return [[(row, len(operands), sorted(attributes.keys() - {"window"})) for row, operands, attributes, *_ in kind["ops"]] for kind in description["kinds"].values()]

    return kinds(one) == kinds(other)


def refuse_if(refusals):
    refusals = in_order(refusals)
    if refusals:
        raise Refused(refusals)
