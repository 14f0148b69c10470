"""The frame that all figures share, labels of points, and a figure as one small SVG file."""

import math
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from io import StringIO
from itertools import product
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, NullFormatter, NullLocator

from reports.analysis.groups import cut
from reports.page import Heading
from reports.plots.style import ALARM, INK, MUTED, OTHERS, PAPER, Style, styles_for
from reports.units import bytes_text, counted


# ---- A small SVG file: text stays text, one file serves light and dark pages, numbers have visible digits only

HALO = "halo"  # gid of a text with an outline in the page's colour, so that it can be read on lines
FAMILY = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"  # of nearly the same widths

_TAG = re.compile(r"<[^<>]*>")
_TEXT = re.compile(r"<text ([^>]*)font: (700 |)([\d.]+)px 'DejaVu Sans'([^>]*)>([^<]*)<")
_NO_TURN = re.compile(r' transform="rotate\(-?0 [^"]*\)"')
_NAME = re.compile(r'(?<=<g) id="[^"]*"')  # nothing refers to a group
_ALIKE = re.compile(r'<path d="[^"]*"( [^>]*)/>(?:<path d="[^"]*"\1/>)+')
_BOX = re.compile(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4(?=z)")
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_DRAWN = re.compile(r' d="([^"]*)"')


def svg_of(figure: Figure, dark: Mapping[str, str]) -> str:
    """Text of the figure as SVG; `dark` maps colours of a light page to colours of a dark one."""
    made = StringIO()
    figure.savefig(made, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return compact(made.getvalue(), dark)


def compact(svg: str, dark: Mapping[str, str]) -> str:
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    svg = svg.replace(f'<g id="{HALO}"', f'<g class="{HALO}"')
    svg = _TEXT.sub(_text, _NAME.sub("", _NO_TURN.sub("", svg)))
    svg = re.sub(r">\s+<", "><", _TAG.sub(lambda tag: _tag(tag.group()), svg))
    svg = _ALIKE.sub(lambda paths: f'<path d="{"".join(_DRAWN.findall(paths.group()))}"{paths.group(1)}/>', svg)
    rules = f"text{{font-family:{FAMILY};white-space:pre}}{_halo_rule(svg, PAPER)}{_dark_rules(svg, dark)}"
    return svg.replace("</style>", f"{rules}</style>", 1).strip() + "\n"


def _tag(tag: str) -> str:
    return _DRAWN.sub(_path, _NUMBER.sub(lambda number: f"{float(number.group()):.2f}".rstrip("0").rstrip("."), tag))


def _path(match: re.Match) -> str:
    drawn = re.sub(r" *([A-Za-z]) *", r"\1", " ".join(match.group(1).split()))
    drawn = _BOX.sub(r"M\1 \2H\3V\4H\1", drawn)
    return f' d="{drawn}"'


def _text(match: re.Match) -> str:
    """Fixes a text's width to matplotlib's, so that it fits with any font."""
    before, weight, size, after, text = match.groups()
    font = f"font-size: {size}px" + ("; font-weight: 700" if weight else "")
    width = float(size) * _width_in_em(unescape(text), "bold" if weight else "normal")
    length = f' textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"' if len(text) > 1 else ""
    return f"<text {before}{font}{after}{length}>{text}<"


@lru_cache(maxsize=None)
def _width_in_em(text: str, weight: str) -> float:
    """Width in matplotlib's font, at a size at which hinting has little effect."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties("DejaVu Sans", weight=weight, size=100),
                                                             ismath=False)
    return width / 100


def _halo_rule(svg: str, paper: str) -> str:
    if f'class="{HALO}"' not in svg:
        return ""
    return f".{HALO} text{{paint-order:stroke;stroke:{paper};stroke-width:2.2px;stroke-linejoin:round}}"


def _dark_rules(svg: str, dark: Mapping[str, str]) -> str:
    """CSS rules for dark pages; viewers that do not support them show the light colours."""
    rules = [f'[style*="{what}: {light}"]{{{what}:{instead}!important}}' for light, instead in dark.items()
             for what in ("fill", "stroke") if f"{what}: {light}" in svg]
    rules.append(_halo_rule(svg, dark.get(PAPER, PAPER)))
    return f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"


# The frame that all figures share: a title, a line below it that describes the run, axes in bytes, labels.

WIDTH, HEIGHT = 7.4, 4.5  # inches
_LINE = 0.2  # inches per line of the title
_SMALL_LINE = 0.15  # inches per line of the description below it, if it needs several
_DOT = "  ·  "  # between the parts of that line
LABEL_LENGTH = 24


def new_figure(heading: Heading, height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, float]:
    """The figure, and the height in figure coordinates below which axes may lie."""
    lines, below_them = textwrap.wrap(heading.title, int(10 * width)), _wrapped(heading.subtitle, int(15.5 * width))
    more = _SMALL_LINE * (len(below_them) - 1)
    head = _LINE * len(lines) + more + (0.46 if not heading.badge else 0.72)
    total = height + _LINE * len(lines) + more
    figure = Figure(figsize=(width, total))
    left = 0.11 / width
    figure.text(left, 1 - 0.12 / total, "\n".join(lines), va="top", weight="bold", size=11, color=INK, linespacing=1.15)
    below = 1 - (0.2 + _LINE * len(lines)) / total
    figure.text(left, below, "\n".join(below_them), va="top", size=8.5, color=MUTED)
    if heading.badge:
        figure.text(left + 0.02 / width, below - (0.24 + more) / total, heading.badge, va="top", size=8, weight="bold",
                    color=ALARM,
                    bbox={"boxstyle": "round,pad=0.25", "facecolor": "none", "edgecolor": ALARM, "linewidth": 0.9})
    return figure, 1 - head / total


def _wrapped(subtitle: str, columns: int) -> list[str]:
    """Splits a text into lines of whole parts, each as long as fits; one at least."""
    lines = [""]
    for part in subtitle.split(_DOT):
        if lines[-1] and len(lines[-1] + _DOT + part) > columns:
            lines.append(part)
        else:
            lines[-1] += (_DOT if lines[-1] else "") + part
    return lines


def axes_within(figure: Figure, top: float, left: float, right: float, bottom: float, above: float = 0.1) -> Axes:
    """Axes with these inches at their sides, `above` below the figure's heading, which ends at `top`."""
    width, height = figure.get_size_inches()
    return figure.add_axes([left / width, bottom / height, 1 - (left + right) / width, top - (bottom + above) / height])


def axes_grid(figure: Figure, top: float, number: int, columns: int, margins: tuple[float, float, float],
              gaps: tuple[float, float, float]) -> list[Axes]:
    """This many axes in rows of `columns`, below the figure's heading, which ends at `top`. In inches: the margins at the left,
    at the right and at the bottom; the gaps between columns, and above and below the axes of each row."""
    width, height = figure.get_size_inches()
    (left, right, bottom), (gap, above, below) = margins, gaps
    wide = (width - left - right - gap * (columns - 1)) / columns
    high = (top * height - bottom) / -(-number // columns)  # a row with its gaps
    return [figure.add_axes([(left + column * (wide + gap)) / width, top - (high * (row + 1) - below) / height,
                             wide / width, (high - above - below) / height])
            for row, column in (divmod(i, columns) for i in range(number))]


def marked(style: Style, size: float = 6, hollow: bool = False, **look: Any) -> dict[str, Any]:
    """Keywords of Axes.plot for points with the style's marker; `look` replaces the usual properties."""
    return {"linestyle": "none", "marker": style.marker, "color": style.colour, "markersize": size,
            "markerfacecolor": PAPER if hollow else style.colour, **look}


def key(label: str, style: Style, size: float = 6, hollow: bool = False, **look: Any) -> Line2D:
    """A marker of a legend."""
    return Line2D([], [], label=label, **marked(style, size, hollow, **look))


def row_axes(axes: Axes, names: Sequence[str], size: float = 8.2, edge: float = 0.55, places: Sequence[float] = (),
             **look: Any) -> None:
    """A row for each name, from the top down; `places`: of rows that are not all one apart."""
    places = places or range(len(names))
    axes.grid(False, axis="y")
    axes.set_ylim((places[-1] if names else 0) + edge, -edge)
    axes.set_yticks(places, names, size=size, **look)
    axes.tick_params(axis="y", length=0)


def cell_axes(axes: Axes, columns: Sequence[str], rows: Sequence[str], most: int) -> None:
    """Axes of cells with the width and height 1 around whole numbers; `most` columns have a name."""
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    step = -(-len(columns) // most)
    axes.set_xticks(range(0, len(columns), step), columns[::step], size=8)
    axes.set_yticks(range(len(rows)), rows, size=8)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def ticks_at(axes: Axes, places: Sequence[float], texts: Sequence[str]) -> None:
    """Ticks of the x axis at these places only."""
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FixedFormatter(texts))
    axes.xaxis.set_minor_locator(NullLocator())


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int, at: tuple[float, float] = (0.5, 0.0), **look: Any) -> None:
    """A legend at the foot of a figure; `look` replaces the usual properties."""
    figure.legend(handles=handles, bbox_to_anchor=at, ncol=columns, **{"loc": "lower center", **look})


def shortened(label: str) -> str:
    return cut(label, LABEL_LENGTH)


def bytes_axis(axes: Axes, sizes: Sequence[int], most: int = 9) -> None:
    """A log axis with powers of two as ticks, at most `most` ticks."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    low, high = int(np.ceil(np.log2(sizes[0]))), int(np.floor(np.log2(sizes[-1])))
    step = max(1, -(-(high - low + 1) // most))
    ticks = [2 ** k for k in range(low, high + 1, step)] or list(sizes)
    ticks_at(axes, ticks, [bytes_text(tick) for tick in ticks])


def log_axis(axis: Axis, low: float, high: float, text: Callable[[float], str]) -> None:
    """Within two decades it gets ticks at 1, 2 and 5, else at powers of ten."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    getattr(axis.axes, f"set_{axis.axis_name}lim")(low, high)
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if high / low < 150 else (1,), numticks=20))
    axis.set_major_formatter(lambda value, _: text(value))
    axis.set_minor_formatter(NullFormatter())


def value_axis(axes: Axes, low: float, high: float, text: Callable[[float], str]) -> None:
    log_axis(axes.yaxis, low / 1.15, high * 1.15, text)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The positions, moved as little as possible to be at least `gap` apart, in the same order, within [0, 1]: an isotonic
    regression of what is left of each after the gaps before it (Barlow et al. 1972, its max-min formula)."""
    number, order = len(places), np.argsort(places, kind="stable")
    gaps = min(gap, 1 / max(number - 1, 1)) * np.arange(number)
    rest = np.asarray(places)[order] - gaps
    level = [max(min(rest[j:k].mean() for k in range(i + 1, number + 1)) for j in range(i + 1)) for i in range(number)]
    moved = np.empty(number)
    moved[order] = np.clip(level, 0, 1 - gaps[-1:].sum()) + gaps
    return moved.tolist()


def draw_line(axes: Axes, x: Sequence[float], y: Sequence[float], style: Optional[Style]) -> None:
    """A series with its style; without one, in grey below the others."""
    if style is None:
        axes.plot(x, y, color=OTHERS, linewidth=1.0, zorder=1.5)
        return
    axes.plot(x, y, color=style.colour, linestyle=style.dash, marker=style.marker, markersize=4.4, linewidth=1.7,
              markeredgewidth=0, zorder=3)


@dataclass(frozen=True)
class Curve:
    name: str
    x: Sequence[float]
    y: Sequence[float]


def curves_figure(heading: Heading, curves: Sequence[Curve], scale: Callable[[Axes], None], shown: Optional[Mapping[str, Style]] = None,
                  grey: str = "", ends: bool = True) -> tuple[Figure, Axes, Mapping[str, Style]]:
    """Curves with their names at their ends, on axes that `scale` prepares. Those that are not in `shown` are `grey`: "other schedule"."""
    styles = styles_for([curve.name for curve in curves]) if shown is None else shown
    longest = max((len(shortened(name)) for name in styles), default=0) if ends else 0
    figure, top = new_figure(heading)
    axes = figure.add_axes([0.115, 0.115, 1 - min(0.05 + 0.0105 * longest, 0.33) - 0.115, top - 0.115])
    scale(axes)
    for curve in curves:
        draw_line(axes, curve.x, curve.y, styles.get(curve.name))
    named = [curve for curve in curves if curve.name in styles] if ends else []
    _label_ends(axes, named, styles)
    if grey and len(named) < len(curves):
        figure.text(0.985, 0.015, f"grey: {counted(len(curves) - len(named), grey)}", size=8, color=MUTED, ha="right", va="bottom")
    return figure, axes, styles


def _label_ends(axes: Axes, curves: Sequence[Curve], styles: Mapping[str, Style]) -> None:
    """Writes names at the right edge, moved apart where lines end close together; a thin leader joins name and line."""
    to_axes = axes.transAxes.inverted()
    heights = [to_axes.transform(axes.transData.transform((curve.x[-1], curve.y[-1])))[1] for curve in curves]
    gap = 0.16 / (axes.get_position().height * axes.figure.get_figheight())
    for curve, here, place in zip(curves, heights, spread(heights, gap)):
        look = styles[curve.name]
        axes.plot([1.012, 1.03], [here, place], transform=axes.transAxes, color=look.colour, linewidth=0.7, clip_on=False)
        axes.plot([1.043], [place], **marked(look, 5), transform=axes.transAxes, clip_on=False)
        axes.text(1.06, place, shortened(curve.name), transform=axes.transAxes, va="center", size=8.8)


def few_ticks(axes: Axes, values: Iterable[float], label: str, text: Callable[[float], str], room: float = 1.2, most: float = math.inf) -> None:
    """A log axis with a tick at each value, as many as have room."""
    values = sorted(set(values))
    ticks: list[float] = []
    for value in values:
        if not ticks or value >= 0.999 * (values[-1] / values[0]) ** (1 / most) * ticks[-1]:
            ticks.append(value)
    axes.set_xscale("log", base=2)
    axes.set_xlim(values[0] / room, values[-1] * room)
    ticks_at(axes, ticks, [text(value) for value in ticks])
    axes.set_xlabel(label)


# Labels of points, only where they cover no other label or point; a label without a free position is omitted.

SIZE = 7.6
_REACHES = (8, 14, 22, 32, 44, 58)  # points away from the point
_SIDES = ((1, 0.35), (1, -0.35), (-1, 0.35), (-1, -0.35), (0.3, 1), (0.3, -1), (-0.3, 1), (-0.3, -1))
_CROSSING = 20  # penalty of a name on a line, as a distance in points


class Box(NamedTuple):
    """Pixels; thousands are compared, for which matplotlib's are slow."""

    x0: float
    y0: float
    x1: float
    y1: float

    def on(self, other: "Box") -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def within(self, other: "Box") -> bool:
        return other.x0 <= self.x0 and self.x1 <= other.x1 and other.y0 <= self.y0 and self.y1 <= other.y1


@dataclass(frozen=True)
class Wanted:
    text: str
    x: float  # x of the point, in data coordinates
    y: float


@dataclass(frozen=True)
class _Place:
    offset: tuple[float, float]  # points
    box: Box
    reach: float


def place_labels(axes: Axes, wanted: Iterable[Wanted], taken: Iterable[Box], lines: Iterable[Box]) -> list[str]:
    """Draws the texts that fit, the first of `wanted` first, and returns those that were drawn.

    `taken` and `lines` are boxes in pixels; a name may lie on a line if it would be far away otherwise.
    """
    canvas = FigureCanvasAgg(axes.figure)
    occupied, lines = list(taken), list(lines)
    inside = Box(*axes.get_window_extent(canvas.get_renderer()).extents)
    drawn = []
    for label in wanted:
        free = [place for place in _places(axes, label, canvas)
                if place.box.within(inside) and not any(place.box.on(other) for other in occupied)]
        if free:
            best = min(free, key=lambda place: place.reach + _CROSSING * any(place.box.on(line) for line in lines))
            _draw(axes, label, best.offset)
            occupied.append(best.box)
            drawn.append(label.text)
    return drawn


def point_box(axes: Axes, x: float, y: float, radius: float = 4.5) -> Box:
    """The pixels of a marker; the radius is in points."""
    px, py = axes.transData.transform((x, y))
    reach = radius * axes.figure.dpi / 72
    return Box(px - reach, py - reach, px + reach, py + reach)


def _places(axes: Axes, label: Wanted, canvas: FigureCanvasAgg) -> Iterable[_Place]:
    probe = axes.text(0, 0, label.text, size=SIZE)
    size = probe.get_window_extent(canvas.get_renderer())
    probe.remove()
    px, py = axes.transData.transform((label.x, label.y))
    scale = axes.figure.dpi / 72
    for reach, (dx, dy) in product(_REACHES, _SIDES):
        x, y = px + dx * reach * scale, py + dy * reach * scale
        left = x if dx > 0 else x - size.width
        box = Box(left, y - size.height / 2, left + size.width, y + size.height / 2)
        yield _Place((dx * reach, dy * reach), box, reach)


def _draw(axes: Axes, label: Wanted, offset: tuple[float, float]) -> None:
    axes.annotate(
        label.text, (label.x, label.y), xytext=offset, textcoords="offset points", size=SIZE, color=INK, zorder=6,
        ha="left" if offset[0] > 0 else "right", va="center", gid=HALO,
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3})
