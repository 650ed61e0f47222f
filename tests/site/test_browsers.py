"""The explorers in Firefox and WebKit, from a server or a file: each lives, answers a key, and no page complains."""

import re

import browsers
import pytest
from conftest import HTML, Quiet, served, write_page
from explorer_pages import PAGES
from explorer_states import NAMES, make

# A page from a server and one from a file; the laboratory is opened from both when it trains, and all explorers on one page.
PATHS = {"server": PAGES["plateaus"], "file": PAGES["layer_training"]}
MATHJAX = re.compile(r"<script[^>]*mathjax[^>]*></script>")  # half of the time
# Before any other script of a page: what goes wrong in it is kept.
LISTEN = """<script>
const complaints = [];
for (const kind of ["error", "warn"]) console[kind] = (...words) => complaints.push(words.join(" "));
addEventListener("error", ({ message, target }) => complaints.push(message ?? `not loaded: ${target.outerHTML}`), true);
addEventListener("unhandledrejection", ({ reason }) => complaints.push(String(reason)));
</script>"""
# The explorers of a page, when all are mounted; questions put first are passed over.
MOUNTED = """
const all = [...document.querySelectorAll("div.attnopt-explorer")], deadline = performance.now() + 60_000;
const waits = () => all.length === 0 || all.some((one) => !one.dataset.mounted);
while (waits() && performance.now() < deadline) await new Promise((done) => setTimeout(done, 20));
const buttons = all.flatMap((one) => [...one.querySelectorAll("button")]);
for (const button of buttons) if (button.textContent === "show me") button.click();
return all.map((one) => one.dataset.mounted ?? "not mounted");
"""
SLIDER = """const explorer = document.querySelectorAll("div.attnopt-explorer")[at];
const slider = explorer.querySelector("input[type=range]:not([min='0'][max='0'])");
"""
FOCUS = SLIDER + "slider.scrollIntoView(); slider.focus(); return document.activeElement === slider;"
NUMBERS = (
    SLIDER
    + """
const said = () => [...explorer.querySelectorAll("[role=status], svg text, td")].map((part) => part.textContent).join(" ");
let numbers = [];  // none while the laboratory fetches its runs
for (const deadline = performance.now() + 60_000; numbers.length === 0 && performance.now() < deadline; ) {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  numbers = said().match(/[0-9]+([.][0-9]+)?/g) ?? [];
}
return [slider.value, numbers.join(" ")];
"""
)
END, HOME = "\ue010", "\ue011"
TRAIN = """
const explorer = document.querySelector(".ao-sandbox"), said = () => explorer.querySelector("[role=status]").textContent;
const button = [...explorer.querySelectorAll("button")].find((one) => one.textContent === "▶ train");
button.click();
const deadline = performance.now() + 100_000, epoch = () => parseFloat(said().slice("Epoch ".length));
while (!(epoch() >= 20) && performance.now() < deadline) await new Promise((done) => setTimeout(done, 50));
return said();
"""


@pytest.fixture(scope="module", params=sorted(browsers.KINDS))
def page(request):
    """A page of another browser."""
    if lacking := browsers.missing(request.param):
        pytest.skip(f"{', '.join(lacking)} is not installed: run.py test installs it on Debian, where root calls it")
    with browsers.KINDS[request.param]() as page:
        yield page


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    """A copy of the pages that keeps their complaints; what they load is the built book's."""
    folder = tmp_path_factory.mktemp("listening")
    for entry in HTML.glob("_*"):
        (folder / entry.name).symlink_to(entry)
    for page in HTML.rglob("*.html"):  # all of them: some browsers fetch what a page is linked with
        if page.relative_to(HTML).parts[0].startswith("_"):
            continue  # it is behind a link, and would be written over
        text, copy = page.read_text(encoding="utf-8"), folder / page.relative_to(HTML)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(MATHJAX.sub("", text).replace("<head>", f"<head>{LISTEN}"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["server", "file"])
def home(request, listening):
    """Where these pages are."""
    if request.param == "file":
        yield f"{listening.as_uri()}/"
    else:
        with served(Quiet, listening) as address:
            yield address


def answers(page, at):
    """Whether an explorer's numbers change with its first slider, moved by keys."""
    assert page.run(f"const at = {at};\n{FOCUS}")
    seen = []
    for key in (END, HOME):
        stroke = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        page.act({"type": "key", "id": "keyboard", "actions": stroke})
        seen.append(page.run(f"const at = {at};\n{NUMBERS}"))
    return seen[0][0] != seen[1][0] and seen[0][1] != seen[1][1]


def test_explorers_live_on_a_page(page, home):
    page.goto(home + PATHS["file" if home.startswith("file") else "server"])
    mounted = page.run(MOUNTED)
    assert "not mounted" not in mounted
    assert [name for at, name in enumerate(mounted) if not answers(page, at)] == []
    assert page.run("return complaints;") == []


def test_the_laboratory_trains(page, home):
    page.goto("about:blank")
    page.goto(f"{home}laboratory.html#sandbox=run:own;epoch:0;goal:20")
    page.run(MOUNTED)
    said = page.run(TRAIN)
    assert said.startswith("Epoch 20:"), said
    assert "NaN" not in said
    assert page.run("return complaints;") == []


def test_every_explorer_lives_alone(page, alone):
    """All of them on one page without the theme."""
    path = write_page(alone[0], *map(make, NAMES))
    path.write_text(path.read_text(encoding="utf-8").replace("<head>", f"<head>{LISTEN}"), encoding="utf-8")
    page.goto(path.as_uri())
    mounted = page.run(MOUNTED)
    assert sorted(mounted) == sorted(NAMES)
    assert [name for at, name in enumerate(mounted) if not answers(page, at)] == []
    assert page.run("return complaints;") == []
