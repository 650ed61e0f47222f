"""Explorers in the built page: a Sphinx extension, and the MyST-NB renderer that it relies on."""

import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, MimeRenderPlugin, NbElementRenderer
from sphinx.application import Sphinx

from attnbook.explorer import MIME, MODULES, SCRIPTS, classic_script, module_text

STILL = "This is a still picture: the explorer needs scripts, and none has started here."


class ExplorerRenderer(MimeRenderPlugin):
    """Writes an explorer as its still and the JSON from which `host.js` mounts the live one in its place."""

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
        # Shown by the style sheet, after some seconds, where nothing has come in the picture's place.
        note = f'<p class="attnopt-still" role="note">{STILL}</p>'
        raw = [nodes.raw("", part, format="html") for part in (script, note)]
        return [nodes.container("", raw[0], *found, raw[1], classes=["attnopt-explorer"])]


def script_json(value: dict) -> str:
    """JSON that can stand inside a script element: no character of it can end the element or open a comment."""
    return json.dumps(value, sort_keys=True).replace("<", "\\u003c")


def setup(app: Sphinx) -> dict:
    """Put the explorers' modules, their host script and their style beside the pages."""
    app.connect("build-finished", write_assets)
    app.add_css_file("explorers/explorers.css")
    app.add_js_file("explorers/host.js", loading_method="defer")
    app.set_html_assets_policy("always")  # MathJax also on pages whose only mathematics is in the ledger's cards
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_assets(app: Sphinx, exception: Exception | None) -> None:
    """Write the scripts and the style to the built book's static folder."""
    if not exception and app.builder.format == "html":
        write_scripts(Path(app.outdir, "_static", "explorers"))


def write_scripts(folder: Path) -> None:
    """Write each module as a classic script, the host script and the style to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.js": classic_script(name, module_text(name)) for name in SCRIPTS}
    texts |= {name: (MODULES / name).read_text(encoding="utf-8") for name in ("host.js", "worker.js", "explorers.css")}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
