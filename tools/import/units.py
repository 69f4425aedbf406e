"""units.py: the units of a program: the layers, and what comes before, between and after them; cut where one tensor passes.

A layer is a module with a number in its path, the first one of the path: "h.3" of "h.3.mlp.c_fc". With --cut, a module of that list."""
import re
from dataclasses import dataclass

from ops import Op, Output, Weight
from refusal import Refusal, Refused
from tables import ROOT

NUMBERED = re.compile(r"((?:[^.]+\.)*?\d+)(?:\.|$)")
NAMES_MOST = 12  # of modules, in a message


@dataclass
class Unit:
    label: str  # the path of the layer; "": it is none
    ops: list[Op]
    takes: Output | None = None
    gives: Output | None = None
    names: dict | None = None  # of values, in the description

    @property
    def prefix(self):
        return self.label + "." if self.label else ""


@dataclass
class Segment:
    """Ops that belong to one unit for certain."""

    label: str
    first: int
    last: int


def layer_of(path, cuts):
    """The label of a module's or weight's path; None: it is in no layer."""
    if cuts:
        inside = [cut for cut in cuts if path == cut or path.startswith(cut + ".")]
        return max(inside, key=len, default=None)
    found = NUMBERED.match(path)
    return found.group(1) if found else None


def label_of(op, cuts):
    """None: where the op belongs is open."""
    weights = [operand.name for operand in op.operands if isinstance(operand, Weight)]
    layer = layer_of(op.path, cuts)
    for name in weights:
        layer = layer or layer_of(name, cuts)
    return layer if layer is not None else "" if weights else None


def segments_of(ops, cuts):
    segments, ended = [], set()
    for index, op in enumerate(ops):
        label = label_of(op, cuts)
        if label is None:
            continue
        if segments and segments[-1].label == label:
            segments[-1].last = index
            continue
        if label and label in ended:
            raise Refused([Refusal(op.place, f"{label} runs again after other layers; samples that a loss takes together are rows of one batch (--loss-group)")])
        ended.add(label)
        segments.append(Segment(label, index, index))
    return segments


def passing(ops, place):
    """The outputs that ops before a place make and ops from there on read."""
    before, found = set(ops[:place]), {}
    for op in ops[place:]:
        for operand in op.operands:
            if isinstance(operand, Output) and operand.op in before:
                found[operand] = True
    return list(found)


def is_one_of_tokens(outputs):
    return len(outputs) == 1 and not outputs[0].of_samples


def boundaries(ops, segments):
    """Where each segment but the first begins."""
    places, after_layer = [], None
    for one, other in zip(segments, segments[1:]):
        possible = [place for place in range(one.last + 1, other.first + 1) if is_one_of_tokens(passing(ops, place))]
        if not possible:
            count = len(passing(ops, other.first))
            raise Refused([Refusal(ops[other.first].place, f"{count} tensors pass from {one.label or 'what is before'} to {other.label or 'what follows'}: "
                                                           "Penstock divides a model where one does")])
        if other.label:
            places.append(possible[-1])
            after_layer = possible[-1] - one.last if one.label else after_layer
        else:
            usual = one.last + after_layer if after_layer else None
            places.append(usual if usual in possible else possible[0])
    return places


def without_layers(ops, cuts):
    """What to say where no op is of a layer: which modules there are."""
    if cuts:
        return f"no layers: --cut {','.join(cuts)}: no module of these names reads a weight"
    paths = [path for op in ops for path in [op.path, *(operand.name.rpartition(".")[0] for operand in op.operands if isinstance(operand, Weight))]]
    first = list(dict.fromkeys(path.partition(".")[0] for path in paths if path and path != ROOT))
    return ("no layers: no module has a number in its path, as those of an nn.ModuleList have; --cut NAME,... says at which modules units begin"
            + (f": some of {', '.join(first[:NAMES_MOST])}{', ...' if len(first) > NAMES_MOST else ''}" if first else ""))


def units_of(program, cuts):
    ops = program.ops
    segments = segments_of(ops, cuts)
    if not any(segment.label for segment in segments):
        raise Refused([Refusal(None, without_layers(ops, cuts))])
    places = [0, *boundaries(ops, segments), len(ops)]
    units = [Unit(segment.label, ops[first:past]) for segment, first, past in zip(segments, places, places[1:])]
    for unit, before, place in zip(units[1:], units, places[1:]):
        unit.takes = before.gives = passing(ops, place)[0]
    return units


# ---- weights ----

@dataclass
class Names:
    """How the description names weights: of each (unit, op) that reads one; and the other name of the one that the head reads, too."""

    of_use: dict  # (unit index, op, name in the graph) -> name
    tied: tuple | None = None  # (name, other name)


def name_weights(units, aliases):
    """`aliases`: of each name all names of its tensor. Refuses weights that several ops read, but the embedding's and the head's."""
    uses, refusals = {}, []
    for number, unit in enumerate(units):
        for op in unit.ops:
            for operand in op.operands:
                if isinstance(operand, Weight):
                    uses.setdefault(aliases[operand.name][0], []).append((number, op, operand.name))
    names = Names({})
    for readers in uses.values():
        all_names = aliases[readers[0][2]]
        if len(readers) == 2 and are_tied(units, readers):
            name_tied(names, readers, all_names)
            continue
        if len(readers) > 1:
            refusals.append(Refusal(readers[1][1].place, f"the weight {readers[0][2]} is read a second time: Penstock has a weight for each operation, "
                                                         "but that of the embedding and the head"))
            continue
        number, op, name = readers[0]
        fitting = [each for each in [name, *all_names] if each.startswith(units[number].prefix)]
        if not fitting:
            refusals.append(Refusal(op.place, f"the weight {name} is read in {units[number].label}, which it is no part of"))
            continue
        names.of_use[number, op, name] = fitting[0]
    if refusals:
        raise Refused(refusals)
    return names


def are_tied(units, readers):
    (first, embedding, _), (second, head, _) = readers
    outside = not units[first].label and not units[second].label
    return outside and embedding.row == "EMBEDDING" and head.row == "LINEAR" and first == 0 and second == len(units) - 1


def rename(units, names, stored):
    """To the names that files have."""
    names.of_use = {use: stored(name) for use, name in names.of_use.items()}
    names.tied = names.tied and tuple(map(stored, names.tied))
    for unit in units:
        unit.label = stored(unit.prefix).removesuffix(".")


def name_tied(names, readers, all_names):
    (first, embedding, name), (second, head, other) = readers
    own = next((each for each in all_names if each.rpartition(".")[0] == embedding.path), all_names[0])
    heads = [each for each in all_names if each != own]
    heads_own = next((each for each in heads if each.rpartition(".")[0] == head.path), heads[0] if heads else own + ".head")
    names.of_use[first, embedding, name] = own
    names.of_use[second, head, other] = heads_own
    names.tied = (own, heads_own)
