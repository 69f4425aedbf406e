"""step_chart.py: a measured step below the planned one: two lanes a rank, one scale of time, and the table of what differs most."""
from compare import stage_of
from svg import drawing, element, escape, figure, horizontal_axis, linear_scale, title

WIDTH, LEFT, RIGHT, TOP = 1140, 70, 1126, 44
PLANNED_HEIGHT, MEASURED_HEIGHT, PITCH = 13.0, 17.0, 40
RANKS_MAX = 16  # more are not drawn: those with the largest differences are
NARROW = 0.6  # actions that are narrower are drawn together with their neighbours of the same kind
NAMED = 10  # differences in the table,
GAPS_NAMED = 4  # and how many of them at most are of the time before and between actions
OUTLINED = 3  # the largest differences of a kind of a stage, whose measured actions are outlined
KIND_TEXTS = {"F": "F forward", "B": "B backward", "I": "I backward for the input", "W": "W backward for the weights",
              "message": "sending", "exchange": "collectives", "end": "end of the step", "wait": "waiting"}


def class_of(kind):
    """How an action is drawn."""
    if kind in KIND_TEXTS:
        return kind
    if kind.startswith(("WAIT", "RECV")):
        return "wait"
    if kind.startswith("SEND"):
        return "message"
    return "end" if kind in ("NORM", "PUBLISH", "UPDATE") else "exchange"


class Box:
    """Actions that are drawn as one rectangle."""

    def __init__(self, look, start, end, text, label):
        self.look, self.start, self.end, self.text, self.label, self.count = look, start, end, text, label, 1


def boxes_of(actions, text_of, is_named, x):
    boxes = []
    for action in actions:
        look = class_of(action.kind or "") + (" named" if is_named(action) else "")
        start, end = x(action.start), x(action.end)
        last = boxes[-1] if boxes else None
        if last and last.look == look and start - last.end < NARROW and (end - start < NARROW or last.end - last.start < NARROW):
            last.end, last.count = max(last.end, end), last.count + 1
            last.text = f"{last.count} actions up to {text_of(action)}"
            continue
        label = action.name[len(str(stage_of(action.name))):].lstrip("FBIW") if action.computes() else ""
        boxes.append(Box(look, start, end, text_of(action), label))
    return boxes


def draw_lane(boxes, y, height):
    parts = []
    for box in boxes:
        width = max(box.end - box.start, 0.15)
        tall = height if not box.look.startswith("wait") else height / 3
        parts.append(element("rect", title(box.text), class_=f"act {box.look}", x=box.start, y=y + (height - tall) / 2, width=width, height=tall))
        if box.count == 1 and box.label and width >= 7.0 * len(box.label) + 3:
            parts.append(element("text", escape(box.label), class_=f"mark {box.look.split()[0]}", x=box.start + width / 2, y=y + height / 2 + 3.6,
                                 text_anchor="middle"))
    return "".join(parts)


def draw_legend(comparison, processes):
    looks = {class_of(action.kind or "") for process in processes for action in comparison.step[process]}
    parts, x = [], float(LEFT)
    for look, text in KIND_TEXTS.items():
        if look in looks:
            parts.append(element("rect", class_=f"act {look}", x=x, y=10.0, width=11.0, height=11.0))
            parts.append(element("text", escape(text), class_="tick", x=x + 16, y=20.0))
            x += 16 + 6.6 * len(text) + 20
    return "".join(parts)


def drawn_processes(comparison):
    """All processes, or of many those with the largest differences."""
    sums = [0.0] * len(comparison.planned)
    for difference in comparison.differences:
        sums[difference.process] += abs(difference.excess())
    most = sorted(range(len(sums)), key=lambda process: -sums[process])[:RANKS_MAX]
    return sorted(most)


def texts(process, planned):
    """What the pointer shows of planned and of measured actions."""
    predicted = {action.name: action for action in planned}

    def of_planned(action):
        return f"rank {process}, planned: {action.name} {figure(action.end - action.start)} ms from {figure(action.start)} ms"

    def of_measured(action):
        text = f"rank {process}, measured: {action.name} {figure(action.end - action.start)} ms from {figure(action.start)} ms"
        plan = predicted.get(action.name)
        return text + (f"; planned {figure(plan.end - plan.start)} ms from {figure(plan.start)} ms" if plan else "")

    return of_planned, of_measured


def draw_step(comparison):
    processes = drawn_processes(comparison)
    named = [(d.process, d.kind, d.stage) for d in comparison.differences if d.kind][:OUTLINED]
    bottom = TOP + PITCH * len(processes)
    x, ticks = linear_scale([comparison.length, comparison.planned_length], LEFT, RIGHT, True, 12)
    parts = [horizontal_axis(x, ticks, TOP, bottom, "ms"), draw_legend(comparison, processes)]
    for row, process in enumerate(processes):
        y = float(TOP + PITCH * row + 4)
        planned, measured = comparison.planned[process], comparison.step[process]
        of_planned, of_measured = texts(process, planned)

        def is_named(action, process=process):
            return action.computes() and (process, action.kind, stage_of(action.name)) in named

        lanes = [element("g", draw_lane(boxes_of(planned, of_planned, lambda action: False, x), y, PLANNED_HEIGHT), class_="planned"),
                 element("g", draw_lane(boxes_of(measured, of_measured, is_named, x), y + PLANNED_HEIGHT + 1, MEASURED_HEIGHT), class_="measured")]
        label = element("text", f"rank {process}", class_="tick", x=LEFT - 8.0, y=y + PITCH / 2, text_anchor="end")
        parts += [label, *lanes]
    return drawing(WIDTH, bottom + 40, "".join(parts), "Step as planned and as measured")


def named_differences(comparison):
    gaps = [difference for difference in comparison.differences if difference.is_gap]
    return [difference for difference in comparison.differences if difference not in gaps[GAPS_NAMED:]][:NAMED]


def differences_table(comparison):
    names = ["rank", "what", "planned, ms", "measured, ms", "difference, ms", "ratio"]
    head = "".join(element("th", name, class_="" if name == "what" else "number") for name in names)
    rows = []
    for d in named_differences(comparison):
        ratio = figure(d.measured / d.planned, 3) if d.planned > 0 else "not planned"
        cells = [str(d.process), d.what, f"{d.planned:.2f}", f"{d.measured:.2f}", f"{d.excess():+.2f}", ratio]
        rows.append(element("tr", "".join(element("td", escape(cell), class_="" if n == 1 else "number") for n, cell in enumerate(cells)),
                            class_="difference"))
    return element("div", element("table", element("tr", head) + "".join(rows), class_="text"), class_="wide")


def share(actions_by_process, length):
    """How much of a step the ranks compute."""
    if length <= 0:
        return "none"
    busy = sum(a.end - a.start for actions in actions_by_process for a in actions if a.computes())
    return f"{100 * busy / (length * len(actions_by_process)):.1f} %"


def describe(comparison):
    plan, steps = comparison.trace.plan, len(comparison.trace.steps)
    text = f"Each rank has two lanes: the plan above, and below the step of median length of the {steps} complete steps in the trace"
    text = text.replace("the 1 complete steps", "the one complete step")
    text += f": {figure(comparison.length)} ms, in which the ranks compute {share(comparison.step, comparison.length)} of the time. "
    text += f"The plan predicts {figure(comparison.planned_length)} ms and {share(comparison.planned, comparison.planned_length)}"
    if plan["unit"] != "in ms":
        text += (f", with {figure(comparison.unit_ms)} ms for a unit of cost ({plan['unit'].replace('in ', '')}), so that all computing takes "
                 "as long as measured; costs that penstock-NAME measure wrote would make it a prediction of time")
    return text + ". What ends a step (norm, update) is not simulated."


def step_section(comparison):
    processes = len(comparison.planned)
    more = f" Of {processes} ranks the {RANKS_MAX} with the largest differences are drawn." if processes > RANKS_MAX else ""
    return (element("h2", "One step: planned and measured") + element("p", escape(describe(comparison) + more)) +
            element("figure", draw_step(comparison)) +
            element("h3", f"The largest differences in a step, as medians (of those of a stage, the first {OUTLINED} are outlined above)") +
            differences_table(comparison))
