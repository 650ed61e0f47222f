"""The built book, served on localhost to a headless Chromium whose network is cut to localhost."""

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

HTML = Path(__file__).parents[2] / "_build" / "html"
FLAGS = [
    "--no-sandbox",  # Chromium refuses its sandbox to root, as whom containers run
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A static server with the types that modules need, and no log."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def address():
    """Where the built book is served."""
    if not (HTML / "index.html").is_file():
        pytest.fail("the book is not built: python3 run.py book --no-serve", pytrace=False)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=HTML))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, or Playwright's own."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        except Exception as error:
            pytest.fail(f"no Chromium could be started (python3 run.py test installs one): {error}", pytrace=False)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, address):
    """Open a page of the book; its complaints and its requests elsewhere collect in `page.complaints`."""
    contexts = []

    def open_page(path, width=1280, scheme="light", mathematics=True, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("requestfailed", lambda request: page.complaints.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith((address, "data:", "blob:")) else page.complaints.append(f"elsewhere: {r.url}")
            ),
        )
        page.on("response", lambda r: page.complaints.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        if not mathematics:  # typesetting takes most of a page's load; tests that do not look at it go without
            page.route("**/mathjax/*.js*", lambda route: route.fulfill(body="", content_type="text/javascript"))
        page.goto(address + path, wait_until="load")
        if options.get("java_script_enabled", True):
            page.evaluate("async () => { await window.MathJax?.startup?.promise; return null; }")
        return page

    yield open_page
    for context in contexts:
        context.close()
