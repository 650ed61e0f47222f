"""The tool that changes the package: what it changes, that it puts everything back, and that its table is complete."""

import ast
import tomllib
from pathlib import Path

import mutants

ROOT = Path(__file__).parent.parent
TABLE = tomllib.loads(mutants.TABLE.read_text(encoding="utf-8"))
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


def test_table_names_modules_and_tests_that_exist_and_reasons_for_survivors():
    for module, row in TABLE.items():
        assert (mutants.SOURCE / f"{module}.py").is_file()
        assert all((ROOT / test.partition("::")[0]).is_file() for test in row["tests"])
        assert set(row) <= {"tests", "sample", "survivors"}
        names = {
            mutant.name
            for mutant in mutants.mutants(ast.parse((mutants.SOURCE / f"{module}.py").read_text(encoding="utf-8")))
        }
        assert set(row.get("survivors", {})) <= names
        assert all(len(reason) > 10 for reason in row.get("survivors", {}).values())


def test_every_mathematical_module_is_in_the_table():
    exempt = {"clustering/sandbox", "clustering/video"}  # pictures of recorded runs
    exempt |= {f"clustering/training/{name}" for name in ("ensemble", "loop", "record")}  # files, processes, a loop of calls
    folders = ("regression", "in_context", "clustering", "clustering/training")
    modules = {
        path.relative_to(mutants.SOURCE).with_suffix("").as_posix()
        for folder in folders
        for path in (mutants.SOURCE / folder).glob("*.py")
        if path.stem != "__init__"
    }
    assert modules - exempt - set(TABLE) == set()
