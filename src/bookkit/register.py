"""The register of names: what a claim or a theorem was once called it is called for ever, and what became of it stays told.

``register.csv`` only grows. A row says on which day a name entered, was judged anew or was retired, and why; its last column
is a hash over all rows up to it, so that a row changed later is noticed.
"""

import csv
import functools
import hashlib
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from bookkit.claims import claims
from bookkit.folder import find
from bookkit.graph import statements

EVENTS = ("entered", "judged", "retired")
HEAD = ("date", "id", "event", "note", "hash")


@dataclass(frozen=True)
class Entry:
    """One row of the register.

    Attributes:
        date: of the day, as in ``"2026-11-21"``.
        id: of a claim or a statement.
        event: one of `EVENTS`.
        note: the verdict or the statement's kind; for one retired, why, and what stands for it now.
    """

    date: str
    id: str
    event: str
    note: str


def chained(before: str, entry: Entry) -> str:
    """The hash of an entry after the one of the row before it."""
    return hashlib.sha256("\x1f".join((before, *astuple(entry))).encode()).hexdigest()[:12]


def written(entries: Iterable[Entry]) -> str:
    """The register's text."""
    text, before = io.StringIO(), ""
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for entry in entries:
        before = chained(before, entry)
        writer.writerow((*astuple(entry), before))
    return text.getvalue()


def parsed(text: str) -> tuple[Entry, ...]:
    """The entries of the register's text.

    Raises:
        ValueError: if a row was changed after it was written, its event is unknown, a name enters twice or after it was
            retired, or one is judged or retired that is not there, naming the line.
    """
    entries, before, there, gone = [], "", set(), set()
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if number == 1:
            continue
        entry = Entry(*row[:4])
        before = chained(before, entry)
        if row[4:] != [before]:
            raise ValueError(f"register.csv, line {number}: the row of {entry.id} was changed after it was written")
        if entry.event not in EVENTS:
            raise ValueError(f"register.csv, line {number}: event must be one of {EVENTS}, got {entry.event!r}")
        if (entry.event == "entered") == (entry.id in there) or entry.id in gone:
            raise ValueError(f"register.csv, line {number}: {entry.id} cannot be {entry.event} here")
        there.add(entry.id)
        if entry.event == "retired":
            gone.add(entry.id)
        entries.append(entry)
    return tuple(entries)


@functools.cache
def register() -> tuple[Entry, ...]:
    """All entries, the oldest first.

    Raises:
        ValueError: as `parsed`.
    """
    return parsed(find("book/register.csv").read_text(encoding="utf-8"))


def now() -> dict[str, str]:
    """What there is: every claim with its verdict and every statement with its kind."""
    return {row.id: row.verdict for row in claims().values()} | {one.id: one.kind for one in statements().values()}


def news(entries: Iterable[Entry], there: dict[str, str], date: str, retired: dict[str, str]) -> tuple[Entry, ...]:
    """The entries that the register lacks.

    Args:
        entries: those it has.
        there: as `now` gives it.
        date: of the new entries.
        retired: for a name that is gone, why, and what stands for it now.

    Raises:
        ValueError: if a name is gone and nothing says why, or one is retired that is still there.
    """
    last, gone = {}, set()
    for entry in entries:
        last[entry.id] = entry.note
        if entry.event == "retired":
            gone.add(entry.id)
    if back := sorted(gone & there.keys()):
        raise ValueError(f"{back} was retired: a name that was given once is not given again")
    lost = last.keys() - there.keys() - gone
    if untold := sorted(lost - retired.keys()):
        raise ValueError(f"{untold} is in the register and nowhere else: a name stays, or is retired with a reason")
    if wrong := sorted(retired.keys() - lost):
        raise ValueError(f"{wrong} cannot be retired: it is still there, or never was")
    fresh = [
        Entry(date, name, "judged" if name in last else "entered", note)
        for name, note in there.items()
        if last.get(name) != note
    ]
    return (*fresh, *(Entry(date, name, "retired", retired[name]) for name in retired))
