"""curves.py: values of the steps as curves, of one run or of several.

Up to POINTS_MAX steps are a point each; of more steps, groups of consecutive ones are: their mean, and a band from their least to
their greatest value. Where there is no value, or one that is not finite, the curve is interrupted; in a group such steps are left
out of the mean. Under the pointer each point tells its values, and how many steps it leaves out.

The horizontal axis has steps, the tokens up to a step, or the time in steps. Smoothed curves are exponential moving averages over the
steps, as TensorBoard's, beside what they are of."""
import bisect
import collections
import math

from read_log import is_skipped, without
from svg import (drawing, element, escape, figure, horizontal_axis, linear_scale, logarithmic_scale, position, step_scale, title,
                 vertical_axis)

POINTS_MAX = 500
BREAKS_MAX = 500
WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 546, 34, 236
SPREAD_LOGARITHMIC = 30  # the greatest value over the least from which on the axis is logarithmic
DOTS_MAX = 60  # points that are also drawn as dots


class Curve:
    """A chart: its title, the field of the log, the unit, and whether the axis begins at 0."""

    def __init__(self, name, field, unit, from_zero):
        self.name, self.field, self.unit, self.from_zero = name, field, unit, from_zero


CURVES = [
    Curve("Loss", "loss", "", False),
    Curve("Gradient norm", "grad_norm", "", False),
    Curve("Learning rate", "lr", "", True),
    Curve("Throughput", "tokens_per_second", "tokens/s", True),
    Curve("Model FLOPs utilisation", "mfu", "", True),
]
AXES = {"step": "step", "tokens": "tokens", "time": "s in steps"}  # and how they are named
RUNS_MAX = 8  # that have colours of their own


class Drawn:
    """How curves are drawn: the horizontal axis, and the factor of smoothing, 0: none."""

    def __init__(self, axis="step", smooth=0.0):
        self.axis, self.smooth = axis, smooth


class Run:
    """The steps of a log, and where each is on the horizontal axis."""

    def __init__(self, log, axis, number=None):
        self.log, self.number = log, number  # of several runs
        self.lines = [log.steps[step] for step in sorted(log.steps)]
        self.steps = [line["step"] for line in self.lines]
        sums, total = [], 0.0
        for line in self.lines:
            total += (line["tokens"] if axis == "tokens" else (line["step_ms"] or 0.0) / 1e3)
            sums.append(total)
        self.places = self.steps if axis == "step" else sums
        self.by_step = axis == "step"

    def place(self, step):
        """Of a step, or of the last one before it that is in the log."""
        if self.by_step:
            return step
        at = bisect.bisect_right(self.steps, step)
        return self.places[at - 1] if at else 0.0

    def look(self, name):
        return name if self.number is None else f"{name} run{self.number}"


class Point:
    """Consecutive steps. `places`: where they are; `smooth`: their smoothed values, or nothing."""

    def __init__(self, lines, field, places, smooth):
        values = [line[field] for line in lines if line.get(field) is not None]
        self.first, self.last = lines[0]["step"], lines[-1]["step"]
        self.middle = (places[0] + places[-1]) / 2
        self.smooth = math.fsum(smooth) / len(smooth) if smooth else None
        self.skipped = sum(is_skipped(line) for line in lines)
        self.mean = math.fsum(values) / len(values) if values else None
        self.least, self.greatest = (min(values), max(values)) if values else (None, None)
        self.absent = collections.Counter(without(line, field) for line in lines if line.get(field) is None)

    def text(self, curve):
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        if self.mean is None:
            return f"{steps}: {curve.name.lower()} {', '.join(self.absent)}"
        text = f"{steps}: {curve.name.lower()} {figure(self.mean)}{' ' + curve.unit if curve.unit else ''}"
        if self.first != self.last:
            text += f", from {figure(self.least)} to {figure(self.greatest)}"
        text += f", smoothed {figure(self.smooth)}" if self.smooth is not None else ""
        return text + "".join(f"; of {count} {what}" for what, count in self.absent.items())


def smoothed(lines, field, factor):
    """For each line the moving average of the values up to there, without the weight of a start at 0; None where there is no value."""
    averages, average, weight = [], 0.0, 0.0
    for line in lines:
        value = line.get(field)
        if value is not None:
            average, weight = factor * average + (1 - factor) * value, factor * weight + (1 - factor)
        averages.append(average / weight if value is not None else None)
    return averages


def points_of(run, field, factor):
    lines, group = run.lines, math.ceil(len(run.lines) / POINTS_MAX)
    smooth = smoothed(lines, field, factor) if factor > 0 else [None] * len(lines)
    return [Point(lines[at:at + group], field, run.places[at:at + group], [value for value in smooth[at:at + group] if value is not None])
            for at in range(0, len(lines), group)]


def scale_of(curve, points, more):
    """The vertical scale, its ticks, and what the axis says of itself."""
    values = [v for point in points for v in (point.least, point.greatest) if v is not None] + more
    values = values or [0.0]
    if not curve.from_zero and min(values) > 0 and max(values) / min(values) >= SPREAD_LOGARITHMIC:
        return (*logarithmic_scale(values, BOTTOM, TOP), "logarithmic")
    return (*linear_scale(values, BOTTOM, TOP, curve.from_zero), curve.unit)


def pieces(points):
    """Runs of points that have values."""
    run = []
    for point in points:
        if point.mean is None and run:
            yield run
            run = []
        if point.mean is not None:
            run.append(point)
    if run:
        yield run


def path(places, close=False):
    return "M" + "L".join(f"{position(x)} {position(y)}" for x, y in places) + ("Z" if close else "")


def draw_line(run, points, x, y):
    """The values; smoothed, where they are, with the values behind. Of several runs without bands."""
    parts, is_smooth = [], any(point.smooth is not None for point in points)
    for piece in pieces(points):
        places = [(x(p.middle), y(p.mean)) for p in piece]
        if any(p.least < p.greatest for p in piece) and run.number is None:
            edges = [(x(p.middle), y(p.greatest)) for p in piece] + [(x(p.middle), y(p.least)) for p in reversed(piece)]
            parts.append(element("path", class_="band", d=path(edges, True)))
        parts.append(element("path", class_=run.look("raw" if is_smooth else "line"), d=path(places)))
        if is_smooth:
            places = [(x(p.middle), y(p.smooth)) for p in piece]
            parts.append(element("path", class_=run.look("line"), d=path(places)))
        if len(points) <= DOTS_MAX or len(piece) == 1:
            parts += [element("circle", class_=run.look("dot"), cx=px, cy=py, r=2.2) for px, py in places]
    return "".join(parts)


def draw_targets(curve, points, x):
    """A column for each point, from halfway to the one before to halfway to the next, that shows its values."""
    places = [x(point.middle) for point in points]
    edges = [LEFT] + [(a + b) / 2 for a, b in zip(places, places[1:])] + [RIGHT]
    return "".join(
        element("rect", title(point.text(curve)), class_="point", x=float(a), y=float(TOP), width=max(b - a, 0.2), height=float(BOTTOM - TOP))
        for point, a, b in zip(points, edges, edges[1:]))


def draw_skipped(points, x):
    parts = []
    for point in points:
        if point.skipped:
            of = f"step {point.first}" if point.first == point.last else f"{point.skipped} of steps {point.first} to {point.last}"
            mark = f"M{position(x(point.middle))} {TOP + 8}l-4.5 -8h9z"
            parts.append(element("path", title(f"skipped: {of}, whose norm is not finite or which had no targets"), class_="skipped", d=mark))
    return "".join(parts)


def draw_spots(run, name, curve, points, x, y):
    """Of one of several runs, whose columns would lie on each other: a spot on each point that shows its values."""
    return "".join(element("circle", title(f"{name}, {point.text(curve)}"), class_="point", cx=x(point.middle), cy=y(point.mean), r=5.0)
                   for point in points if point.mean is not None)


def draw_breaks(run, x):
    """Where all ranks, or the command, started again."""
    log = run.log
    breaks = [(event["from_step"], f'restart after step {event["from_step"]}, {figure(event["seconds"])} s after the loss')
              for event in log.events if event["event"] == "restart"]
    breaks += [(step - 1, f"resumed after step {step - 1}") for step in log.starts]
    parts = []
    for step, text in breaks[:BREAKS_MAX]:
        at = min(max(x(run.place(step)), LEFT), RIGHT)
        parts.append(element("line", class_="break", x1=at, x2=at, y1=float(TOP), y2=float(BOTTOM)))
        parts.append(element("rect", title(text), class_="target", x=at - 3, y=float(TOP), width=6.0, height=float(BOTTOM - TOP)))
    return "".join(parts)


def draw_evaluations(run, name, evaluations, x, y):
    places = [(line, x(run.place(line["step"])), y(line["eval_loss"])) for line in evaluations]
    parts = [element("path", class_=run.look("evaluation"), d=path([place[1:] for place in places]))] if places else []
    for line, at, height in places:
        text = f'{name + ", " if run.number is not None else ""}step {line["step"]}: evaluation loss {figure(line["eval_loss"])}'
        parts.append(element("circle", title(text), class_=run.look("evaluated"), cx=at, cy=height, r=3.0))
    return "".join(parts)


def legend(entries):
    """Marks and their meanings, from the right."""
    parts, x = [], float(RIGHT)
    for mark, text in reversed(entries):
        parts.append(element("text", escape(text), class_="tick", x=x, y=20.0, text_anchor="end"))
        x -= 6.2 * len(text) + 18
        parts.append(mark(x))
        x -= 16
    return "".join(parts)


def line_mark(name):
    return lambda x: element("path", class_=name, d=f"M{position(x - 4)} 16h16")


def skipped_mark(x):
    return element("path", class_="skipped", d=f"M{position(x + 6)} 20l-4.5 -8h9z")


def evaluations_of(run, curve):
    """Those that are drawn: of many some, with the last."""
    log = run.log
    lines = [log.evaluations[step] for step in sorted(log.evaluations)] if curve.field == "loss" else []
    lines = [line for line in lines if line["eval_loss"] is not None]
    return lines[::-1][::math.ceil(len(lines) / POINTS_MAX) or 1][::-1]


def horizontal_scale(runs, evaluations, axis):
    """The scale, and its ticks."""
    first = min(run.places[0] for run in runs)
    last = max([run.places[-1] for run in runs] + [run.place(line["step"]) for run, lines in zip(runs, evaluations) for line in lines])
    return step_scale(first, last, LEFT, RIGHT) if axis == "step" else linear_scale([first, last], LEFT, RIGHT, True, 6)


def draw_chart(runs, names, curve, drawn):
    """One chart with the curve of each run."""
    factor = drawn.smooth if curve.field != "lr" else 0.0
    points = [points_of(run, curve.field, factor) for run in runs]
    evaluations = [evaluations_of(run, curve) for run in runs]
    x, ticks = horizontal_scale(runs, evaluations, drawn.axis)
    y, heights, unit = scale_of(curve, [point for some in points for point in some], [line["eval_loss"] for lines in evaluations for line in lines])
    content = vertical_axis(y, heights, LEFT, RIGHT) + horizontal_axis(x, ticks, TOP, BOTTOM, AXES[drawn.axis])
    for run, name, some, lines in zip(runs, names, points, evaluations):
        content += draw_line(run, some, x, y)
        content += draw_targets(curve, some, x) if run.number is None else draw_spots(run, name, curve, some, x, y)
        content += draw_breaks(run, x) if run.number is None else ""
        content += draw_evaluations(run, name, lines, x, y) + (draw_skipped(some, x) if run.number is None else "")
    entries = []
    if any(evaluations):
        marks = ("line", "evaluation") if runs[0].number is None else ("axis", "axis dashed")
        entries += [(line_mark(mark), meaning) for mark, meaning in zip(marks, ("training", "evaluation"))]
    if any(point.skipped for point in points[0]) and runs[0].number is None:
        entries.append((skipped_mark, "skipped"))
    name = f"{curve.name}, {unit}" if unit else curve.name
    content = element("text", escape(name), class_="name", x=4.0, y=20.0) + content + legend(entries)
    return drawing(WIDTH, HEIGHT, content, f"{curve.name} over {drawn.axis if drawn.axis != 'step' else 'steps'}")


def draw_curves(logs, names, drawn):
    """All charts for which a run has values."""
    runs = [Run(log, drawn.axis, number if len(logs) > 1 else None) for number, log in enumerate(logs)]
    return "".join(element("figure", draw_chart(runs, names, curve, drawn)) for curve in CURVES
                   if curve.field != "mfu" or any("mfu" in line for run in runs for line in run.lines))


def key_of(names):
    """The colours of several runs."""
    entries = "".join(element("span", element("b", "", class_=f"key run{number}") + escape(name)) for number, name in enumerate(names))
    return element("p", entries, class_="keys")
