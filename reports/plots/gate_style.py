"""How verdicts look in every figure: a colour and a shape each, so that grey print tells them apart too."""
from matplotlib.lines import Line2D

from reports.plots.style import ALARM, INK, MUTED, PAPER, Style

VERDICTS = {"slower": Style("#d55e00", ">", "-"), "undecided": Style("#e69f00", "D", "-"), "faster": Style("#009e73", "<", "-"),
            "same": Style("#0072b2", "o", "-")}
WORDS = {"slower": ALARM, "undecided": INK, "faster": INK, "same": MUTED}  # colour of text: dark enough to read


def marks(verdict: str, size: float = 6) -> dict[str, object]:
    """Keywords of Axes.plot for a case's centre: undecided is hollow."""
    style = VERDICTS[verdict]
    return {"color": style.colour, "marker": style.marker, "markersize": size, "linestyle": "none", "markeredgewidth": 1.3,
            "markeredgecolor": style.colour, "markerfacecolor": PAPER if verdict == "undecided" else style.colour}


def legend_entry(verdict: str, label: str) -> Line2D:
    return Line2D([], [], label=label, **marks(verdict))
