"""curves.py: values of the steps as curves.

Up to POINTS_MAX steps are a point each; of more steps, groups of consecutive ones are: their mean, and a band from their least to
their greatest value. Where there is no value, or one that is not finite, the curve is interrupted; in a group such steps are left
out of the mean. Under the pointer each point tells its values, and how many steps it leaves out."""
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
]


class Point:
    """Consecutive steps."""

    def __init__(self, lines, field):
        values = [line[field] for line in lines if line[field] is not None]
        self.first, self.last = lines[0]["step"], lines[-1]["step"]
        self.middle = (self.first + self.last) / 2
        self.skipped = sum(is_skipped(line) for line in lines)
        self.mean = math.fsum(values) / len(values) if values else None
        self.least, self.greatest = (min(values), max(values)) if values else (None, None)
        self.absent = collections.Counter(without(line, field) for line in lines if line[field] is None)

    def text(self, curve):
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        if self.mean is None:
            return f"{steps}: {curve.name.lower()} {', '.join(self.absent)}"
        text = f"{steps}: {curve.name.lower()} {figure(self.mean)}{' ' + curve.unit if curve.unit else ''}"
        if self.first != self.last:
            text += f", from {figure(self.least)} to {figure(self.greatest)}"
        return text + "".join(f"; of {count} {what}" for what, count in self.absent.items())


def points_of(lines, field):
    group = math.ceil(len(lines) / POINTS_MAX)
    return [Point(lines[at:at + group], field) for at in range(0, len(lines), group)]


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


def draw_line(points, x, y):
    parts = []
    for run in pieces(points):
        places = [(x(p.middle), y(p.mean)) for p in run]
        if any(p.least < p.greatest for p in run):
            edges = [(x(p.middle), y(p.greatest)) for p in run] + [(x(p.middle), y(p.least)) for p in reversed(run)]
            parts.append(element("path", class_="band", d=path(edges, True)))
        parts.append(element("path", class_="line", d=path(places)))
        if len(points) <= DOTS_MAX or len(run) == 1:
            parts += [element("circle", class_="dot", cx=px, cy=py, r=2.2) for px, py in places]
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


def draw_breaks(log, x):
    """Where all ranks, or the command, started again."""
    breaks = [(event["from_step"], f'restart after step {event["from_step"]}, {figure(event["seconds"])} s after the loss')
              for event in log.events if event["event"] == "restart"]
    breaks += [(step - 1, f"resumed after step {step - 1}") for step in log.starts]
    parts = []
    for step, text in breaks[:BREAKS_MAX]:
        at = min(max(x(step), LEFT), RIGHT)
        parts.append(element("line", class_="break", x1=at, x2=at, y1=float(TOP), y2=float(BOTTOM)))
        parts.append(element("rect", title(text), class_="target", x=at - 3, y=float(TOP), width=6.0, height=float(BOTTOM - TOP)))
    return "".join(parts)


def draw_evaluations(evaluations, x, y):
    places = [(line, x(line["step"]), y(line["eval_loss"])) for line in evaluations]
    parts = [element("path", class_="evaluation", d=path([place[1:] for place in places]))] if places else []
    for line, at, height in places:
        text = f'step {line["step"]}: evaluation loss {figure(line["eval_loss"])}'
        parts.append(element("circle", title(text), class_="evaluated", cx=at, cy=height, r=3.0))
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


def draw_curve(log, curve):
    lines = [log.steps[step] for step in sorted(log.steps)]
    points = points_of(lines, curve.field)
    evaluations = [log.evaluations[step] for step in sorted(log.evaluations)] if curve.field == "loss" else []
    evaluations = [line for line in evaluations if line["eval_loss"] is not None]
    evaluations = evaluations[::-1][::math.ceil(len(evaluations) / POINTS_MAX) or 1][::-1]  # of many some, with the last
    last = max([lines[-1]["step"]] + [line["step"] for line in evaluations])
    x, steps = step_scale(lines[0]["step"], last, LEFT, RIGHT)
    y, ticks, unit = scale_of(curve, points, [line["eval_loss"] for line in evaluations])
    entries = []
    if evaluations:
        entries += [(line_mark("line"), "training"), (line_mark("evaluation"), "evaluation")]
    if any(point.skipped for point in points):
        entries.append((skipped_mark, "skipped"))
    name = f"{curve.name}, {unit}" if unit else curve.name
    content = (element("text", escape(name), class_="name", x=4.0, y=20.0) + vertical_axis(y, ticks, LEFT, RIGHT) +
               horizontal_axis(x, steps, TOP, BOTTOM, "step") + draw_line(points, x, y) + draw_targets(curve, points, x) +
               draw_breaks(log, x) + draw_evaluations(evaluations, x, y) + draw_skipped(points, x) + legend(entries))
    return drawing(WIDTH, HEIGHT, content, f"{curve.name} over steps")


def draw_curves(log):
    return "".join(element("figure", draw_curve(log, curve)) for curve in CURVES)
