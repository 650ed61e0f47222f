"""Numbers as text, the same on every machine."""

import math

from scipy.stats import binomtest

TIE = 1e-9  # distance within which a number counts as a tie, in units of the last digit shown


def decimal(value: float, digits: int) -> str:
    """A number as text with the given number of decimals, which do not depend on how the number's last bits were rounded.

    A tie is rounded away from zero, even if a rounding error has put the number just below it: with two digits, 0.125 and
    0.125 - 10⁻¹⁶ both give 0.13. A number that is zero at these digits has no sign.

    Args:
        value: a real number, or a tensor or array that holds one.
        digits: the number of digits after the decimal point.

    Returns:
        The text, which equals ``f"{value:.{digits}f}"`` except for ties and the sign of zero.

    Raises:
        TypeError: if ``digits`` is not an integer.
        ValueError: if ``digits`` is negative, or ``value`` is not one finite number.
    """
    if isinstance(digits, bool) or not isinstance(digits, int):
        raise TypeError(f"digits must be an integer, got {digits!r}")
    number = float(value)
    if digits < 0 or not math.isfinite(number):
        raise ValueError(f"value must be finite and digits not negative, got {number} and {digits}")
    text = f"{number + math.copysign(TIE * 10.0**-digits, number):.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def wilson(some: int, among: int) -> tuple[float, float]:
    """The 95% Wilson interval of a frequency (Wilson 1927, without correction for continuity).

    Args:
        some: the number of times that the event happened.
        among: the number of trials.

    Raises:
        ValueError: if ``among`` is not positive, or ``some`` is not between 0 and ``among``.
    """
    if not 0 <= some <= among or not among:
        raise ValueError(f"some must lie between 0 and among, which must be positive, got {some} of {among}")
    interval = binomtest(int(some), int(among)).proportion_ci(method="wilson")
    return interval.low, interval.high


def share(some: int, among: int) -> str:
    """A frequency with its `wilson` interval in percent, as in ``" 12 of 50 (14-37%)"``."""
    low, high = wilson(some, among)
    return f"{int(some):3d} of {int(among)} ({100 * low:.0f}-{100 * high:.0f}%)"


def chance(p: float) -> str:
    """A p-value with one significant digit, as in ``"p = 0.03"``, or ``"p < 1e-6"`` if it is below a millionth."""
    return "p < 1e-6" if p < 1e-6 else f"p = {p:.1g}"
