"""The ledger page: a card for every claim and every statement, with its dependencies and links to its evidence."""

import csv
import html
import io
import re
from collections.abc import Iterable
from dataclasses import asdict, fields
from urllib.parse import urlencode

from attnbook.chapter_map import chapters
from attnbook.claims import Claim, claims, papers
from attnbook.folder import cited, results
from attnbook.graph import Node, carried, statements, titled

EVIDENCE = "_evidence"  # the site's folder with the sources of tests and experiments, and with the stored results
SCRIPT = re.compile(r"(?:experiments|benchmarks)/\w+\.py")
HOW = "How to contest this"
COMMAND = re.compile(r"python3? (?:(?:experiments|benchmarks)/\w+\.py|run\.py \w+)")


def downstream(start: str, above: dict[str, tuple[str, ...]]) -> set[str]:
    """The ids of all nodes that depend on a node, directly or through others.

    Args:
        start: the node's id.
        above: the direct dependents of every node, as returned by `attnbook.graph.carried`.
    """
    found: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = set(above[waiting.pop()]) - found
        found |= fresh
        waiting += fresh
    return found


def made(name: str) -> tuple[tuple[str, float | None], ...]:
    """The commands that made a stored result, each with its total time in minutes, or None if the time was not recorded.

    Args:
        name: the result's name, as in ``"loss_spikes"``.
    """
    total: dict[str, float | None] = {}
    for command, seconds in sorted(
        {(part["command"], part["seconds"]) for part in results(name)["provenance"].values()}, key=str
    ):
        command = COMMAND.match(command)[0]
        known = isinstance(seconds, (int, float)) and total.get(command, 0) is not None
        total[command] = total.get(command, 0) + seconds / 60 if known else None
    return tuple(total.items())


def minutes(time: float | None) -> str:
    """A time, given in minutes, in words."""
    if time is None:
        return "time not recorded"
    if time < 1:
        return "less than a minute"
    if time < 1.5:
        return "1 minute"
    return f"{time:.0f} minutes" if time < 100 else f"{time / 60:.0f} hours"


def source_page(path: str) -> str:
    """The address of the page that shows a test file or an experiment, relative to the book's root.

    Args:
        path: the file's path relative to the checkout's root, as in ``"tests/test_claims.py"``.
    """
    return f"{EVIDENCE}/{path.removesuffix('.py')}.html"


def bibtex(node: Node) -> str:
    """A BibTeX entry for a claim or a statement, with the version of the book."""
    return (
        f"@misc{{attention-as-optimization-{node.id},\n"
        "  author = {{The Attention as Optimization contributors}},\n"
        f"  title  = {{Attention as Optimization: {titled(node)}}},\n"
        f"  year   = {{{cited('date-released')[:4]}}},\n"
        f"  note   = {{Version {cited('version')}, ledger.html\\#{node.id}}},\n}}"
    )


def contested(name: str) -> str:
    """The address of the form for contesting a claim or a proof, already filled in; empty if the repository has none.

    Args:
        name: the id of the claim or statement.
    """
    address = cited("repository-code").rstrip("/")
    if name in claims():
        form = {"template": "wrong-verdict.yml", "title": f"Wrong verdict: {name}", "claim": name}
    else:  # a theorem of the book's own has a proof and no verdict
        form = {"template": "wrong-proof.yml", "title": f"Wrong proof: {name}", "place": name}
    return f"{address}/issues/new?{urlencode(form)}" if address else ""


class Ledger:
    """All claims and statements as cards for the ledger page, where readers can filter them.

    Args:
        nodes: the nodes, as returned by `attnbook.graph.nodes`.
    """

    def __init__(self, nodes: dict[str, Node]):
        self.nodes, self.above = nodes, carried(nodes)

    def __repr__(self) -> str:
        return f"Ledger of {sum(bool(node.verdict) for node in self.nodes.values())} claims and {len(self.nodes)} cards"

    def _repr_html_(self) -> str:
        order = [*claims(), *statements()]
        rows = "".join(self._card(self.nodes[name]) for name in order if name in self.nodes)
        files = " or ".join(f'<a href="ledger.{kind}" download>{kind.upper()}</a>' for kind in ("json", "csv"))
        return f'<div class="ao-ledger">{rows}<p>The whole ledger of claims as {files}.</p></div>'

    def _card(self, node: Node) -> str:
        claim = claims().get(node.id)
        if claim:
            head = f"<strong>{html.escape(claim.number)}</strong>, {papers()[claim.paper]}"
            kind, said, tests = claim.verdict, claim.says(), claim.tests
        else:
            kind, said, tests = statements()[node.id].kind, "", ()
            head = f"<strong>{html.escape(titled(node))}</strong>"
        parts = [said, self._shown(node), self._stands(node), self._tests(tests), self._runs(node), self._cited(node)]
        return (
            f'<details class="ao-claim" id="{node.id}" data-paper="{node.source}" data-verdict="{node.verdict}" '
            f'data-evidence="{node.evidence}" data-chapter="{html.escape(chapters()[node.chapter])}">'
            f'<summary class="ao-claim-head"><span class="ao-verdict">{kind}</span> {head}: '
            f'<span class="ao-slogan">{html.escape(node.slogan)}</span></summary>{"".join(parts)}</details>'
        )

    @staticmethod
    def _shown(node: Node) -> str:
        where = f'<a href="{node.place}">{html.escape(chapters()[node.chapter])}</a>'
        return f"<p>Shown in {where}. Evidence: {html.escape(node.known)}.</p>"

    def _links(self, names: Iterable[str], more: int = 0) -> str:
        """Links to cards, each theorem with its kind, and how many more depend on them indirectly."""
        titles = {name: titled(self.nodes[name]) for name in names}
        for name in titles.keys() & statements().keys():
            kind = statements()[name].kind
            titles[name] += "" if kind.capitalize() in titles[name] else f" ({kind})"
        links = [f'<a href="#{name}">{html.escape(title)}</a>' for name, title in titles.items()]
        if more and len(links) == 1:
            return f"{links[0]} and, through it, {more} more"
        links += [f"and, through these, {more} more"] if more else []
        return "; ".join(links)  # names contain commas

    def _stands(self, node: Node) -> str:
        below = f"Depends on {self._links(node.uses)}. " if node.uses else ""
        below += f"Its proof depends on {self._links(node.proof_uses)}. " if node.proof_uses else ""
        direct, far = self.above[node.id], downstream(node.id, self.above)
        falls = f"Supports: {self._links(direct, len(far - {*direct}))}. " if direct else "Nothing here depends on it. "
        return f'<p>{below}{falls}<a href="graph.html#{node.id}">In the graph</a></p>'

    @staticmethod
    def _tests(tests: tuple[str, ...]) -> str:
        if not tests:
            return ""
        files: dict[str, list[str]] = {}
        for test in tests:
            path, _, name = test.partition("::")
            files.setdefault(path, []).append(f'<a href="{source_page(path)}#{name}"><code>{html.escape(name)}</code></a>')
        found = "; ".join(f"{', '.join(links)} in <code>{path}</code>" for path, links in files.items())
        return f"<p>Tests: {found}. Run them again: <code>python3 run.py test {' '.join(files)}</code></p>"

    @staticmethod
    def _runs(node: Node) -> str:
        lines = []
        for name in node.results:
            runs = []
            for command, time in made(name):
                path = SCRIPT.search(command)
                shown = f"<code>{html.escape(command)}</code>"
                runs.append((f'<a href="{source_page(path[0])}">{shown}</a>' if path else shown) + f" ({minutes(time)})")
            stored = f'<a href="{EVIDENCE}/results/{name}.json" download><code>results/{name}.json</code></a>'
            lines.append(f"<p>Numbers: {stored}" + (f", made by {', '.join(runs)}" if runs else "") + "</p>")
        return "".join(lines)

    @staticmethod
    def _cited(node: Node) -> str:
        return (
            f"<p>Permanent name: <code>{node.id}</code>. "
            f'<a href="#contest" data-contest="{node.id}">{HOW}</a></p>'
            f"<details><summary>Cite this</summary><pre>{html.escape(bibtex(node))}</pre></details>"
        )


def as_csv() -> str:
    """All claims as CSV, one row per claim; several tests or items in one cell are separated by semicolons."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Claim)], lineterminator="\n")
    writer.writeheader()
    for row in claims().values():
        writer.writerow({name: "; ".join(v) if isinstance(v, tuple) else v for name, v in asdict(row).items()})
    return text.getvalue()
