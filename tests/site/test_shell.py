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


def test_an_address_beyond_the_bounds_is_told_and_left_out(show):
    for address, said, refused in (
        ("parts:1", "3.00", "parts"),
        ("parts:1,2,3", "3.00", "parts"),
        ("parts:1,5", "3.00", "parts"),
        ("parts:1,;factor:2", "6.00", "parts"),
        ("factor:0;rounds:1.5;limit:9", "3.00", "factor, rounds, limit"),
        ("module:2;__proto__:1;parts:0,0", "0.00", "module, __proto__"),
        ("note:%E0%A4%A", "3.00", "note"),
    ):
        page = show(Toy(), hash=f"#toy={address}")
        explorer = mounted(page)
        assert status(explorer) == f"The sum is {said}."
        told = f"The address asks for something that cannot be here: {refused}. It was left out."
        assert explorer.get_by_role("alert").inner_text() == told
        explorer.get_by_role("slider", name="factor").press("ArrowRight")
        assert explorer.get_by_role("alert").count() == 0  # once something is changed
        assert page.complaints == []


def test_what_does_not_go_together_changes_nothing(show):
    page = show(Toy(), hash="#toy=limit:8;parts:4,4")
    explorer = mounted(page)
    alert = explorer.locator(".ao-alert")
    assert status(explorer) == "The sum is 8.00."
    factor = explorer.get_by_role("slider", name="factor")
    factor.press("End")
    assert alert.inner_text() == "The sum must be at most 8. Nothing was changed."
    assert status(explorer) == "The sum is 8.00."
    assert (factor.get_attribute("aria-valuetext"), factor.input_value()) == ("1.00", "0.67")  # the control goes back
    factor.press("Home")
    assert alert.inner_text() == ""
    page.evaluate("location.hash = '#toy=limit:8;factor:5;parts:4,4;color:1'")
    page.get_by_text("cannot be here: color").wait_for()
    assert alert.inner_text().startswith("The sum must be at most 8. Nothing was changed. The address asks")
    assert status(explorer) == "The sum is 0.08."
    page.evaluate("location.hash = '#toy=limit:100;factor:5'")
    page.get_by_text("The sum is 15.00.").wait_for()
    explorer.get_by_text("More", exact=True).click()
    explorer.get_by_role("radio", name="8").click()
    assert explorer.get_by_role("radio", name="100").is_checked()  # as it is
    assert page.complaints == []


def test_fields_for_numbers_fold_and_say_what_they_may_not_be(show):
    page = show(Toy(), hash="#toy=")
    explorer = mounted(page)
    field = explorer.get_by_label("rounds", exact=True)
    assert not field.is_visible()
    explorer.get_by_text("More", exact=True).press("Enter")
    for text, given in (("0", "“0”"), ("2.5", "“2.5”"), ("two", "“two”"), ("", "nothing"), ("1e10", "“1e10”")):
        field.fill(text)
        field.press("Enter")
        told = f"rounds must be a whole number from 1 to 2000000000; you entered {given}. It stays 1."
        assert explorer.get_by_role("alert").inner_text() == told
        assert field.input_value() == "1"
    field.fill(" 1234567891 ")
    field.press("Tab")
    assert field.input_value() == "1234567891"
    assert explorer.get_by_role("alert").count() == 0
    explorer.get_by_text("A note", exact=True).click()
    explorer.get_by_role("button", name="note it").click()  # a part that the module makes; the address keeps its trait
    page.wait_for_function("location.hash === '#toy=rounds:1234567891;note:!'")
    page.reload()
    assert mounted(page).locator(".noted").text_content() == "!"
    mounted(page).get_by_role("button", name="reset").click()
    assert mounted(page).locator(".noted").text_content() == ""
    assert page.complaints == []


def test_a_step_of_a_tour_frames_what_it_means(show):
    explorer = mounted(show(Toy(), hash="#toy="))
    explorer.get_by_role("button", name="tour").click()
    assert explorer.locator(".ao-slider.ao-lit").count() == 1
    explorer.get_by_role("button", name="next").click()
    assert explorer.locator(".ao-lit").count() == 0
