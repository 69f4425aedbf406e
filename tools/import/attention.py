"""attention.py: heads, rotary positions, attention and its masks, as layout.py has other rows."""
from dataclasses import replace

import torch

import constants
from ops import HEADS_FIRST, HEADS_TRANSPOSED, Data, Table, needs, plain

MASKS_TRIED = 4


def heads_of(maker, name, axes):
    """A value of (batch, sequence, heads, head_dim) whose axes the user has in that order, batch and heads as one dim or as two."""
    value, tokens = with_one_head(maker, maker.value(name), axes == HEADS_TRANSPOSED), (maker.graph.batch, maker.graph.sequence)
    needs(len(value.shape) == 4 and value.shape[:2] == tokens and value.axes == axes,
          f"{name} is not of (batch, heads, sequence, head_dim), transposed from (batch, sequence, heads, head_dim)")
    return value


def with_one_head(maker, value, transposed=False):
    """Of (batch, 1, sequence, head_dim), or (batch, sequence, head_dim), as of several heads. `transposed`: it is to have the order of keys in a product."""
    batch, sequence = maker.graph.batch, maker.graph.sequence
    if len(value.shape) == 3 and value.shape[:2] == (batch, sequence) and value.axes == ((0, 2, 1) if transposed else (0, 1, 2)) and value.repeat == 1 and not value.counts:
        return replace(value, shape=(batch, sequence, 1, value.shape[2]), axes=HEADS_TRANSPOSED if transposed else HEADS_FIRST)
    is_one = value.shape[:3] == (batch, 1, sequence) and value.axes == (0, 1, 2, 3) and sequence > 1 and value.repeat == 1 and not value.counts
    return replace(value, shape=(batch, sequence, 1, value.shape[3]), axes=HEADS_FIRST) if is_one and len(value.shape) == 4 else value


def rotation(maker, pairs=False):
    x = maker.value("x")
    needs(len(x.shape) == 4 and x.repeat == 1 and not x.counts, "rotary positions of another value than (batch, sequence, heads, head_dim)")
    heads_of(maker, "x", HEADS_FIRST if x.axes == HEADS_FIRST else (0, 1, 2, 3))
    rotated = maker.bound.get("#rotated", x.shape[-1])
    needs(maker.shape == x.logical and rotated % 2 == 0, "rotations that do not leave a head as it was")
    turn = maker.constant("@turn") if "@turn" in maker.bound else None
    cos, sin = (in_memory_order(x, table) for table in ((maker.constant("@cos"), maker.constant("@sin")) if turn is None else (turn.real, turn.imag)))
    if pairs and cos.shape[-1] == rotated:
        cos, sin = (torch.cat((table[:, ::2], table[:, 1::2]), -1) for table in (cos, sin))
    table = Table(constants.rope_table(cos, sin, rotated // 2, maker.scalings))
    attributes = {"heads": x.shape[2], "head_dim": x.shape[3], **({"pairs": 1} if pairs else {})}
    return replace(x, output=maker.add([x.output, table, Data("starts")], attributes))


def rotation_of_pairs(maker):
    """Of elements side by side; a table has an angle for each pair, or for each element."""
    return rotation(maker, True)


def in_memory_order(x, constant):
    """A constant that is broadcast to x, as (sequence, dims): the same for all sequences and heads."""
    width = constant.shape[-1]
    order = [x.axes.index(axis) for axis in range(4)]
    whole = constant.expand(*x.logical[:-1], width).permute(order)
    needs(torch.equal(whole, whole[:1, :, :1].expand_as(whole)), "rotations that differ between sequences or heads")
    return whole[0, :, 0]


def attention(maker):
    fused = "is_causal" in maker.call.value
    q, v = heads_of(maker, "q", HEADS_FIRST), heads_of(maker, "v", HEADS_FIRST)
    k = heads_of(maker, "k", HEADS_FIRST if fused else HEADS_TRANSPOSED)
    heads, kv_heads, head_dim = q.shape[2], k.shape[2], q.shape[3]
    grouped = heads // kv_heads if fused and maker.call.value["enable_gqa"] else 1
    needs(q.repeat == 1 and k.shape == v.shape and k.shape[3] == head_dim, "keys and values of other extents than the queries")
    needs(q.counts == k.counts, "keys of other dims than the queries")
    q = replace(q, counts=v.counts)  # and so the result
    made_of = (lambda output: replace(q, output=output)) if len(maker.shape) > 3 or q.counts else lambda output: plain(output, maker.shape)
    needs(k.repeat == v.repeat and heads == kv_heads * k.repeat * grouped, "heads that keys and values do not divide")
    attributes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, **({"cap": maker.bound["#cap"]} if "#cap" in maker.bound else {})}
    read = [scaled_query(maker, q, head_dim, fused), k.output, v.output]
    said = next((name for name in ("%mask", "%shown", "%hidden") if name in maker.bound), None)
    if said:
        read.append(Data(key_mask(maker, said, fused and maker.call.value["is_causal"])))
        return made_of(maker.add(read, attributes, row="ATTENTION_FULL"))
    window = constants.window_of(*masks_of(maker, fused), maker.graph.sequence)
    if window is None:
        return made_of(maker.add([*read, None], attributes, row="ATTENTION_FULL"))
    return made_of(maker.add([*read, Data("starts")], {**attributes, **({"window": window} if window else {})}))


def repeated(maker):
    """Keys or values of which each head is there several times in a row."""
    x = with_one_head(maker, maker.value("x"))
    needs(len(x.shape) == 4 and x.repeat == 1 and not x.counts, "an expansion of another value than the heads of keys or values")
    at = x.axes.index(2)
    logical, times = x.logical, maker.shape[at] // x.logical[at]
    if maker.call.node.args and "repeats" in maker.call.value:
        side_by_side = maker.call.value["dim"] == at - 4
    else:
        expanded = maker.shape_before()
        side_by_side = expanded == (*logical[:at + 1], times, *logical[at + 1:])
    wanted = (*logical[:at], times * logical[at], *logical[at + 1:])
    needs(side_by_side and wanted == maker.shape, "an expansion that does not repeat each head in place")
    return replace(x, repeat=times)


def key_mask(maker, said, is_causal):
    """The input that is not 0 where its mask lets all queries see a key: found by values. `said`: what the mask is called in the expression."""
    graph, node, others = maker.graph, maker.bound[said], ["@mask", "@hidden", "@shown", "@factor"]
    is_causal = is_causal or any(name in maker.bound for name in others)
    check_least(maker)
    before = graph.inputs_before(node)
    needs(len(before) == 1 and not is_causal, "a mask of several inputs, or a causal one besides; of keys alone, or causal")
    each = graph.input[before[0]]
    needs(not each.source and each.has_tokens and not each.rest and not each.dtype.is_floating_point, f"{each.name} as a mask of keys: bool or u8 of (batch, sequence)")
    generator, found = torch.Generator().manual_seed(1), []
    for _ in range(MASKS_TRIED):
        shown = torch.randint(0, 2, graph.tokens, generator=generator)
        shown[:, 0], shown[:, 1] = 1, 0
        found.append(constants.is_mask_of_keys(graph.run_of_inputs(node, {each.key: shown.to(each.dtype)}), shown.bool()))
    wanted = "hidden" if said == "%hidden" else "seen"
    needs("hidden" not in found or len(set(found)) > 1 or wanted == "hidden", f"{each.name} is true where a key is hidden: give an input that is true where it is seen, and its complement here")
    needs(set(found) == {wanted}, f"a mask of {each.name} that is no mask of keys, the same for all queries and heads")
    return each.key


def check_least(maker):
    least = maker.bound.get("#least", constants.HIDDEN)
    needs(least <= constants.HIDDEN, f"scores of {least} where a query does not see a key; minus infinity")


def masks_of(maker, fused):
    """A mask of (sequence, sequence), true or 0 where a query sees a key, or None; and whether it is said to be causal besides."""
    bound, causal = maker.bound, fused and maker.call.value["is_causal"]
    check_least(maker)
    masks = [~maker.constant("@hidden").bool()] if "@hidden" in bound else []
    masks += [maker.constant(name) for name in ("@mask", "@shown") if name in bound]
    masks += [maker.constant("@factor") != 0] if "@factor" in bound else []
    needs("@factor" not in bound or torch.equal(masks[-1].to(maker.constant("@factor").dtype), maker.constant("@factor")), "scores times other numbers than 0 and 1")
    needs("@zeros" not in bound or not bool(maker.constant("@zeros").any()), "scores with a bias")
    if len(masks) < 2:
        return masks[0] if masks else None, causal
    seen = [constants.sees(mask) for mask in masks]  # eager GPT-2 of transformers 4 has both
    needs(all(each is not None for each in seen), constants.OF_OTHER_VALUES)
    return seen[0] & seen[1], causal


def scaled_query(maker, q, head_dim, fused):
    """ATTENTION divides scores by the root of head_dim: q is scaled for another factor."""
    default = head_dim ** -0.5 if fused else 1.0
    scale = maker.bound.get("#scale", 1 / maker.bound["#divisor"] if "#divisor" in maker.bound else default)
    factor = scale * head_dim ** 0.5
    return q.output if abs(factor - 1) < 1e-7 else maker.add([q.output], {"factor": factor}, row="SCALE", widths=[q.output.width])
