"""A chapter in JupyterLab: it runs from top to bottom, its explorer moves, and Python answers."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from attnopt.explorers import SoftmaxExplorer

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "book" / "regression" / "softmax_and_lse.ipynb"
NO_UPDATES = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
PATIENCE = 240  # seconds: the machine may be busy with other things


@pytest.fixture
def lab(tmp_path):
    """The address of a copy of the chapter, without outputs, in a JupyterLab of this environment that ends with the test."""
    chapter = json.loads(CHAPTER.read_text(encoding="utf-8"))
    for cell in chapter["cells"]:
        if cell["cell_type"] == "code":
            cell.update(execution_count=None, outputs=[])
    folders = ("book", "config", "data", "runtime", "settings", "workspaces", "ipython")
    book, config, data, runtime, settings, workspaces, ipython = (tmp_path / name for name in folders)
    for folder in (book, config):
        folder.mkdir()
    (book / CHAPTER.name).write_text(json.dumps(chapter), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = {
        "ServerApp": {"port": port, "port_retries": 0, "open_browser": False, "allow_root": True, "root_dir": str(book)},
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
        yield f"http://localhost:{port}/lab/tree/{CHAPTER.name}?token={token}"
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
    cells = sum(cell["cell_type"] == "code" for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"])
    wanted = [f"[{number}]:" for number in range(2, cells + 1)]  # the first cell is folded away
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    deadline = time.monotonic() + PATIENCE
    while [text for text in prompts.all_text_contents() if text] != wanted:
        assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
        assert time.monotonic() < deadline, prompts.all_text_contents()
        page.wait_for_timeout(200)

    live = page.locator(".jp-Cell", has=page.get_by_text("Python: T·LSE")).locator(".jp-OutputArea")
    live.scroll_into_view_if_needed()
    for name, key, state in (
        ("logit 2", "ArrowRight", {"logits": [1.0, 0.35, -1.2]}),
        ("logit 2", "ArrowRight", {"logits": [1.0, 0.4, -1.2]}),
        ("temperature", "ArrowLeft", {"logits": [1.0, 0.4, -1.2], "temperature": 0.95}),
    ):
        live.get_by_role("slider", name=name).press(key)
        expected = SoftmaxExplorer(**state).compute()["smooth_maximum"]
        live.get_by_text(f"Python: T·LSE(x/T) = {expected:.12f}").wait_for()
    assert elsewhere == broken == []
