"""Ring or tree: which series belong to either family, and the best of a family as one series."""
from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.crossover import fastest_spans
from reports.analysis.panels import Series, Variant
from reports.units import joined

# By the words of an algorithm's name. A chain is the ring of a rooted collective: every rank hands on to the next. PAT
# is a binomial tree for each block, messages shared.
_WORDS = {
    "ring": {"ring", "chain"},
    "tree": {"tree", "binomial", "pat"},
}


@dataclass(frozen=True)
class Family:
    name: str  # "ring", "tree"
    members: tuple[Series, ...]
    best: Series  # at each size the fastest member

    @property
    def called(self) -> str:
        """The name in a sentence: a member's, if it is the fastest of its family, or level with it, at every size."""
        spans = fastest_spans(self.members)
        return str(spans[0].answer) if len(spans) == 1 else f"the best {self._noun}{self._over}"

    @property
    def _over(self) -> str:
        """The transport, where the members' labels say it: a panel with several."""
        endings = {member.label[len(member.algorithm):] for member in self.members}
        return endings.pop() if len(endings) == 1 else ""

    @property
    def _noun(self) -> str:
        """Name of all members, if they are one algorithm with several options; else the family."""
        bases = {member.algorithm.split(":")[0] for member in self.members}
        return bases.pop() if len(bases) == 1 else self.name

    @property
    def representative(self) -> Series:
        """The member that is the fastest of its family, or level with it, over the most sizes."""
        spans = fastest_spans(self.members)
        sizes = {m.label: sum(m.label == span.answer and span.first <= size <= span.last
                              for span in spans for size in self.best.sizes) for m in self.members}
        return max(self.members, key=lambda member: sizes[member.label])

    @property
    def explained(self) -> str:
        if len(self.members) == 1:
            return ""
        names = [member.label for member in self.members]
        listed = joined(names) if len(names) <= 4 else str(len(names))
        return f"{self.name.capitalize()}s run: {listed}"


def family_of(algorithm: str) -> Optional[str]:
    words = set(algorithm.split(":")[0].replace("-", "_").split("_"))
    return next((family for family, names in _WORDS.items() if words & names), None)


def family(name: str, series: Sequence[Series], variant: Variant) -> Optional[Family]:
    members = tuple(one for one in series if one.variant == variant and family_of(one.algorithm) == name)
    return Family(name, members, envelope(members)) if members else None


def envelope(members: Sequence[Series]) -> Series:
    sizes = sorted({size for one in members for size in one.sizes})
    fastest = (min((p for one in members if (p := one.at(size))), key=lambda p: p.time_us) for size in sizes)
    first = members[0]
    return Series(first.label, first.algorithm, first.variant, tuple(fastest))
