"""The laboratory at its limits: what does not fit, odd settings, small screens; models from Python, and the tour."""

import functools

import pytest
from explorer_pages import assert_finite, mounted, status
from laboratory_pages import NOW, SMALL, alert, fill, open_laboratory, pressed, reach, unfold

from attnbook.explorers import Sandbox
from attnopt.clustering import Settings, Watch, load_models, train


@pytest.fixture
def laboratory(show):
    """Open the laboratory with small settings."""
    return functools.partial(open_laboratory, show)


def test_what_does_not_fit_is_said_and_left_out(laboratory):
    left_out = "The address asks for something that cannot be here: {}. It was left out."
    nothing = "{} Nothing was changed."
    wrong = {
        "p:99": left_out.format("p"),
        "run:own;seed:-1;width:2.5;norm:max": left_out.format("seed, width, norm"),
        "color:red;epoch:Infinity": left_out.format("color, epoch"),
        "k:14;length:12": nothing.format("The prefix length k = 14 must not exceed the length L = 12."),
        "k:14;p:9": nothing.format("The prefix length k = 14 must not exceed the length L = 5.")
        + " "
        + left_out.format("p"),
        "edits:nonsense": nothing.format("The change “nonsense” cannot be made: it must begin with a step."),
        "edits:3%20color%201": nothing.format("The change “3 color 1” cannot be made: there is no color."),
        "edits:3%20token%202%200%200": nothing.format(
            "The change “3 token 2 0 0” cannot be made: its number must be from 0 to 1."
        ),
        "edits:3%20token%201%200": "it has another number of values",
        "edits:3%20query%20NaN": "its numbers must be finite",
        "edits:9%20query%201%3B3%20query%201": "The changes must be in the order of their steps.",
        "fork:3%20rate%20-1": "it must be positive",
        "rule:1%202": "There must be 5 weights, one per position, not 2.",
        "rule:0110": "The table must have 2^5 = 32 labels, got 4.",
        "rule:01%2001%2010%2011%2000": "The table must have 2^5 = 32 labels, got 10.",  # in five groups
        "rule:1%202%200.5%200%201": "The weights must be whole numbers.",
        "length:12;rule:0110": "A table of labels is for at most 1024 sequences; these are 2^12.",
        "fork:3%20query%200": "A second run differs in one setting",
        "start:unknown%403": nothing.format("There is no run “unknown@3” to start from."),
        "start:success%401000": "These settings need 52 weights, but the run would start from 196.",
        "start:w%3A***": "The weights to start from cannot be read.",
        "run:success;edits:nonsense": "it must begin with a step",
    }
    page, explorer = laboratory()
    reach(page, "Epoch 0:")
    for address, said in wrong.items():
        page.evaluate("address => { location.hash = `#sandbox=${address}`; }", address)
        page.wait_for_function("said => document.querySelector('.ao-alert').textContent.includes(said)", arg=said)
        reach(page, "Epoch 0:")
        if address[:2] in ("p:", "k:", "fo"):  # and from the beginning
            page.goto("about:blank")
            page.goto(f"{page.laboratory}#sandbox={address}")
            explorer = mounted(page)
            assert said in alert(explorer)
            reach(page, "Epoch 0:")
        assert page.evaluate("document.querySelector('.ao-sandbox').laboratory.link.state().length") == 5
    assert page.complaints == []


def test_fields_keep_the_last_good_number(laboratory):
    page, explorer = laboratory()
    settings = {"seed": ("0", "4294967295"), "tokens p": ("2", "7"), "length L": ("1", "16"), "neurons": ("1", "256")}
    settings |= {"learning rate": ("0.000001", "1"), "β₂": ("0", "0.999999"), "train to epoch": ("1", "10000")}
    for label, (low, high) in settings.items():
        unfold(explorer)
        field = explorer.get_by_label(label, exact=True)
        held = field.input_value()
        for text in ("", "many", "-1", "1e99", "NaN", "0x", *(["2.5"] if label in ("seed", "neurons") else [])):
            fill(explorer, label, text)
            assert f"{label} must be a" in alert(explorer)
            assert f"from {low} to {high}; you entered" in alert(explorer)
            assert f"you entered {f'“{text}”' if text else 'nothing'}. It stays {held}." in alert(explorer)
            assert field.input_value() == held
        fill(explorer, label, {"seed": "1", "tokens p": "3", "length L": "2"}.get(label, low))
        assert alert(explorer) == ""
    fill(explorer, "seed", "4294967295")
    assert explorer.get_by_label("seed", exact=True).input_value() == "4294967295"
    fill(explorer, "prefix length k", "3")
    assert alert(explorer) == "prefix length k must be a whole number from 1 to 2; you entered “3”. It stays 2."
    assert explorer.get_by_label("prefix length k").input_value() == "2"
    fill(explorer, "learning rate", "0,002")
    assert explorer.get_by_label("learning rate", exact=True).input_value() == "0.002"
    explorer.get_by_label("normalization").select_option("unit")
    page.wait_for_function("location.hash.includes('norm:unit') && location.hash.includes('rate:0.002')")
    assert page.complaints == []


@pytest.mark.parametrize(
    "traits",
    [
        {"p": 3, "dim": 1, "length": 16, "k": 1, "width": 1, "norm": "unit"},
        {"p": 3, "dim": 4, "length": 16, "k": 1, "width": 1, "norm": "unit"},
        {"p": 7, "dim": 8, "length": 2, "k": 2, "count": 1, "batch": 8192, "rate": 1.0, "beta2": 0.0, "discount": 1000.0},
        {"p": 2, "length": 1, "k": 1, "dim": 2, "count": 64, "eps": 1.0},
    ],
)
def test_odd_settings_on_a_phone(traits, laboratory):
    page, explorer = laboratory("run:own;epoch:2", device={"width": 390}, **traits)
    reach(page, "Epoch 2:")
    unfold(explorer)
    for chosen in ("prefix", "suffix") if traits["k"] < traits["length"] else ("prefix",):
        explorer.get_by_role("slider", name=chosen).press("End")
    explorer.get_by_role("button", name="token 1:").press("ArrowUp")
    pressed(explorer, "▶ train")
    reach(page, "Epoch 20:")
    assert_finite(explorer)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for box in (one.bounding_box() for one in explorer.locator("svg, input, select, button").all() if one.is_visible()):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    wanted = (
        "() => [...document.querySelectorAll('.ao :is(button, select, input, summary, [tabindex])')].filter((one) => "
        "!one.disabled && one.checkVisibility() && (one.type !== 'radio' || one.checked)).length"
    )
    found, count = set(), page.evaluate(wanted)
    page.evaluate("document.activeElement.blur(); document.querySelector('.ao').prepend(document.createElement('i'));")
    explorer.locator("input[type=radio]:checked").focus()
    number = "() => [...document.querySelectorAll('*')].indexOf(document.activeElement)"
    for _ in range(count):
        found.add(page.evaluate(number))
        page.keyboard.press("Tab")
    assert len(found) == count
    assert page.complaints == []


def test_models_and_trainings_from_python(show):
    models = load_models()[[1, 4]]
    training = train([7, 8], Settings(epochs=4), Watch(every=1, snapshots=[0, 2]))
    for given, name, frame in ((models, "models", 1), (training, "model_1", 2)):
        page = show(Sandbox(given, run=name, epoch=0))
        explorer = mounted(page)
        word = "Model" if given is models else "Epoch"
        assert status(explorer).startswith(f"{word} 0:")
        explorer.get_by_role("slider", name="epoch").press("ArrowRight")
        reach(page, f"{word} {frame}:")
        pressed(explorer, "train on from here")
        explorer.get_by_text(f"from the run “{name.replace('_', ' ')}” at {word.lower()} {frame}").wait_for()
        pressed(explorer, "❚❚ pause")
        explorer.get_by_role("slider", name="epoch").press("Home")
        reach(page, "Epoch 0:")
        chosen = given[1] if given is models else given.snapshots[2][1]
        kept = page.evaluate(NOW)["weights"]
        for part, values in chosen.weights.items():
            assert kept[part] == values[0].double().tolist()
        assert page.complaints == []


UNCOVERED = """() => {
  const [bar, lit] = [".ao-tour", ".ao-lit"].map((one) => document.querySelector(one).getBoundingClientRect());
  return lit.top >= bar.bottom && lit.bottom <= innerHeight;
}"""  # what is meant can be seen below the tour's bar


def test_the_tour_sets_states_and_frames_what_is_meant(show):
    page = show(Sandbox(("success", "partial_invariance", "failure"), run="own", epoch=0, **SMALL))
    explorer = mounted(page)
    steps = (("sequence", "Epoch 0:"), ("sequence", "Epoch 1000:"), ("ladder", "Epoch 1000:"), ("count", "Epoch 1000:"))
    for at, (lit, said) in enumerate((*steps, ("ladder", "Epoch 1000:"), (None, "Epoch 0:"))):
        pressed(explorer, "next" if at else "tour")
        reach(page, said)
        assert f"{at + 1} of 6:" in explorer.locator(".ao-tour").inner_text()
        assert explorer.locator(".ao-lit").count() == 1
        name = f"ao-panel-{lit}" if lit else "ao-train"
        assert name in explorer.locator(".ao-lit").get_attribute("class")
        radio = explorer.get_by_role("radio", checked=True)
        chosen = ("success", "success", "success", "partial_invariance", "failure", "own")[at]
        assert radio.get_attribute("value") == chosen
        assert page.evaluate(UNCOVERED), at
    assert explorer.get_by_role("button", name="▶ train").is_visible()
    assert page.complaints == []
