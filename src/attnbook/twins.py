"""A Sphinx extension that writes each page as Markdown, too, and lists these files for language models in ``llms.txt``.

Content that needs the page's script or style becomes plain text: theorems get titles, references the names of their targets,
cards their text, and figures captions. Code is kept with its output; explorers are only mentioned.
"""

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from bs4 import BeautifulSoup
from pybtex.database import parse_file
from sphinx.application import Sphinx

from attnbook.chapter_map import chapters
from attnbook.folder import cited, find
from attnbook.graph import statements

BLOCK = re.compile(r"^(?P<fence>:{3,}|`{3,})\{(?P<kind>[\w:-]+)\} *(?P<title>.*)\n(?P<options>(?:^:[\w-]+:.*\n)*)", re.M)
ROLE = re.compile(r"\{(?P<kind>[\w:-]+)\}`(?P<text>[^`]+)`")
INCLUDE = re.compile(r"^:::\{include\} (?P<file>\S+)\n(?P<options>(?::[\w-]+:.*\n)*)\n?:::\n", re.M)
BARE = re.compile(r"^```\{(?:eval-rst|glossary|bibliography)\}\n(?::[\w-]+:.*\n)*(?P<body>.*?)^```\n", re.M | re.S)
NAMES = {"prf:proof": "Proof", "solution-start": "Solution"}
COLAB = "# On Colab"  # first words of the cell that fetches the book on Colab
MIMES = "text/markdown", "text/html", "text/plain"  # formats of an output, in order of preference


def words(markup: str) -> str:
    """The text of HTML, with a line break after each block."""
    tree = BeautifulSoup(markup, "html.parser")
    for formula in tree.select(".math"):
        formula.replace_with("$" + formula.get_text().removeprefix(r"\(").removesuffix(r"\)") + "$")
    for block in tree.find_all(["p", "summary", "li", "tr", "pre", "div"]):
        block.append("\n")
    return re.sub(r"\n\s*\n+", "\n\n", tree.get_text()).strip()


class Twin:
    """Turns the sources of pages into Markdown.

    Args:
        titles: titles of the pages, by the pages' names.
        labels: the text for each label that `ref` and similar roles may name.
        authors: the citation of each work, by its key.
    """

    def __init__(self, titles: dict[str, str], labels: dict[str, str], authors: dict[str, str]):
        self.titles, self.labels, self.authors = titles, labels, authors

    def role(self, page: str) -> Callable[[re.Match], str]:
        """A function that replaces a role on the given page with text."""

        def said(found: re.Match) -> str:
            kind, text = found["kind"], found["text"]
            shown, _, target = re.fullmatch(r"(.*?)( ?<(.+)>)?", text, re.S).groups()
            target = target or shown
            if kind == "doc":
                name = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
                return f"[{shown if target != shown else self.titles.get(name, name)}]({target}.md)"
            if kind.startswith("cite:"):
                works = "; ".join(self.authors.get(key.strip(), key) for key in target.split(","))
                return works if kind == "cite:t" else f"({works})"
            if kind == "eq":
                return f"({target})"
            if kind == "term" or target != shown:
                return shown
            return self.labels.get(target, target)

        return said

    def prose(self, text: str, page: str) -> str:
        """Markdown without MyST's extensions."""

        def opened(found: re.Match) -> str:
            kind, title = found["kind"], found["title"].strip()
            if kind == "code-block":
                return f"{found['fence']}{title}\n"
            options = dict(re.findall(r":([\w-]+): *(.*)", found["options"]))
            name = NAMES.get(kind) or kind.removeprefix("prf:").capitalize()
            if kind in ("div", "solution-end"):
                return ""
            label = f" `{options['label']}`" if "label" in options else ""
            return f"**{name}{f' ({title})' if title and kind != 'solution-start' else ''}.**{label}\n"

        text = INCLUDE.sub(self.included, text)
        text = re.sub(r"^\(([\w-]+)\)=\n", "", text, flags=re.M)
        text = BARE.sub(lambda found: found["body"], text)
        text = BLOCK.sub(opened, text)
        text = re.sub(r"^:{3,}\n", "", text, flags=re.M)
        text = re.sub(r"^\.\. .*\n(?:^ +.*\n|^\n(?= ))*", self.listed, text, flags=re.M)
        text = re.sub(r"\$\$ \(([\w-]+)\)$", r"$$\n\n(\1)", text, flags=re.M)
        text = re.sub(
            r'<a href="([^"]*)"[^>]*>(.*?)</a>', lambda found: f"[{found[2]}]({linked(found[1])})", text, flags=re.S
        )
        text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
        text = re.sub(r"(?<=\]\()([\w./-]+)\.ipynb", r"\1.md", text)
        return ROLE.sub(self.role(page), text)

    @staticmethod
    def included(found: re.Match) -> str:
        """The text of a file that a page includes."""
        text, options = find(found["file"].removeprefix("../")).read_text(encoding="utf-8"), found["options"]
        for edge, part in (("start-after", 2), ("end-before", 0)):
            if mark := re.search(rf":{edge}: (.*)", options):
                text = text.partition(mark[1])[part]
        return text

    @staticmethod
    def listed(found: re.Match) -> str:
        """The module and members that a listing of the package names."""
        module = re.match(r"\.\. auto\w+:: (\S+)", found[0])
        members = re.search(r":members: (.*)", found[0])
        return f"- `{module[1]}`{': ' + members[1] if members else ''}\n" if module else ""

    def notebook(self, path: Path, page: str) -> str:
        """A chapter with its code and the code's output."""
        parts = []
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(self.prose(source + "\n", page))
                continue
            about = cell["metadata"]
            if "remove-input" not in about.get("tags", []) and not source.startswith(COLAB):
                parts.append(f"```python\n{source}\n```\n")
            parts += [self.output(output, about.get("mystnb", {}).get("figure", {})) for output in cell["outputs"]]
        return "\n".join(filter(None, parts))

    def output(self, output: dict, figure: dict) -> str:
        """An output as text."""
        if output["output_type"] == "stream":
            return f"```text\n{''.join(output['text'])}```\n"
        data = output["data"]
        if "application/vnd.attnopt.explorer+json" in data:
            return "*(An explorer, which needs the page.)*\n"
        if "image/png" in data:
            return f"*Figure: {ROLE.sub(self.role(''), figure.get('caption', '')).strip()}*\n" if figure else ""
        kind = next(mime for mime in MIMES if mime in data)
        text = "".join(data[kind])
        return {"text/html": words, "text/markdown": lambda text: self.prose(text, "")}.get(kind, str)(text) + "\n"


def linked(address: str) -> str:
    """A link's address among the Markdown files; links to explorers' states and to other files stay unchanged."""
    path, hash, name = address.partition("#")
    return f"{path.removesuffix('.html')}.md{hash}{name}" if path.endswith(".html") and "=" not in name else address


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the files into the site."""
    if exception or app.builder.format != "html":
        return
    env = app.env
    titles = {name: title.astext() for name, title in env.titles.items()}
    labels = {name: title for name, (_, _, title) in env.get_domain("std").labels.items() if title}
    for name, one in statements().items():
        labels[name] = f"{one.kind.capitalize()} ({one.title})" if one.title else one.kind.capitalize()
    works = parse_file(find("book/references.bib")).entries
    authors = {key: work(entry) for key, entry in works.items()}
    twin = Twin(titles, labels, authors)
    for name in env.found_docs:
        path = Path(env.doc2path(name))
        chapter = path.suffix == ".ipynb"
        text = twin.notebook(path, name) if chapter else twin.prose(path.read_text(encoding="utf-8"), name)
        if name == "bibliography":
            text += "\n".join(f"- {authors[key]}: {entry.fields.get('title', '')}" for key, entry in works.items()) + "\n"
        Path(app.outdir, f"{name}.md").write_text(
            re.sub(r"\n{3,}", "\n\n", text).strip() + "\n", encoding="utf-8", newline="\n"
        )
    Path(app.outdir, "llms.txt").write_text(llms(titles), encoding="utf-8", newline="\n")


def work(entry) -> str:
    """The citation of a work: its year and its authors, or the first of more than two."""
    names = [" ".join(who.last_names) for who in entry.persons.get("author", [])]
    who = names[0] if names else entry.fields["title"]
    others = " et al." if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else ""
    return f"{who}{others} {entry.fields.get('year', '')}"


def llms(titles: dict[str, str]) -> str:
    """The list of the files, in the form that llmstxt.org describes."""
    known = chapters()
    lines = [f"# {cited('title')}", "", f"> {cited('abstract')}", "", "## Chapters", ""]
    lines += [f"- [{title}]({name}.md)" for name, title in known.items() if name in titles]
    rest = [name for name in sorted(titles) if name not in known]
    return "\n".join([*lines, "", "## Reference", "", *(f"- [{titles[name]}]({name}.md)" for name in rest)]) + "\n"


def announce(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Add a link to its Markdown file to a page's head."""
    if doctree is not None:
        place = context["pathto"](f"{pagename}.md", 1)
        context["metatags"] = context.get("metatags", "") + f'\n<link rel="alternate" type="text/markdown" href="{place}"/>'


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.connect("html-page-context", announce)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
