"""The line from text to notebook: drift, determinism, style, the template, and the notebook gate."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import notebooks
import prose
import pytest
from bs4 import BeautifulSoup
from nbconvert.filters import markdown2html

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
CHAPTER = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A chapter

Some prose.

```{code-cell} ipython3
print("one")
print("two")
```

More prose.

```{code-cell} ipython3
:tags: [live, nbval-ignore-output]
object()
```
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """An executed pair in a folder of its own."""
    path = tmp_path_factory.mktemp("book") / "part" / "chapter.md"
    path.parent.mkdir()
    path.write_text(CHAPTER, encoding="utf-8")
    notebooks.execute(path)
    return path


@pytest.fixture
def pair(executed, tmp_path):
    """A copy of that pair that a test may spoil."""
    path = tmp_path / "chapter.md"
    path.write_text(executed.read_text(encoding="utf-8"), encoding="utf-8")
    twin = executed.with_suffix(".ipynb").read_text(encoding="utf-8")
    path.with_suffix(".ipynb").write_text(twin, encoding="utf-8")
    return path


def spoil(pair, change):
    """Load the twin, change it, write it back."""
    twin = pair.with_suffix(".ipynb")
    notebook = json.loads(twin.read_text(encoding="utf-8"))
    change(notebook)
    twin.write_text(json.dumps(notebook), encoding="utf-8")


def test_executing_again_gives_the_same_bytes(executed):
    before = executed.with_suffix(".ipynb").read_bytes()
    notebooks.execute(executed)
    assert executed.with_suffix(".ipynb").read_bytes() == before


def test_streams_are_merged_and_live_output_is_not_stored(executed):
    _, first, live = (c for c in nbformat.read(executed.with_suffix(".ipynb"), 4).cells if c.cell_type == "code")
    assert [output.text for output in first.outputs] == ["one\ntwo\n"]
    assert live.outputs == []
    assert live.execution_count == 3


def test_the_first_cell_fetches_the_book_on_colab_and_does_nothing_elsewhere(executed, monkeypatch, tmp_path):
    cells = notebooks.read_text(executed).cells
    first = next(cell for cell in cells if cell.cell_type == "code")
    assert cells.index(first) == 1  # after the title
    assert first.metadata == {"tags": ["remove-cell"], "jupyter": {"source_hidden": True}}
    calls = []
    monkeypatch.setattr(subprocess, "check_call", calls.append)
    monkeypatch.setattr(os, "chdir", calls.append)
    monkeypatch.setattr("builtins.input", lambda question: "/their/repository")
    exec(first.source, {})
    assert calls == []
    monkeypatch.setitem(sys.modules, "google.colab", object())
    exec(first.source, {})
    assert [call if isinstance(call, str) else call[-2:] for call in calls] == [
        ["/their/repository", "/content/book"],
        ["/content/book", "/content/book/src/attnbook"],
        "/content/book/.",
    ]


def test_references_to_other_texts_become_links_that_every_viewer_follows(tmp_path):
    (tmp_path / "one.md").write_text(CHAPTER, encoding="utf-8")
    (tmp_path / "two.md").write_text("(label)=\n# Another\n", encoding="utf-8")
    (tmp_path / "part").mkdir()
    source = "See {doc}`../one`, {doc}`the\nother <../two>`, {doc}`nothing` and {term}`one`."
    wanted = "See [A chapter](../one.ipynb), [the\nother](../two.md), {doc}`nothing` and {term}`one`."
    assert notebooks.linked(source, tmp_path / "part") == wanted
    (tmp_path / "part" / "three.md").write_text(CHAPTER.replace("Some prose.", source), encoding="utf-8")
    cells = notebooks.read_text(tmp_path / "part" / "three.md").cells
    assert wanted in cells[0].source


def unreadable(source):
    """The formulas that a viewer without directives shows as code, and the fences that run into what stands by them."""
    found = []
    for cell in jupytext.reads(source, fmt="md:myst").cells:
        seen = BeautifulSoup(markdown2html(cell.source if cell.cell_type == "markdown" else ""), "html.parser")
        found += [code.get_text() for code in seen.select("code") if re.search(r"\$|\\[a-z]", code.get_text())]
        for text in seen.find_all(string=re.compile(":::")):
            alone = re.fullmatch(r"\s*:::(\{[a-z:-]+\}[^\n]*(\n:[a-z]+:[^\n]*)*(\n:::)?)?\s*", text.parent.get_text())
            found += [] if alone and text.parent.name == "p" and text.parent.parent is seen else [text]
    return found


def test_viewers_without_directives_typeset_what_theorems_say():
    for path in notebooks.sources():
        assert unreadable(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize("tag", ["hide-input", "remove-input"])
def test_a_cell_whose_code_the_page_folds_is_folded_in_jupyterlab_too(pair, tag):
    text = pair.read_text(encoding="utf-8")
    pair.write_text(text.replace("ipython3\nprint", f"ipython3\n:tags: [{tag}]\nprint"), encoding="utf-8")
    assert notebooks.carry_over(pair)  # what is folded has no other output
    _, first, live = (c for c in nbformat.read(pair.with_suffix(".ipynb"), 4).cells if c.cell_type == "code")
    assert first.metadata == {"tags": [tag], "jupyter": {"source_hidden": True}}
    assert [output.text for output in first.outputs] == ["one\ntwo\n"]
    assert "jupyter" not in live.metadata
    spoil(pair, lambda nb: nb["cells"][2]["metadata"].pop("jupyter"))
    assert notebooks.faults(pair) == ["cell 2 (code) differs from its notebook"]


def test_where_prose_alone_has_changed_outputs_are_carried_over(pair):
    before = nbformat.read(pair.with_suffix(".ipynb"), 4)
    text = pair.read_text(encoding="utf-8")
    pair.write_text(text.replace("Some prose.", "Some prose.\n\n+++\n\nAnd more."), encoding="utf-8")
    assert notebooks.carry_over(pair)
    assert notebooks.faults(pair) == []
    after = nbformat.read(pair.with_suffix(".ipynb"), 4)
    assert len(after.cells) == len(before.cells) + 1
    assert [c.outputs for c in after.cells if c.cell_type == "code"] == [
        c.outputs for c in before.cells if c.cell_type == "code"
    ]


@pytest.mark.parametrize(
    ("old", "new"), [('print("two")', 'print("three")'), ("[live, nbval-ignore-output]", "[nbval-ignore-output]")]
)
def test_where_code_has_changed_nothing_is_carried_over(pair, old, new):
    pair.write_text(pair.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    twin = pair.with_suffix(".ipynb").read_bytes()
    assert not notebooks.carry_over(pair)
    assert pair.with_suffix(".ipynb").read_bytes() == twin


def test_outputs_that_are_faulty_are_not_carried_over(pair):
    spoil(pair, lambda nb: nb["cells"][2].update(execution_count=None))
    assert not notebooks.carry_over(pair)
    spoil(pair, lambda nb: nb["cells"][2].update(execution_count=2))
    spoil(pair, lambda nb: nb["cells"][2]["outputs"][0].update(name="stderr"))
    assert not notebooks.carry_over(pair)
    pair.with_suffix(".ipynb").write_text("{", encoding="utf-8")
    assert not notebooks.carry_over(pair)


def test_a_faithful_pair_has_no_faults(pair):
    assert notebooks.faults(pair) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Some prose.", "Some other prose.", "cell 0 (markdown) differs"),
        ('print("two")', 'print("three")', "cell 2 (code) differs"),
        ("More prose.\n", "More prose.\n\n```{code-cell} ipython3\n1 + 1\n```\n", "has 6 cells, its notebook 5"),
        (":tags: [live, nbval-ignore-output]", ":tags: [live]", "cell 4 (code) differs"),
    ],
)
def test_changed_text_is_drift(pair, old, new, fault):
    pair.write_text(pair.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert any(found.startswith(fault) for found in notebooks.faults(pair))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda nb: nb["cells"][2].update(execution_count=None), "code cell 2 was not executed in order"),
        (lambda nb: nb["cells"][4].update(execution_count=1), "code cell 3 was not executed in order"),
        (lambda nb: nb["cells"][0].update(source="Edited in Jupyter."), "cell 0 (markdown) differs"),
        (lambda nb: nb["cells"].pop(), "has 5 cells, its notebook 4"),
        (lambda nb: nb["metadata"].update(author="somebody"), "its notebook's metadata"),
        (lambda nb: nb["cells"][2]["outputs"][0].update(name="stderr"), "code cell 2 writes to stderr"),
        (
            lambda nb: nb["cells"][4]["outputs"].append({"output_type": "stream", "name": "stdout", "text": "x"}),
            "code cell 3 is tagged live",
        ),
    ],
)
def test_a_changed_notebook_is_drift(pair, change, fault):
    spoil(pair, change)
    assert any(found.startswith(fault) for found in notebooks.faults(pair))


def test_a_pair_that_prints_rounding_is_at_fault(pair):
    for output in (
        {"output_type": "stream", "name": "stdout", "text": "error 1.1e-16\n"},
        {"output_type": "display_data", "metadata": {}, "data": {"text/plain": "tensor(1.1e-16)"}},
        {"output_type": "display_data", "metadata": {}, "data": {"text/latex": "$1.1e-16$"}},
    ):
        spoil(pair, lambda nb, output=output: nb["cells"][2].update(outputs=[output]))
        assert notebooks.faults(pair) == [
            "code cell 2 prints 1.1e-16, which is rounding: decide with a tolerance, then print"
        ]
    data = {"text/plain": "Explorer(time=1.1e-16)", notebooks.EXPLORER: {}}
    spoil(pair, lambda nb: nb["cells"][2].update(outputs=[{"output_type": "display_data", "metadata": {}, "data": data}]))
    assert notebooks.faults(pair) == []


def test_a_missing_or_broken_notebook_is_named(pair):
    twin = pair.with_suffix(".ipynb")
    twin.write_text(twin.read_text(encoding="utf-8")[:200], encoding="utf-8")
    assert notebooks.faults(pair)[0].startswith("its notebook cannot be read")
    twin.unlink()
    assert notebooks.faults(pair) == ["has no notebook"]


def test_an_unknown_chapter_is_named():
    with pytest.raises(SystemExit, match="no chapter 'regression/nothing'"):
        notebooks.select(["regression/nothing"])
    assert notebooks.select(["book/regression/softmax_and_lse.md"])[0].stem == "softmax_and_lse"


SPOILED = {
    "differs": (lambda nb: nb["cells"][2]["outputs"][0].update(text="one\nthree\n"), "Cell outputs differ"),
    "skipped": (lambda nb: nb["cells"][2]["metadata"].update(tags=["nbval-skip"]), "marked to be skipped"),
    "unexecuted": (lambda nb: nb["cells"][2].update(execution_count=None, outputs=[]), "never executed"),
    "tagged": (
        lambda nb: nb["cells"][2]["metadata"].update(tags=["nbval-ignore-output"]),
        "its output is ignored although it is not tagged 'live'",
    ),
    "marked": (
        lambda nb: nb["cells"][2].update(source="# NBVAL_IGNORE_OUTPUT\nprint('one')"),
        "its output is ignored although it is not tagged 'live'",
    ),
}


@pytest.fixture
def gate(executed, pytester):
    """Validate notebooks, two faithful and the others spoiled, beside the book's conftest; exit code and output."""
    pytester.makeconftest((ROOT / "book" / "conftest.py").read_text(encoding="utf-8"))
    twin = executed.with_suffix(".ipynb").read_text(encoding="utf-8")
    for name in ("good", "better", *SPOILED):
        (pytester.path / f"{name}.ipynb").write_text(twin, encoding="utf-8")
    for name, (change, _) in SPOILED.items():
        spoil(pytester.path / f"{name}.md", change)

    def run(names, *arguments):
        paths = [f"{name}.ipynb" for name in names]
        done = pytester.runpytest_inprocess("--nbval", "--nbval-current-env", "-q", "--color=no", *arguments, *paths)
        return done.ret, done.stdout.str()

    return run


def test_the_gate_counts_and_passes(gate):
    code, output = gate(["good", "better"])
    assert code == 0, output
    for name in ("good", "better"):
        assert f"{name}.ipynb: compared 2 of 2 cells" in output


@pytest.mark.parametrize(
    ("names", "spread"), [(SPOILED, ()), (["tagged"], ("-n", "2", "--dist", "loadfile"))], ids=["alone", "side by side"]
)
def test_the_gate_names_every_cell_that_is_not_compared(gate, names, spread):
    code, output = gate(["good", *names], *spread)
    assert code == 1
    assert "good.ipynb: compared 2 of 2 cells" in output
    for name in names:
        sign = SPOILED[name][1]
        assert f"{name}.ipynb: compared 1 of 2 cells" in output
        assert (sign if name == "differs" else f"{name}.ipynb::Cell 1: {sign}") in output
    assert ("failed" in output) == ("differs" in names)  # of the others the gate alone complains


GOOD = (ROOT / "tools" / "chapter_template.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("phrase", "advice"),
    [
        ("It is 3 in the mean.", "on average"),
        ("The data are drawn anew.", "redrawn"),
        ("It runs for ever.", "forever"),
        ("It holds exactly if $a = b$.", "if and only if"),
        ("At which rate does it fall?", "at what rate"),
        ("Which share of it remains?", "what share"),
        ("You said 3.", "whether the answer was right"),
        ("It holds. So it is, too, for two.", "name what holds"),
        ("It is 12 % of all.", "12%"),
        ("It is 12 per cent of all.", "12%"),
        ("The proof uses that it is convex.", "the fact that"),
        ("Two numbers a layer suffice.", "per"),
        ("The initialisation is drawn.", "American"),
        ("The colours differ.", "American"),
    ],
)
def test_phrases_that_are_always_wrong_are_refused(phrase, advice):
    (fault,) = prose.wrong(f"A sentence.\n{phrase}\n")
    assert fault.startswith("line 2: ")
    assert advice in fault
    assert prose.wrong(f"```{{code-cell}} ipython3\n# {phrase}\n```\n") == []
    cell = f"```{{code-cell}} ipython3\n---\nmystnb:\n  figure:\n    caption: {phrase}\n---\n```\n"
    assert advice in prose.wrong(cell)[0]


def test_names_and_right_phrases_are_not_refused():
    assert (
        prose.wrong("See `odonnat-initialisation`, {ref}`x <fold-colour>`, in the mean of $x$, and in the mean spectrum.")
        == []
    )


def test_the_template_and_the_book_are_in_style():
    assert prose.faults(GOOD, chapter=True) == []
    for path in notebooks.sources():
        assert prose.faults(path.read_text(encoding="utf-8"), chapter=path.parent != notebooks.BOOK) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("The answer in words.", "One answer. And another.", "one sentence a line"),
        ("x**2 - 2 * x", "x ** 2-2*x", "code cells are not formatted"),
        ("import torch\n", "", "line 23: code: Undefined name `torch`"),
        ("```{code-cell} ipython3\nx", "```python\nx", "this block does not run"),
        ("    alt: What one would see.\n", "", "the figure has no `alt:`"),
        ("Expand the square.", r"Claim $A^T$.", "transpose"),
        ("Expand the square.", "Claim\n\n$$\nx = 1\n$$\n\nby claim.", "the equation has no label"),
        ("assert is_zero", "ax = None\nax.set_title('no')\nassert is_zero", "captions, not titles"),
        ("**Time to run.**", "**Duration.**", "lacks `**Time to run.**`"),
        ("## Related work", "## Sources", "lacks `## Related work`"),
        (":::{exercise} ●○○", "```{exercise} ●○○", "open {exercise} with `:::`"),
        ("●○○ · 5 minutes · by hand", "5 minutes", "lacks how hard, how long and of which kind"),
        (":::{solution-end}", ":::{note}", "not every exercise has a solution"),
        (":tags: [hide-input]\n", "", "the first cell sets up: fold it"),
        (":tags: [hide-input]", ":tags: [remove-output]", "the first cell sets up: fold it"),
        ("assert is_zero", "\n" + "x = x\n" * 20 + "assert is_zero", "lines of open code; fold it"),
        ("\nquestions(", "\nrepr(", "does not show `questions()`"),
        ("\nclaims_of_chapter(", "\nrepr(", "does not show `claims_of_chapter()`"),
    ],
)
def test_breaches_of_style_are_named(old, new, fault):
    assert old in GOOD
    found = prose.faults(GOOD.replace(old, new, 1), chapter=True)
    assert any(fault in line for line in found), found
