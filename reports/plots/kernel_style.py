"""How kernels look in every figure: colour and marker by family or by what binds them, filled or hollow by dtype."""
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.analysis.roofline.pairs import ORDER, OTHER
from reports.plots.style import INK, MUTED, OTHERS, PAPER, Style, numbered

GROUPS = {name: numbered(i) if name != OTHER else Style(OTHERS, "*", "-") for i, name in enumerate(ORDER)}
BOUNDS = {"memory": numbered(0), "compute": numbered(1), "launch": numbered(2)}
BOUND_NAMES = {"memory": "memory", "compute": "arithmetic", "launch": "launch"}

_FILLS = {"f32": "full", "bf16": "none", "f16": "bottom"}  # others: the left half
_FILL_NAMES = {"full": "filled", "none": "hollow", "bottom": "lower half", "left": "left half"}


def _fill(dtype: str) -> str:
    return _FILLS.get(dtype, "left")


def marks(style: Style, dtype: str, size: float) -> dict[str, object]:
    """Keywords of Axes.plot for one point: full f32, hollow bf16, half of it f16 and others."""
    return {"color": style.colour, "marker": style.marker, "markersize": size, "linestyle": "none",
            "fillstyle": _fill(dtype), "markerfacecoloralt": PAPER, "markeredgewidth": 1.1,
            "markeredgecolor": style.colour}


def legend(figure: Figure, styles: dict[str, Style], dtypes: Sequence[str], bottom: float, columns: int) -> None:
    """Legend of colours and markers, below the axes; and of fills, where there are several."""
    entries = [(name, marks(style, "f32", 6)) for name, style in styles.items()]
    if len(dtypes) > 1:
        for fill, name in _FILL_NAMES.items():
            alike = [dtype for dtype in dtypes if _fill(dtype) == fill]
            if alike:
                entries.append((f"{', '.join(alike)}: {name}", marks(Style(MUTED, "o", "-"), alike[0], 6)))
    handles = [Line2D([], [], label=name, **look) for name, look in entries]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, bottom), ncol=columns, frameon=False,
                  fontsize=8.5, handletextpad=0.3, columnspacing=1.6, labelcolor=INK)


def row_lines(axes: Axes, rows: int, colour: str) -> None:
    """A hair line through each row of a chart, to lead the eye from the name to the dot."""
    for row in range(rows):
        axes.axhline(row, color=colour, linewidth=0.6, zorder=0.4)
