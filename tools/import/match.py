"""match.py: whether the nodes before a node are those of an expression.

An expression is written as plain Python:
    ("add", E, E)            a call of that ATen op; "a|b" of any of these; of add and mul in either order. A dict at the end: arguments by name
    [E, E]                   a list of so many
    "x"                      any value; the same one wherever the name comes again
    ".w", ".w?"              a parameter, or one that may be absent
    "@c"                     a constant; "#n" a number, "#n?" one that may be absent; "_" anything
    "%i"                     what depends on inputs, and on no weight
    1.0, True, None          that argument
    Either(E, E)             one of these
    Word("tanh")             that text
    Part(0, 2, E)            the first of two equal parts of the last dim of what E is
    Leading("x")             the first elements of the last dim of x; "#rotated" is their number. Trailing("x"): those after them
    Every(0, "x")            of the last dim of x elements 0, 2, 4, ...; Every(1, "x"): 1, 3, 5, ...; Pairs("x"): these two as a last dim of 2
    "&b"                     a parameter, or a buffer
    Result(1, E)             the second result of a call E that has several
    Named("$n", E)           what E is; the same node wherever the name comes again
    Behind(E)                what E is, with other dims, expanded, or cast to a dtype that has its values
    Column("#n", E)          of the last dim of what E is element n
    Terms(E, [E, I], ".w")   a sum of terms E, or of terms E that are added to rows I; each has its own .w: "$terms" is the list of them
"""
from dataclasses import dataclass, field

import torch

from graph import BROADCASTS, Call, kind_of, shape_of

COMMUTATIVE = ("add", "mul")
NUMBERS_DIFFER = 1e-6


class Either:
    def __init__(self, *expressions):
        self.expressions = expressions


@dataclass
class Word:
    text: str


@dataclass
class Part:
    index: int
    count: int
    source: object


@dataclass
class Leading:
    source: str


@dataclass
class Trailing:
    source: str


@dataclass
class Every:
    first: int
    source: object


@dataclass
class Pairs:
    source: object


@dataclass
class Result:
    index: int
    source: object


@dataclass
class Named:
    name: str
    source: object


@dataclass
class Behind:
    source: object


@dataclass
class Column:
    name: str
    source: object


@dataclass
class Terms:
    term: object
    placed: list
    own: str


@dataclass
class Found:
    """What the names of an expression stand for, and the calls that it has consumed."""

    bound: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    def with_name(self, name, value):
        return Found({**self.bound, name: value}, self.calls)

    def with_call(self, call):
        return Found(self.bound, self.calls + [call])


def match(graph, expression, value, found):
    """Found with what this part of the expression adds; None: the value is another."""
    if isinstance(expression, str):
        return match_name(graph, expression, value, found)
    if isinstance(expression, Either):
        matches = (match(graph, each, value, found) for each in expression.expressions)
        return next((each for each in matches if each is not None), None)
    if isinstance(expression, Word):
        return found if value == expression.text else None
    if isinstance(expression, Part):
        return match_part(graph, expression, value, found)
    if isinstance(expression, (Leading, Trailing)):
        return match_end(graph, expression, value, found)
    if isinstance(expression, (Every, Pairs)):
        source = graph.every_second(value, expression.first) if isinstance(expression, Every) else graph.paired(value)
        return None if source is None else match(graph, expression.source, source, found)
    if type(expression) in OF_NODES:
        return OF_NODES[type(expression)](graph, expression, value, found) if isinstance(value, torch.fx.Node) else None
    if isinstance(expression, list):
        return match_list(graph, expression, value, found)
    if isinstance(expression, tuple):
        return match_call(graph, expression, value, found)
    return match_literal(graph, expression, value, found)


def match_literal(graph, expression, value, found):
    if expression is None or isinstance(expression, bool):
        return found if value is expression else None
    number = graph.number(value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value)
    close = number is not None and abs(number - expression) <= NUMBERS_DIFFER * abs(expression)
    return found if close else None


def match_list(graph, expressions, values, found):
    if not isinstance(values, (list, tuple)) or len(values) != len(expressions):
        return None
    for expression, value in zip(expressions, values):
        found = match(graph, expression, value, found)
        if found is None:
            return None
    return found


def match_name(graph, name, value, found):
    if name == "_":
        return found
    optional, plain = name.endswith("?"), name.rstrip("?")
    if value is None:
        return found if optional else None
    if plain[0] == "#":
        known = graph.number(value)
    elif plain[0] == ".":
        known = graph.parameter(value)
    elif plain[0] == "&":
        known = graph.parameter_or_buffer(value)
    elif not isinstance(value, torch.fx.Node):
        known = None
    elif plain[0] == "@":
        known = value if graph.is_constant(value) else None
    elif plain[0] == "%":
        known = value if value in graph.of_inputs or value in graph.inputs else None
    else:
        value = graph.strip(value)
        known = None if graph.is_constant(value) or value in graph.parameters else value
    if known is None or not is_same(graph, found.bound.get(plain, known), known):
        return None
    return found.with_name(plain, known)


def is_same(graph, one, other):
    if isinstance(one, torch.fx.Node) and one is not other and graph.is_constant(one) and graph.is_constant(other):
        return torch.equal(graph.constant[one], graph.constant[other])
    if isinstance(one, torch.fx.Node) and isinstance(other, torch.fx.Node):
        return one is other or shape_of(one) == shape_of(other) and graph.without_views(one) is graph.without_views(other)
    return one == other


def match_part(graph, part, value, found):
    value = graph.strip(value) if isinstance(value, torch.fx.Node) else value
    known = graph.part(value) if isinstance(value, torch.fx.Node) else None
    if known is None:
        return None
    source, axis, start, length, extent, remains = known
    if axis != -1 or not remains or length * part.count != extent or start != part.index * length:
        return None
    return match(graph, part.source, source, found)


def match_end(graph, end, value, found):
    known = graph.part(graph.strip(value)) if isinstance(value, torch.fx.Node) else None
    if known is None:
        return None
    source, axis, start, length, extent, remains = known
    leads = isinstance(end, Leading)
    if axis != -1 or not remains or (start != 0 if leads else start + length != extent):
        return None
    found = match_name(graph, "#rotated", length if leads else start, found)
    return found and match_name(graph, end.source, source, found)


def match_result(graph, result, value, found):
    value = graph.strip(value)
    return match(graph, result.source, value.args[0], found) if kind_of(value) == "getitem" and value.args[1] == result.index else None


def match_named(graph, named, value, found):
    value = graph.strip(value)
    found = match(graph, named.source, value, found) if found.bound.get(named.name, value) is value else None
    return found and found.with_name(named.name, value)


def match_behind(graph, behind, value, found):
    value = graph.without_views(value)
    while kind_of(value) in BROADCASTS and not graph.is_constant(value):
        value = graph.without_views(value.args[0])
    return match(graph, behind.source, value, found)


def match_column(graph, column, value, found):
    known = graph.part(graph.without_views(value))
    if known is None or known[1] != -1 or known[3] != 1:
        return None
    found = match(graph, column.source, known[0], found)
    return found and match_name(graph, column.name, known[2], found)


# ---- sums ----

def of_add(graph, call):
    return [call["self"], call["other"]] if call["alpha"] == 1 else None


def of_index_add(graph, call):
    return [call["self"], (call["source"], call["index"])] if call["alpha"] == 1 and call["dim"] == -len(shape_of(call.node)) else None


def of_index_put(graph, call):
    """Rows that are written are those that were read there, plus a term."""
    before, rows = call["self"], call["indices"]
    if len(rows) != 1:
        return None
    if call["accumulate"]:
        return [before, (call["values"], rows[0])]
    added = Call(call["values"]) if kind_of(call["values"]) == "add" else None
    for one, other in (("self", "other"), ("other", "self")) if added and added["alpha"] == 1 else ():
        read = added[one]
        if kind_of(read) == "index" and read.args[0] is before and list(read.args[1]) == list(rows):
            return [before, (added[other], rows[0])]
    return None


SUMS = {"add": of_add, "index_add": of_index_add, "index_put": of_index_put}


def match_terms(graph, terms, value, found):
    """Zeros, with which a loop begins, are no term."""
    left, listed = [value], []
    while left:
        value = left.pop()
        value = graph.strip(value) if isinstance(value, torch.fx.Node) else value
        call = Call(value) if kind_of(value) in SUMS and not graph.is_constant(value) else None
        added = call and SUMS[kind_of(value)](graph, call)
        if added:
            left += [each for each in added if each != 0]
            found = found.with_call(call)
        elif isinstance(value, tuple) or not graph.is_zeros(value):
            found = match(graph, terms.placed, value, found) if isinstance(value, tuple) else match(graph, terms.term, value, found)
            if found is None:
                return None
            own = {name: each for name, each in found.bound.items() if name in terms.own.split()}
            listed.append(own)
            found = Found({name: each for name, each in found.bound.items() if name not in own}, found.calls)
    return found.with_name("$terms", listed) if len(listed) > 1 else None


OF_NODES = {Result: match_result, Named: match_named, Behind: match_behind, Column: match_column, Terms: match_terms}


def match_call(graph, expression, value, found):
    if not isinstance(value, torch.fx.Node) or graph.is_constant(value):
        return None
    value = graph.strip(value)
    kinds, positional = expression[0].split("|"), expression[1:]
    if kind_of(value) not in kinds or not hasattr(value.target, "_schema"):
        return None
    named = positional[-1] if positional and isinstance(positional[-1], dict) else {}
    positional = positional[:-1] if named else positional
    orders = [positional]
    if kind_of(value) in COMMUTATIVE and len(positional) == 2:
        orders.append(positional[::-1])
    for order in orders:
        result = match_arguments(graph, order, named, Call(value), found)
        if result is not None:
            return result
    return None


def match_arguments(graph, positional, named, call, found):
    names = list(call.value)
    if len(positional) > len(names) or any(name not in call.value for name in named):
        return None
    for name, expression in [*zip(names, positional), *named.items()]:
        found = match(graph, expression, call[name], found)
        if found is None:
            return None
    return found.with_call(call)
