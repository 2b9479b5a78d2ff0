"""The vocabulary of pictures, as inline SVG: plot areas, axes, markers, lines, labels and bars.

Systems differ by colour *and* by marker, so that no reader needs to tell colours apart.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from eval_kit.markup import element

_SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M-4-4h8v8h-8z",
    "M0-5.6L4.9 2.8H-4.9z",
    "M0-5.6L5.6 0L0 5.6L-5.6 0z",
    "M0 5.6L4.9-2.8H-4.9z",
    "M-4.5-4.5l9 9m0-9l-9 9",
)
MARKERS = len(_SHAPES)
"""How many systems look different; the seventh looks like the first."""
_TINY = 1e-300
_LONGEST_BAR = 1.0
"""Losses beyond 100 % are drawn as 100 %, or one ASL loss of 1000 % would flatten all other bars."""

_COLOURS = re.compile(r"^  (--.*)$", re.MULTILINE)
_LOOKS = re.compile(r"^(?:\.plot|\.grid|\.zero|\.few|\.range|\.mark|\.swatch|\.s\d).*$", re.MULTILINE)
"""Lines of the pages' style sheet that pictures need: its first three lines of colours are a light page's."""


type Axis = tuple[tuple[float, float], list[tuple[float, str]]]
"""A range, and its ticks with their labels."""


class Point(NamedTuple):
    """A point of a series, with a marker if it has a tooltip, and with the interval of its y, if it has one."""

    x: float
    y: float
    tooltip: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Frame:
    """A plot area and its two linear scales, in the units of the picture."""

    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    left: float = 52
    right: float = 22
    top: float = 32
    bottom: float = 44

    def x(self, value: float) -> float:
        """The horizontal position of a value, from the left."""
        return _position(value, self.x_range, self.left, self.width - self.right)

    def y(self, value: float) -> float:
        """The vertical position of a value, from the top."""
        return _position(value, self.y_range, self.height - self.bottom, self.top)

    def grid(self, ticks: Sequence[tuple[float, str]], title: str) -> Markup:
        """Horizontal lines with their labels, and the axis' title above them."""
        parts = [label(0, 12, title, anchor="start")]
        for at, text in ticks:
            parts.append(line(self.left, self.y(at), self.width - self.right, self.y(at), "grid"))
            parts.append(label(self.left - 6, self.y(at) + 4, text, anchor="end"))
        if self.y_range[0] < 0 < self.y_range[1]:
            parts.append(line(self.left, self.y(0), self.width - self.right, self.y(0), "zero"))
        return Markup().join(parts)

    def x_axis(self, ticks: Iterable[tuple[float, str]], title: str) -> Markup:
        """The line at the bottom, with ticks and the axis' title."""
        floor = self.height - self.bottom
        parts = [line(self.left, floor, self.width - self.right, floor, "axis")]
        for at, text in ticks:
            parts.append(line(self.x(at), floor, self.x(at), floor + 4, "axis"))
            parts.append(label(self.x(at), floor + 16, text))
        parts.append(label((self.left + self.width - self.right) / 2, self.height - 6, title))
        return Markup().join(parts)


def span(losses: Iterable[float | None]) -> tuple[float, float]:
    """The scale that the bars of one table share: zero and all the losses and their intervals, within ±100 %."""
    ends = [0.0, *filter(None, losses)]
    low, high = max(min(ends), -_LONGEST_BAR), min(max(ends), _LONGEST_BAR)
    return (low, high) if low < high else (0.0, 1.0)


def loss_bar(
    value: float | None, low: float | None, high: float | None, scale: tuple[float, float], harm: int = 1
) -> Markup:
    """A loss (None: no bar) as a small bar from zero with its interval as a whisker, cut at the ends of the ``scale``.

    ``harm`` is 1 if a positive value is harm, -1 if a negative one is.
    """
    frame = Frame(96, 14, scale, (0, 1), left=2, right=2, top=0, bottom=0)

    def at(loss: float) -> float:
        return frame.x(max(scale[0], min(scale[1], loss)))

    parts = []
    if value is not None:
        ends = sorted((at(0), at(value)))
        kind = "harm" if value * harm > 0 else "gain"
        parts.append(element("rect", x=ends[0], y=3, width=ends[1] - ends[0], height=8, class_=f"bar {kind}"))
        if low is not None and high is not None:
            parts.append(line(at(low), 7, at(high), 7, "whisker"))
    parts.append(line(at(0), 0, at(0), 14, "zero"))
    return element(
        "svg", *parts, class_="lossbar", viewBox="0 0 96 14", preserveAspectRatio="xMinYMid", aria_hidden="true"
    )


def swatch(system: int) -> Markup:
    """A system's marker, for legends and tables."""
    kind = f"swatch s{system % MARKERS}"
    return element("svg", marker(system, 7, 7), class_=kind, viewBox="0 0 14 14", aria_hidden="true")


def series(system: int, marks: Sequence[Markup]) -> Markup:
    """The marks of one system, in its colour; nothing where there are none, so that no legend shows it."""
    if not marks:
        return Markup()
    return element("g", *marks, class_=f"series s{system % MARKERS}", data_system=system)


def picture(frame: Frame, parts: Sequence[Markup], title: str) -> Markup:
    """A whole picture; the title is for those who do not see it."""
    box = f"0 0 {frame.width:.0f} {frame.height:.0f}"
    size = f"max-width: {1.2 * frame.width:.0f}px; --least: {0.7 * frame.width:.0f}px"
    return element("svg", *parts, class_="plot", viewBox=box, role="img", aria_label=title, style=size)


def drawn(
    frame: Frame, points: Mapping[str, Sequence[Point]], connect: bool = False, apart: float = 0.0
) -> list[Markup]:
    """Each series' points in its colour: intervals, markers and, to ``connect`` them, a line.

    Series whose points have the same x stand ``apart`` by so much.
    """
    parts = []
    for number, of_series in enumerate(points.values()):
        aside = apart * (number - (len(points) - 1) / 2)
        marks, corners = [], []
        for point in of_series:
            x, y = frame.x(point.x) + aside, frame.y(point.y)
            corners.append(f"{x:.1f},{y:.1f}")
            if point.low is not None and point.high is not None:
                marks.append(line(x, frame.y(point.low), x, frame.y(point.high), "range"))
            if point.tooltip:
                marks.append(element("g", element("title", point.tooltip), marker(number, x, y)))
        link = [element("polyline", points=" ".join(corners), class_="link")] if connect and corners else []
        parts.append(series(number, [*link, *marks]))
    return parts


def marker(system: int, x: float, y: float) -> Markup:
    """Circle, square, triangle, diamond, triangle on its tip, cross."""
    shape = _SHAPES[system % MARKERS]
    kind = "mark" if shape.endswith("z") else "mark cross"
    return element("path", d=shape, transform=f"translate({x:.1f} {y:.1f})", class_=kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A line whose look the style sheet gives to its kind."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)


def label(x: float, y: float, text: str, anchor: str = "middle", class_: str | None = None) -> Markup:
    """A text at a place."""
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def axis(values: Iterable[float | None], percent: bool = False) -> Axis:
    """A range that holds zero and all the values, with its ticks in percent or as they are."""
    ends = [0.0, *filter(None, values)]
    low, high = min(ends), max(ends)
    at = ticks(low, high if high > low or not percent else 0.01, wider=True)
    return (at[0], at[-1]), with_labels(at, percent)


def ticks(low: float, high: float, wider: bool = False) -> list[float]:
    """About five round numbers in a range, or just around it."""
    rough = high / 5 - low / 5  # 0.999 and 1e-9 below: steps and ends that floats miss by a bit
    if rough < _TINY:  # equal, or so near that no step between them has all its digits
        rough, high = 0.2, low + 1.0
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first = math.floor(low / step + 1e-9) if wider else math.ceil(low / step - 1e-9)
    last = math.ceil(high / step - 1e-9) if wider else math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def with_labels(ticks: Sequence[float], percent: bool = False) -> list[tuple[float, str]]:
    """The ticks with their labels: the fewest decimals that show the step exactly, so that no two have one label."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    digits = next(digits for digits in range(300) if abs(round(step, digits) - step) < 1e-6 * step)
    form = f",.{max(0, digits - 2)}%" if percent else f",.{digits}f"
    return [(at, format(at, form).replace("-", "\u2212")) for at in ticks]


def told_apart(values: Sequence[float]) -> list[str]:
    """With the fewest significant digits, at least two, in which values that differ have different labels."""
    for digits in range(2, 18):
        labels = [np.format_float_positional(value, digits, fractional=False, trim="-") for value in values]
        if len(set(labels)) == len(set(values)):
            break
    return [label.replace("-", "\u2212") for label in labels]


def _position(value: float, span: tuple[float, float], start: float, end: float) -> float:
    return float(start + (end - start) * (value - span[0]) / (span[1] - span[0]))


def style(of: str) -> str:
    """The style sheet of a picture in a light page, for the element ``of``."""
    css = (Path(__file__).parent / "pages/assets/page.css").read_text(encoding="utf-8")
    return f"<style>{of} {{ {' '.join(_COLOURS.findall(css)[:3])} }} {' '.join(_LOOKS.findall(css))}</style>"


def standalone(picture: Markup) -> str:
    """A picture as a file of its own."""
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    start, end = picture.split(">", 1)
    font = "<style>text { font-family: system-ui, sans-serif; }</style>"
    return f'{start} xmlns="http://www.w3.org/2000/svg">{style("svg")}{font}{paper}{end}'
