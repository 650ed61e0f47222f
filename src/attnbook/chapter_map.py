"""A map of the chapters, boxes that link to them and arrows from what each of them needs, and their table."""

import html
import textwrap

from attnbook.folder import table

BOX, GAP, ROW, TOP = (91, 46), 12, 64, 40  # of a box; between columns; from box to box; above the first
LINE = 14  # of the text


def parts() -> list[dict]:
    """The parts of the book with their chapters, as ``chapters.toml`` lists them."""
    return table("chapters.toml")["part"]


def chapters() -> dict[str, str]:
    """The names of all chapters in the book's order, as in ``"regression/feature_flows"``, and their titles."""
    return {
        f"{part['folder']}/{chapter['name']}": chapter.get("short", chapter["title"])
        for part in parts()
        for chapter in part["chapter"]
    }


def contents(parts: list[dict]) -> str:
    """The chapters as a Markdown table: its links lead to notebooks, which the build takes for their pages.

    Args:
        parts: as `parts` gives them.
    """
    rows, links, before = ["| chapter | needs | you leave with |", "|---|---|---|"], {}, ""
    for part in parts:
        for chapter in part["chapter"]:
            name, after = chapter["name"], chapter.get("after", "")
            links[name] = f"[{chapter['title']}]({part['folder']}/{name}.ipynb)"
            needs = ["the chapter before" if after == before else links[after]] if after else []
            needs += [chapter["needs"]] if "needs" in chapter else []
            rows.append(f"| {links[name]} | {', '.join(needs)} | {chapter['gives']} |")
            before = name
    return "\n".join(rows)


class ChapterMap:
    """The parts as columns of boxes, drawn as an SVG that is legible at the width of a phone and takes the page's colours.

    Args:
        parts: as `parts` gives them; a chapter may need one of any part.

    Raises:
        ValueError: if a chapter needs one that is not there.
    """

    def __init__(self, parts: list[dict]):
        self.heads = [part["title"] for part in parts]
        self.chapters = [{"after": "", "folder": part["folder"]} | chapter for part in parts for chapter in part["chapter"]]
        self.places = {
            chapter["name"]: (GAP + column * (BOX[0] + GAP), TOP + row * ROW)
            for column, part in enumerate(parts)
            for row, chapter in enumerate(part["chapter"])
        }
        for chapter in self.chapters:
            if chapter["after"] and chapter["after"] not in self.places:
                raise ValueError(f"{chapter['name']} needs {chapter['after']!r}, which is not on the map")

    def __repr__(self) -> str:
        return f"ChapterMap of {len(self.chapters)} chapters"

    def _repr_html_(self) -> str:
        width = len(self.heads) * (BOX[0] + GAP) + GAP
        height = max(y for _, y in self.places.values()) + BOX[1] + 4
        heads = "".join(
            f'<text x="{GAP + BOX[0] / 2 + column * (BOX[0] + GAP)}" y="14" font-weight="bold">{html.escape(title)}</text>'
            for column, title in enumerate(self.heads)
        )
        arrows = "".join(self._arrow(chapter["after"], chapter["name"]) for chapter in self.chapters if chapter["after"])
        boxes = "".join(map(self._box, self.chapters))
        return (
            f'<svg class="ao-map" viewBox="0 0 {width} {height}" role="group" aria-label="Map of the chapters; the table '
            'below says the same"><defs><marker id="ao-map-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
            f"{heads}{arrows}{boxes}</svg>"
        )

    def _box(self, chapter: dict) -> str:
        (x, y), lines = self.places[chapter["name"]], textwrap.wrap(chapter.get("short", chapter["title"]), 13)
        first = y + BOX[1] / 2 + 4 - LINE * (len(lines) - 1) / 2
        text = "".join(
            f'<text x="{x + BOX[0] / 2}" y="{first + LINE * index}">{html.escape(line)}</text>'
            for index, line in enumerate(lines)
        )
        box = f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="5"/>'
        return f'<a href="{chapter["folder"]}/{chapter["name"]}.html">{box}{text}</a>'

    def _arrow(self, need: str, name: str) -> str:
        (x, y), (to_x, to_y) = self.places[need], self.places[name]
        if x != to_x and y == to_y == TOP:  # above the boxes, from a part's first chapter to another's
            path = f"M{x + BOX[0] / 2} {y} V{TOP - 14} H{to_x + BOX[0] / 2} V{to_y - 1}"
        elif x != to_x:  # through the gaps beside the columns, and above the boxes if columns lie between
            start, end, out, into = y + BOX[1] / 2, to_y + BOX[1] / 2, x + BOX[0] + GAP / 2, to_x - GAP / 2
            across = "" if out == into else f"V{TOP - 7} H{into} "
            path = f"M{x + BOX[0]} {start} H{out} {across}V{end} H{to_x - 1}"
        elif to_y == y + ROW:
            path = f"M{x + BOX[0] / 2} {y + BOX[1]} V{to_y - 1}"
        else:  # past the chapters between, on the left from rows 0, 2, ... and on the right from the others
            start, end, sign = y + BOX[1] / 2, to_y + BOX[1] / 2, 1 if (y - TOP) / ROW % 2 else -1
            side = x + (BOX[0] if sign > 0 else 0)
            path = f"M{side} {start} C{side + 10 * sign} {start} {side + 10 * sign} {end} {side + sign} {end}"
        return f'<path d="{path}" marker-end="url(#ao-map-head)"/>'
