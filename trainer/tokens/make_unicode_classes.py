#!/usr/bin/env python3
"""Writes unicode_classes.cpp from the Unicode Character Database, which Python has as unicodedata; its version is in the
file. Version 16.0.0 is Python 3.14's, or the package unicodedata2's:

    python3 make_unicode_classes.py > unicode_classes.cpp
"""

from __future__ import annotations

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

LINE = 118


def class_of(code: int) -> str:
    return {"L": "letter", "N": "number"}.get(unicodedata.category(chr(code))[0], "")


def ranges(wanted: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in range(0x110000):
        if class_of(code) != wanted:
            continue
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


def array_of(name: str, wanted: str) -> str:
    lines, line = [], "   "
    found = ranges(wanted)
    for first, last in found:
        text = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(text) > LINE:
            lines.append(line)
            line = "   "
        line += text
    return f"constexpr std::array<Range, {len(found)}> {name}{{{{\n" + "\n".join([*lines, line]) + "\n}};\n"


print(f"""// Letters (categories L*) and numbers (N*) of Unicode {unicodedata.unidata_version}, from the Unicode Character Database.
// Written by make_unicode_classes.py.
#include "trainer/tokens/unicode.h"

#include <algorithm>
#include <array>

namespace lockstep::trainer {{
namespace {{

struct Range {{
  std::uint32_t first;
  std::uint32_t last;
}};
// clang-format off
{array_of("kLetters", "letter")}
{array_of("kNumbers", "number")}// clang-format on

template <std::size_t kCount>
bool is_in(const std::array<Range, kCount>& ranges, std::uint32_t code) {{
  const auto* const behind =
      std::partition_point(ranges.begin(), ranges.end(), [code](const Range& range) {{ return range.last < code; }});
  return behind != ranges.end() && behind->first <= code;
}}

}}  // namespace

bool is_letter(std::uint32_t code) {{
  return is_in(kLetters, code);
}}

bool is_number(std::uint32_t code) {{
  return is_in(kNumbers, code);
}}

}}  // namespace lockstep::trainer""")
