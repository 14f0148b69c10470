"""A figure as one small SVG file: text stays text, light and dark are one file, numbers have the digits that are seen."""
import re
from functools import lru_cache
from html import unescape
from io import StringIO
from typing import Mapping

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from reports.plots.style import PAPER

HALO = "halo"  # the gid of a text with a rim of the paper's colour, to be read where it lies on lines
FAMILY = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"  # of nearly the same widths

_TAG = re.compile(r"<[^<>]*>")
_TEXT = re.compile(r"<text ([^>]*)font: (700 |)([\d.]+)px 'DejaVu Sans'([^>]*)>([^<]*)<")
_NO_TURN = re.compile(r' transform="rotate\(-?0 [^"]*\)"')
_NAME = re.compile(r'(?<=<g) id="[^"]*"')  # nothing refers to a group
_ALIKE = re.compile(r'<path d="[^"]*"( [^>]*)/>(?:<path d="[^"]*"\1/>)+')
_BOX = re.compile(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4(?=z)")
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_DRAWN = re.compile(r' d="([^"]*)"')


def svg_of(figure: Figure, dark: Mapping[str, str]) -> str:
    """`dark`: the colours that a dark page has in place of others."""
    made = StringIO()
    figure.savefig(made, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return compact(made.getvalue(), dark)


def compact(svg: str, dark: Mapping[str, str]) -> str:
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    svg = svg.replace(f'<g id="{HALO}"', f'<g class="{HALO}"')
    svg = _TEXT.sub(_text, _NAME.sub("", _NO_TURN.sub("", svg)))
    svg = re.sub(r">\s+<", "><", _TAG.sub(lambda tag: _tag(tag.group()), svg))
    svg = _ALIKE.sub(lambda paths: f'<path d="{"".join(_DRAWN.findall(paths.group()))}"{paths.group(1)}/>', svg)
    rules = f"text{{font-family:{FAMILY};white-space:pre}}{_halo_rule(svg, PAPER)}{_dark_rules(svg, dark)}"
    return svg.replace("</style>", f"{rules}</style>", 1).strip() + "\n"


def _tag(tag: str) -> str:
    return _DRAWN.sub(_path, _NUMBER.sub(lambda number: f"{float(number.group()):.2f}".rstrip("0").rstrip("."), tag))


def _path(match: re.Match) -> str:
    drawn = re.sub(r" *([A-Za-z]) *", r"\1", " ".join(match.group(1).split()))
    drawn = _BOX.sub(r"M\1 \2H\3V\4H\1", drawn)
    return f' d="{drawn}"'


def _text(match: re.Match) -> str:
    """As wide as matplotlib has made room for, whatever font the reader has."""
    before, weight, size, after, text = match.groups()
    font = f"font-size: {size}px" + ("; font-weight: 700" if weight else "")
    width = float(size) * _width_in_em(unescape(text), "bold" if weight else "normal")
    length = f' textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"' if len(text) > 1 else ""
    return f"<text {before}{font}{after}{length}>{text}<"


@lru_cache(maxsize=None)
def _width_in_em(text: str, weight: str) -> float:
    """In the font that matplotlib has, at a size that makes hinting small."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties("DejaVu Sans", weight=weight, size=100),
                                                             ismath=False)
    return width / 100


def _halo_rule(svg: str, paper: str) -> str:
    if f'class="{HALO}"' not in svg:
        return ""
    return f".{HALO} text{{paint-order:stroke;stroke:{paper};stroke-width:2.2px;stroke-linejoin:round}}"


def _dark_rules(svg: str, dark: Mapping[str, str]) -> str:
    """Viewers that know no such rules show the light colours."""
    rules = [f'[style*="{what}: {light}"]{{{what}:{instead}!important}}' for light, instead in dark.items()
             for what in ("fill", "stroke") if f"{what}: {light}" in svg]
    rules.append(_halo_rule(svg, dark.get(PAPER, PAPER)))
    return f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"
