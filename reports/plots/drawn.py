"""Figures that pages ask for, drawn to files on all cores."""
import os
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reports.page import Drawing
from reports.plots import style
from reports.plots.frame import svg_of


def figure_of(picture: Drawing) -> Figure:
    module, name = picture.draw.split(".")
    return getattr(import_module(f"reports.plots.{module}"), name)(picture.shown, picture.heading)


def render(drawings: Sequence[Drawing], folder: Path) -> None:
    """Draws each into `folder`, as stem.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = min(os.cpu_count() or 1, len(drawings))
    if workers <= 1:
        for drawing in drawings:
            _render(drawing, folder)
        return
    # A forked child starts at once: the parent has no threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        list(pool.map(_render, drawings, [folder] * len(drawings)))


def _render(picture: Drawing, folder: Path) -> None:
    with style.context():
        figure = figure_of(picture)
        FigureCanvasAgg(figure)
        (folder / f"{picture.stem}.svg").write_text(svg_of(figure, style.DARK), encoding="utf-8")
