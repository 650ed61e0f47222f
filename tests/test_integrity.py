"""Whoever changes a verdict, takes evidence away or breaks a formula turns the suite red: each is done here, on a copy."""

import ast
import dataclasses
import functools
import importlib.util
import json
import re
import shutil
import sys
import types
from pathlib import Path

import notebooks
import pytest
from test_claims import inconsistent, read_chapter, unlisted, unshown

from attnbook.claims import VERDICTS, claims

ROOT = Path(__file__).parent.parent
SETTLED = [row for row in claims().values() if row.verdict != "open"]


@functools.cache
def stored_html(chapter):
    """All HTML that a chapter's notebook shows."""
    notebook = json.loads((ROOT / "book" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", []))
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)


def stale(rows):
    """Claims whose chapter shows another card than theirs."""
    return [row.id for row in rows if row._repr_html_() not in stored_html(row.chapter)]


def unsupported(rows, read):
    """Claims whose chapter asserts nothing."""
    found = []
    for row in rows:
        code = "".join(re.findall(r"```\{code-cell\}.*?```", read(row.chapter) or "", re.DOTALL))
        if not re.search(r"^\s*assert ", code, re.MULTILINE):
            found.append(row.id)
    return found


def test_chapters_show_the_cards_of_the_ledger_and_assert_something():
    assert stale(SETTLED) == []
    assert unsupported(SETTLED, read_chapter) == []


def test_another_verdict_shows_in_the_ledger_page_and_in_the_chapter():
    page = stored_html("ledger")
    assert unlisted(claims().values(), page) == []
    for row in claims().values():
        for verdict in VERDICTS:
            if verdict != row.verdict:
                changed = dataclasses.replace(row, verdict=verdict)
                assert unlisted([changed], page) == [row.id]
                if "open" in (row.verdict, verdict):
                    assert inconsistent([changed]) == [row.id]
                else:
                    assert stale([changed]) == [row.id]


def test_another_finding_shows_in_the_chapter():
    for row in SETTLED:
        assert stale([dataclasses.replace(row, finding=row.finding + " Or not.")]) == [row.id]


def test_evidence_taken_away_is_missed():
    seen = {}
    for row in SETTLED:
        text = read_chapter(row.chapter)
        without_card = text.replace(f'\nclaim("{row.id}")\n', "\n")
        assert unshown([row], lambda _, text=without_card: text) == [row.id]
        if row.chapter not in seen:
            seen[row.chapter] = re.sub(r"^(\s*)assert ", r"\1print(1) #", text, flags=re.MULTILINE)
        assert unsupported([row], seen.get) == [row.id]
        assert inconsistent([dataclasses.replace(row, tests=())]) == [row.id]


def test_a_cell_taken_out_of_text_or_notebook_is_drift(tmp_path, monkeypatch):
    source = ROOT / "book" / "regression" / "attention_is_a_gradient.md"
    text, twin = source.read_text(encoding="utf-8"), source.with_suffix(".ipynb").read_text(encoding="utf-8")
    copy = tmp_path / "book" / "regression" / source.name
    shutil.copytree(ROOT / "book", tmp_path / "book", ignore=shutil.ignore_patterns("*.ipynb", "_*"))  # the links' titles
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    copy.with_suffix(".ipynb").write_text(twin, encoding="utf-8")
    assert notebooks.faults(copy) == []
    first = re.search(r"```\{code-cell\} ipython3\n(?:(?!```).)*?\nassert .*?```\n", text, re.DOTALL)
    copy.write_text(text.replace(first[0], ""), encoding="utf-8")
    assert notebooks.faults(copy)
    copy.write_text(text, encoding="utf-8")
    notebook = json.loads(twin)
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "assert" in "".join(cell["source"]))
    notebook["cells"].remove(cell)
    copy.with_suffix(".ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    assert notebooks.faults(copy)


def packages(path):
    """The packages that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.partition(".")[0] for name in [*names, getattr(node, "module", None) or ""])


def test_the_mathematics_knows_neither_the_book_nor_what_draws():
    for path in (ROOT / "src" / "attnopt").rglob("*.py"):
        assert not {*packages(path)} & {"attnbook", "matplotlib", "ipywidgets", "anywidget", "traitlets"}, path


def test_all_that_a_chapter_imports_is_on_the_api_page():
    page = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    whole = set(re.findall(r"automodule:: (\S+)\n   :members:\n", page))
    named = set(re.findall(r"\w+", " ".join(re.findall(r"^(?:\.\. auto\w+::|   :members:).*", page, re.M))))
    missing = set()
    for chapter in ROOT.glob("book/*/*.md"):
        text = chapter.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from ((?:attnopt|attnbook)[\w.]*) import (\([^)]*\)|.*)", text, re.M):
            functions = (name for name in re.findall(r"\w+", names) if not name.isupper())  # constants have no entry
            missing |= {name for name in functions if module not in whole and name not in named}
    assert missing == set()


def broken(module, old, new):
    """A module with one formula changed."""
    path = ROOT / "src" / "attnopt" / f"{module}.py"
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{module} has no longer {old!r}"
    copy = types.ModuleType(f"attnopt.{module.replace('/', '.')}_broken")
    sys.modules[copy.__name__] = copy  # dataclasses look there
    exec(compile(source.replace(old, new), str(path), "exec"), copy.__dict__)
    return copy


def evidence(path):
    """A test module of the ledger, loaded anew."""
    specification = importlib.util.spec_from_file_location(f"evidence_{Path(path).stem}", ROOT / "tests" / path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("module", "old", "new", "path", "test", "arguments"),
    [
        (
            "regression/gradients", "(residual + residual.mT) @", "(residual + residual) @",
            "regression/test_gradients.py", "test_quadratic_gradient_in_high_precision", {"axis": "sequence"},
        ),
        (
            "regression/gradients", "(2 * attention - labels", "(3 * attention - labels",
            "regression/test_gradients.py", "test_printed_formula_can_be_exactly_opposite", {},
        ),
        (
            "in_context/one_layer", "(1 + 1 / n_context) * covariance", "(1 - 1 / n_context) * covariance",
            "in_context/test_one_layer.py", "test_optimum_by_hand_in_exact_fractions", {},
        ),
        (
            "clustering/gradients", "kappa = 1 + torch.where", "kappa = torch.where",
            "clustering/test_gradient_bound.py", "test_bound_is_what_its_formula_says", {},
        ),
    ],
)  # fmt: skip
def test_a_broken_formula_fails_its_evidence(module, old, new, path, test, arguments):
    tests, copy = evidence(path), broken(module, old, new)
    for name, value in vars(copy).items():
        if getattr(value, "__module__", None) == copy.__name__ and name in vars(tests):
            setattr(tests, name, value)
    with pytest.raises(AssertionError):
        getattr(tests, test)(**arguments)
