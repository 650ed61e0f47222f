"""Names of claims and theorems are permanent: the register only grows, and tells what became of each."""

import subprocess
from pathlib import Path

import pytest

from bookkit.register import Entry, news, now, parsed, register, written

ROOT = Path(__file__).parent.parent
PATH = ROOT / "book" / "register.csv"
FIRST = "350fb294c39e"  # the hash of a row that was there when the register was begun; all rows up to it are in it
ENTRIES = (
    Entry("2026-01-01", "one", "entered", "holds"),
    Entry("2026-01-02", "two", "entered", "theorem"),
    Entry("2026-01-03", "one", "judged", "corrected"),
    Entry("2026-01-04", "two", "retired", "it was the same as one"),
)


def test_the_register_has_every_name_with_its_present_verdict_and_no_name_is_lost():
    assert news(register(), now(), "2026-01-01", {}) == (), "run tools/register.py"


def test_rows_once_written_stay():
    assert PATH.read_text(encoding="utf-8") == written(register())
    assert f",{FIRST}\n" in PATH.read_text(encoding="utf-8")


def test_every_earlier_version_is_the_beginning_of_this_one():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True).stdout

    try:
        commits = git("log", "--format=%H", "--diff-filter=AM", "--", "book/register.csv").split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no history here")
    text = PATH.read_text(encoding="utf-8")
    assert all(text.startswith(git("show", f"{commit}:book/register.csv")) for commit in commits)


def test_entries_are_written_and_read():
    assert parsed(written(ENTRIES)) == ENTRIES
    assert written(ENTRIES).startswith(written(ENTRIES[:2]))


@pytest.mark.parametrize("line", range(1, 5))
def test_a_changed_row_is_named(line):
    lines = written(ENTRIES).splitlines(keepends=True)
    date, name, event, note, own = lines[line].split(",")
    lines[line] = ",".join((date, name, event, note + "!", own))
    with pytest.raises(ValueError, match=f"line {line + 1}: the row of {name} was changed"):
        parsed("".join(lines))
    del lines[line]
    if line < 4:  # the last may be a register that has not grown yet
        with pytest.raises(ValueError, match="was changed"):
            parsed("".join(lines))


@pytest.mark.parametrize(
    "entry",
    [
        Entry("2026-01-05", "one", "entered", "again"),
        Entry("2026-01-05", "three", "judged", "holds"),
        Entry("2026-01-05", "two", "judged", "theorem"),
        Entry("2026-01-05", "two", "entered", "theorem"),
        Entry("2026-01-05", "one", "praised", "holds"),
    ],
)
def test_what_cannot_be_is_refused(entry):
    with pytest.raises(ValueError, match=r"register.csv, line 6"):
        parsed(written((*ENTRIES, entry)))


def test_news_are_what_is_new_and_what_is_gone_needs_a_reason():
    day = "2026-02-01"
    assert news(ENTRIES, {"one": "corrected"}, day, {}) == ()
    assert news(ENTRIES, {"one": "holds", "three": "lemma"}, day, {}) == (
        Entry(day, "one", "judged", "holds"),
        Entry(day, "three", "entered", "lemma"),
    )
    with pytest.raises(ValueError, match=r"\['one'\] is in the register and nowhere else"):
        news(ENTRIES, {"three": "lemma"}, day, {})
    assert news(ENTRIES, {}, day, {"one": "three says more"}) == (Entry(day, "one", "retired", "three says more"),)
    with pytest.raises(ValueError, match=r"\['one'\] cannot be retired"):
        news(ENTRIES, {"one": "corrected"}, day, {"one": "for nothing"})
    with pytest.raises(ValueError, match=r"\['two'\] was retired"):
        news(ENTRIES, {"one": "corrected", "two": "theorem"}, day, {})
