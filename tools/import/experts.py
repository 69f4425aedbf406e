"""experts.py: blocks of experts, of which each token has some (MOE): what the router's operations say, and the matrices of all experts as one weight."""
import math

import torch

from graph import shape_of
from ops import Stack, Weight, needs, plain
from refusal import Refusal

EPSILON_MOST = 1e-12  # beside a sum of scores: below it, f32 does not show which one it is
PARTS = ("gate", "up")  # of a stack that has both


def of_stacks(maker):
    """Of tensors of three dims."""
    def made(name, ending, parts, part):
        source = maker.bound[name]
        return maker.stack(with_star(source) + ending, Stack((source,), *rows_of(maker.weight_shapes[source], 3, parts, part)))

    return block(maker, stacks_of(maker.bound, made))


def stacks_of(bound, made):
    """Gate, up and down. `made`: a function of a name of the pattern, an ending, and which part of so many of its rows."""
    if ".both" in bound:
        return [*(made(".both", f".{part}", len(PARTS), number) for number, part in enumerate(PARTS)), made(".down", "", 1, 0)]
    return [made(name, "", 1, 0) for name in (".gate", ".up", ".down")]


def rows_of(shape, dims, parts, part):
    """(first, past)."""
    needs(len(shape) == dims and shape[-2] % parts == 0, "experts of other weights than matrices, or stacks of them")
    return part * shape[-2] // parts, (part + 1) * shape[-2] // parts


def with_star(name):
    """Of a tensor of all experts the name for that of one."""
    path, _, leaf = name.rpartition(".")
    return f"{path}{'.' if path else ''}*.{leaf}"


def of_loop(maker):
    """Of a matrix for each expert: term n of the sum is expert n."""
    terms = sorted(maker.bound["$terms"], key=lambda term: term["#expert"])
    needs([term["#expert"] for term in terms] == list(range(len(terms))), "a sum of other experts than 0, 1, 2, ..., each once")
    needs(len({tuple(name for name in term if name[0] == ".") for term in terms}) == 1, "experts of different forms")

    def made(name, ending, parts, part):
        names = [term[name] for term in terms]
        needs(len(set(names)) == len(names), f"experts that have the weight {names[0]} together")
        needs(len({maker.weight_shapes[each] for each in names}) == 1, "experts of different shapes")
        return maker.stack(common_name(names) + ending, Stack(tuple(names), *rows_of(maker.weight_shapes[names[0]], 2, parts, part)))

    return block(maker, stacks_of(terms[0], made))


def common_name(names):
    """Names that differ in a number alone, which is their place in the list: with * for it."""
    parts = [name.split(".") for name in names]
    places = [place for place in range(len(parts[0])) if len({len(each) for each in parts}) == 1 and len({each[place] for each in parts}) > 1]
    needs(len(places) == 1 and [each[places[0]] for each in parts] == [str(number) for number in range(len(names))],
          f"experts whose weights are not named by their numbers: {names[0]}, {names[-1]}")
    return ".".join([*parts[0][: places[0]], "*", *parts[0][places[0] + 1:]])


def block(maker, stacks):
    """MOE, of the value that router and experts read."""
    x, routed = maker.value("x"), maker.value("routed")
    width = x.output.width
    needs(x.is_plain and x.shape[-1] == width and (routed.output, routed.is_plain, routed.shape[-1]) == (x.output, True, width),
          "a router of another value than the experts', or of a part of a token")
    experts = maker.weight_shape(".router")[0]
    shapes = [(maker.program.stacks[stack.name], stack.name) for stack in stacks]
    counts = {count_of(maker, stack) for stack, _ in shapes}
    needs(counts == {experts}, f"a router of {experts} experts, but matrices of {min(counts - {experts}, default=0)}")
    bias = maker.bound.get("&bias")
    if bias is not None:
        needs(maker.weight_shapes[bias] == (experts,), "a bias of the choice that is no vector of the experts")
    made = maker.add([x.output, Weight(maker.bound[".router"]), bias and Weight(bias), *stacks, None], attributes_of(maker, experts), row="MOE")
    return plain(made, maker.shape)


def count_of(maker, stack):
    return len(stack.sources) if len(stack.sources) > 1 else maker.weight_shapes[stack.sources[0]][0]


def attributes_of(maker, experts):
    bound = maker.bound
    said = {"choices": bound["#choices"]}
    needs(0 <= bound.get("#epsilon", 0) <= EPSILON_MOST, f"{bound.get('#epsilon')} beside the sum of the scores: at most {EPSILON_MOST:g}")
    for name in ("normalized", "sigmoid"):
        if f"${name}" in bound:
            said[name.replace("normalized", "normalize")] = 1
    if bound.get("#scale", 1) != 1:
        said["scale"] = bound["#scale"]
    for name in ("@none", "@least"):
        if name in bound:
            wanted = 0.0 if name == "@none" else -math.inf
            needs(bool((maker.constant(name) == wanted).all()), f"a choice of experts that begins with other numbers than {wanted:g}")
    if "$groups" in bound:
        groups, best, least = shape_of(bound["$groups"])[-2], bound["#best_groups"], bound["#least"]
        needs(shape_of(bound["$groups"])[-1] * groups == experts, "groups of other than the router's scores")
        needs(best == groups or least <= torch.finfo(torch.float32).min, f"scores of {least:g} in groups that are not chosen: -inf")
        said.update({"groups": groups, "best_groups": best} if best < groups else {})
    needs("sigmoid" in said or "&bias" not in bound and "groups" not in said, "a bias of the choice, or groups, of scores by softmax; by sigmoid they are taken")
    return said


def refusals_of_experts(units, tensors):
    """A description has one kind of experts, and at most one block of them in a layer."""
    known = [(unit, op, (op.attributes, [tuple(tensors[operand.name].shape) for operand in op.operands if isinstance(operand, Weight)]))
             for unit in units for op in unit.ops if op.row == "MOE"]
    for number, (unit, op, kind) in enumerate(known):
        if not unit.label:
            yield Refusal(op.place, "experts outside the layers")
        elif number and known[number - 1][0] is unit:
            yield Refusal(op.place, "several blocks of experts in a layer")
        elif kind != known[0][2]:
            yield Refusal(op.place, f"other experts, or another router, than in {known[0][0].label}: {said(kind)}; there {said(known[0][2])}")


def said(kind):
    attributes, shapes = kind
    return ", ".join([f"{shapes[-1][0]} of {shapes[-1][2]} by {shapes[-1][1]}", *(f"{name} {value:g}" for name, value in attributes.items())])
