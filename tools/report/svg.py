"""svg.py: elements of SVG and HTML, numbers as text, scales and axes."""
import html
import math
import re

TEXT_MAX = 2000
NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


def element(name, content="", **attributes):
    """An element; `class_` is the attribute class, and an underscore within a name is a hyphen. `content` is markup."""
    text = "".join(f' {key.rstrip("_").replace("_", "-")}="{attribute_text(value)}"' for key, value in attributes.items())
    return f"<{name}{text}>{content}</{name}>"


def attribute_text(value):
    return position(value) if isinstance(value, float) else markup(str(value))


def escape(text):
    """A text from outside as markup has it, of bounded length."""
    text = str(text)
    return markup(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "...")


def markup(text):
    """Without what neither HTML nor XML can have."""
    return html.escape(NO_TEXT.sub("\ufffd", text))


def position(value):
    """A coordinate, as short as a hundredth of a unit allows."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def title(text):
    """What a browser shows under the pointer."""
    return element("title", escape(text))


def drawing(width, height, content, label):
    return element("svg", content, viewBox=f"0 0 {position(float(width))} {position(float(height))}", role="img", aria_label=label)


def figure(value, digits=4):
    """A number for people: 0.003, 12.35, 17.6k."""
    if value is None or not math.isfinite(value):
        return "not finite"
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.{digits}g}{suffix}"
    return f"{value:.{digits}g}"


def round_step(span, count):
    """1, 2 or 5 times a power of ten, so that `span` has at most `count` of them."""
    least = span / count
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


class Scale:
    """From values to positions along an axis."""

    def __init__(self, low, high, start, end, logarithmic=False):
        self.low, self.high, self.start, self.end, self.logarithmic = low, high, start, end, logarithmic

    def __call__(self, value):
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear_scale(values, start, end, from_zero=False, count=5):
    """A scale from a round number below all values to one above them, and its ticks."""
    low, high = min([0.0] * from_zero + values), max([0.0] * from_zero + values)
    if high - low <= abs(high) * 1e-9:  # all the same
        low, high = low - (0 if from_zero else abs(low) / 10 or 1), high + (abs(high) / 10 or 1)
    step = round_step(high - low, count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Scale(first * step, last * step, start, end), [n * step for n in range(first, last + 1)]


def logarithmic_scale(values, start, end):
    """The same for positive values over several powers of ten."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    last += last == first
    stride = math.ceil((last - first) / 6)
    return Scale(10.0**first, 10.0**last, start, end, True), [10.0**n for n in range(first, last + 1, stride)]


def step_scale(first, last, start, end):
    """A scale over whole numbers, and ticks within it."""
    if first == last:
        return Scale(first - 1, last + 1, start, end), [first]
    step = max(1, int(round_step(last - first, 6)))
    ticks = [n * step for n in range(-(-first // step), last // step + 1)]
    return Scale(first, last, start, end), ticks


def horizontal_axis(scale, ticks, top, bottom, name):
    parts = [element("line", class_="axis", x1=float(scale.start), x2=float(scale.end), y1=float(bottom), y2=float(bottom))]
    for tick in ticks:
        x = scale(tick)
        parts.append(element("line", class_="grid", x1=x, x2=x, y1=float(top), y2=float(bottom)))
        parts.append(element("text", escape(tick_text(tick, ticks)), class_="tick", x=x, y=bottom + 16.0, text_anchor="middle"))
    parts.append(element("text", escape(name), class_="unit", x=float(scale.end), y=bottom + 32.0, text_anchor="end"))
    return "".join(parts)


def vertical_axis(scale, ticks, left, right):
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(element("line", class_="grid", x1=float(left), x2=float(right), y1=y, y2=y))
        parts.append(element("text", escape(tick_text(tick, ticks)), class_="tick", x=left - 8.0, y=y + 4.0, text_anchor="end"))
    return "".join(parts)


def tick_text(tick, ticks):
    """Ticks of one axis differ, and have no more digits than that takes."""
    if isinstance(tick, int):
        return str(tick)
    largest = max(abs(t) for t in ticks)
    return figure(0.0 if abs(tick) < largest * 1e-9 else tick, 6)
