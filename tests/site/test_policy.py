"""The built site under a content security policy, and explorers fed with text that looks like markup."""

import base64
import hashlib
import html
import json
import re

from conftest import HTML, Quiet, served, typeset
from explorer_pages import PAGES, mounted

from attnbook.explorers import Sandbox
from attnbook.mount import script_json

INLINE = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL)
HANDLER = re.compile(r'\son[a-z]+="([^"]*)"')


def permitted():
    """Hashes of the inline scripts that the theme and MathJax's settings bring: these and no others may run."""
    found = set()
    for path in HTML.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        found |= set(INLINE.findall(text)) | {html.unescape(handler) for handler in HANDLER.findall(text)}
    digest = lambda script: base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()  # noqa: E731
    return " ".join(sorted(f"'sha256-{digest(script)}'" for script in found))


class Strict(Quiet):
    """Sends the policy: everything from this server alone; style attributes, and pictures and fonts in data: addresses."""

    policy = ""

    def end_headers(self):
        self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()


def test_site_works_under_a_policy_that_forbids_everything_else(browser):
    Strict.policy = (
        f"default-src 'self'; script-src 'self' 'unsafe-hashes' {permitted()}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'self'"
    )
    with served(Strict) as address:
        context = browser.new_context()
        context.set_default_timeout(120_000)
        for path in ("index.html", "ledger.html", PAGES["softmax"], PAGES["attention_field"]):
            page, complaints = context.new_page(), []
            page.on("console", lambda m, said=complaints: said.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error, said=complaints: said.append(str(error)))
            page.goto(address + path, wait_until="load")
            if path in PAGES.values():
                typeset(page)
                page.locator("mjx-container").first.wait_for(state="attached")
                explorer = page.locator(".attnopt-explorer[data-mounted]").first
                if (pass_over := explorer.get_by_role("button", name="show me")).count():
                    pass_over.click()
                slider = explorer.get_by_role("slider").first
                before = explorer.inner_html()
                slider.focus()
                slider.press("End")
                slider.press("Home")
                slider.press("ArrowRight")
                assert explorer.inner_html() != before
            assert complaints == [], path
            page.close()
        page, complaints = context.new_page(), []
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.goto(f"{address}laboratory.html#sandbox=run:own;p:2;length:5;k:2;count:64;epoch:5", wait_until="load")
        page.get_by_text("Epoch 5:").first.wait_for()
        beside = "document.querySelector('.ao-sandbox').laboratory.bench.own.runner.beside"
        assert page.evaluate(beside)  # the policy lets a worker of this server train
        assert complaints == []
        context.close()


def test_the_laboratory_trains_in_a_worker_under_a_policy(browser, show, alone):
    show(Sandbox(("success",), run="own", epoch=5, p=2, length=5, k=2, count=64))
    folder = alone[0]
    name = f"{len(list(folder.iterdir())) - 1}.html"
    for more, beside in (("", True), ("; worker-src 'none'", False)):
        Strict.policy = f"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:{more}"
        with served(Strict, folder.parent) as address:
            page = browser.new_page()
            page.goto(f"{address}pages/{name}", wait_until="load")
            page.get_by_text("Epoch 5:").first.wait_for(timeout=120_000)  # in slices of the page's time, if it must
            assert page.evaluate("document.querySelector('.ao-sandbox').laboratory.bench.own.runner.beside") == beside
            page.close()


HOSTILE = '<img src="x" onerror="window.hit = 1"><script>window.hit = 1</script>'
RENDERED_AGAIN = """async (hostile) => {
  const text = await (await fetch(location.href)).text();
  const written = [...new DOMParser().parseFromString(text, "text/html").querySelectorAll(".attnopt-explorer script")];
  const { module, state, bounds } = JSON.parse(written[0].textContent);
  let changed = 0;
  const spoil = (value) => {
    for (const [key, inner] of Object.entries(value ?? {})) {
      if (["title", "description", "alt"].includes(key) && typeof inner === "string") { value[key] = hostile; changed += 1; }
      else if (typeof inner === "object") spoil(inner);
    }
  };
  spoil(state);
  const { default: widget } = await attnopt.load(module);
  const el = document.createElement("div");
  document.body.append(el);
  const model = { get: (key) => (key === "_bounds" ? bounds : state[key]), set() {}, on() {}, off() {}, save_changes() {} };
  await widget.render({ model, el });
  await new Promise((done) => setTimeout(done, 300));
  return { changed: changed > 0, shown: el.textContent.includes(hostile), made: el.querySelectorAll("img, script").length,
           hit: window.hit ?? 0 };
}"""


def test_data_that_look_like_markup_are_shown_as_text(show):
    page = show(Sandbox(runs=("spike",)))
    mounted(page)
    assert page.evaluate(RENDERED_AGAIN, HOSTILE) == {"changed": True, "shown": True, "made": 0, "hit": 0}


def test_state_in_the_page_cannot_end_its_script_element():
    hostile = {"state": {"label": "</script><script>alert(1)</script><!--"}}
    written = script_json(hostile)
    assert "<" not in written
    assert json.loads(written) == hostile
