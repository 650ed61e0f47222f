"""A chapter in JupyterLab: it runs from top to bottom, its explorer moves, and Python answers."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from attnopt.explorers import SoftmaxExplorer

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "book" / "regression" / "softmax_and_lse.ipynb"
PATIENCE = 120  # seconds: the machine may be busy with other things


@pytest.fixture
def lab(tmp_path):
    """The address of a copy of the chapter in a JupyterLab of this environment, which ends with the test."""
    (tmp_path / "book").mkdir()
    shutil.copy(CHAPTER, tmp_path / "book")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = [
        "--no-browser",
        "--allow-root",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={tmp_path / 'book'}",
        # Nothing is asked of the network: no news, no updates, no list of extensions.
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]
    folders = {  # nothing of the user's is read or written
        name: str(tmp_path / name)
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR",
            "IPYTHONDIR",
        )
    }
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=os.environ | folders, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"http://localhost:{port}/api?token={token}", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
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
    page.get_by_text("Python 3 | Idle").or_(page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")).first.wait_for()

    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    last = page.locator(".jp-CodeCell .jp-InputPrompt").last
    page.wait_for_function("prompt => /^\\[\\d+\\]:$/.test(prompt.textContent.trim())", arg=last.element_handle())
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    page.screenshot(path="/tmp/w/house_lab.png")
    assert elsewhere == broken == []
