"""A chapter in JupyterLab: it runs from top to bottom, and Python answers its explorer beyond what the page carries."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from attnopt.explorers.base import MIME
from attnopt.in_context import optimal_step_sizes

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "book" / "in_context" / "optimal_step_sizes.ipynb"
NO_UPDATES = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
PATIENCE = 240  # seconds: the machine may be busy with other things


@pytest.fixture
def lab(tmp_path):
    """The address of a copy of the chapter, without outputs, in a JupyterLab of this environment that ends with the test."""
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


@pytest.fixture
def page(browser):
    """A page in a context of its own."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(1000 * PATIENCE)
    yield context.new_page()
    context.close()


def test_a_chapter_runs_in_jupyterlab_and_python_answers_its_explorer(lab, page):
    elsewhere, broken = [], []
    home = lab.partition("/lab/")[0]
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith((home, "data:", "blob:")) else elsewhere.append(r.url))
    page.goto(lab)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    cells = [cell for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    (in_the_page,) = (
        out["data"][MIME]["state"]["table"] for cell in cells for out in cell["outputs"] if MIME in out.get("data", ())
    )
    wanted = [f"[{number}]:" for number in range(2, len(cells) + 1)]  # the first cell is folded away
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    deadline = time.monotonic() + PATIENCE
    while [text for text in prompts.all_text_contents() if text] != wanted:
        assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
        assert time.monotonic() < deadline, prompts.all_text_contents()
        page.wait_for_timeout(200)

    explorer = page.locator(".jp-OutputArea", has=page.get_by_role("slider", name="examples n"))
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
    assert elsewhere == broken == []
