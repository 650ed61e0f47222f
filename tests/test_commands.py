"""Every command that README.md and CONTRIBUTING.md name runs in a small project.

Long commands run in a small form: one notebook, few frames.
"""

import ast
import collections
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import commands
import pytest
from commands import ROOT, command, line, tool
from pypdf import PdfReader

from attnbook.errata import same
from attnopt.clustering.training.compiled import compiler

DOCUMENTS = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")]
CHAPTER = "regression/next_idea"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The small project, with a chapter from the template, executed."""
    folder = commands.make(tmp_path_factory.mktemp("project"))
    said = command(folder, "new", *CHAPTER.split("/"))
    entry = f"      - file: {CHAPTER}\n"
    assert f"list it in _toc.yml under its part: {entry.strip()}" in said
    (folder / "_toc.yml").write_text(commands.CONTENTS + entry, encoding="utf-8")
    assert f"next: write it, then python3 run.py notebooks {CHAPTER}" in said
    command(folder, "notebooks")
    return folder


@pytest.fixture(scope="module")
def site(project):
    """That project, built."""
    command(project, "book", "--no-serve")
    return project


def called(names):
    """The words with which tests call these functions: for every call its texts."""
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
            yield [part.value for part in node.args if isinstance(part, ast.Constant)]


def test_every_command_and_option_has_its_test(monkeypatch):
    specification = importlib.util.spec_from_file_location("run_that_parses", ROOT / "run.py")
    run = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(run)
    parsers = []
    monkeypatch.setattr(run.argparse.ArgumentParser, "parse_known_args", lambda parser: parsers.append(parser) or exit())
    with pytest.raises(SystemExit):
        run.main()
    (choices,) = (action.choices for action in parsers[0]._actions if action.choices)
    tested = collections.defaultdict(set)
    for name, *words in filter(None, called({"command", "line"})):
        tested[name].update(words)
    named = {name for text in DOCUMENTS for name in re.findall(r"run\.py ([a-z]+)", text)}
    in_ci = {"oldest", "newest"}  # which the workflows call; their steps: tests/test_run.py
    assert named == set(choices) == set(tested) | in_ci
    for name, parser in choices.items():
        options = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
        assert options - {"--help"} <= tested[name], name
        assert f"\n    python3 run.py {name} " in run.__doc__


def test_every_tool_of_the_environment_has_its_test():
    named = {tuple(row.split()[:3]) for text in DOCUMENTS for row in re.findall(r"`\.venv/bin/(.+?)`", text)}
    tested = {tuple(words[:3]) for words in called({"tool"})}
    assert len(named) >= 4
    for words in named:
        assert any(words[:2] == those[:2] and (words[1] != "-m" or words == those) for those in tested), words


def test_the_extension_of_jupyterlab_can_be_disabled(project, tmp_path):
    words = ("--level=user", "jupyterlab-myst")
    tool(project, "jupyter", "labextension", "disable", *words, JUPYTER_CONFIG_DIR=str(tmp_path), HOME=str(tmp_path))
    settings = json.loads((tmp_path / "labconfig" / "page_config.json").read_text(encoding="utf-8"))
    assert settings["disabledExtensions"] == {"jupyterlab-myst": True}


def test_new_writes_a_chapter_once(project):
    assert "# Next idea" in (project / "book" / f"{CHAPTER}.md").read_text(encoding="utf-8")
    said = command(project, "new", *CHAPTER.split("/"), code=1)
    assert f"{CHAPTER}.md exists" in said
    assert "run.py: No chapter was made" in said


def test_what_the_errata_print_is_written_anew(tmp_path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "book", tmp_path / "book", ignore=shutil.ignore_patterns("*.ipynb", "_build"))
    printed = tmp_path / "book" / "errata" / "actor-dissipation.txt"
    before = printed.read_text(encoding="utf-8")
    printed.unlink()
    tool(tmp_path, "python", "tools/errata.py")
    assert same(printed.read_text(encoding="utf-8"), before)


def test_notebooks_executes_what_is_stale_what_is_named_and_all(project):
    names = ("index", "ledger", CHAPTER)
    twins = [project / "book" / f"{name}.ipynb" for name in names]
    before = [twin.read_bytes() for twin in twins]

    def written():
        found = [name for name, twin in zip(names, twins, strict=True) if twin.stat().st_mtime]
        for twin in twins:
            os.utime(twin, (0, 0))
        return found

    written()
    assert command(project, "notebooks").count("up to date") == 3
    assert written() == []
    command(project, "notebooks", "ledger")
    assert written() == ["ledger"]
    broken = project / "book" / "broken.md"
    broken.write_text(commands.PAGE.replace("6 * 7", "6 / 0"), encoding="utf-8")
    try:
        said = command(project, "notebooks", "--all", code=1)
    finally:
        broken.unlink()
    assert "ZeroDivisionError" in said
    assert "run.py: A chapter could not be executed" in said
    assert written() == list(names)
    assert [twin.read_bytes() for twin in twins] == before


def test_lint_passes_and_names_all_that_is_wrong(project):
    assert "All checks passed!" in command(project, "lint")
    script, text = project / "tools" / "wrong.py", project / "book" / f"{CHAPTER}.md"
    whole, module = text.read_text(encoding="utf-8"), project / "src" / "attnopt" / "wrong.py"
    script.write_text("import os\nx = 'one'\n", encoding="utf-8")
    module.write_text('"""Two."""\n\ntwo: int = "2"\n', encoding="utf-8")
    text.write_text(whole.replace("The answer in words.", "One sentence. And another."), encoding="utf-8")
    try:
        said = command(project, "lint", code=1)
    finally:
        script.unlink()
        module.unlink()
        text.write_text(whole, encoding="utf-8")
    for word in (
        "F401",
        "1 file would be reformatted",
        "Types: see the lines above",
        "bad-assignment",
        "one sentence a line",
        "differs from its notebook",
    ):
        assert word in said
    assert said.count("Style") == 3
    assert "Chapters and notebooks differ: `python3 run.py notebooks`." in said


def test_the_tools_that_lint_names_mend_what_it_finds(project):
    script, text = project / "tools" / "wrong.py", project / "book" / "ledger.md"
    whole = text.read_text(encoding="utf-8")
    script.write_text("x = 'one'\n", encoding="utf-8")
    text.write_text(whole.replace("6 * 7", "6*7"), encoding="utf-8")
    assert "1 file reformatted" in tool(project, "ruff", "format", ".")
    assert script.read_text(encoding="utf-8") == 'x = "one"\n'
    script.unlink()
    other = project / "book" / "_static" / "wrong.js"
    other.write_text("const x = 'one'\n", encoding="utf-8")
    tool(project, "deno", "fmt")
    assert other.read_text(encoding="utf-8") == 'const x = "one";\n'
    other.unlink()
    tool(project, "python", "tools/prose.py", "--fix")
    assert text.read_text(encoding="utf-8") == whole


def test_book_builds_and_test_and_portability_compare(site):
    page = (site / "_build" / "html" / f"{CHAPTER}.html").read_text(encoding="utf-8")
    assert "<h1>Next idea" in page
    assert (site / "_build" / "html" / "objects.inv").is_file()
    said = command(site, "portability", "2", "ledger")
    assert "[1/2] OMP_NUM_THREADS=1" in said
    assert "[2/2] ROUNDING_NOISE=1" in said
    assert re.findall("book/(.*)", said) == ["ledger.ipynb: compared 2 of 2 cells"] * 2
    twin = site / "book" / "ledger.ipynb"
    whole = twin.read_text(encoding="utf-8")
    twin.write_text(whole.replace('"42\\n"', '"43\\n"'), encoding="utf-8")
    try:
        said = command(site, "test", "--nbval", "--nbval-current-env", "book/ledger.ipynb", code=1)
    finally:
        twin.write_text(whole, encoding="utf-8")
    assert "ledger.ipynb: compared 1 of 2 cells" in said
    assert "run.py: Some tests failed" in said


def test_pdf_prints_the_book(site):
    """It builds what is not built: tests/test_run.py."""
    said = command(site, "pdf", "--output", "print/book.pdf")
    book = PdfReader(site / "print" / "book.pdf")
    assert f"book.pdf: {len(book.pages)} pages" in said
    assert [item.title for item in book.outline if not isinstance(item, list)] == ["A book", "A part"]
    text = "".join(page.extract_text() for page in book.pages)
    assert "A page" in text
    assert "42" in text


SERVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may have had it ignored
sys.path.insert(0, {folder!r})
import run
run.build = lambda: None  # it is built
sys.argv = {arguments!r}
run.start()
"""


def test_book_is_served_until_it_is_interrupted(site):
    port = free_port()
    code = SERVE.format(folder=str(site), arguments=line(site, "book", "--port", str(port))[1:])
    environment = os.environ | {"BROWSER": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout.readline() == f"the book is at http://localhost:{port}/ (Ctrl-C ends)\n"
        with urllib.request.urlopen(f"http://localhost:{port}/{CHAPTER}.html", timeout=60) as page:
            assert b"Next idea" in page.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def free_port():
    """A port that nothing uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_video_draws_frames_and_hands_them_to_ffmpeg(tmp_path):
    """In place of ffmpeg a script that keeps what it is given: one PNG after the other."""
    folder = commands.make(tmp_path)
    script = tmp_path / "bin" / "ffmpeg"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nfor last; do :; done\nexec cat > "$last"\n', encoding="utf-8")
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    said = command(folder, "video", "success", "--every", "60", "--output", "film.mp4", PATH=path)
    pictures = (folder / "film.mp4").read_bytes()
    first, *_, last = parts = pictures.split(b"\x89PNG\r\n")[1:]
    assert len(parts) == 3
    assert first != last
    assert len({part[:24] for part in parts}) == 1  # of one size
    assert re.search(r"film\.mp4: 3 frames, \d+\.\d MB", said)


def test_bench_runs_all_benchmarks_and_quickly_writes_nothing(tmp_path):
    folder = commands.make(tmp_path)
    for name in ("benchmarks", "experiments"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "results").mkdir()
    said = command(folder, "bench", "--quick")
    first, second, *third = (json.loads(text) for text in re.findall(r"^\{.*?^\}", said, re.M | re.S))
    assert first["moments"]["equal"]
    assert 0.13 < first["exact loss"]["exact_loss"] < 0.14
    assert first["exact loss"]["ratio"] > 1
    assert len(first["training"]["losses"]) == 2
    assert len(second["models·epochs a second"]) == (8 if compiler() is None else 13)
    assert all(rate["cpu"] > 0 for rate in second["models·epochs a second"].values())
    assert len(third) == ("no Chromium could be started" not in said)
    assert all(rate["clock"] > 0 for found in third for rate in found["models·epochs a second"].values())
    assert not list((folder / "results").iterdir())


def test_an_answer_is_hashed_as_it_is_stored(project):
    said = tool(project, "python", "-m", "attnbook.exercises", "ex-lse-three", "1.7917594692", "4")
    stored = (ROOT / "book" / "answers.toml").read_text(encoding="utf-8")
    assert said.strip() in stored


def test_jupyterlab_is_there(project):
    """tests/site/test_jupyterlab.py runs a chapter in it."""
    assert re.fullmatch(r"4\.\d+\.\d+\n", tool(project, "jupyter", "lab", "--version"))
