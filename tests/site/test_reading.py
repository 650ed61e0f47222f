"""The budgets of tools/reading.py, to which test_pages.py holds what a reader meets as a chapter opens."""

import reading


def test_what_breaks_a_budget_is_named():
    good = {"first": 0.4, "code": 0.05, "pictures": 6, "screens": 12.0, "bare": []}
    assert reading.over(good) == []
    for change, said in (
        ({"first": None}, "first picture after 12.0 screens"),
        ({"first": 1.2}, "first picture after 1.2 screens"),
        ({"code": 0.2}, "code takes 20% of the height"),
        ({"pictures": 4}, "4 pictures and explorers"),
        ({"screens": 14.1}, "14.1 screens"),
        ({"bare": ["a-section"]}, "no picture, explorer or table in the section a-section"),
    ):
        assert reading.over(good | change) == [said]
