"""A Sphinx extension that collapses proofs, solutions, related work, and sections labeled ``fold-…``.

Each becomes a native ``<details>`` element, which needs no script; ``book/_static/folds.js`` opens those that a link or a
search leads to.
"""

from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_exercise.nodes import solution_node
from sphinx_proof.nodes import proof_node

MARK = "fold-"  # prefix of the labels of sections to collapse
RELATED = "related-work"  # the section that ends a chapter


class Fold(nodes.General, nodes.Element):
    """A collapsed section, of kind "proof", "solution", "section", or "script"; its first child is its `Summary`."""


class Summary(nodes.Part, nodes.TextElement):
    """The visible line of a collapsed section, which opens it."""


def ancestors(node: nodes.Node) -> Iterator[nodes.Node]:
    """The nodes that contain a node, from the inside out."""
    while node := node.parent:
        yield node


def fold(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Collapse a page's proofs, solutions, and marked sections."""
    for node in list(doctree.findall(proof_node)):
        content = node.children[0]  # an admonition, whose first words the directive has written
        first = next(content.findall(nodes.Text))
        first.parent.replace(first, nodes.Text(first.removeprefix("Proof. ")))
        node.replace_self(Fold("", Summary("", "Proof"), *content.children, kind="proof"))
    for node in list(doctree.findall(solution_node)):
        title, *rest = node.children  # its words without the exercise's second name and its link
        summary = Summary("", title.astext().partition(" (")[0])
        node.replace_self(Fold("", summary, *rest, kind="solution", ids=node["ids"]))
    for node in list(doctree.findall(nodes.section)):
        if any(name.startswith(MARK) or name == RELATED for name in node["ids"]):
            title, *rest = node.children
            level = sum(isinstance(parent, nodes.section) for parent in ancestors(node)) + 1
            node.children = []
            node += Fold("", Summary("", "", *title.children, level=level), *rest, kind="section")


def visit_fold(self, node: Fold) -> None:
    """Write the opening tag of a collapsed section."""
    self.body.append(self.starttag(node, "details", CLASS=f"ao-fold ao-{node['kind']}"))


def depart_fold(self, node: Fold) -> None:
    """Write the closing tag of a collapsed section."""
    self.body.append("</details>\n")


def visit_summary(self, node: Summary) -> None:
    """Write the opening tag of a section's visible line."""
    self.body.append(f"<summary><h{node['level']}>" if "level" in node else "<summary>")


def depart_summary(self, node: Summary) -> None:
    """Write the closing tag of a section's visible line."""
    self.body.append(f"</h{node['level']}></summary>\n" if "level" in node else "</summary>\n")


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.add_node(Fold, html=(visit_fold, depart_fold))
    app.add_node(Summary, html=(visit_summary, depart_summary))
    app.connect("doctree-resolved", fold, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
