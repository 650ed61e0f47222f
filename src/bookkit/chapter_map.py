"""A map of the chapters: boxes that link to them, and arrows from what each of them needs."""

import html
import textwrap

BOX, GAP, ROW, TOP = (112, 42), 12, 60, 40  # of a box; between columns; from box to box; above the first
LINE = 14  # of the text


class ChapterMap:
    """The parts as columns of boxes, drawn as an SVG that is legible at the width of a phone and takes the page's colours.

    Args:
        parts: for each part its folder, its title and its chapters: name, short title, and the chapter that it needs.
    """

    def __init__(self, parts: list[tuple[str, str, list[tuple[str, str, str]]]]):
        self.heads = [title for _, title, _ in parts]
        self.chapters = [(folder, *chapter) for folder, _, chapters in parts for chapter in chapters]
        self.places = {
            name: (GAP + column * (BOX[0] + GAP), TOP + row * ROW)
            for column, (_, _, chapters) in enumerate(parts)
            for row, (name, _, _) in enumerate(chapters)
        }
        for _, name, _, need in self.chapters:
            if need and need not in self.places:
                raise ValueError(f"{name} needs {need!r}, which is not on the map")

    def __repr__(self) -> str:
        return f"ChapterMap of {len(self.chapters)} chapters"

    def _repr_html_(self) -> str:
        width = len(self.heads) * (BOX[0] + GAP) + GAP
        height = max(y for _, y in self.places.values()) + BOX[1] + 4
        heads = "".join(
            f'<text x="{GAP + BOX[0] / 2 + column * (BOX[0] + GAP)}" y="14" font-weight="bold">{html.escape(title)}</text>'
            for column, title in enumerate(self.heads)
        )
        arrows = "".join(self._arrow(need, name) for _, name, _, need in self.chapters if need)
        boxes = "".join(self._box(folder, name, title) for folder, name, title, _ in self.chapters)
        return (
            f'<svg class="ao-map" viewBox="0 0 {width} {height}" role="group" aria-label="Map of the chapters; the table '
            'below says the same"><defs><marker id="ao-map-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
            f"{heads}{arrows}{boxes}</svg>"
        )

    def _box(self, folder: str, name: str, title: str) -> str:
        (x, y), lines = self.places[name], textwrap.wrap(title, 16)
        first = y + BOX[1] / 2 + 4 - LINE * (len(lines) - 1) / 2
        text = "".join(
            f'<text x="{x + BOX[0] / 2}" y="{first + LINE * index}">{html.escape(line)}</text>'
            for index, line in enumerate(lines)
        )
        box = f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="5"/>'
        return f'<a href="{folder}/{name}.html">{box}{text}</a>'

    def _arrow(self, need: str, name: str) -> str:
        (x, y), (to_x, to_y) = self.places[need], self.places[name]
        if x != to_x:  # above the boxes, to another part's first chapter
            path = f"M{x + BOX[0] / 2} {y} V{TOP - 14} H{to_x + BOX[0] / 2} V{to_y - 1}"
        elif to_y == y + ROW:
            path = f"M{x + BOX[0] / 2} {y + BOX[1]} V{to_y - 1}"
        else:  # past the chapters between, on the left from rows 0, 2, ... and on the right from the others
            start, end, sign = y + BOX[1] / 2, to_y + BOX[1] / 2, 1 if (y - TOP) / ROW % 2 else -1
            side = x + (BOX[0] if sign > 0 else 0)
            path = f"M{side} {start} C{side + 10 * sign} {start} {side + 10 * sign} {end} {side + sign} {end}"
        return f'<path d="{path}" marker-end="url(#ao-map-head)"/>'
