"""Lines in groups that a page shows together, and what all kinds of groups share."""
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Sequence

from reports.records import Build, Link, Run
from reports.units import short, time_text


@dataclass(frozen=True)
class Finding:
    headline: str
    text: str
    why: str
    badge: str  # basis, if the finding is not measured
    anchor: str  # the page's section
    caveat: str = ""  # what limits it: ranks that share cores, few samples (caveats.py)
    exact: str = ""  # the part of the text that does not depend on times


def latest(lines: Iterable[Any], key: Callable[[Any], Any], place: Callable[[Any], Any]) -> dict[Any, dict[Any, Any]]:
    """Groups by their key, each with its lines by their place in it: of several lines at one place, as of several runs, the last counts."""
    groups: dict[Any, dict[Any, Any]] = {}
    for line in lines:
        groups.setdefault(key(line), {})[place(line)] = line
    return groups


def by(lines: Iterable[Any], key: Callable[[Any], Any], value: Callable[[Any], Any] = lambda line: line) -> dict[Any, list[Any]]:
    """Lines, or a value of each, by their key, in their order."""
    groups: dict[Any, list[Any]] = {}
    for line in lines:
        groups.setdefault(key(line), []).append(value(line))
    return groups


def basis_order(basis: str) -> int:
    return ("measured", "emulated", "simulated").index(basis)


def setting_of(line: Any) -> tuple:
    """Lines that differ in these are never in one figure."""
    return line.run.machine.fingerprint, line.run.build, line.basis, line.run.link


@dataclass(frozen=True)
class Group:
    """Lines that one section shows. A kind of group has a name, and in `statements` its findings: a sentence, its explanation,
    and the part that does not depend on times, if there is one."""

    anchor: str
    lines: tuple[Any, ...]
    place: str = ""  # machine and build, where there are several

    @classmethod
    def all_of(cls, kind: str, groups: Iterable[Iterable[Any]]) -> tuple:
        return tuple(cls(f"{kind}-{number}", tuple(lines)) for number, lines in enumerate(groups, start=1))

    @classmethod
    def of_places(cls, kind: str, groups: Iterable[tuple[str, Iterable[Any]]]) -> tuple:
        """`groups` have places, which are named if there are several."""
        groups = list(groups)
        several = len({place for place, _ in groups if place}) > 1
        return tuple(replace(line, place=place) if several else line
                     for line, (place, _) in zip(cls.all_of(kind, (lines for _, lines in groups)), groups))

    @property
    def first(self) -> Any:
        return self.lines[0]

    @property
    def basis(self) -> str:
        """Basis of the lines, if they were not measured."""
        return "" if self.first.run.basis == "measured" else self.first.run.basis

    @property
    def findings(self) -> list[Finding]:
        return [Finding(self.headline, text, why, self.basis, self.anchor, exact="".join(exact)) for text, why, *exact in self.statements if text]

    @property
    def headline(self) -> str:
        return self.name


# ---- Words that several kinds of groups share

class Places:
    """Names for machines and builds, used only where there are several; numbered as in the notes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._machines = list(dict.fromkeys(run.machine.fingerprint for run in runs))
        self._builds = list(dict.fromkeys(run.build for run in runs))

    def of(self, fingerprint: str, build: Build) -> str:
        return listed(f"machine {self._machines.index(fingerprint) + 1}" if len(self._machines) > 1 else "",
                      f"build {self._builds.index(build) + 1} ({build.short_revision})" if len(self._builds) > 1 else "")


def link_text(link: Link | None) -> str:
    """Words such as "links of 1 GB/s, 10 µs"."""
    parts = listed(f"{short(link.gbps)} GB/s" if link.gbps else "", time_text(link.latency_us) if link.latency_us else "") if link else ""
    return f"links of {parts}" if parts else "links without limit"


def on_links(line: Any) -> str:
    """Words such as "emulated links of 1 GB/s, 10 µs"; empty if the run's links were not emulated."""
    return f"emulated {link_text(line.run.link)}" if line.run.link else ""


def listed(*parts: str) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(part for part in parts if part)


def dotted(*parts: str) -> str:
    """The parts that are not empty, as on the line below a figure's title."""
    return "  ·  ".join(part for part in parts if part)


def cut(text: str, most: int) -> str:
    """The text, with at most this many characters."""
    return text if len(text) <= most else text[:most - 1] + "…"


def wrong_of(lines: Sequence[Any]) -> list[Any]:
    return [line for line in lines if line.status != "ok"]
