"""The command line: its environment heals, its failures say what to do."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import new_chapter
import pytest

from attnbook import chromium

ROOT = Path(__file__).parent.parent


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The module run.py, pointed at an empty project folder, its commands recorded instead of run."""
    specification = importlib.util.spec_from_file_location("run_under_test", ROOT / "run.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    (tmp_path / "src" / "attnbook").mkdir(parents=True)
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml", "src/attnbook/pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "HTML", tmp_path / "_build" / "html")  # or a build would remove the real one
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / "complete")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    module.made, module.calls, module.failing = [], [], ()

    def create(folder, with_pip, clear):
        module.made.append(clear)
        (Path(folder) / "bin").mkdir(parents=True, exist_ok=True)
        module.PYTHON.touch()

    class Done:
        returncode = 0

    def record(command, **_):
        module.calls.append(" ".join(str(part) for part in command))
        result = Done()
        result.returncode = int(any(word in module.calls[-1] for word in module.failing))
        return result

    monkeypatch.setattr(module.venv, "create", create)
    monkeypatch.setattr(module.subprocess, "run", record)
    return module


def test_a_complete_environment_is_left_alone(run):
    run.environment()
    assert run.made == [True]
    assert run.STAMP.read_text() == run.fingerprint()
    before = len(run.calls)
    run.environment()
    assert len(run.calls) == before


def test_an_interrupted_environment_is_taken_up_again(run):
    run.failing = ("--requirement",)
    with pytest.raises(run.Failure, match="could not be installed"):
        run.environment()
    assert not run.STAMP.exists()
    run.failing = ()
    run.environment()
    assert run.STAMP.exists()
    assert run.made == [True, True]  # made anew, not patched


def test_changed_requirements_renew_the_environment(run):
    run.environment()
    with (run.ROOT / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    before = len(run.calls)
    run.environment()
    assert any("--requirement" in call for call in run.calls[before:])
    assert run.made == [True]  # renewed in place


def test_another_checkouts_environment_is_left_alone(run, tmp_path):
    (tmp_path / "theirs").mkdir()
    run.VENV.symlink_to(tmp_path / "theirs")
    run.environment()
    assert not run.made
    assert not run.calls
    assert not list((tmp_path / "theirs").iterdir())


def test_an_environment_of_another_python_is_made_anew(run, monkeypatch):
    run.environment()
    monkeypatch.setattr(run.sys, "version_info", (3, 99, 0))
    run.failing = ("sys.version_info",)  # what the environment has is asked, and it is another one
    run.environment()
    assert run.made == [True, True]
    assert run.STAMP.read_text() == run.fingerprint()
    monkeypatch.setattr(run.sys, "version_info", (3, 98, 0))
    gone = lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError("its Python"))  # noqa: E731
    monkeypatch.setattr(run.subprocess, "run", gone)
    assert not run.usable()


def test_a_python_that_cannot_make_environments_names_the_package(run, monkeypatch):
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(run.Failure, match=r"cannot make environments: install your distribution's python3\.\d+-venv"):
        run.environment()
    assert not run.made


def test_the_range_of_pythons_is_said_alike_everywhere(run):
    least, most = (f"{major}.{minor}" for major, minor in (run.OLDEST, run.NEWEST))
    text = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "pyproject.toml")}
    assert text["README.md"].count(f"Python {least} to {most}") == 2
    project = tomllib.loads(text["pyproject.toml"])["project"]
    assert project["requires-python"] == f">={least}"
    listed = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: 3." in line]
    assert listed == [f"3.{minor}" for minor in range(run.OLDEST[1], run.NEWEST[1] + 1)]
    workflow = (ROOT / ".github" / "workflows" / "book.yml").read_text(encoding="utf-8")
    assert re.findall(r'ubuntu-latest, python: "(.*?)"', workflow) == listed


def test_run_is_read_by_old_pythons():
    tree = ast.parse((ROOT / "run.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    for node in ast.walk(tree):  # what a definition evaluates
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            assert isinstance(note, ast.Name | ast.Constant | None), ast.unparse(note)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("sys.version_info", (3, 10, 99), "too old"),
        ("sys.version_info", (3, 11, 0), ""),
        ("sys.version_info", (3, 14, 99), ""),
        ("sys.version_info", (3, 15, 0), "too new"),
        ("platform.python_implementation", lambda: "PyPy", "PyPy"),
        ("sysconfig.get_config_var", lambda name: 1, "a build without the global lock"),
        ("sys.maxsize", 2**31 - 1, "a 32-bit build"),
    ],
)
def test_pythons_that_fit_are_those_tested(run, monkeypatch, name, value, reason):
    module, attribute = name.split(".")
    monkeypatch.setattr(getattr(run, module), attribute, value)
    assert run.unfit() == reason


@pytest.fixture
def new_python(tmp_path, monkeypatch):
    """Start run.py with some arguments as if by Python 3.15, with nothing on the PATH, or a uv that is a shell script."""

    def start(*arguments, uv=""):
        if uv:
            (tmp_path / "uv").write_text(f"#!/bin/sh\n{uv}\n", encoding="utf-8")
            (tmp_path / "uv").chmod(0o755)
        code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import run; sys.version_info = (3, 15, 0); run.start()"
        command = [sys.executable, "-B", "-c", code, str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)})

    return start


def test_another_python_is_asked_for(new_python):
    done = new_python("test", "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"run\.py: Python .* is too new, and Python 3\.11 to 3\.14 is needed: install one .* or install uv .*\n", done.stderr
    )


@pytest.mark.skipif(os.name == "nt", reason="uv is a shell script here")
def test_uv_goes_on_with_the_same_arguments_and_its_exit_code_is_ours(new_python):
    done = new_python("test", "-q", "-k", "no or none", uv='echo "$ATTNOPT_PYTHON_CHOSEN $5 $6" "$@"; exit 7')
    assert done.stdout.splitlines()[1].startswith("1 python ")
    assert done.stdout.endswith(f"run --no-project --python 3.14 python {ROOT / 'run.py'} test -q -k no or none\n")
    assert done.returncode == 7


def test_the_oldest_versions_want_a_python_for_which_they_are_built(run, monkeypatch):
    monkeypatch.setattr(run.sys, "version_info", (3, 12, 0))
    run.oldest()
    assert run.calls[0] == f"{sys.executable} -m venv --clear {run.ROOT / '_build' / 'oldest'}"
    monkeypatch.setattr(run.sys, "version_info", (3, 13, 0))
    with pytest.raises(run.Failure, match=r"built for Python 3\.11 and 3\.12: start run\.py with one of these"):
        run.oldest()


def test_the_newest_versions_come_beside_the_pinned_pytorch_and_without_jupyter_book(run):
    run.newest()
    built, made, *_, installed, compared = run.calls
    assert " build book " in built
    assert made.endswith(f"-m venv --clear {run.ROOT / '_build' / 'newest' / 'venv'}")
    assert f"install --quiet {run.pinned('torch')} --requirement tools/newest.txt" in installed
    assert "constraints" not in installed
    assert compared.split()[1:] == ["tools/newest.py", str(run.ROOT / "_build" / "newest" / "html"), str(run.HTML)]
    wanted = (ROOT / "tools" / "newest.txt").read_text(encoding="utf-8")
    assert "jupyter-book" not in wanted
    assert "=" not in wanted


def test_every_requirement_is_pinned():
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        requirement = line.split("#")[0].strip()
        assert not requirement or requirement.startswith("-c ") or "==" in requirement
    pins = dict(
        line.lower().replace("_", "-").split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        name, equals, version = line.split("#")[0].strip().partition("==")
        if equals:
            assert pins[name.lower()] == version


def test_the_oldest_versions_tested_are_the_lower_bounds():
    texts = [(ROOT / name / "pyproject.toml").read_text(encoding="utf-8") for name in ("", "src/attnbook")]
    wanted = [line for text in texts for line in tomllib.loads(text)["project"]["dependencies"] if ">=" in line]
    oldest = [line for line in (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
    versions = dict(line.split("==") for line in oldest)
    for requirement in wanted:
        name, _, least = requirement.partition(">=")
        assert name == "torch" or f"{versions[name]}.".startswith(f"{least}.")  # PyTorch is the one of requirements.txt


def test_browser_prefers_what_is_there_and_says_when_nothing_is(run, monkeypatch):
    assert run.CHROMIUM == chromium.NAMES  # run.py has no package yet
    monkeypatch.setattr(run.shutil, "which", lambda name: "/usr/bin/chromium" if name == "chromium" else None)
    run.browser()
    assert run.calls == []
    monkeypatch.setattr(run.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(run.os, "geteuid", lambda: 0, raising=False)
    run.browser()
    assert any("apt-get install" in call for call in run.calls)
    monkeypatch.setattr(run.shutil, "which", lambda name: None)
    monkeypatch.setattr(run, "call", lambda command, advice, **_: (_ for _ in ()).throw(run.Failure(advice)))
    with pytest.raises(run.Failure, match="No Chromium for the site tests"):
        run.browser()


def test_a_failed_apt_leaves_the_browser_to_playwright(run, monkeypatch, capsys):
    monkeypatch.setattr(run.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(run.os, "geteuid", lambda: 0, raising=False)
    run.failing = ("apt-get update",)
    run.browser()
    assert "could not install chromium" in capsys.readouterr().out
    assert [call.split()[-2:] for call in run.calls] == [["update", "-qq"], ["update", "-qq"], ["install", "chromium"]]


def test_pdf_builds_a_book_that_is_not_built_or_was_left_half_built(run, monkeypatch):
    monkeypatch.setattr(run, "HTML", run.ROOT / "html")
    monkeypatch.setattr(run, "browser", lambda: run.calls.append("browser"))
    printing = f"{run.PYTHON} tools/pdf.py"
    for before in (lambda: None, run.HTML.mkdir):
        before()
        run.pdf("")
        building, *then = run.calls
        assert " build book " in building
        assert then == ["browser", printing]
        run.calls.clear()
    run.HTML.mkdir()
    (run.HTML / "objects.inv").touch()
    run.pdf("book.pdf")
    assert run.calls == ["browser", f"{printing} book.pdf"]


@pytest.fixture
def bare(run, monkeypatch, tmp_path):
    """That module on a machine without the data, with apt-get, as root."""
    monkeypatch.setattr(run, "FASHION_MNIST", tmp_path / "none")
    monkeypatch.setattr(run.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(run.os, "geteuid", lambda: 0, raising=False)
    run.failing = ("missing()",)
    return run


def test_data_that_are_there_are_left_alone(bare, tmp_path):
    bare.failing = ()
    bare.data()  # in the cache
    assert len(bare.calls) == 1
    assert "missing()" in bare.calls[0]
    (tmp_path / "none").mkdir()
    bare.data()  # in Debian's folder
    assert len(bare.calls) == 1


def test_data_come_from_debian_or_else_by_download(bare, monkeypatch):
    bare.data()
    assert bare.calls[1:] == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends dataset-fashion-mnist",
    ]
    bare.calls.clear()
    bare.failing = ("missing()", "apt-get install")  # a Debian without the package
    bare.data()
    assert bare.calls[-1].endswith("-m attnopt.datasets")
    bare.calls.clear()
    monkeypatch.setattr(bare.os, "geteuid", lambda: 1000, raising=False)
    bare.data()
    assert not any("apt-get" in call for call in bare.calls)
    assert bare.calls[-1].endswith("-m attnopt.datasets")


def test_without_data_and_network_advice_is_given(bare):
    bare.failing = ("missing()", "apt-get", "-m attnopt.datasets")
    with pytest.raises(bare.Failure, match=r"No Fashion-MNIST for the tests.*dataset-fashion-mnist.*go online"):
        bare.data()


@pytest.mark.parametrize(
    ("arguments", "said"), [(["dance"], "invalid choice: 'dance'"), (["book", "--fast"], "unrecognized arguments: --fast")]
)
def test_wrong_words_are_named(arguments, said):
    done = subprocess.run([sys.executable, ROOT / "run.py", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr


def test_new_chapter_is_written_listed_and_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(new_chapter, "ROOT", tmp_path)
    monkeypatch.setattr(new_chapter, "BOOK", tmp_path / "book")
    (tmp_path / "book" / "regression").mkdir(parents=True)
    for path in ("_toc.yml", "book/chapters.toml"):
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    new_chapter.main("regression", "next_idea")
    assert "# Next idea" in (tmp_path / "book/regression/next_idea.md").read_text(encoding="utf-8")
    lines = (tmp_path / "_toc.yml").read_text(encoding="utf-8").splitlines()
    assert lines.index("      - file: regression/next_idea") == max(
        number for number, line in enumerate(lines) if "file: regression/" in line
    )
    before, now = (tomllib.loads((root / "book/chapters.toml").read_text(encoding="utf-8")) for root in (ROOT, tmp_path))
    row = now["part"][0]["chapter"].pop()
    assert row == {"name": "next_idea", "title": "Next idea", "gives": "what its reader leaves with"}
    assert now == before
    with pytest.raises(SystemExit, match="exists"):
        new_chapter.main("regression", "next_idea")
    wrong = subprocess.run(
        [sys.executable, ROOT / "tools" / "new_chapter.py", "regression", "Next-Idea"], capture_output=True, text=True
    )
    assert wrong.returncode == 1
    assert "got 'Next-Idea'" in wrong.stderr
