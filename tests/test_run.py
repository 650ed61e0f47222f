"""The command line: its environment heals, its failures say what to do."""

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import new_chapter
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The module run.py, pointed at an empty project folder, its commands recorded instead of run."""
    specification = importlib.util.spec_from_file_location("run_under_test", ROOT / "run.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(module, "ROOT", tmp_path)
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


def test_an_old_python_is_told_what_is_needed(run, monkeypatch):
    monkeypatch.setattr(run.sys, "version_info", (3, 10))
    with pytest.raises(run.Failure, match=r"Python 3\.11 or later is needed"):
        run.environment()


def test_seed_and_sample_of_mutants_are_passed_on(run, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["run.py", "mutants", "--seed", "larch", "--sample", "9", "softmax", "explorers/js/layers"]
    )
    run.main()
    assert run.calls[-1].endswith("tools/mutants.py --seed=larch --sample=9 softmax explorers/js/layers")
    monkeypatch.setattr(sys, "argv", ["run.py", "mutants"])
    run.main()
    assert run.calls[-1].endswith("tools/mutants.py")


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = [line for line in (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
    versions = dict(line.split("==") for line in oldest)
    for requirement in project["dependencies"]:
        name, _, least = requirement.partition(">=")
        assert name == "torch" or f"{versions[name]}.".startswith(f"{least}.")  # PyTorch is the one of requirements.txt


def test_browser_prefers_what_is_there_and_says_when_nothing_is(run, monkeypatch):
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
    assert [call.split()[-2:] for call in run.calls] == [["update", "-qq"], ["install", "chromium"]]


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
    (tmp_path / "_toc.yml").write_bytes((ROOT / "_toc.yml").read_bytes())
    new_chapter.main("regression", "next_idea")
    assert "# Next idea" in (tmp_path / "book/regression/next_idea.md").read_text(encoding="utf-8")
    lines = (tmp_path / "_toc.yml").read_text(encoding="utf-8").splitlines()
    assert lines.index("      - file: regression/next_idea") == max(
        number for number, line in enumerate(lines) if "file: regression/" in line
    )
    with pytest.raises(SystemExit, match="exists"):
        new_chapter.main("regression", "next_idea")
    wrong = subprocess.run(
        [sys.executable, ROOT / "tools" / "new_chapter.py", "regression", "Next-Idea"], capture_output=True, text=True
    )
    assert wrong.returncode == 1
    assert "got 'Next-Idea'" in wrong.stderr
