"""ci/source_groups.py sees the names that two sources cannot both have."""

from pathlib import Path

from source_groups import LARGEST_GROUP, groups, local_names

SOURCE = """
using core::Error;
namespace a {
namespace {

constexpr char kBrace = '{';
const char* const kEnd = "\\"}"; // }
using Names = int;
struct Pair {
  int first;
};
[[noreturn]] void fail(int code) {
  int inner = code;
}
template <class T>
std::vector<T> all(const T& one) { return {one}; }
TEST(Suite, Name) {}

}  // namespace
int outer() { return 1; }
}  // namespace a
"""


def test_names_are_those_of_unnamed_namespaces_and_tests():
    assert local_names(SOURCE) == {"kBrace", "kEnd", "Names", "Pair", "fail", "all", "Suite_Name"}


def planted(tmp_path: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(tmp_path / f"{name}.cpp")
        paths[-1].write_text(text)
    return paths


def test_sources_with_one_name_are_kept_apart(tmp_path):
    a, b, c = planted(tmp_path, a="namespace {\nint at() {\n}\n}", b="namespace {\nint at() {\n}\n}", c="int c();")
    assert groups([a, b, c]) == [[a, c], [b]]


def test_what_highway_compiles_again_stays_alone(tmp_path):
    a, b, c = planted(tmp_path, a="int a();", b="#include <hwy/foreach_target.h>", c="int c();")
    assert groups([a, b, c]) == [[a, c], [b]]


def test_groups_are_not_larger_than_the_largest(tmp_path):
    paths = planted(tmp_path, **{f"s{i}": "" for i in range(LARGEST_GROUP + 1)})
    assert [len(group) for group in groups(paths)] == [LARGEST_GROUP, 1]
