"""Numbers as text: ties and zeros do not show how they were rounded."""

import math
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbook.printing import chance, decimal, share, wilson


@given(st.integers(-(10**6), 10**6), st.integers(0, 4))
def test_ties_and_their_neighbours_go_away_from_zero(steps, digits):
    tie = (2 * steps + 1) / (2 * 10**digits)
    exact = Decimal(2 * steps + 1) / Decimal(2 * 10**digits)
    wanted = str(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    wanted = wanted.lstrip("-") if float(wanted) == 0 else wanted
    near = [tie]
    for direction in (-math.inf, math.inf):
        other = tie
        for _ in range(2):  # units in the last place
            other = math.nextafter(other, direction)
        near.append(other)
    assert {decimal(value, digits) for value in near} == {wanted}


@given(st.floats(-1e6, 1e6), st.integers(0, 5))
def test_what_is_no_tie_is_printed_as_elsewhere(value, digits):
    shifted = abs(Fraction(value)) * 10**digits
    text = f"{value:.{digits}f}"
    if abs(shifted - math.floor(shifted) - Fraction(1, 2)) > Fraction(1, 10**8):
        assert decimal(value, digits) == (text.lstrip("-") if float(text) == 0 else text)


@pytest.mark.parametrize("value", [0.0, -0.0, -1e-17, 4e-17, torch.tensor(-1e-9)])
def test_zero_has_no_sign(value):
    assert decimal(value, 3) == "0.000"


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="digits must be an integer"):
        decimal(1.0, 2.0)
    for bad in ((math.nan, 2), (math.inf, 2), (1.0, -1)):
        with pytest.raises(ValueError, match="value must be finite and digits not negative"):
            decimal(*bad)


@pytest.mark.parametrize(("some", "among"), [(0, 20), (3, 20), (12, 50), (200, 200)])
def test_ends_of_wilsons_interval_are_the_shares_from_which_the_count_is_1_96_deviations_away(some, among):
    for end, sign in zip(wilson(some, torch.tensor(among)), (1, -1), strict=True):
        assert some - among * end == pytest.approx(sign * 1.959964 * (among * end * (1 - end)) ** 0.5, abs=1e-5)


def test_a_share_is_printed_with_its_interval():
    assert share(12, 50) == " 12 of 50 (14-37%)"
    assert share(200, 200) == "200 of 200 (98-100%)"
    assert share(torch.tensor(0), 20) == "  0 of 20 (0-16%)"
    for some, among in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(ValueError, match=f"some must lie between 0 and among, .* got {some} of {among}"):
            share(some, among)


def test_a_p_value_has_one_digit_or_is_below_a_millionth():
    assert [chance(p) for p in (0.034, 1.0, 2e-5, 1e-6, 9e-7, 0.0)] == [
        *("p = 0.03", "p = 1", "p = 2e-05", "p = 1e-06", "p < 1e-6", "p < 1e-6"),
    ]
