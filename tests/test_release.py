"""What strangers read: the files that archives, other ledgers, and those who contest a claim take up."""

import html
import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import release
import yaml
from jsonschema import Draft202012Validator, ValidationError, validate
from pybtex.database import parse_file

from attnbook import folder, joined, ledger
from attnbook.claims import claims
from attnbook.contest import offer
from attnbook.folder import cited
from attnbook.graph import nodes

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {"ledger": joined.ledger_json, "errata": joined.errata_json}


@pytest.mark.parametrize("name", release.FILES)
def test_what_archives_read_is_up_to_date(name):
    assert (ROOT / name).read_text(encoding="utf-8") == release.FILES[name]()


def test_the_citation_is_valid_and_cites_the_papers():
    about = release.citation()
    schema = json.loads((Path(__file__).parent / "cff-1.2.0.schema.json").read_text(encoding="utf-8"))
    about["date-released"] = str(about["date-released"])
    validate(about, schema)
    with pytest.raises(ValidationError):
        validate(about | {"version": ["1"]}, schema)
    known = parse_file(ROOT / "book" / "references.bib").entries
    cited = [known[row["cite"]] for row in folder.table("claims.toml")["sources"].values()]
    assert [paper["title"] for paper in about["references"]] == [entry.fields["title"] for entry in cited]
    assert [paper["doi"] for paper in about["references"]] == [f"10.48550/arXiv.{entry.fields['eprint']}" for entry in cited]
    for paper, entry in zip(about["references"], cited, strict=True):
        assert [who["family-names"] for who in paper["authors"]] == [who.last_names[0] for who in entry.persons["author"]]


def test_one_version_everywhere():
    said = release.citation()["version"]
    for path in (ROOT / "pyproject.toml", ROOT / "src" / "attnbook" / "pyproject.toml"):
        assert tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"] == said
    assert version("attnopt") == version("attnbook") == said
    assert re.search(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[1] == said
    assert f"version {said}" in (ROOT / "book" / "index.md").read_text(encoding="utf-8")


def test_every_stored_result_is_in_the_manifest_with_a_command_that_is_there():
    manifest = yaml.safe_load((ROOT / "codecheck.yml").read_text(encoding="utf-8"))["manifest"]
    assert [entry["file"] for entry in manifest] == sorted(f"results/{path.name}" for path in (ROOT / "results").iterdir())
    for entry in manifest:
        scripts = re.findall(r"python3? (\S+\.py)(?: (\w+))?", entry["comment"])
        assert scripts, entry
        assert all((ROOT / script).is_file() for script, _ in scripts), entry
        assert all(known(command) for script, command in scripts if script == "run.py"), entry


def known(command):
    """Whether run.py has such a command."""
    return f'add_parser("{command}"' in (ROOT / "run.py").read_text(encoding="utf-8")


def test_a_container_installs_with_a_command_that_is_there_and_serves_its_port():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    script, command, *_ = container["onCreateCommand"].removeprefix("python3 ").split()
    assert script == "run.py"
    assert known(command)
    assert f'"--port", type=int, default={container["forwardPorts"][0]})' in (ROOT / script).read_text(encoding="utf-8")
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    assert container["image"].replace("python:", "Programming Language :: Python :: ") in classifiers


def test_what_is_said_of_security_is_tested_where_it_says():
    said = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tests = re.findall(r"`(tests/[\w/]+\.py)`", said)
    assert len(tests) == 2
    assert all((ROOT / path).is_file() for path in tests)
    assert "compiled=False" in said
    assert "kernel.c" in said
    assert (ROOT / "src" / "attnopt" / "clustering" / "training" / "kernel.c").is_file()
    assert "report it privately" in said
    assert not re.search(r"\S+@\S+\.\w+|https?://", said)  # no address until there is one


@pytest.mark.parametrize("name", TEXTS)
def test_files_follow_their_schema(name):
    schema = json.loads((joined.SCHEMAS / f"{name}-1.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    found = json.loads(TEXTS[name]())
    assert found["$schema"] == f"{name}-1.schema.json" == schema["$id"]
    validate(found, schema)
    rows = found["claims" if name == "ledger" else "corrections"]
    for spoiled in ({"id": "No Name"}, {"chapter": 1}, {"more": "than it knows"}):
        with pytest.raises(ValidationError):
            validate(found | {"claims" if name == "ledger" else "corrections": [rows[0] | spoiled]}, schema)
    assert {row["paper"] for row in rows} <= {*found["papers"], "book"}


def test_the_errata_as_a_file_are_those_of_the_page(monkeypatch, tmp_path):
    rows = json.loads(joined.errata_json())["corrections"]
    wrong = [row for row in claims().values() if row.verdict == "corrected" and row.paper != "book"]
    assert {row["id"] for row in rows} == {row.id for row in wrong}
    page = (ROOT / "book" / "errata.md").read_text(encoding="utf-8")
    for row in rows:
        assert (ROOT / row["script"]).stem == row["id"]
        entry = page.partition(f"### {row['place']}\n")[2].partition("\n### ")[0]
        for part in (row["printed"], row["true"], row["reason"], f"> · {row['severity']}\n"):
            assert part in entry
    (tmp_path / "book").mkdir()
    for path in (ROOT / "book").glob("*.*"):
        (tmp_path / "book" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "book" / "errata.md").write_text(page.replace(" · a slip\n", " · a trifle\n"), encoding="utf-8")
    monkeypatch.setattr(joined, "find", lambda name: tmp_path / name)
    with pytest.raises(ValueError, match="one of the severities"):
        joined.errata_json()


@pytest.mark.parametrize(
    ("name", "kind", "field"), [("actor-corollary-2", "verdict", "claim"), ("thm-cells", "proof", "place")]
)
def test_a_claim_is_contested_on_a_form_that_is_filled_in(monkeypatch, name, kind, field):
    monkeypatch.setattr(ledger, "cited", {"repository-code": "https://example.org/book/"}.get)
    address = urlsplit(ledger.contested(name))
    asked = {key: value for key, (value,) in parse_qs(address.query).items()}
    assert address._replace(query="").geturl() == "https://example.org/book/issues/new"
    assert asked.pop("template") == f"wrong-{kind}.yml"
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"wrong-{kind}.yml").read_text(encoding="utf-8"))
    assert asked.pop("title").endswith(name)
    assert asked == {field: name}
    assert field in [asked_for["id"] for asked_for in form["body"]]


@pytest.mark.parametrize("known", ["", "https://example.org/book"])
def test_cards_and_errata_link_to_the_form_once_the_repository_has_an_address(monkeypatch, known):
    monkeypatch.setattr(ledger, "cited", lambda field: known if field == "repository-code" else cited(field))
    body = offer(
        claims()["actor-eq-1-2"]._repr_html_()
        + ledger.Ledger._cited(nodes()["thm-cells"])
        + '<a href="ledger.html#contest" data-contest="ahn-tradeoff">how to contest this</a>'
    )
    links = re.findall(r'<a href="([^"]*)"[^>]*>((?:How to )?contest this)</a>', body, re.IGNORECASE)
    names = ("actor-eq-1-2", "thm-cells", "ahn-tradeoff")
    if known:
        expected = [html.escape(ledger.contested(name)) for name in names]
        assert [words for _, words in links] == ["Contest this", "Contest this", "contest this"]
    else:
        expected = ["../ledger.html#contest", "#contest", "ledger.html#contest"]
        assert all("ow to contest" in words for _, words in links)
    assert [address for address, _ in links] == expected


def test_the_notebook_shows_the_ledger_as_it_is():
    cells = json.loads((ROOT / "book" / "ledger.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = "".join(cells[-1]["outputs"][0]["data"]["text/html"])
    assert shown == ledger.Ledger(nodes())._repr_html_(), "run.py notebooks ledger"
    assert shown.count(f"Version {release.citation()['version']}") == len(nodes())


def test_forms_have_what_they_need():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys()
        assert len({field["id"] for field in form["body"]}) == len(form["body"])
        assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in form["body"])
    assert len(list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))) == 3


def test_the_accessibility_statement_says_what_the_tests_do():
    page = (ROOT / "book" / "accessibility.md").read_text(encoding="utf-8")
    tests = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "site").glob("*.py")}
    faults = tests["test_pages.py"].partition("KNOWN_FAULTS = (")[2].partition("\n)")[0]
    assert "reports three faults" in page
    assert faults.count("lambda rule, target") == 3
    for words, name, code in (
        ("width of 1280 px", "test_pages.py", '"width": 1280'),
        ("light and the dark theme", "test_pages.py", 'emulate_media(color_scheme="dark")'),
        ("screen of 390 px", "test_pages.py", "scrollWidth <= 390"),
        ("only those about color", "test_pages.py", "faults(opened, runOnly=COLORS) == []"),
        ("of the pages that list source code, which are alike, it checks only one", "test_pages.py", "or page == ONE"),
        ("respond to the keyboard", "test_explorers.py", "assert_controls_answer_the_keyboard(explorer)"),
        ("*reset* button", "test_explorers.py", 'reset.press("Enter")'),
        ("move with the arrow keys", "test_explorers.py", '"ArrowLeft", "ArrowUp"'),
        ("Code that scrolls can be reached", "test_folds.py", "pre').tabIndex === 0"),
        ("solutions and folded code can be opened", "test_pages.py", 'summary.press("Enter")'),
        ("asks for reduced motion", "test_sandbox_explorer.py", 'reduced_motion="reduce"'),
        ("24 px in size", "test_explorers.py", "min(width, height) >= 24"),
        ("handles respond to touch", "test_readouts.py", "def drag_by_touch("),
        ("has a text alternative", "test_pages.py", "def test_every_picture_has_a_text("),
        ("Without scripts", "test_pages.py", "def test_page_reads_without_scripts("),
        ("in Firefox and WebKit", "test_browsers.py", "def test_every_explorer_lives_alone("),
    ):
        assert words in page
        assert code in tests[name], name
