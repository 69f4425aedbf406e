"""losses.py: a loss as a sum of terms, each the sum of a value over the step, or a cross entropy, times a number and over a denominator that depends
on inputs alone (docs/contracts.md, "shares")."""
import math
from dataclasses import dataclass

import torch

from graph import VIEWS, Call, kind_of, shape_of
from ops import Data, Loss, Op, Share, needs
from refusal import Refusal, Refused, place_of

NONE, MEAN, SUM = 0, 1, 2  # reductions
CROSS_ENTROPIES = ("cross_entropy_loss", "nll_loss", "nll_loss_nd")
REDUCED = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
EPSILON_MOST = 1e-5  # what is added to a denominator, so that it is not 0
FACTORS_DIFFER = 1e-6


@dataclass
class Term:
    """`node`: the value that is summed, or a loss whose own sum is meant, with the shape `shape`; `is_rows`: a cross entropy as a whole."""

    node: torch.fx.Node
    factor: float
    over: Share | None
    shape: tuple
    is_rows: bool = False


def terms_of(graph, node, factor=1.0, over=None):
    node = without_views(graph, node)
    kind = kind_of(node)
    needs_call = kind is not None and hasattr(node.target, "_schema") and not graph.is_constant(node)
    if not needs_call:
        raise Refused([Refusal(place_of(node), "a loss that is no sum of means or sums over the step")])
    call = Call(node)
    try:
        terms = READERS[kind](graph, call, factor, over) if kind in READERS else None
        needs(terms is not None, "a loss that is no cross entropy of the targets, nor a sum of means or sums over the step: Penstock's is one")
    except Refused as reason:
        raise Refused(reason.reasons if isinstance(reason.reasons, list) else [Refusal(place_of(node), str(reason))]) from None
    return terms


def without_views(graph, node):
    node = graph.strip(node)
    while kind_of(node) in VIEWS and node not in graph.constant:
        node = graph.strip(node.args[0])
    return node


def added(graph, call, factor, over, sign=1.0):
    """Python's sum() adds to 0."""
    terms = []
    for node, times in ((call["self"], 1.0), (call["other"], sign * graph.number(call["alpha"]))):
        needs(graph.number(node) in (None, 0), "a number that is added to the loss")
        terms += terms_of(graph, node, times * factor, over) if graph.number(node) is None else []
    return terms


def subtracted(graph, call, factor, over):
    return added(graph, call, factor, over, -1.0)


def negated(graph, call, factor, over):
    return terms_of(graph, call["self"], -factor, over)


def multiplied(graph, call, factor, over):
    for one, other in (("self", "other"), ("other", "self")):
        number = graph.number(call[other])
        if number is not None:
            return terms_of(graph, call[one], factor * number, over)
    raise Refused("a product of losses; a loss times a number")


def divided(graph, call, factor, over):
    number = graph.number(call["other"])
    if number is not None:
        return terms_of(graph, call["self"], factor / number, over)
    needs(over is None, "a loss over two denominators")
    share = denominator(graph, call["other"])
    return terms_of(graph, call["self"], factor * share.factor, Share(share.over, share.input, 1.0, share.least))


def summed(graph, call, factor, over, is_mean=False):
    source = graph.strip(call["self"])
    shape = shape_of(source)
    needs(is_of_all(call, shape), "a loss for each of several")
    if not shape:
        return terms_of(graph, source, factor, over)
    return [Term(source, factor / (math.prod(shape) if is_mean else 1), over, shape)]


def is_of_all(call, shape):
    """Whether a sum or mean is of all dims."""
    axes = call.value.get("dim")
    axes = [axes] if isinstance(axes, int) else axes
    return not axes or len(axes) == len(shape)


def averaged(graph, call, factor, over):
    return summed(graph, call, factor, over, True)


def reduced(graph, call, factor, over):
    """A loss of PyTorch that sums or averages elements."""
    reduction = call["reduction"]
    shape = torch.broadcast_shapes(shape_of(graph.strip(call["self"])), shape_of(graph.strip(call["target"])))
    needs(reduction in (MEAN, SUM), "a loss for each element, not of all")
    return [Term(call.node, factor / (math.prod(shape) if reduction == MEAN else 1), over, shape)]


def cross_entropy(graph, call, factor, over):
    reduction, targets = call["reduction"], graph.input_of(call["target"])
    needs(targets is not None, "a loss of other targets than the input")
    needs(reduction in (MEAN, SUM), "a loss for each target, not of all")
    if reduction == MEAN:
        needs(over is None, "a mean over two denominators")
        over = Share("targets", targets)
    return [Term(call.node, factor, over, shape_of(graph.strip(call["target"])), not call.value.get("label_smoothing"))]


READERS = {"add": added, "sub": subtracted, "neg": negated, "mul": multiplied, "div": divided, "sum": summed, "mean": averaged,
           **dict.fromkeys(REDUCED, reduced), **dict.fromkeys(CROSS_ENTROPIES, cross_entropy)}


# ---- denominators ----

def denominator(graph, node):
    """A Share whose factor is 1 over the node."""
    node = without_views(graph, node)
    kind = kind_of(node)
    wrong = "a denominator that is no sum of an input, as of a mask that data have, nor the number of targets that are not ignored"
    needs(node in graph.of_inputs and hasattr(node.target, "_schema"), wrong)
    call = Call(node)
    first = next(iter(call.value.values()))
    if kind in ("clamp", "clamp_min", "clip"):
        least = graph.number(call["min"])
        needs(least is not None and not call.value.get("max"), wrong)
        share = denominator(graph, first)
        return at_least(share, least)
    if kind == "add":
        epsilon = graph.number(call["other"])
        needs(epsilon is not None and 0 < epsilon <= EPSILON_MOST, f"a number that is added to a denominator, above {EPSILON_MOST:g}; clamp(min=...)")
        return denominator(graph, first)  # what is over 0 is 0
    if kind in ("mul", "div"):
        number = graph.number(call["other"])
        needs(number, wrong)
        share = denominator(graph, first)
        return Share(share.over, share.input, share.factor / number if kind == "mul" else share.factor * number, share.least)
    if kind in ("to", "_to_copy"):
        return denominator(graph, first)
    needs(kind in ("sum", "mean", "count_nonzero") and is_of_all(call, shape_of(graph.strip(first))), wrong)
    count = math.prod(shape_of(graph.strip(first))) if kind == "mean" else 1
    over, name = counted(graph, first) or (None, None)
    needs(over is not None and (kind != "count_nonzero" or graph.input[name].dtype == torch.bool), wrong)
    return Share(over, name, count)


def at_least(share, least):
    needs(share.least == 0 and least > 0, "a denominator with two bounds, or one that is not above 0")
    return Share(share.over, share.input, share.factor, least * share.factor)


def counted(graph, node):
    """What a sum of the node is over: an input's elements, or the targets that are not ignored; None: neither."""
    key = graph.input_of(node)
    if key is not None:
        return "sum", key
    mask = graph.mask_of_targets(node)
    return ("targets", graph.input_of(mask.args[0])) if mask is not None else None


# ---- ops ----

def append_losses(program, graph, terms, values):
    """SUM_LOSS of each term, and the shares of cross entropies. A value that is due need not be taken: all is summed."""
    for term in terms:
        value = values[graph.strip(term.node)]
        if term.is_rows:
            program.losses.append(Loss(value.output.op, term.factor, term.over))
            continue
        place = place_of(term.node)
        rows = program.batch * (1 if value.output.of_samples else program.sequence)
        if value.output.width * rows != math.prod(term.shape) * value.spread:
            raise Refused([Refusal(place, "a sum of another part than all tokens")])
        program.ops.append(Op("SUM_LOSS", [value.output, None], {}, [1], place))
        program.losses.append(Loss(program.ops[-1], term.factor / (1 if value.is_due else value.spread), term.over))


def is_usual(graph, terms):
    """One cross entropy, the sum, or over its own targets."""
    if len(terms) != 1 or not terms[0].is_rows or terms[0].factor != 1:
        return False
    over, targets = terms[0].over, graph.input.get(graph.input_of(Call(terms[0].node)["target"]))
    if graph.has_tokens and targets is not None and not targets.has_tokens:
        return False
    return over is None or over.least <= 1 and (over.over, over.input) == ("targets", graph.input_of(Call(terms[0].node)["target"]))


def share_losses(one, other, inputs):
    """Puts the shares in, by two sizes, and gives a number that model.sequence must stay; None: any will do. Refuses factors that depend on the size
    otherwise than as numbers of samples or tokens."""
    fixed = None
    for loss, same in zip(one.losses, other.losses):
        sizes = [(each, program) for each, program in ((loss, one), (same, other))]
        plain = [each.factor for each, _ in sizes]
        by_sample = [each.factor * program.batch for each, program in sizes]
        by_token = [each.factor * program.batch * program.sequence for each, program in sizes]
        counter = counter_of(one, inputs)
        check(loss, loss.over == same.over, "a denominator that depends on batch or sequence")
        if loss.over is not None:
            check(loss, is_same(plain), "a loss over a denominator of inputs, and of batch or sequence besides")
            share = Share(loss.over.over, loss.over.input, loss.factor, loss.over.least)
        elif one.sequence == 1 or is_same(by_sample):
            check(loss, is_same(by_sample), "a loss that is a sum over the step; divide it by the number of samples")
            share = Share("samples", None, by_sample[0])
        else:
            check(loss, is_same(by_token), "a loss over another number than that of the samples, or of the tokens")
            share = Share("targets", counter, by_token[0]) if counter else Share("samples", None, by_sample[0])
            fixed = fixed if counter else one.sequence
        loss.op.operands[-1] = share
    return fixed


def is_same(numbers):
    return abs(numbers[0] - numbers[1]) <= FACTORS_DIFFER * abs(numbers[0])


def check(loss, condition, reason):
    if not condition:
        raise Refused([Refusal(loss.op.place, reason)])


def counter_of(program, inputs):
    """An input of which each token has one element that counts."""
    for each in inputs:
        if not each.source and each.has_tokens and not each.rest and not each.dtype.is_floating_point and each.key not in program.ignored:
            return each.key
    return None


def data_of(operand):
    return operand.name.removesuffix(".share") if isinstance(operand, Data) else operand.input if isinstance(operand, Share) else None
