"""Names of rows of a chart that are longer than their place: in two lines, then without their middle; never two alike."""
from collections import Counter
from typing import Sequence

BREAKS = " /,:"  # a line may end behind these


def in_two_lines(name: str, width: int) -> str:
    """One line if it fits, else two, broken where the name has a seam; what is too long for two loses its middle."""
    if len(name) <= width:
        return name
    name = without_middle(name, 2 * width - 2)
    least = len(name) - width
    seams = [i + 1 for i, letter in enumerate(name) if letter in BREAKS and least <= i + 1 <= width]
    at = min(seams, key=lambda place: abs(place - len(name) / 2), default=min(width, len(name)))
    return f"{name[:at].rstrip()}\n{name[at:].lstrip()}"


def without_middle(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head):]}"


def row_names(names: Sequence[str], width: int) -> list[str]:
    shown = [in_two_lines(name, width) for name in names]
    often, seen = Counter(shown), Counter()
    for i, name in enumerate(shown):
        if often[name] > 1:
            seen[name] += 1
            shown[i] = f"{name} #{seen[name]}"
    return shown
