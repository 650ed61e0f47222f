"""Killed, out of space, write-protected, fed with rubbish: nothing is lost or half-written, and a sentence says what to do.

A process is killed with SIGKILL at a chosen call, in a fork of the test's own; the next call must complete. Downloads and
checkpoints have tests of their own with the same faults: tests/test_datasets.py and tests/clustering/test_training.py.
"""

import importlib.util
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import lab
import notebooks
import numpy as np
import pytest
import torch

from attnopt.clustering import Settings, Task, files, load_training, save_training, train
from attnopt.clustering.files import write_arrays

ROOT = Path(__file__).parent.parent


def forked(task):
    """How a task ends in a process of its own: its exit code, or minus the signal that killed it."""
    process = os.fork()
    if not process:
        code = 70
        try:
            task()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def command_line(folder):
    """The module run.py in a folder with what decides the environment, its commands recorded instead of run."""
    specification = importlib.util.spec_from_file_location("run_under_fault", ROOT / "run.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    (folder / "src" / "attnbook").mkdir(parents=True)
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml", "src/attnbook/pyproject.toml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    module.ROOT, module.VENV = folder, folder / ".venv"
    module.STAMP, module.PYTHON = module.VENV / "complete", module.VENV / "bin" / "python"
    module.said, module.left = [], None

    def act(name):
        module.said.append(name)
        if module.left is not None:
            module.left -= 1
            if module.left < 0:
                die()

    def create(path, with_pip, clear):
        act(f"create {clear}")
        (Path(path) / "bin").mkdir(parents=True, exist_ok=True)
        module.PYTHON.write_text("python")

    class Done:
        returncode = 0

    def run(command, **_):
        act(" ".join(map(str, command)))
        return Done()

    module.venv = type("venv", (), {"create": staticmethod(create)})
    module.subprocess = type("subprocess", (), {"run": staticmethod(run), "DEVNULL": None})
    module.say = lambda text: None
    return module


def test_environment_killed_at_any_step_is_made_anew(tmp_path):
    whole = command_line(tmp_path)
    whole.environment()
    steps = len(whole.said)
    assert steps >= 3
    for step in range(steps):
        folder = tmp_path / str(step)
        folder.mkdir()
        run = command_line(folder)
        run.left = step
        assert forked(run.environment) == -signal.SIGKILL
        assert not run.STAMP.exists()
        run.left = None
        run.environment()
        assert "create True" in run.said  # from nothing, not patched
        assert run.STAMP.read_text() == run.fingerprint()


CHAPTER = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A chapter

```{code-cell} ipython3
print("one")
```
"""


def test_notebook_killed_while_it_is_written_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "chapter.md"
    path.write_text(CHAPTER, encoding="utf-8")
    notebook = notebooks.read_text(path)
    notebooks.tidy(notebook)
    notebooks.write(path, notebook)
    before = path.with_suffix(".ipynb").read_bytes()
    changed = CHAPTER.replace("one", "two")
    path.write_text(changed, encoding="utf-8")
    other = notebooks.read_text(path)
    monkeypatch.setattr(notebooks.os, "replace", die)
    assert forked(lambda: notebooks.write(path, other)) == -signal.SIGKILL
    assert path.with_suffix(".ipynb").read_bytes() == before
    monkeypatch.undo()
    notebooks.tidy(other)
    notebooks.write(path, other)
    assert "two" in path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["chapter.ipynb", "chapter.md"]


def full_disk():
    """From now on no file of this process grows beyond 4 kB, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_full_disk_leaves_the_finished_result(tmp_path):
    file = tmp_path / "training.npz"
    training = train([0], Settings(Task(2, 4, 2), n_train=8, epochs=0))
    save_training(file, training, "first")
    before = file.read_bytes()

    def fill():
        full_disk()
        with pytest.raises(OSError, match="File too large|No space left"):
            write_arrays(file, {"numbers": np.arange(10_000)}, "second")

    assert forked(fill) == 0
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == before
    assert torch.equal(load_training(file, "first").models.weights["query"], training.models.weights["query"])


def test_result_killed_while_it_is_moved_is_the_old_one(tmp_path, monkeypatch):
    file = tmp_path / "numbers.npz"
    write_arrays(file, {"numbers": np.arange(3)}, "old")
    monkeypatch.setattr(files.Path, "replace", die)
    assert forked(lambda: write_arrays(file, {"numbers": np.arange(9)}, "new")) == -signal.SIGKILL
    monkeypatch.undo()
    arrays, description = files.read_arrays(file)
    assert description == "old"
    assert arrays["numbers"].tolist() == [0, 1, 2]
    (left,) = tmp_path.glob("*.partial")
    others = [
        tmp_path / name for name in (f"{left.stem.replace('numbers', 'other')}.partial", "numbers.elsewhere-1.partial")
    ]
    living = left.with_name(re.sub(r"-\d+", f"-{os.getppid()}", left.name))
    for other in (*others, living):
        other.touch()
    write_arrays(file, {"numbers": np.arange(9)}, "new")
    assert set(tmp_path.iterdir()) == {file, living, *others}  # what another process may still write stays


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not an archive", None])
def test_damaged_result_says_what_to_do(tmp_path, damage):
    file = tmp_path / "numbers.npz"
    write_arrays(file, {"numbers": np.arange(1000)}, "")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    with pytest.raises(ValueError, match=r"numbers.npz cannot be read .*; if it is a checkpoint, remove it and start again"):
        load_training(file)


def spoken(command, limit=False, **environment):
    """Exit code and standard error of a command of the project, and that no traceback is in it."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, preexec_fn=full_disk if limit else None,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


STAGE = """
import importlib.util, sys
specification = importlib.util.spec_from_file_location("run", "run.py")
run = importlib.util.module_from_spec(specification)
specification.loader.exec_module(run)
run.environment = lambda: (_ for _ in ()).throw({error})
sys.argv = ["run.py", "lint"]
run.start()
"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("OSError(28, 'No space left on device', '.venv')", "run.py: No space left on device: '.venv'"),
        ("PermissionError(13, 'Permission denied', '_build')", "run.py: Permission denied: '_build'"),
        ("OSError(30, 'Read-only file system', '.venv')", "run.py: Read-only file system: '.venv'"),
        ("KeyboardInterrupt()", "run.py: interrupted; the next call takes up"),
        ("run.Failure('mend it')", "run.py: mend it"),
    ],
)
def test_command_line_answers_a_fault_with_a_sentence(error, sentence):
    code, said = spoken(["-c", STAGE.replace("{error}", error)])
    assert code == 1
    assert sentence in said
    if "Error" in error:
        assert "the next call goes on" in said


def test_protected_folder_is_named_before_anything_is_done(tmp_path, monkeypatch):
    run = command_line(tmp_path)
    run.writable()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(run.Failure, match=f"{tmp_path} may not be written by you"):
        run.writable()
    with pytest.raises(SystemExit, match="results may not be written by you here: nothing was computed"):
        lab.guarded(lambda: pytest.fail("computed"))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (OSError(28, "No space left on device", "results"), "No space left on device: 'results': mend its cause and call"),
        (KeyboardInterrupt(), "interrupted; what is finished and stored is not computed again"),
    ],
)
def test_experiment_answers_a_fault_with_a_sentence(fault, sentence):
    with pytest.raises(SystemExit, match=sentence):
        lab.guarded(lambda: (_ for _ in ()).throw(fault))


def test_stored_text_killed_while_it_is_moved_is_the_old_one(tmp_path, monkeypatch):
    file = tmp_path / "numbers.json"
    lab.store(file, {"numbers": [1]})
    before = file.read_bytes()
    monkeypatch.setattr(lab.os, "replace", die)
    assert forked(lambda: lab.store(file, {"numbers": [2]})) == -signal.SIGKILL
    assert file.read_bytes() == before
    monkeypatch.undo()
    lab.store(file, {"numbers": [2]})
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_notebooks_answer_a_broken_text_and_a_protected_folder_with_a_sentence(tmp_path, monkeypatch, capsys):
    book = tmp_path / "book" / "part"
    book.mkdir(parents=True)
    (book / "chapter.md").write_text(CHAPTER, encoding="utf-8")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "BOOK", tmp_path / "book")
    monkeypatch.setattr(notebooks, "select", lambda names: [book / "chapter.md"])
    monkeypatch.setattr(notebooks, "execute", lambda path: (_ for _ in ()).throw(OSError(30, "Read-only file system", "x")))
    monkeypatch.setattr(sys, "argv", ["notebooks.py"])
    with pytest.raises(SystemExit) as stopped:
        notebooks.main()
    assert stopped.value.code == 1
    assert "chapter.md: not written: [Errno 30] Read-only file system" in capsys.readouterr().out


def test_a_broken_notebook_is_a_fault_with_a_name(tmp_path):
    path = tmp_path / "chapter.md"
    path.write_text(CHAPTER, encoding="utf-8")
    for text in ("", "{", json.dumps({"cells": 3})):
        path.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        assert len(notebooks.faults(path)) == 1
        assert "its notebook cannot be read" in notebooks.faults(path)[0]
