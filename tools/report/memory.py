"""memory.py: the bytes of each rank by kind, as bars and as a table."""
from svg import drawing, element, escape, figure, horizontal_axis, linear_scale, title

WIDTH, LEFT, RIGHT, TOP = 1140, 70, 1070, 44
MIB = 1 << 20
DRAWN_MAX = 256  # ranks; those after them are not drawn
# In the order of runtime/plan/memory_kinds.def; page.py has a colour for each place.
KINDS = ["weights", "copies", "gradients", "moments", "gathered", "activations", "constants", "window", "losses", "snapshot", "control"]


def kind_class(kind):
    return f"kind{KINDS.index(kind)}" if kind in KINDS else "kind"


def mib(count):
    return f"{figure(count / MIB)} MiB"


def draw_legend(kinds):
    parts, x = [], float(LEFT)
    for kind in kinds:
        parts.append(element("rect", class_=kind_class(kind), x=x, y=10.0, width=11.0, height=11.0))
        parts.append(element("text", escape(kind), class_="tick", x=x + 16, y=20.0))
        x += 16 + 6.6 * len(kind) + 22
    return "".join(parts)


def draw_memory(plan):
    ranks, kinds = min(plan["ranks"], DRAWN_MAX), plan["bytes"]
    totals = [sum(kinds[kind][rank] for kind in kinds) for rank in range(ranks)]
    pitch = 26 if ranks <= 16 else 14
    bottom = TOP + pitch * ranks + 4
    x, ticks = linear_scale([total / MIB for total in totals], LEFT, RIGHT, True, 8)
    parts = [horizontal_axis(x, ticks, TOP, bottom, "MiB"), draw_legend(kinds)]
    for rank in range(ranks):
        y, before = float(TOP + pitch * rank + 3), 0
        parts.append(element("text", f"rank {rank}", class_="tick", x=LEFT - 8.0, y=y + pitch / 2 + 1, text_anchor="end"))
        for kind in kinds:
            count = kinds[kind][rank]
            if count > 0:
                at, end = x(before / MIB), x((before + count) / MIB)
                text = f"rank {rank}: {kind} {mib(count)} ({count} bytes)"
                parts.append(element("rect", title(text), class_=kind_class(kind), x=at, y=y, width=max(end - at, 0.3), height=pitch - 5.0))
            before += count
        parts.append(element("text", mib(totals[rank]), class_="tick", x=x(before / MIB) + 6, y=y + pitch / 2 + 1))
    return drawing(WIDTH, bottom + 40, "".join(parts), "Memory of each rank by kind")


def memory_table(plan):
    kinds = plan["bytes"]
    head = element("tr", "".join(element("th", escape(name)) for name in ["rank", *kinds, "sum"]))
    rows = []
    for rank in range(min(plan["ranks"], DRAWN_MAX)):
        counts = [kinds[kind][rank] for kind in kinds]
        rows.append(element("tr", element("th", str(rank)) + "".join(element("td", f"{count:,}") for count in [*counts, sum(counts)])))
    return element("details", element("summary", "Bytes by rank and kind") +
                   element("div", element("table", head + "".join(rows)), class_="wide"))
