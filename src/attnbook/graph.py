"""The dependencies among the papers' claims and the book's own theorems, as a drawn graph and as a table.

For each claim and theorem, ``claims.toml`` gives a statement in plain words, the kind of evidence, and the nodes on which it
depends. The references (``{prf:ref}``, ``{eq}``) in a theorem's text and proof are read from the chapters.
"""

import functools
import html
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace

from attnbook.chapter_map import chapters
from attnbook.claims import FIELDS, claims, papers, short
from attnbook.folder import find, table

EVIDENCE = {
    "proved": "proved in general",
    "cases": "proved case by case in exact arithmetic",
    "measured": "measured",
}
PAPERS = {"regression": "actor", "in_context": "ahn", "clustering": "odonnat"}  # the paper that each part is about
BLOCK = re.compile(
    r"^(?P<fence>:{3,})\{prf:(?P<kind>theorem|lemma|proposition|corollary|proof)\} ?(?P<title>.*)\n"
    r"(?::label: (?P<id>\S+)\n)?(?P<text>(?:.*\n)*?)(?P=fence)$",
    re.M,
)
REFERENCE = re.compile(r"\{(prf:ref|eq)\}`(?:[^`<]*<)?([\w-]+)>?`")
EQUATION = re.compile(r"\$\$ \(([\w-]+)\)")


@dataclass(frozen=True)
class Statement:
    """A theorem, lemma, proposition, or corollary of the book's own.

    Attributes:
        id: the label, which is also the anchor in the chapter.
        kind: "theorem", "lemma", "proposition" or "corollary".
        title: the statement's title.
        chapter: the chapter's name, as in ``"regression/feature_flows"``.
        named: labels of the statements to which the text refers.
        proof_named: labels of the statements to which the proof refers.
    """

    id: str
    kind: str
    title: str
    chapter: str
    named: tuple[str, ...]
    proof_named: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A node of the graph: a claim of the ledger or a statement of the book's own.

    Attributes:
        id: the id of the claim or the statement.
        name: the name that readers see, as in ``"Lemma 1"`` or ``"Along the ray"``.
        source: the paper's key in `attnbook.claims.papers`, or "statement".
        chapter: the chapter in which it is judged or proved.
        shown: the anchor in the chapter at which it is shown.
        verdict: the claim's verdict; empty for a statement.
        slogan: the claim or statement in one or two plain sentences.
        evidence: the kind of evidence, a key of `EVIDENCE`.
        over: the cases, models, or data for which it was computed or measured; empty if it is proved.
        uses: ids of the nodes on which it depends.
        proof_uses: ids of the nodes on which only its proof depends.
        results: names of the stored results that contain its numbers.
    """

    id: str
    name: str
    source: str
    chapter: str
    shown: str
    verdict: str
    slogan: str
    evidence: str
    over: str
    uses: tuple[str, ...]
    proof_uses: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def known(self) -> str:
        """The evidence in words."""
        return EVIDENCE[self.evidence] + (f": {self.over}" if self.over else "")

    @property
    def card(self) -> str:
        """The address of its card, relative to the book's root."""
        return f"ledger.html#{self.id}"

    @property
    def place(self) -> str:
        """The address at which it is shown, relative to the book's root."""
        return f"{self.chapter}.html#{self.shown}"


def read(chapter: str, text: str) -> tuple[dict[str, Statement], dict[str, str]]:
    """The statements in a chapter's text, and for each labeled equation in them the statement that contains it.

    A proof belongs to the last statement before it that has no proof yet.

    Args:
        chapter: the chapter's name.
        text: the chapter's Markdown.
    """
    found, equations, unproved = {}, {}, []
    for one in BLOCK.finditer(text):
        named = tuple(dict.fromkeys(name for _, name in REFERENCE.findall(one["text"])))
        if one["kind"] != "proof":
            found[one["id"]] = Statement(one["id"], one["kind"], one["title"], chapter, named, ())
            equations |= dict.fromkeys(EQUATION.findall(one["text"]), one["id"])
            unproved.append(one["id"])
        elif unproved:
            found[unproved[-1]] = replace(found[unproved[-1]], proof_named=named)
            unproved.pop()
    return found, equations


@functools.cache
def statements() -> dict[str, Statement]:
    """The book's own statements by label, in the book's order; a reference to an equation counts as one to its statement."""
    found: dict[str, Statement] = {}
    owner: dict[str, str] = {}
    for chapter in chapters():
        own, equations = read(chapter, find(f"book/{chapter}.md").read_text(encoding="utf-8"))
        found, owner = found | own, owner | equations

    def traced(names: Iterable[str], itself: str) -> tuple[str, ...]:
        ids = dict.fromkeys(owner.get(name, name) for name in names)
        return tuple(name for name in ids if name in found and name != itself)

    return {
        one.id: replace(one, named=traced(one.named, one.id), proof_named=traced(one.proof_named, one.id))
        for one in found.values()
    }


@functools.cache
def nodes() -> dict[str, Node]:
    """Every claim and every statement by its id: chapter by chapter, statements before claims.

    Raises:
        ValueError: if ``claims.toml`` lacks a claim or a statement, or one of its rows is not as it must be.
    """
    rows = table("claims.toml")
    own = {name: {key: row[key] for key in row.keys() & FIELDS} for name, row in rows.items() if name in claims()}
    return joined(own | rows["statements"])


def joined(rows: dict[str, dict]) -> dict[str, Node]:
    """The nodes of the graph, built from the rows of ``claims.toml``.

    Args:
        rows: the fields of each claim and statement that the graph reads, by id.

    Raises:
        ValueError: if a claim or a statement lacks a row, or if a row belongs to neither, has an unknown field or kind of
            evidence, lacks ``over`` although it is not proved, or depends on a missing row; the message names the row.
    """
    known = claims().keys() | statements().keys()
    if rows.keys() != known:
        raise ValueError(f"claims.toml lacks {sorted(known - rows.keys())} and has {sorted(rows.keys() - known)} too many")
    found = {}
    for name, row in rows.items():
        if not {"slogan", "evidence"} <= row.keys() <= FIELDS:
            raise ValueError(f"{name} must have slogan and evidence, and may have {sorted(FIELDS)}, got {sorted(row)}")
        if row["evidence"] not in EVIDENCE or (row["evidence"] != "proved" and not row.get("over")):
            raise ValueError(
                f"{name}: evidence must be one of {sorted(EVIDENCE)}, with over if not proved, got {row['evidence']!r}"
            )
        if lost := {*row.get("uses", ()), *row.get("apart", ())} - known:
            raise ValueError(f"{name} depends on {sorted(lost)}, which is neither a claim nor a statement")
        found[name] = _node(name, row)
    order = {chapter: place for place, chapter in enumerate(chapters())}
    places = {name: place for place, name in enumerate((*statements(), *claims()))}
    return dict(sorted(found.items(), key=lambda item: (order[item[1].chapter], places[item[0]])))


def _node(name: str, row: dict) -> Node:
    """One node from its row and from the claim or the statement."""
    own, said = row.get("uses", ()), {key: row.get(key, "") for key in ("slogan", "evidence", "over")}
    results = tuple(row.get("results", ()))
    if name in claims():
        claim = claims()[name]
        verdict, shown = claim.verdict, row["shown"]
        return Node(
            name,
            claim.number,
            claim.paper,
            claim.chapter,
            shown,
            verdict,
            **said,
            uses=tuple(own),
            proof_uses=(),
            results=results,
        )
    one, apart = statements()[name], row.get("apart", ())
    uses = tuple(other for other in one.named if other not in apart)
    proof = tuple(dict.fromkeys(other for other in (*one.proof_named, *own) if other not in (*apart, *uses)))
    return Node(name, one.title, "statement", one.chapter, name, "", **said, uses=uses, proof_uses=proof, results=results)


def carried(nodes: dict[str, Node]) -> dict[str, tuple[str, ...]]:
    """For each node's id, the ids of the nodes that depend on it directly, in the graph's order."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(nodes, ())
    for node in nodes.values():
        for used in (*node.uses, *node.proof_uses):
            found[used] = (*found[used], node.id)
    return found


def cycle(nodes: dict[str, Node]) -> tuple[str, ...]:
    """The ids along one cycle of dependencies; empty if there is none."""
    done: set[str] = set()
    way: list[str] = []

    def visit(name: str) -> tuple[str, ...]:
        if name in way:
            return (*way[way.index(name) :], name)
        if name not in done:
            way.append(name)
            for used in (*nodes[name].uses, *nodes[name].proof_uses):
                if found := visit(used):
                    return found
            done.add(way.pop())
        return ()

    return next((found for name in nodes if (found := visit(name))), ())


def overstated(nodes: dict[str, Node]) -> list[tuple[str, str]]:
    """Pairs of a node that counts as proved and a node on which it depends that is only measured."""
    return [
        (node.id, used)
        for node in nodes.values()
        if node.evidence != "measured"
        for used in (*node.uses, *node.proof_uses)
        if nodes[used].evidence == "measured"
    ]


# ---------------------------------------------------------------- drawn

LEFT, STEP, BAND, TOP = 160, 78, 36, 4  # width of the chapter names; node distance; height of a chapter's band; top margin
SHAPES = {
    "proved": '<circle r="5"/>',
    "cases": '<rect x="-4.5" y="-4.5" width="9" height="9"/>',
    "measured": '<path d="M0 -6 5.6 4 -5.6 4z"/>',
}


class Graph:
    """The graph as an SVG with one band per chapter, statements above claims; every node links to its card.

    Args:
        nodes: the nodes, as returned by `nodes`.

    With ``book/_static/graph.js``, readers can move, zoom, filter, and walk the graph.
    """

    def __init__(self, nodes: dict[str, Node]):
        self.nodes = nodes
        self.bands = [chapter for chapter in chapters() if any(node.chapter == chapter for node in nodes.values())]
        self.places: dict[str, tuple[float, float]] = {}
        for band, chapter in enumerate(self.bands):
            own = [
                [node.id for node in nodes.values() if node.chapter == chapter and bool(node.verdict) == row]
                for row in (0, 1)
            ]
            for row, names in enumerate(own):
                for column, name in enumerate(names):
                    self.places[name] = (LEFT + (column + 0.5 + 0.25 * row) * STEP, TOP + band * BAND + (9, 26)[row])
        self.width = max(x for x, _ in self.places.values()) + STEP / 2
        self.height = TOP + len(self.bands) * BAND

    def __repr__(self) -> str:
        edges = sum(len(node.uses) + len(node.proof_uses) for node in self.nodes.values())
        return f"Graph of {len(self.nodes)} claims and statements, {edges} edges"

    def _repr_html_(self) -> str:
        bands = "".join(map(self._band, range(len(self.bands))))
        edges = "".join(map(self._edges, self.nodes.values()))
        drawn = "".join(map(self._node, self.nodes.values()))
        return (
            f'<div class="ao-graph"><svg viewBox="0 0 {self.width:g} {self.height:g}" role="group" '
            'aria-label="What depends on what: a node for each claim and theorem; the table below says the same">'
            f'<g>{bands}<g class="ao-edges">{edges}</g>{drawn}</g></svg></div>'
        )

    def _band(self, band: int) -> str:
        y, chapter = TOP + band * BAND, self.bands[band]
        lines = textwrap.wrap(chapters()[chapter], 24)
        text = "".join(
            f'<tspan x="2" dy="{12 if line else 0}">{html.escape(name)}</tspan>' for line, name in enumerate(lines)
        )
        first = y + BAND / 2 + 4 - 6 * (len(lines) - 1)
        return (
            f'<rect class="ao-band" x="0" y="{y}" width="{self.width:g}" height="{BAND}" data-odd="{band % 2}"/>'
            f'<a href="{chapter}.html" class="ao-chapter"><text y="{first:g}">{text}</text></a>'
        )

    def _edges(self, node: Node) -> str:
        paths = []
        for used, only in [(used, "") for used in node.uses] + [(used, ' class="ao-proof"') for used in node.proof_uses]:
            (x, y), (to_x, to_y) = self.places[node.id], self.places[used]
            bend = (to_y - y) / 2
            first, last = (y + bend, to_y - bend) if bend else (y - 14, y - 14)
            way = f"M{x:g} {y:g}C{x:g} {first:g} {to_x:g} {last:g} {to_x:g} {to_y:g}"
            paths.append(f'<path{only} data-from="{node.id}" data-to="{used}" d="{way}"/>')
        return "".join(paths)

    def _node(self, node: Node) -> str:
        x, y = self.places[node.id]
        lines = textwrap.wrap(titled(node).partition(", ")[0] if node.source == "statement" else node.name, 16)[:2]
        text = "".join(f'<tspan x="0" dy="4.6">{html.escape(line)}</tspan>' for line in lines)
        return (
            f'<a href="{node.card}" id="{node.id}" class="ao-node" data-source="{node.source}" '
            f'data-verdict="{node.verdict}" data-evidence="{node.evidence}" data-place="{node.place}" '
            f'data-name="{html.escape(titled(node))}" '
            f'data-known="{html.escape(node.known)}" '
            f'aria-label="{html.escape(titled(node))}: {html.escape(node.slogan)}" transform="translate({x:g} {y:g})">'
            f'{SHAPES[node.evidence]}<text y="5">{text}</text></a>'
        )


def titled(node: Node) -> str:
    """A node's name and source, with mathematics as plain text."""
    name = re.sub(r"\$([^$]*)\$", lambda found: re.sub(r"\\times", "×", re.sub(r"\\math\w+|[{}]", "", found[1])), node.name)
    if node.source != "statement":
        return f"{name}, {short(papers()[node.source])}"
    paper = PAPERS.get(node.chapter.partition("/")[0], "book")
    return name.replace("The paper's", f"{short(papers()[paper]).partition(' (')[0]}'s")


class Table:
    """All nodes as a Markdown table, which the build's search reads.

    Args:
        nodes: the nodes, as returned by `nodes`.
    """

    def __init__(self, nodes: dict[str, Node]):
        self.nodes = nodes

    def __repr__(self) -> str:
        return f"Table of {len(self.nodes)} claims and statements"

    def _repr_markdown_(self) -> str:
        above = carried(self.nodes)
        lines = ["| what it says | depends on | supports |", "|---|---|---|"]
        for node in self.nodes.values():
            below = "; ".join(map(self._link, node.uses + node.proof_uses)) or "–"
            on_it = "; ".join(map(self._link, above[node.id])) or "–"
            head = f'<a href="{node.card}" data-row="{node.id}">{html.escape(titled(node))}</a>'
            verdict = f", {node.verdict}" if node.verdict else ""
            lines.append(f"| {head}{verdict}: {node.slogan} ({node.known}) | {below} | {on_it} |")
        return "\n".join(lines)

    def _link(self, name: str) -> str:
        node = self.nodes[name]
        source = "" if node.source in ("statement", "book") else f" of {short(papers()[node.source]).partition(' ')[0]}"
        text = titled(node) if node.source == "statement" else node.name
        return f'<a href="#{name}">{html.escape(text)}{source}</a>'
