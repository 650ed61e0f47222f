"""The tool that changes the package: what it changes, that it puts everything back, and that its table is complete."""

import ast
import functools
import subprocess
from pathlib import Path
from types import SimpleNamespace

import explorer_mutants
import mutants
import pytest
from explorer_states import explorers

ROOT = Path(__file__).parent.parent
TABLE = mutants.whole_table()
SOURCE = '''
LIMIT = 3

def f(x: int = 2, *, flag=True):
    """Docstrings, annotations and messages stay: 1 + 1."""
    if x < LIMIT and flag:
        raise ValueError(f"{x} + 1")
    check(x)
    return min(x.mT + -1, g(x, keep=flag).square())
'''
EXPECTED = [
    ": 3 → 4",
    "f: 2 → 3",
    "f: True → False",
    "f: x < LIMIT and flag → x < LIMIT or flag",
    "f: x < LIMIT and flag → not (x < LIMIT and flag)",
    "f: x < LIMIT → x <= LIMIT",
    "f: raise ValueError(f'{x} + 1') → pass",
    "f: check(x) → pass",
    "f: min → max",
    "f: x.mT + -1 → x.mT - -1",
    "f: x.mT → x",
    "f: -1 → 1",
    "f: 1 → 2",
    "f: g(x, keep=flag).square() → g(x, keep=flag)",
    "f: g(x, keep=flag) → g(x)",
]


def test_mutants_are_the_expected_ones_and_leave_no_trace():
    tree = ast.parse(SOURCE)
    before, found = ast.unparse(tree), mutants.mutants(tree)
    assert sorted(mutant.name for mutant in found) == sorted(EXPECTED)
    for mutant in found:
        with mutant.applied():
            assert ast.unparse(tree) != before
        assert ast.unparse(tree) == before


def test_a_changed_module_is_killed_by_a_test_that_sees_it_and_survives_one_that_does_not():
    assert mutants.forked(lambda: 0, 5) == 0
    assert mutants.forked(lambda: 1, 5) == 1
    assert mutants.forked(lambda: __import__("time").sleep(60), 0.2) is None


def test_comments_and_docstrings_are_no_change(tmp_path):
    texts = ('def f():\n    """One."""\n    return 1', "def f():\n    return 1  # told otherwise", "def f():\n    return 2")
    files = [tmp_path / f"{number}.py" for number in range(3)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    states = [mutants.state([file]) for file in files]
    assert states[0] == states[1] != states[2]


def test_a_seed_draws_the_same_sample_again_and_another_seed_another():
    every = list(range(100))
    first = mutants.drawn(every, 20, "larch", "softmax")
    assert first == mutants.drawn(every, 20, "larch", "softmax")
    assert len(set(first)) == 20
    assert set(first) <= set(every)
    others = [mutants.drawn(every, 20, *given) for given in (("hazel", "softmax"), ("larch", "symbolic"))]
    assert all(set(first) != set(other) for other in others)
    assert all(mutants.drawn(every, size, "larch", "softmax") == every for size in (None, 100, 200))


def test_the_seed_is_the_commits_hash_unless_given(monkeypatch, tmp_path):
    for arguments in (
        ["init", "-q"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    assert told.stdout.startswith(mutants.commit())
    assert len(mutants.commit()) == 12
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "copy")
    with pytest.raises(SystemExit, match="--seed"):
        mutants.commit()


def test_a_listed_survivor_is_stale_if_drawn_and_killed_or_gone_but_not_if_left_out():
    every = [SimpleNamespace(name=name) for name in ("killed", "slow", "alive", "left out")]
    known = {"killed": "killed", "slow": "timeout", "alive": "survived", "left out": "killed"}
    listed = ["killed", "slow", "alive", "left out", "gone"]
    assert mutants.stale(listed, every, every[:3], known) == ["killed", "slow", "gone"]


SCRIPT = """
const LIMIT = 3, SHADE = 0.5;
const scaled = (x) => (x < LIMIT ? -x : Math.sqrt(x)); // 1 + 1
export function compute({ x, seen }) {
  const { scaled: other } = seen;  // a name read from an object is not followed
  return { least: Math.min(x, scaled(x) ** 2), text: `1 + ${x}`, opposite: x - other.shaded };
}
const shaded = (x) => SHADE * x;
export default { render: () => shaded(1) };
"""
CHANGES = """LIMIT: const LIMIT = 3, SHADE = 0.5; → const LIMIT = 4, SHADE = 0.5;
scaled: onst scaled = (x) => (x < LIMIT ? -x : Ma → onst scaled = (x) => (x <= LIMIT ? -x : Ma
scaled: led = (x) => (x < LIMIT ? -x : Math.sqrt( → led = (x) => (x < LIMIT || true ? -x : Math.sqrt(
scaled: led = (x) => (x < LIMIT ? -x : Math.sqrt( → led = (x) => (x < LIMIT && false ? -x : Math.sqrt(
scaled: d = (x) => (x < LIMIT ? -x : Math.sqrt(x) → d = (x) => (x < LIMIT ? x : Math.sqrt(x)
scaled: x) => (x < LIMIT ? -x : Math.sqrt(x)); // 1 + 1 → x) => (x < LIMIT ? -x : (x)); // 1 + 1
compute: return { least: Math.min(x, scaled(x) ** → return { least: Math.max(x, scaled(x) **
compute: : Math.min(x, scaled(x) ** 2), text: `1 + → : Math.min(x, scaled(x) * 2), text: `1 +
compute: ath.min(x, scaled(x) ** 2), text: `1 + ${ → ath.min(x, scaled(x) ** 3), text: `1 + ${
compute: `1 + ${x}`, opposite: x - other.shaded }; → `1 + ${x}`, opposite: x + other.shaded };"""


def test_mutants_of_a_script_are_those_of_what_compute_reaches():
    found = explorer_mutants.mutants(SCRIPT, explorer_mutants.reached(explorer_mutants.units(SCRIPT), {"compute"}))
    assert [mutant.name for mutant in found] == CHANGES.splitlines()
    for mutant in found:
        before, after = SCRIPT.splitlines(), mutant.text.splitlines()
        assert [number for number, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]] == [
            *mutant.lines
        ]


@functools.cache  # some modules are those of many explorers
def made_twice(name):
    """The states of an explorer, and once more from the beginning."""
    return [[repr(explorer.state()) for explorer in explorers(name)] for _ in range(2)]


@pytest.mark.parametrize("module", [name for name in TABLE if name.startswith(explorer_mutants.PREFIX)])
def test_states_of_explorers_are_their_first_and_different_valid_ones(module):
    for name in TABLE[module].get("modules", [module.removeprefix(explorer_mutants.PREFIX)]):
        states, again = made_twice(name)
        assert len(states) > 5
        assert len(set(states)) == len(states)
        assert states == again


def test_table_names_modules_and_tests_that_exist_and_reasons_for_survivors():
    for module, row in TABLE.items():
        script = module.startswith(explorer_mutants.PREFIX)
        every, *_ = (explorer_mutants if script else mutants).prepared(module, row)
        assert all((ROOT / test.partition("::")[0]).is_file() for test in row.get("tests", []))
        assert set(row) <= {"sample", "survivors"} | ({"modules", "rtol", "atol"} if script else {"tests"})
        assert set(row.get("survivors", {})) <= {mutant.name for mutant in every}
        assert all(len(reason) > 10 for reason in row.get("survivors", {}).values())


def test_every_mathematical_module_is_in_the_table():
    exempt = {"clustering/sandbox"}  # reads recorded runs
    exempt |= {f"clustering/training/{name}" for name in ("ensemble", "record")}  # files, processes, a loop of calls
    folders = ("regression", "in_context", "clustering", "clustering/training", "synthesis")
    modules = {
        path.relative_to(mutants.SOURCE).with_suffix("").as_posix()
        for folder in folders
        for path in (mutants.SOURCE / folder).glob("*.py")
        if path.stem != "__init__"
    }
    assert modules - exempt - set(TABLE) == set()
