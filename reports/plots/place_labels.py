"""Names beside points, only where they lie on no other name or point; what finds no place is left out."""
from dataclasses import dataclass
from itertools import product
from typing import Iterable, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from reports.plots.style import INK, MUTED
from reports.plots.svg import HALO

SIZE = 7.6
_REACHES = (8, 14, 22, 32, 44, 58)  # points away from the point
_SIDES = ((1, 0.35), (1, -0.35), (-1, 0.35), (-1, -0.35), (0.3, 1), (0.3, -1), (-0.3, 1), (-0.3, -1))
_CROSSING = 20  # a name on a line costs as much as being so many points farther away


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
    """Draws what fits, the first wanted first; the texts that were drawn.

    `taken` and `lines` are boxes in pixels; a name may lie on a line if it would be far away otherwise.
    """
    canvas = FigureCanvasAgg(axes.figure)
    occupied, lines = list(taken), list(lines)
    inside = Box(*axes.get_window_extent(canvas.get_renderer()).extents)
    drawn = []
    for one in wanted:
        free = [place for place in _places(axes, one, canvas)
                if place.box.within(inside) and not any(place.box.on(other) for other in occupied)]
        if free:
            best = min(free, key=lambda place: place.reach + _CROSSING * any(place.box.on(line) for line in lines))
            _draw(axes, one, best.offset)
            occupied.append(best.box)
            drawn.append(one.text)
    return drawn


def point_box(axes: Axes, x: float, y: float, radius: float = 4.5) -> Box:
    """The pixels of a marker; the radius is in points."""
    px, py = axes.transData.transform((x, y))
    reach = radius * axes.figure.dpi / 72
    return Box(px - reach, py - reach, px + reach, py + reach)


def _places(axes: Axes, one: Wanted, canvas: FigureCanvasAgg) -> Iterable[_Place]:
    probe = axes.text(0, 0, one.text, size=SIZE)
    size = probe.get_window_extent(canvas.get_renderer())
    probe.remove()
    px, py = axes.transData.transform((one.x, one.y))
    scale = axes.figure.dpi / 72
    for reach, (dx, dy) in product(_REACHES, _SIDES):
        x, y = px + dx * reach * scale, py + dy * reach * scale
        left = x if dx > 0 else x - size.width
        box = Box(left, y - size.height / 2, left + size.width, y + size.height / 2)
        yield _Place((dx * reach, dy * reach), box, reach)


def _draw(axes: Axes, one: Wanted, offset: tuple[float, float]) -> None:
    axes.annotate(
        one.text, (one.x, one.y), xytext=offset, textcoords="offset points", size=SIZE, color=INK, zorder=6,
        ha="left" if offset[0] > 0 else "right", va="center", gid=HALO,
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3})
