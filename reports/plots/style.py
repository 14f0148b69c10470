"""Colours, markers and line styles: a series looks the same in every figure and can be distinguished in grey."""

from dataclasses import dataclass
from typing import Sequence

import matplotlib
from matplotlib.colors import to_hex, to_rgb

INK, MUTED, GRID, PAPER, OTHERS, ALARM = "#1c1f23", "#5f6670", "#dfe3e8", "#ffffff", "#b4bac2", "#9c2f00"

# Okabe and Ito, "Color Universal Design" (2008), without their yellow, which is too light for a line on white.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d"]
_MARKERS = ["o", "^", "s", "D", "v", "P", "X", "<", ">"]
_DASHES = ["-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1))]

# On a dark page a figure has these colours exchanged.
DARK = {INK: "#e8eaed", MUTED: "#a4abb5", GRID: "#33383f", PAPER: "#17191c", OTHERS: "#565d66", ALARM: "#ff9466",
        "#0072b2": "#3fa7e6", "#d55e00": "#f0803c", "#009e73": "#1fc79a", "#4d4d4d": "#c9ced4"}


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    dash: object


def styles_for(labels: Sequence[str]) -> dict[str, Style]:
    """Style by position; 7 colours, 9 markers and 6 dashes repeat together only after 126 series."""
    return {label: numbered(i) for i, label in enumerate(labels)}


def numbered(i: int) -> Style:
    return Style(_COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)], _DASHES[i % len(_DASHES)])


def settings() -> dict[str, object]:
    """Settings for matplotlib.rc_context."""
    return {
        "font.family": "DejaVu Sans", "font.size": 9.5, "text.color": INK, "axes.edgecolor": MUTED,
        "axes.labelcolor": INK, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
        "ytick.labelcolor": INK, "axes.linewidth": 0.8, "svg.fonttype": "none", "svg.hashsalt": "lockstep",
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER,
        "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, **{f"{axis}tick.{which}.size": 3 for axis in "xy" for which in ("major", "minor")},
        "axes.titlelocation": "left", "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlecolor": INK,
        "axes.titlepad": 5, "legend.frameon": False, "legend.fontsize": 8.5, "legend.labelcolor": INK,
    }


def context():
    return matplotlib.rc_context(settings())


# ---- Fixed colours of a rank's actions, which colour-blind readers can distinguish (Okabe and Ito 2008)

TEXT = "#101214"  # on a box: dark on a dark page too

COMPUTE = {
    "F": ("#56b4e9", "forward"), "B": ("#009e73", "backward"), "I": ("#e69f00", "gradient of input"),
    "W": ("#cc79a7", "gradient of weights"), "RECOMPUTE": ("#f0e442", "recomputation"),
    "STEP": ("#7d7d7d", "optimizer"),
    "CURVATURE": ("#9ad0c2", "curvature, in a bubble"), "INVERT": ("#b39bc8", "inversion, in a bubble"),
    "FILL": ("#d8c3a5", "other work, in a bubble"),
}
STRIPS = {
    "send": ("#3f3f3f", "sending"), "receive": ("#a0a0a0", "message coming in"),
    "tensor": ("#0072b2", "collective in a layer"), "gather": ("#7a4ea3", "gather of weights"),
    "reduce": ("#d55e00", "reduction of gradients"), "replicas": ("#f0a07c", "sum over replicas of shards"),
    "copy": ("#8b6a3e", "copy to or from host"), "load": ("#c9a66b", "copy from host or file"),
    "host": ("#4d6b4f", "update on the host"),
}
OTHER = ("#b4bac2", "other")


def shade(colour: str, chunk: int, chunks: int) -> str:
    """The rank's first stage has the colour itself, the last the lightest."""
    if chunk == 0 or chunks < 2:
        return colour
    part = 0.55 * chunk / (chunks - 1)
    return to_hex([value + (1 - value) * part for value in to_rgb(colour)])
