"""Draw which package imports which, from the imports themselves: docs/design/packages.svg.

A row imports the packages of its dots. Packages stand in the order of the layers (`tool.importlinter` in pyproject.toml), so a
dot left of the diagonal would be an import from a higher layer. Hollow dots are imports inside functions or for types only.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
SOURCE = TOP / "src" / "ganeti"
PICTURE = TOP / "docs" / "design" / "packages.svg"
CELL, LEFT, ABOVE, BELOW = 22, 128, 104, 34

Edges = dict[tuple[str, str], bool]
"""(importer, imported) -> whether a module imports it at its top level."""


def layers() -> list[list[str]]:
    """The packages of each layer, the highest first."""
    settings = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rows = next(one["layers"] for one in contracts if one["type"] == "layers")
    return [[name.strip() for name in re.split(r"[|:]", row)] for row in rows]


_IMPORT = re.compile(
    r"^([ \t]*)(?:from ganeti\.(\w+)[\w.]* import |from ganeti import (\([^)]*\)|.*)|import ganeti\.(\w+))",
    re.MULTILINE,
)


def _imports(text: str) -> Iterator[tuple[str, bool]]:
    """Each imported package of the project, and whether the import is at the top level; parsing would take seconds."""
    for indent, package, packages, plain in _IMPORT.findall(text):
        for name in re.findall(r"\w+", packages) or [package or plain]:
            yield name, not indent


def edges() -> Edges:
    """The imports between packages."""
    found: Edges = {}
    for path in sorted(SOURCE.rglob("*.py")):
        importer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for imported, is_top in _imports(path.read_text("utf-8")):
            if imported != importer:
                pair = (importer, imported)
                found[pair] = found.get(pair, False) or is_top
    return found


def picture(rows: list[list[str]], found: Edges) -> str:
    """The drawing as SVG."""
    names = [name for row in rows for name in row]
    place = {name: index for index, name in enumerate(names)}
    size = CELL * len(names)
    width, height = LEFT + size + 12, ABOVE + size + BELOW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<g font-size="12" font-family="sans-serif" fill="#222">',
        "<title>Imports between the packages of ganeti</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    start = 0
    for number, row in enumerate(rows):
        at, extent = start * CELL, len(row) * CELL
        shade = "#eef3f8" if number % 2 else "#f7fafc"
        lines.append(
            f'<rect x="{LEFT}" y="{ABOVE + at}" width="{size}" height="{extent}" fill="{shade}"/>'
        )
        lines.append(
            f'<rect x="{LEFT + at}" y="{ABOVE + at}" width="{extent}" height="{extent}" fill="#c9d8e6"/>'
        )
        start += len(row)
    for name, index in place.items():
        middle = index * CELL + CELL // 2
        lines.append(
            f'<text x="{LEFT - 8}" y="{ABOVE + middle + 4}" text-anchor="end">{name}</text>'
        )
        lines.append(
            f'<text transform="translate({LEFT + middle + 4} {ABOVE - 8}) rotate(-60)">{name}</text>'
        )
    for (importer, imported), is_top in sorted(found.items()):
        if importer in place and imported in place:
            x = LEFT + place[imported] * CELL + CELL // 2
            y = ABOVE + place[importer] * CELL + CELL // 2
            fill = "#1f4e79" if is_top else "none"
            lines.append(
                f'<circle cx="{x}" cy="{y}" r="5" fill="{fill}" stroke="#1f4e79" stroke-width="1.5">'
                f"<title>{importer} imports {imported}</title></circle>"
            )
    lines.append(
        f'<text x="{LEFT}" y="{height - 12}">a row imports the packages of its dots; '
        "hollow: inside functions or for types only</text>"
    )
    return "\n".join([*lines, "</g>", "</svg>", ""])


def main() -> int:
    """Write the picture."""
    PICTURE.write_text(picture(layers(), edges()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
