"""The shell of the explorers, with the smallest one: the question put first, the tour, and what cannot be drawn."""

from explorer_pages import mounted, status
from toy import Toy


def test_a_question_is_put_before_the_picture_answers(show):
    page = show(Toy())
    explorer = mounted(page, asking=True)
    assert explorer.get_by_text("Where is the sum?").is_visible()
    assert explorer.locator(".sum").count() == 0
    assert not explorer.get_by_role("slider", name="factor").is_visible()
    assert explorer.locator(".ao-readout").text_content() == ""
    point = explorer.get_by_role("button", name="Your guess")
    before = point.bounding_box()
    for _ in range(3):
        point.press("ArrowLeft")
    box = point.bounding_box()
    assert box["x"] < before["x"]
    frame = explorer.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(frame["x"] + 0.24 * frame["width"], frame["y"] + frame["height"] / 2)
    page.mouse.up()
    explorer.get_by_role("button", name="that is my guess").click()
    assert explorer.get_by_role("note").inner_text() == "You said 2.0; it is 3.0."
    assert status(explorer) == "The sum is 3.00."
    assert explorer.locator(".sum").count() == explorer.locator("svg .ao-guessed").count() == 1
    explorer.get_by_role("slider", name="factor").press("End")  # of another state the guess says nothing
    assert explorer.locator(".ao-guessed").count() == 0
    assert page.complaints == []


def test_who_does_not_guess_or_follows_a_link_sees_the_picture(show):
    explorer = mounted(show(Toy()), asking=True)
    explorer.get_by_role("button", name="show me").press("Enter")
    assert status(explorer) == "The sum is 3.00."
    assert explorer.get_by_role("note").count() == explorer.locator(".ao-guessed").count() == 0
    explorer = mounted(show(Toy(), hash="#toy=parts:1,3"))
    assert status(explorer) == "The sum is 4.00."


def test_a_tour_sets_states_and_says_what_they_show(show):
    page = show(Toy(), hash="#toy=")
    explorer = mounted(page)
    back = explorer.get_by_role("button", name="back")
    explorer.get_by_role("button", name="tour").click()
    assert explorer.get_by_text("1 of 2: Twice as much.").is_visible()
    assert status(explorer) == "The sum is 6.00."
    assert back.is_disabled()
    explorer.get_by_role("button", name="next").press("Enter")
    assert explorer.get_by_text("2 of 2: Nothing.").is_visible()
    assert status(explorer) == "The sum is 0.00."  # each step is a state of its own, not one on top of the last
    assert explorer.get_by_role("button", name="next").is_disabled()
    assert explorer.get_by_role("slider", name="factor").get_attribute("aria-valuetext") == "1.00"
    back.click()
    assert status(explorer) == "The sum is 6.00."
    assert page.complaints == []


def test_what_cannot_be_drawn_is_said_and_the_controls_stay(show):
    page = show(Toy(), hash="#toy=parts:4,4")
    explorer = mounted(page)
    factor = explorer.get_by_role("slider", name="factor")
    factor.press("End")
    assert status(explorer) == "This cannot be drawn: the sum is too large."
    assert len(page.complaints) == 1
    factor.press("Home")
    assert status(explorer) == "The sum is 0.08."
    assert factor.get_attribute("aria-valuetext") == "0.01"


def test_an_address_beyond_the_bounds_is_left_out(show):
    for address, said in (
        ("parts:1", "3.00"),
        ("parts:1,2,3", "3.00"),
        ("parts:1,5", "3.00"),
        ("parts:1,;factor:2", "6.00"),
        ("factor:0", "3.00"),
        ("module:2;__proto__:1;parts:0,0", "0.00"),
    ):
        page = show(Toy(), hash=f"#toy={address}")
        assert status(mounted(page)) == f"The sum is {said}."
        assert page.complaints == []
