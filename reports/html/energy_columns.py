"""Columns for the energy of a step, in tables where something counted it in one line at least."""
from typing import Protocol, Sequence

from reports.html.tables import Cell, Column, number, word
from reports.records import Energy

_COLUMNS = (Column("tokens/J", "of whole devices, in the steps that are timed"), Column("J per step", "likewise"),
            Column("W", "mean, likewise"), Column("of", "", False))


class Counted(Protocol):
    """A line of the records that may have an energy."""

    energy: Energy | None


def energy_columns(lines: Sequence[Counted]) -> tuple[Column, ...]:
    return _COLUMNS if any(one.energy for one in lines) else ()


def energy_cells(lines: Sequence[Counted], one: Counted) -> tuple[Cell, ...]:
    """Cells of `one` of the lines, in these columns."""
    if not energy_columns(lines):
        return ()
    energy = one.energy
    return (number(energy and energy.tokens_per_joule), number(energy and energy.joules_a_step),
            number(energy and energy.watts, 3), word(energy.of if energy else "–"))
