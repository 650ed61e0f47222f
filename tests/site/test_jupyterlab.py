"""A chapter in JupyterLab: it reads like its page, its cells run, and Python answers its explorer.

`jupyterlab-myst` renders what Markdown does not know; for viewers without it see `tests/test_tools.py`.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from conftest import HTML

from attnbook.explorer import MIME
from attnopt.in_context import optimal_step_sizes

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "book" / "in_context" / "optimal_step_sizes.ipynb"
PAGE = HTML / "in_context" / "optimal_step_sizes.html"
NO_UPDATES = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
PATIENCE = 240  # seconds: the machine may be busy with other things


# What of the prose is text, and what is marked as found nowhere: formulas and the cells' editors are left out.
PROSE = """() => [...document.querySelectorAll(".jp-MarkdownCell")].map(cell => {
  const seen = cell.cloneNode(true);
  seen.querySelectorAll(".katex, .cm-editor, [title$='Not Found']").forEach(node => node.remove());
  return seen.textContent;
}).join("\\n")"""
RAW = re.compile(r":::|```|\$|^:[a-z]+:|\{[a-z][a-z:-]*\}|\\[a-zA-Z({]|\b(?:eq|thm|def|ex)-[a-z]|Unknown", re.M)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a copy of the chapter, without outputs, in a JupyterLab of this environment, for all tests here."""
    tmp_path = tmp_path_factory.mktemp("lab")
    chapter = json.loads(CHAPTER.read_text(encoding="utf-8"))
    for cell in chapter["cells"]:
        if cell["cell_type"] == "code":
            cell.update(execution_count=None, outputs=[])
    folders = ("config", "data", "runtime", "settings", "workspaces", "ipython", "root")
    config, data, runtime, settings, workspaces, ipython, root = (tmp_path / name for name in folders)
    copy = root / CHAPTER.relative_to(ROOT)
    for folder in (config, copy.parent):
        folder.mkdir(parents=True)
    copy.write_text(json.dumps(chapter), encoding="utf-8")
    shutil.copytree(ROOT / "results", root / "results")  # which the chapter reads
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = {
        "ServerApp": {"port": port, "port_retries": 0, "open_browser": False, "allow_root": True, "root_dir": str(root)},
        "IdentityProvider": {"token": token},
        # Nothing is asked of the network: no updates, no list of extensions.
        "LabApp": {"check_for_updates_class": NO_UPDATES, "extension_manager": "readonly"},
    }
    (config / "jupyter_lab_config.json").write_text(json.dumps(options), encoding="utf-8")
    own = {  # nothing of the user's is read or written
        "JUPYTER_CONFIG_DIR": config,
        "JUPYTER_DATA_DIR": data,
        "JUPYTER_RUNTIME_DIR": runtime,
        "JUPYTERLAB_SETTINGS_DIR": settings,
        "JUPYTERLAB_WORKSPACES_DIR": workspaces,
        "IPYTHONDIR": ipython,
    }
    log = tmp_path / "log"
    with log.open("w") as output:
        command, environment = [sys.executable, "-m", "jupyterlab"], os.environ | {name: str(own[name]) for name in own}
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(f"http://localhost:{port}/api?token={token}"):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start:\n{log.read_text()}", pytrace=False)
            time.sleep(0.2)
        yield f"http://localhost:{port}/lab/tree/{copy.relative_to(root).as_posix()}?token={token}"
    finally:
        server.terminate()  # it ends its kernels
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(address):
    """Whether a server is there."""
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def opened(browser, lab):
    """The chapter, open; what it asks of others and its errors collect in `elsewhere` and `broken`."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.elsewhere, page.broken = [], []
    home = lab.partition("/lab/")[0]
    ours = lambda error: "_markdownOverlapsToolbar" not in (error.stack or "")  # noqa: E731  (JupyterLab's toolbar of cells)
    page.on("pageerror", lambda error: page.broken.append(str(error)) if ours(error) else None)
    page.on("request", lambda r: None if r.url.startswith((home, "data:", "blob:")) else page.elsewhere.append(r.url))
    page.goto(lab)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    yield page
    context.close()


@pytest.fixture
def page(opened):
    """The open chapter, which asked nothing of others and had no error when the test is over."""
    yield opened
    assert opened.elsewhere == opened.broken == []


@pytest.fixture
def prose(page):
    """The open chapter, its prose rendered by `jupyterlab-myst`."""
    page.locator(".jp-MarkdownCell :is(.myst, .jp-RenderedMarkdown) h1").first.wait_for()
    assert page.locator(".jp-MarkdownCell .myst").count(), "jupyterlab-myst is missing, disabled or broken"
    return page


def wait_for(seen, wanted):
    """Wait until `seen()` is what is wanted: cells are rendered one after the other, and numbers follow."""
    deadline = time.monotonic() + PATIENCE
    while (found := seen()) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.2)


def texts(page, selector):
    """The texts of all elements that a selector finds, also of those further down."""
    return [" ".join(text.split()) for text in page.locator(selector).all_text_contents()]


def built(selector):
    """The texts of all elements of the built page that a selector finds."""
    page = BeautifulSoup(PAGE.read_text(encoding="utf-8"), "html.parser")
    return [" ".join(node.get_text().replace("#", "").split()) for node in page.select(selector)]


@pytest.mark.parametrize(
    ("here", "there", "least"),
    [
        (".myst-proof-title:has(a)", ".proof > .admonition-title:has(.caption-number)", 6),
        ("a[title='Link to this Equation']", ".eqno", 10),
        ("a[title='Link to this Exercise']", ".exercise .caption-number", 4),
        ("a.hover-link[href^='#eq-']", "article p a[href^='#equation-eq-']", 5),
        ("a.hover-link[href^='#thm-']", "article p a[href^='#thm-']", 10),
    ],
    ids=["theorems", "equations", "exercises", "references to equations", "references to theorems"],
)
def test_numbers_titles_and_references_are_the_pages(prose, here, there, least):
    wanted = built(there)
    assert len(wanted) >= least
    wait_for(lambda: texts(prose, f".jp-MarkdownCell {here}"), wanted)


def test_what_a_theorem_says_is_typeset_and_nothing_of_the_prose_is_raw(prose):
    formulas = len(built(".proof .math, details.ao-proof .math"))
    assert formulas > 100
    wait_for(lambda: prose.locator(".myst-proof .katex").count(), formulas)
    assert prose.locator(".katex-error").count() == 0
    wait_for(lambda: "What the papers say" in prose.evaluate(PROSE), True)  # cells below the last theorem may come later
    assert RAW.findall(prose.evaluate(PROSE)) == []
    # What stands elsewhere is not found: the keys of papers and the labels of other chapters.
    source = CHAPTER.with_suffix(".md").read_text(encoding="utf-8")
    papers = re.findall(r"{cite:[pt]}`([^`]+)`", source)
    assert set(texts(prose, ".jp-MarkdownCell [title$='Not Found']")) == {*papers, "thm-two-layers"}
    assert "\n:label: thm-two-layers\n" not in source


def test_a_reference_to_a_chapter_leads_to_its_notebook(prose):
    link = prose.locator(".jp-MarkdownCell a", has_text="Layers are steps").first
    assert link.get_attribute("href").partition("?")[0].endswith("/in_context/layers_are_steps.ipynb")


def test_the_set_up_is_folded_and_opens(page):
    cell = page.locator(".jp-CodeCell").nth(1)  # the first is Colab's
    code = cell.get_by_text("from attnbook.claims import claim")
    cell.locator(".jp-InputPlaceholder").wait_for()
    assert code.count() == 0 or not code.is_visible()
    cell.locator(".jp-InputPlaceholder .jp-Placeholder-content").click()
    code.wait_for()
    page.get_by_role("menuitem", name="View", exact=True).click()
    page.get_by_role("menuitem", name="Collapse Selected Code", exact=True).click()
    cell.locator(".jp-InputPlaceholder").wait_for()


def test_cells_of_each_kind_run_and_python_answers_the_explorer(page):
    """Cells to the first prose after a claim, a figure, a table and a printed line: nbval executes all."""
    cells, seen, least = [], set(), {"image/png", "text/markdown", "text/html", "stream", MIME}
    for place, cell in enumerate(json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]):  # noqa: B007
        if cell["cell_type"] == "code":
            cells.append(cell)
            seen.update(kind for out in cell["outputs"] for kind in out.get("data", [out["output_type"]]))
        elif least <= seen:
            break
    page.locator(".jp-Notebook .jp-Cell").nth(place).click(position={"x": 100, "y": 10})
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Above Selected Cell", exact=True).click()
    (in_the_page,) = (
        out["data"][MIME]["state"]["table"] for cell in cells for out in cell["outputs"] if MIME in out.get("data", ())
    )
    shown = [number for number, cell in enumerate(cells, 1) if not cell["metadata"].get("jupyter", {}).get("source_hidden")]

    def prompts():
        assert texts(page, "[data-mime-type='application/vnd.jupyter.stderr']") == []  # as which errors are shown, too
        return [text for text in texts(page, ".jp-CodeCell .jp-InputPrompt") if text not in ("", "[ ]:")]

    wait_for(prompts, [f"[{number}]:" for number in shown])

    explorer = page.locator(".jp-OutputArea", has=page.get_by_role("button", name="these are my roots"))
    explorer.get_by_role("button", name="show me").click()
    explorer = page.locator(".jp-OutputArea", has=page.get_by_role("slider", name="examples n"))
    explorer.get_by_role("radio", name="optimal").check()
    for move, dim, n_context in (
        (lambda: explorer.get_by_role("slider", name="examples n").press("ArrowRight"), 5, 21),
        (lambda: explorer.get_by_role("radio", name="3", exact=True).check(), 3, 21),
    ):
        assert f"{dim} {n_context}" not in in_the_page
        move()
        sizes, loss = optimal_step_sizes(dim, n_context, 3)
        steps = ", ".join(f"{-size:.3f}" for size in sizes)
        explorer.get_by_text(
            f"d = {dim}, n = {n_context}, 3 layers, optimal steps of size {steps}: loss {float(loss):.4g}"
        ).wait_for()
    assert prompts() == [f"[{number}]:" for number in shown]  # Python answered after all of them had run
