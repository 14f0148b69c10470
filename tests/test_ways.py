"""Five ways through the code, as docs/architecture.md lists them, hold: each file exists, is included by one above it, and has the function
that the text follows, which a file above it names; no way is longer than its title promises, or comes back to a folder that it has left."""
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
TITLE = re.compile(r"^### (?P<name>From .*?) \((?P<most>\d+) files\)$", re.M)
ITEM = re.compile(r"^\d+\. `(?P<path>[\w./-]+)`: `(?P<function>\w+)`", re.M)
SOURCES = (".cpp", ".h", "-inl.h", ".cu", ".cuh", ".py")


class Item(NamedTuple):
    path: str  # without its ending where a source and its header are meant
    function: str

    @property
    def files(self) -> list[Path]:
        whole = ROOT / self.path
        return [whole] if whole.suffix in SOURCES else [found for end in SOURCES if (found := Path(f"{whole}{end}")).exists()]

    @property
    def text(self) -> str:
        return "\n".join(file.read_text() for file in self.files)

    def is_seen_by(self, above: "Item") -> bool:
        """True if a header that declares the function is included there, or for Python the module or its package is imported."""
        if any(file.suffix == ".py" for file in self.files):
            module = str(self.files[0].relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
            names = "|".join(map(re.escape, (module, module.rpartition(".")[0])))
            drawn = rf"['\"]{module.rpartition('.')[2]}\.({self.function}|{{)"  # how a page names what draws a figure
            return re.search(drawn, above.text) is not None or re.search(rf"(from|import) ({names})\b", above.text) is not None
        own = {str(file.relative_to(ROOT)) for file in self.files if file.suffix == ".h"}
        declaring = {header for header in own | set(INCLUDE.findall(self.text))
                     if (ROOT / header).exists() and re.search(rf"\b{self.function}\b", (ROOT / header).read_text())}
        return bool(declaring & seen_from(above.text))


INCLUDE = re.compile(r'^#include "(.*?)"', re.M)


@lru_cache(maxsize=None)
def included_by(header: str) -> frozenset[str]:
    file = ROOT / header
    return frozenset(INCLUDE.findall(file.read_text())) if file.exists() else frozenset()


def seen_from(text: str) -> set[str]:
    """Headers that a text includes, directly or through others."""
    seen: set[str] = set()
    new = set(INCLUDE.findall(text))
    while new:
        seen |= new
        new = {line for header in new for line in included_by(header)} - seen
    return seen


def ways() -> dict[str, tuple[int, list[Item]]]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    titles = list(TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    return {title["name"]: (int(title["most"]), [Item(*line.groups()) for line in ITEM.finditer(text[title.end():end].split("\n## ")[0])])
            for title, end in zip(titles, ends)}


WAYS = ways()


def test_the_five_ways_are_told_and_as_short_as_promised():
    assert [most for most, _ in WAYS.values()] == [15, 18, 13, 12, 9]
    assert all(len(items) <= most for most, items in WAYS.values()), {name: len(items) for name, (_, items) in WAYS.items()}


@pytest.mark.parametrize("name", WAYS)
def test_each_step_of_a_way_goes_down(name):
    _, items = WAYS[name]
    folders = [item.path.split("/")[0] for item in items]
    visits = [folder for i, folder in enumerate(folders) if i == 0 or folders[i - 1] != folder]
    assert len(visits) == len(set(visits)), f"the way comes back: {visits}"
    for i, item in enumerate(items):
        assert item.files, f"no file {item.path}"
        assert re.search(rf"\b{item.function}\b", item.text), f"{item.path} has no {item.function}"
        above = items[:i]
        if above:
            assert any(item.is_seen_by(line) for line in above), f"nothing above {item.path} includes what declares {item.function}"
            assert any(re.search(rf"\b{item.function}\b", line.text) for line in above), f"nothing above {item.path} names {item.function}"
