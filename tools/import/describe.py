"""describe.py: the description of a model, version 1 (docs/contracts.md, "Descriptions"): the kinds of its units, its weights, its inputs."""
import json
import math
import re

from losses import data_of
from ops import Data, Output, Share, Table, Weight

VERSION = 1
DIGITS = 4  # of a deviation


class Namer:
    """Names of values within a kind: that of the module whose weight is read, else the row's."""

    def __init__(self, taken):
        self.taken = set(taken)

    def name(self, wanted):
        wanted = re.sub(r"[^A-Za-z0-9_]", "_", wanted) or "value"
        name, number = wanted, 2
        while name in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name


def wanted_name(op, names):
    parts = names[0].split(".") if names else []
    module = parts[-2] if len(parts) > 1 else ""
    if op.row == "BIAS" and module:
        return module + "_bias"
    return module if module and not module.isdigit() and op.row != "MOE" else op.row.lower()


def ops_of(unit, number, weight_names, data):
    """The ops of a unit as the file has them. `data`: the names of inputs by their keys, and of shares."""
    namer, known, lines = Namer(data.values()), {}, []
    if unit.takes:
        known[unit.takes] = namer.name("x")
    for op in unit.ops:
        for table in op.operands:
            if isinstance(table, Table) and table not in known:
                known[table] = namer.name("table")
                lines.append(["ROPE_TABLE", [], tidy(dict(table.attributes)), [known[table]]])
        weights = [weight_names[number, op, operand.name] for operand in op.operands if isinstance(operand, Weight)]
        operands, at = [], iter(weights)
        for operand in op.operands:
            if isinstance(operand, Weight):
                operands.append("." + next(at).removeprefix(unit.prefix))
            elif isinstance(operand, Data):
                first, *rest = operand.name.split(".")
                operands.append(".".join([data[first], *rest]))
            elif isinstance(operand, Share):
                operands.append(data[operand])
            else:
                operands.append(None if operand is None else known[operand])
        wanted = wanted_name(op, weights)
        outputs = ["q", "k", "v"] if len(op.widths) == 3 else ["logp", "lse"] if op.row == "LOGP" else [wanted] * len(op.widths)
        made = [namer.name(output) for output in outputs]
        known.update({Output(op, index): name for index, name in enumerate(made)})
        lines.append([op.row, operands, tidy(op.attributes), made, *([str(op.place)] if op.place else [])])
    unit.names = known
    return lines, [known[unit.takes]] if unit.takes else [], [known[unit.gives]] if unit.gives else []


def tidy(attributes):
    """Whole numbers as such."""
    return {name: value if isinstance(value, list) else int(value) if float(value).is_integer() and abs(value) < 2**53 else value for name, value in attributes.items()}


def kinds_of(units, weight_names, data, tokens):
    """The kinds by name, and of each unit the name of its kind. Units whose ops are equal but for lines are of one kind."""
    kinds, names, by_content = {}, [], {}
    for number, unit in enumerate(units):
        ops, taken, gives = ops_of(unit, number, weight_names, data)
        takes = [{"name": name, "shape": [*tokens, unit.takes.width]} for name in taken]
        content = json.dumps([takes, gives, [op[:4] for op in ops]])
        if content not in by_content:
            wanted = "layer" if unit.label else "embedding" if number == 0 else "head" if number == len(units) - 1 else "between"
            by_content[content] = Namer(kinds).name(wanted)
            kinds[by_content[content]] = {"takes": takes, "gives": gives, "ops": ops}
        names.append(by_content[content])
    return kinds, names


def entries_of(units, kind_names):
    """The list `units`: layers that follow each other by number are counted."""
    entries, counted = [], {}
    for unit, kind in zip(units, kind_names):
        base, _, number = unit.label.rpartition(".")
        base = base + "." if base else ""
        if not number.isdigit() or int(number) != counted.get(base, 0) or not base:
            entries.append({"kind": kind, "prefix": unit.prefix})
            continue
        counted[base] = counted.get(base, 0) + 1
        last = entries[-1] if entries else {}
        if last.get("kind") == kind and last.get("prefix") == base and "count" in last:
            last["count"] += 1
        else:
            entries.append({"kind": kind, "prefix": base, "count": 1})
    return entries


# ---- weights ----

def starred(name, label):
    """The name with * for the number of its layer."""
    base, _, number = label.rpartition(".")
    return f"{base}.*{name[len(label):]}" if base and number.isdigit() else name


def weights_of(units, weight_names, tied, tensors, tables):
    """The list `weights`, in the order of the ops. `tensors`: by all names. `tables`: names of those that are constants of the module."""
    groups = {}
    for number, unit in enumerate(units):
        for op in unit.ops:
            for operand in op.operands:
                if isinstance(operand, Weight):
                    name = weight_names[number, op, operand.name]
                    groups.setdefault(starred(name, unit.label), []).append((name, tensors[operand.name], "given" if operand.name in tables else usual(op, operand)))
    entries = []
    for pattern, members in groups.items():
        if tied and pattern == tied[1]:
            continue
        initial = common_initial([tensor for _, tensor, _ in members], members[0][2])
        if initial is not None:
            entries.append(entry(pattern, members[0][1], initial, tied))
        else:
            entries += [entry(name, tensor, common_initial([tensor], without), tied) for name, tensor, without in members]
    return entries


def entry(name, tensor, initial, tied):
    return {"name": name, "shape": list(tensor.shape) or [1], "initial": initial, **({"tied": tied[1]} if tied and tied[0] == name else {})}


def usual(op, operand):
    """What a weight begins with, of which no value is known."""
    norm_gain = op.row in ("RMSNORM", "LAYERNORM") and operand == op.operands[1]
    if norm_gain:
        return constant(1.0 - op.attributes.get("offset", 0))
    is_bias = operand == (op.operands[1] if op.row == "BIAS" else op.operands[2] if op.row in ("LAYERNORM", "AFFINE", "MOE") else None)
    return "zeros" if is_bias else {"normal": 0.02}


def common_initial(tensors, without):
    """What the tensors begin with, or None if they differ by more than chance. `without`: if they have no values."""
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        return None
    if tensors[0].is_meta or without == "given":
        return without
    tensors = [tensor.detach() for tensor in tensors]
    first = tensors[0].flatten()[0].item()
    equal = [bool((tensor == tensor.flatten()[0]).all()) for tensor in tensors]
    if any(equal):
        same = all(equal) and all(tensor.flatten()[0].item() == first for tensor in tensors)
        return (constant(first) if same else None)
    deviations = [float(tensor.double().square().mean().sqrt()) for tensor in tensors]
    pooled = math.sqrt(sum(deviation**2 for deviation in deviations) / len(deviations))
    allowed = 0.01 + 4 / math.sqrt(2 * tensors[0].numel())
    near = all(abs(deviation - pooled) <= allowed * pooled for deviation in deviations)
    return {"normal": float(f"{pooled:.{DIGITS}g}")} if near else None


def constant(value):
    return {0.0: "zeros", 1.0: "ones"}.get(value, {"constant": value})


# ---- the whole ----

def describe(units, names, given, tensors, sequence, source, config=None, loss_of="step", logits=None, tables=()):
    """`given`: the inputs of the step. `logits`: what the module gives as such. `tables`: names of tensors that are constants of the module."""
    operands = [operand for unit in units for op in unit.ops for operand in op.operands]
    read = {data_of(operand) for operand in operands} | {each.key for each in given if each.source}
    starts = Namer(each.name for each in given).name("starts")
    namer = Namer(each.name for each in given)
    shares = {share: namer.name("share") for share in dict.fromkeys(operand for operand in operands if isinstance(operand, Share))}
    kinds, kind_names = kinds_of(units, names.of_use, {**{each.key: each.name for each in given}, "starts": starts, **shares}, ["batch", "sequence"] if any(each.has_tokens for each in given) else ["batch"])
    inputs = [each.entry for each in given if each.key in read]
    if "starts" in read or all(each.source for each in given):
        inputs.append({"name": starts, "dtype": "i32", "shape": ["batch", "sequence"], "from": "starts"})
    named = {"logits": units[-1].names[logits]} if shares and needs_name(logits, units[-1].ops) else {}
    return {
        "penstock_model": VERSION, "source": source, "sequence": sequence, **({"loss_of": loss_of} if loss_of != "step" else {}),
        **({"config": config} if config else {}), "inputs": inputs,
        **({"shares": [entry_of_share(name, share, given) for share, name in shares.items()]} if shares else {}),
        "weights": weights_of(units, names.of_use, names.tied, tensors, tables),
        "kinds": kinds, "units": entries_of(units, kind_names), **named,
    }


def needs_name(logits, ops):
    """Whether logits of a unit are such that texts may be scored by them, and are not known as what all log-probabilities are of."""
    made = {Output(op, index): op for op in ops for index in range(len(op.widths))}
    read = {op.operands[0] for op in ops if op.row in ("CROSS_ENTROPY", "LOGP")}
    at = None if logits is None or logits.of_samples else made.get(logits)
    while at is not None and at.row != "LINEAR":
        values = [operand for operand in at.operands if not isinstance(operand, Weight)]
        at = made.get(values[0]) if len(values) == 1 and len(at.widths) == 1 else None
    return at is not None and (len(at.operands) < 3 or at.operands[2] is None) and read != {logits}


def entry_of_share(name, share, given):
    read = {"input": next(each.name for each in given if each.key == share.input)} if share.input else {}
    least = {"least": share.least} if share.least else {}
    return {"name": name, "over": share.over, **read, **({"factor": share.factor} if share.factor != 1 else {}), **least}


def text_of(description):
    """JSON with a line for each op, weight, input and unit."""
    def listed(entries, indent):
        return ",\n".join(indent + json.dumps(each) for each in entries)

    head = [f"{json.dumps(key)}: {json.dumps(description[key])}" for key in ("penstock_model", "source", "sequence", "loss_of", "config", "logits") if key in description]
    kinds = []
    for name, kind in description["kinds"].items():
        kinds.append(f'    {json.dumps(name)}: {{ "takes": {json.dumps(kind["takes"])}, "gives": {json.dumps(kind["gives"])}, "ops": [\n'
                     f"{listed(kind['ops'], '      ')}\n    ] }}")
    return ("{ " + ",\n  ".join(head) + ",\n"
            f'  "inputs": [\n{listed(description["inputs"], "    ")}\n  ],\n'
            + (f'  "shares": [\n{listed(description["shares"], "    ")}\n  ],\n' if "shares" in description else "") +
            f'  "weights": [\n{listed(description["weights"], "    ")}\n  ],\n'
            '  "kinds": {\n' + ",\n".join(kinds) + "\n  },\n"
            f'  "units": [\n{listed(description["units"], "    ")}\n  ]\n}}\n')
