"""Append to the book's register of names what is new: `tools/register.py [RETIRED=REASON ...]`."""

import datetime
import sys
from pathlib import Path

from bookkit.register import news, now, register, written

PATH = Path(__file__).parent.parent / "book" / "register.csv"


def main(arguments: list[str]) -> int:
    """Append the entries that the register lacks, dated today; a name that is gone needs its reason."""
    retired = dict(argument.split("=", 1) for argument in arguments)
    try:
        fresh = news(register(), now(), datetime.datetime.now(datetime.UTC).date().isoformat(), retired)
    except ValueError as error:
        print(error)
        return 1
    PATH.write_text(written((*register(), *fresh)), encoding="utf-8", newline="\n")
    print(f"{len(fresh)} new entries" if fresh else "The register is complete.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
