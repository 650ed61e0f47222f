"""A Sphinx extension and a MyST-NB renderer that put explorers into the built pages."""

import html
import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, MimeRenderPlugin, NbElementRenderer
from sphinx.application import Sphinx

from attnbook.explorer import MIME, MODULES, SCRIPTS, classic_script, module_text

STILL = "This is a static image: the explorer needs scripts, and none has started here."
TITLES = {"sandbox": "The laboratory"}  # where an explorer is not called by the name of its module
ALONE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} – Attention as Optimization</title>
<meta name="description" content="{alt}">
<link rel="stylesheet" href="../_static/explorers/explorers.css">
<link rel="stylesheet" href="../_static/explorers/alone.css">
<script defer src="../_static/explorers/host.js"></script>
</head>
<body>
<main>
<h1>{title}</h1>
<div class="attnopt-explorer">
<script type="application/json">{page}</script>
<p>{alt}</p>
<p class="attnopt-still">{still}</p>
</div>
<footer><a href="../index.html">Attention as Optimization</a></footer>
</main>
</body>
</html>
"""


class ExplorerRenderer(MimeRenderPlugin):
    """Writes an explorer as its static image and the JSON from which `host.js` mounts the live explorer in its place."""

    mime_priority_overrides: ClassVar = [("html", MIME, 0)]

    @staticmethod
    def handle_mime(renderer: NbElementRenderer, data: MimeData, inline: bool) -> list[nodes.Element] | None:
        """Docutils nodes for an explorer's JSON form, or None for anything else."""
        if inline or data.mime_type != MIME:
            return None
        page = data.content
        _, outputs = renderer.renderer.nb_client.code_cell_outputs(data.cell_index)
        picture = outputs[data.output_index]["data"].get("image/png")  # none if executed by hand
        found = renderer.render_image(MimeData("image/png", picture, cell_metadata=data.cell_metadata)) if picture else []
        for image in found:
            image["alt"] = page["alt"]
        script = f'<script type="application/json">{script_json(page)}</script>'
        # The style sheet shows this after some seconds if no explorer has replaced the picture.
        note = f'<p class="attnopt-still" role="note">{STILL}</p>'
        raw = [nodes.raw("", part, format="html") for part in (script, note)]
        return [nodes.container("", raw[0], *found, raw[1], classes=["attnopt-explorer"])]


def script_json(value: dict) -> str:
    """JSON that is safe inside a script element, because it can neither end the element nor open a comment."""
    return json.dumps(value, sort_keys=True).replace("<", "\\u003c")


def setup(app: Sphinx) -> dict:
    """Put the explorers' modules, their host script, and their style next to the pages."""
    app.connect("build-finished", write_assets)
    app.add_css_file("explorers/explorers.css")
    app.add_js_file("explorers/host.js", loading_method="defer")
    app.set_html_assets_policy("always")  # MathJax also on pages whose only mathematics is in the ledger's cards
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_assets(app: Sphinx, exception: Exception | None) -> None:
    """Write the scripts and the style to the built book's static folder."""
    if not exception and app.builder.format == "html":
        write_scripts(Path(app.outdir, "_static", "explorers"))
        write_alone(Path(app.srcdir), Path(app.outdir, "embed"))


def write_alone(book: Path, folder: Path) -> None:
    """Write a page without the theme for each explorer, in its chapter's state unless the address gives another."""
    folder.mkdir(parents=True, exist_ok=True)
    notebooks = sorted(book.rglob("*.ipynb"), key=lambda path: (path.parent == book, path))  # chapters first
    cells = (cell for path in notebooks for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    shown = (output["data"][MIME] for cell in cells for output in cell.get("outputs", ()) if MIME in output.get("data", ()))
    pages: dict[str, dict] = {}
    for page in shown:
        pages.setdefault(page["module"], page)
    for name, page in pages.items():
        texts = {"title": TITLES.get(name, name.replace("_", " ").capitalize()), "alt": page["alt"], "still": STILL}
        filled = {key: html.escape(text) for key, text in texts.items()} | {"page": script_json(page)}
        (folder / f"{name}.html").write_text(ALONE.format(**filled), encoding="utf-8", newline="\n")


def write_scripts(folder: Path) -> None:
    """Write the modules (as classic scripts), the host and worker scripts, and the style sheets to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.js": classic_script(name, module_text(name)) for name in SCRIPTS}
    whole = ("host.js", "worker.js", "explorers.css", "alone.css")
    texts |= {name: (MODULES / name).read_text(encoding="utf-8") for name in whole}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
