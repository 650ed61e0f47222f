"""Checks of a reader's answers: the book recognises the right number without showing it.

``answers.toml`` holds, for each exercise, how many digits are compared (0: a whole number) and a slow salted hash of the
answer. ``python -m bookkit.exercises NAME ANSWER DIGITS`` prints the lines for a new one.
"""

import functools
import hashlib
import math
import sys

from bookkit.folder import table

ROUNDS = 5000  # of the hash: nobody waits for three, and trying all numbers takes longer than the exercise


@functools.cache
def answers() -> dict[str, dict]:
    """Digits and hash of every exercise that has a checked answer."""
    return table("answers.toml")


def check(name: str, answer) -> None:
    """Say whether a number answers an exercise; the last digit may be off by one.

    Args:
        name: the exercise's label, as in ``"ex-lse-three"``.
        answer: a number, or an array with one entry.

    Raises:
        KeyError: if no exercise of that name has a checked answer.
    """
    if name not in answers():
        raise KeyError(f"no checked answer for {name!r}; there are: {', '.join(answers())}")
    digits = answers()[name]["digits"]
    wanted = f"to {digits} digits" if digits else "a whole number"
    value = _number(answer)
    if answer is ...:
        print(f"{name}: put your number in place of the dots ({wanted})")
    elif value is None:
        print(f"{name}: a number is wanted ({wanted}), not {type(answer).__name__}")
    elif not math.isfinite(value):
        print(f"{name}: {value} is no finite number")
    elif not digits and value != round(value):
        print(f"{name}: a whole number is wanted, not {value:g}")
    elif any(fingerprint(name, near, digits) == answers()[name]["hash"] for near in neighbours(value, digits)):
        print(f"{name}: right ({wanted})")
    else:
        print(f"{name}: not yet ({wanted})")


def _number(answer) -> float | None:
    """The answer as a float, or None if it is no real number."""
    if isinstance(answer, (str, bytes, bool)):
        return None
    try:
        return float(answer)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor with several entries
        return None
    except OverflowError:
        return math.inf


def neighbours(value: float, digits: int) -> list[float]:
    """The value, and for a rounded one also what differs by one in the last digit."""
    if not digits or not value:
        return [value]
    rounded = float(f"{value:.{digits - 1}e}")
    unit = 10.0 ** (math.floor(math.log10(abs(rounded))) - digits + 1)
    return [rounded, rounded - unit, rounded + unit]


def fingerprint(name: str, value: float, digits: int) -> str:
    """The salted hash of a value, rounded to significant digits; 0 digits for a whole number."""
    text = f"{value:.{digits - 1}e}" if digits else f"{value:.0f}"
    return hashlib.pbkdf2_hmac("sha256", text.encode(), f"attnopt {name}".encode(), ROUNDS, 16).hex()


if __name__ == "__main__":
    exercise, number, places = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    print(f'[{exercise}]\ndigits = {places}\nhash = "{fingerprint(exercise, number, places)}"')
