"""The built book, served on localhost to a headless Chromium whose network is cut to localhost."""

import contextlib
import functools
import http.server
import json
import os
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from attnbook.chromium import launch
from attnbook.mount import script_json, write_scripts

HTML = Path(__file__).parents[2] / "_build" / "html"
FLAGS = [
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
]
ALONE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Explorers</title><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><link rel="stylesheet" href="../_static/explorers/explorers.css">
<script defer src="../_static/explorers/host.js"></script></head><body style="max-width: 46rem">{}</body></html>"""


def pytest_configure(config):
    """Give each worker cores of its own: a page's processes then answer each other without waking another core."""
    worker = getattr(config, "workerinput", None)
    if worker and hasattr(os, "sched_setaffinity"):  # Linux
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[int(worker["workerid"][2:]) :: worker["workercount"]] or cores)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A static server with the types that modules need, connections and answers that can be used again, and no log."""

    protocol_version = "HTTP/1.1"
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def end_headers(self):
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *arguments):
        pass

    def answer(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class WithoutMathematics(Quiet):
    """Sends nothing for MathJax. (Interception by the browser would have the same effect, but turns its cache off.)"""

    def do_GET(self):
        if "/mathjax/" in self.path and ".js" in self.path:
            self.answer("text/javascript", "")
        else:
            super().do_GET()


@contextlib.contextmanager
def served(handler, folder=HTML):
    """The address at which a handler serves the built book, or another folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def addresses():
    """Where the built book is served, with (True) and without (False) mathematics."""
    if not (HTML / "objects.inv").is_file():
        pytest.fail("the book is not built: python3 run.py book --no-serve", pytrace=False)
    with served(Quiet) as complete, served(WithoutMathematics) as fast:
        yield {True: complete, False: fast}


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, or Playwright's own."""
    with sync_playwright() as playwright:
        try:
            chromium = launch(playwright, *FLAGS)
        except Exception as error:
            pytest.fail(f"no Chromium could be started (python3 run.py test installs one): {error}", pytrace=False)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def contexts(browser):
    """A browser context for each kind of device: shared, for its cache, but nothing is remembered from page to page."""
    found = {}

    def contexts(**device):
        name = json.dumps(device, sort_keys=True)
        if name not in found:
            found[name] = browser.new_context(**device)
            found[name].set_default_timeout(120_000)  # the machine may be busy with other things
            if device.get("java_script_enabled", True):
                found[name].add_init_script("if (location.protocol === 'http:') localStorage.clear();")
            found[name].idle = []
        return found[name]

    yield contexts
    for context in found.values():
        context.close()


def listen(page):
    """Collect in `page.complaints` what a page complains of, and requests elsewhere; in `page.pending` what it waits for."""
    complain = lambda text: page.complaints.append(text)  # noqa: E731
    page.on("request", lambda request: page.pending.add(request))
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: page.pending.discard(request))
    page.on("console", lambda m: complain(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complain(str(error)))
    page.on("requestfailed", lambda request: complain(f"failed: {request.url}"))
    ours = lambda address: address.startswith((page.home, "data:", "blob:"))  # noqa: E731
    page.on("request", lambda request: None if ours(request.url) else complain(f"elsewhere: {request.url}"))
    page.on("response", lambda r: complain(f"{r.status}: {r.url}") if r.status >= 400 else None)


def lend(context, home):
    """A page that was used before, if one is idle: it opens an address in much less time than a new one."""
    page = context.idle.pop() if context.idle else None
    if page is None:
        page = context.new_page()
        listen(page)
    page.home, page.complaints, page.pending, page.spent = home, [], set(), False
    return page


def take_back(page):
    """Leave nothing in a page of what it showed; one whose settings cannot be undone is closed."""
    if page.spent:
        page.close()
        return
    page.home, page.complaints = "", []
    page.evaluate("try { sessionStorage.clear(); } catch {}")
    page.goto("about:blank")
    page.mouse.move(-1, -1)
    page.context.idle.append(page)


def begin_with(page, script):
    """Run a script before the page's own, whatever it opens."""
    page.spent = True
    page.add_init_script(script)


def typeset(page):
    """Wait until a page's mathematics is set, where it has any."""
    page.evaluate("async () => { await window.MathJax?.startup?.promise; return null; }")


def settled(page):
    """Wait until a page has all that it has asked for."""
    page.evaluate("document.fonts.ready.then(() => null)")
    deadline = time.monotonic() + 60
    while page.pending:
        assert time.monotonic() < deadline, [request.url for request in page.pending]
        page.wait_for_timeout(20)


@pytest.fixture
def new_page(contexts):
    """An empty page of some width and scheme, on a device with what else is asked (touch, less motion)."""
    pages = []

    def new_page(address, width, scheme, scripts=True, **device):
        page = lend(contexts(java_script_enabled=scripts, **device), address)
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        less = {"reduced_motion": "reduce"} if "reduced_motion" in device else {}
        page.emulate_media(media="null", color_scheme=scheme, **less)
        return page

    yield new_page
    for page in pages:
        take_back(page)


@pytest.fixture
def open_page(new_page, addresses):
    """Open a page of the book."""

    def open_page(path, width=1280, scheme="light", mathematics=True, scripts=True, **device):
        page = new_page(addresses[mathematics], width, scheme, scripts, **device)
        page.goto(addresses[mathematics] + path, wait_until="load")
        if scripts and mathematics:
            typeset(page)
        return page

    return open_page


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """A folder, and its address, with the explorers' scripts and room for small pages: no built book is needed."""
    import attnbook.explorers  # noqa: F401  (whose scripts are written; not at the top: what only spreads the tests needs none)

    folder = tmp_path_factory.mktemp("explorers")
    write_scripts(folder / "_static" / "explorers")
    (folder / "pages").mkdir()
    with served(Quiet, folder) as address:
        yield folder / "pages", f"{address}pages/"


def write_page(folder, *explorers):
    """A new page of some explorers alone, in that folder."""
    scripts = (f'<script type="application/json">{script_json(explorer.page())}</script>' for explorer in explorers)
    body = "".join(f'<div class="attnopt-explorer">{script}</div>' for script in scripts)
    path = folder / f"{len(list(folder.iterdir()))}.html"
    path.write_text(ALONE.format(body), encoding="utf-8")
    return path


@pytest.fixture
def show(new_page, alone):
    """Open a page of some explorers alone."""
    folder, address = alone

    def show(*explorers, width=1280, scheme="light", hash="", **device):
        page = new_page(address.removesuffix("pages/"), width, scheme, **device)
        page.goto(f"{address}{write_page(folder, *explorers).name}{hash}", wait_until="load")
        return page

    return show
