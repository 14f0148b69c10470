"""Grouping of lines, which all pages share: the latest of equal lines counts, and places are named only where there are several."""
from types import SimpleNamespace

from reports.analysis.groups import by, Group, latest, link_text, listed, on_links


def line(**fields):
    return SimpleNamespace(**fields)


def test_the_latest_of_equal_lines_counts_in_the_place_of_the_first():
    groups = latest([(2, "a", 1), (1, "a", 2), (2, "b", 3), (2, "a", 4)], lambda pair: pair[0], lambda pair: pair[1])
    assert groups == {2: {"a": (2, "a", 4), "b": (2, "b", 3)}, 1: {"a": (1, "a", 2)}}
    assert list(groups) == [2, 1] and list(groups[2]) == ["a", "b"]
    assert by([3, 1, 2, 5], lambda number: number % 2, str) == {1: ["3", "1", "5"], 0: ["2"]}


def test_places_are_named_only_where_there_are_several():
    lines = [[line(run=line(basis=basis))] for basis in ("measured", "emulated", "simulated")]
    place = Group.of_places("kind", zip(["here", "here", ""], lines))
    assert [(group.anchor, group.place, group.basis) for group in place] == [
        ("kind-1", "", ""), ("kind-2", "", "emulated"), ("kind-3", "", "simulated")]
    assert [group.place for group in Group.of_places("kind", zip(["here", "there", ""], lines))] == ["here", "there", ""]


def test_words_for_links():
    fast = line(gbps=10, latency_us=2)
    assert (link_text(fast), link_text(None), link_text(line(gbps=None, latency_us=0))) == (
        "links of 10 GB/s, 2 µs", "links without limit", "links without limit")
    assert on_links(line(run=line(link=fast))) == "emulated links of 10 GB/s, 2 µs" and on_links(line(run=line(link=None))) == ""
    assert listed("a", "", "b") == "a, b"
