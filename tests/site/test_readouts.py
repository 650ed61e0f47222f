"""What explorers say: each number is one that `compute` gives, and the words fit it, whatever a reader does."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from explorer_pages import assert_finite, drag, mounted, status
from explorer_states import NAMES, explorers, make

SENTENCES = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
# What an explorer says in a state, to each answer and, in the first state, at each step of its tour, with the numbers that
# it formats there and that are none of the state's or of `compute`'s, whatever their sign, in percent or as a power of ten.
SAID = """async ([module, texts]) => {
  const { compute: anew, default: { parts: { say, guess, tour } } } = await attnopt.load(module);
  const { revealed, told } = await attnopt.load("shell");
  const kinds = ["toFixed", "toPrecision", "toExponential", "toLocaleString"];
  const own = kinds.map((kind) => Number.prototype[kind]);
  const results = new Map(), compute = (state) => {
    const key = JSON.stringify(state);
    if (!results.has(key)) results.set(key, anew(state));
    return results.get(key);
  };
  const called = (value, state) => (typeof value === "function" ? value(state) : value);
  const leaves = (value) => ArrayBuffer.isView(value) ? [...value]
    : typeof value === "object" && value !== null ? Object.values(value).flatMap(leaves) : [value];
  const heard = (make, ...states) => {
    const formatted = [];
    kinds.forEach((kind, index) => {
      Number.prototype[kind] = function (...given) {
        const text = own[index].call(this, ...given);
        formatted.push([Math.abs(this), text]);
        return text;
      };
    });
    let says;
    try {
      says = make();
    } finally {
      kinds.forEach((kind, index) => { Number.prototype[kind] = own[index]; });
    }
    let open = formatted.map(([value]) => value);
    const close = (number) => {
      open = open.filter((value) => !(Math.abs(Math.abs(number) - value) <= 1e-11 * value));
    };
    for (const one of states.flatMap((state) => [state, compute(state)]).flatMap(leaves)) {
      if (!open.length) break;
      if (typeof one === "number") [one, 100 * one, Math.min(100 * one, 99.9), 10 ** one, 10 ** -one].forEach(close);
    }
    return { says, strange: formatted.filter(([value]) => open.includes(value)).map(([, text]) => text) };
  };
  return JSON.stringify(JSON.parse(texts).map((state, index) => [
    heard(() => say(compute(state), state), state),
    ...(guess ? [heard(() => called(guess.prompt, state), state)] : []),
    ...(guess ? called(guess.options, state) ?? [guess.start] : []).map((answer) => ({
      answer, ...heard(() => revealed(answer, compute, guess, state), state, ...(guess.of ? [guess.of(state)] : [])),
    })),
    ...(index ? [] : called(tour, state) ?? []).map((one, step) => {
      const then = { ...state, ...one.set };
      return { step: step + 1, ...heard(() => told(one, compute, then), then) };
    }),
  ]));
}"""
MARKED = {"softmax": 1, "one_step": 3}  # of the numbers in an answer so many are of the reader's own mark


def said(page, module, states):
    """What an explorer's module says in a page, by state."""
    return json.loads(page.evaluate(SAID, [module, json.dumps(states)]))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"sandbox"}))
def test_every_number_of_a_sentence_is_one_that_is_computed(name, show):
    for found in said(show(), name, [explorer.state() for explorer in explorers(name)]):
        for one in found:
            assert one["strange"][MARKED.get(name, 0) if "answer" in one else 0 :] == [], one["says"]


@pytest.mark.parametrize("name", sorted(SENTENCES))
def test_sentences_are_these(name, show):
    """Word by word, numbers included; a sentence for each branch."""
    rows = SENTENCES[name]
    found = said(show(), name, [make(name, **row["at"]).state() for row in rows])
    tour = said(show(), name, [make(name).state()])[0]
    for row, here in zip(rows, found, strict=True):
        kind = next((kind for kind in ("answer", "step") if kind in row), None)
        rounded = lambda one: [round(value, 3) for value in one] if isinstance(one, list) else one  # noqa: E731
        [there] = [
            one for one in (tour if kind == "step" else here) if kind and rounded(one.get(kind)) == rounded(row[kind])
        ] or [here[0]]
        assert there["says"] == row["says"], row["at"]


def units(picture):
    """How wide a picture is drawn, in its own units, and where it begins."""
    box, across = picture.bounding_box(), float(picture.get_attribute("viewBox").split()[2])
    return box["x"], box["y"], box["width"] / across


def act(page, explorer, step):
    """What a reader does: a button by its name, a choice (=), a slider (value or key), a handle (key), a picture (x, y)."""
    if isinstance(step, str) and step.startswith("="):
        explorer.get_by_role("radio", name=step[1:]).first.check()
    elif isinstance(step, str):
        explorer.get_by_role("button", name=step, exact=True).click()
    elif len(step) == 3:
        left, top, unit = units(explorer.locator("svg").nth(step[0]))
        page.mouse.click(left + unit * step[1], top + unit * step[2])
    elif explorer.get_by_role("slider", name=step[0], exact=True).count():
        slider = explorer.get_by_role("slider", name=step[0], exact=True)
        slider.press(step[1]) if step[1][0].isalpha() else slider.fill(step[1])
    else:
        explorer.get_by_role("button", name=step[0]).press(step[1])


# What is done one after the other, and what is then said (→) or not (↛).
MOVES = [
    ("softmax", {}, ["make this the start", "↛moved", "raise △", "→(0.31, 0.62, 0.08). Only the score of △", "raise all"]),
    ("softmax", {}, ["make this the start", "raise △", "raise all", "→All scores have moved by", "raise △",
        "raise △", "raise △"]),
    ("softmax", {}, ["along the longer axis", "↛by 0.00 ", ("score 1 ○", "2"), "↛order by 0.00,"]),
    ("attention_field", {}, ["take a step", "→After 1 step, token", "take a step", "→After 2 steps, token", "=1",
        "→token 1 is at"]),
    ("attention_field", {}, [("steps", "End"), ("first feature at the start", "-1.5"), "↛token 1", "=tokens",
        "→of the attention that the classes distribute"]),
    ("quadratic_field", {}, [("Start", "ArrowLeft"), "→At (1.95, 0.25)", ("Start", "ArrowUp"), "→At (1.95, 0.30)"]),
    ("feature_flow", {}, ["=quadratic", "→infimum 0.000", "=exchanged", "→infimum 1.386", "=3",
        "→■ has moved from (−0.50, −1.20)"]),
    ("layers", {}, ["=error by step", ("scale of θ", "Home"), "→at most 4, so no layer can raise", "=quadratic", "=Strang"]),
    ("one_layer", {}, [("examples n", "End"), "→which is worse than that of Σ⁻¹", ("examples n", "Home"),
        "→which beats that of Σ⁻¹"]),
    ("one_picture", {}, ["II, a wide cloud", "→Σq"]),
    ("spike_steps", {}, [(0, 48, 230), "→After step 0 the loss is 3.5 × 10⁻⁵. ", (0, 314, 230), "→After step 64 "]),
    ("layer_training", {}, ["all equal", "→started at 0.300 and 0.300.", "0.001 apart", "→0.300 and 0.301.", "far apart",
        "→1.250 and 0.515;"]),
    ("layer_training", {}, ["=one size for all", "→the shared size ends", ("time", "End"), "→At time 100 the size"]),
    ("step_sizes", {}, ["=optimal", "→That is the optimum", ("size of step 2", "ArrowRight"), "→your steps of size 0.422,",
        "→% above"]),
    ("step_sizes", {}, [(1, 82.75, 100), "→1 layer,", (1, 279.25, 100), "→4 layers,", (1, 148.25, 100), "→2 layers,"]),
    ("step_sizes", {}, [("Root 1", "ArrowUp"), "↛Errors of curvature 1.25", ("examples n", "Home"),
        "→No steps reach a loss below 4"]),
    ("gdpp", {}, ["=remaining error", ("scale s", "1.2"), "→Worse than predicting 0: GD++.", ("examples n", "End"),
        "→n = 100, 3"]),
    ("task_model", {}, ["token 1", "→the label is 0.", "rotate the prefix", "flip the suffix", "→Attention on the prefix",
        "=ideal circuit"]),
    ("task_model", {"model": "ideal"}, ["rotate the prefix", "→so it is right", ("scale of the query q", "Home"),
        "→prefix: 41.67%"]),
    ("task_model", {}, [(1, 74, 100), "↛contains 3 ones", (3, 100, 100), "↛contains 3 ones"]),
    ("gradient_bound", {}, [("factor of V", "Home"), "→for the query and the value matrix are violated", "=initial",
        "↛16 of 16 sequences"]),
    ("product", {}, ["drop the least", "→Without the influence of token 4, π is 0", "as trained", "halve each",
        "→with these influences"]),
    ("product", {}, ["final influences", "→the readout changes sign", "as trained", ("epoch", "Home"), "halve each",
        "→0.031 times"]),
    ("circuits", {}, ["plain count", "↛seed 2 ", "mixed signs", "↛2x₂ +", "larger weights", "partly learned", "↛100% of",
        "at chance"]),
    ("circuits", {}, [(0, 96, 30), "↛Seed 2 is"]),
    ("layer_steps", {}, ["=optimal steps times Σ⁻¹", "→optimal steps times", ("layers", "End"), "→8 layers", "=3",
        "↛condition number 6.0"]),
    ("ideal_circuit", {}, [("query, 1st entry", "2"), "→invariance 0.975", ("suffix position, 1st entry", "0"),
        ("suffix position, 2nd entry", "2"), "→Suffix invariance 1.000"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "traits", "steps"), MOVES)
def test_what_is_said_follows_what_a_reader_does(name, traits, steps, show):
    page = show(make(name, **traits))
    explorer = mounted(page)
    for step in steps:
        if step[0] in ("→", "↛"):
            assert (step[1:].lower() in status(explorer).lower()) == (step[0] == "→"), (step, status(explorer))
        else:
            act(page, explorer, step)
            assert_finite(explorer)
    assert page.complaints == []


# Before the answer: what the question asks, in the explorer; what neither text nor picture tells; then, what stands there.
ASKED = [
    ("posterior_forms", "none", "does the first layer remove", "nats", "No, nearly all: the divergence"),
    ("weighted_count", "it moves by about 2", "Bit 10 is irrelevant", "If bit 10 is flipped, the", "Yes. In this model"),
    ("answer_forms", "the first", "read most of the answer", "a probe reads", "Not quite: over many prompts"),
    ("softmax", "that is my guess", "Now the score of △ rises by log 2", "0.44", "straight toward the corner △"),
    ("forward_pass", "at 0", "Where is the query’s entry then?", "1.75", "Not quite: at minus its label."),
    ("gdpp", "5 to 8", "reach as small a loss?", "It takes 11", "Not quite: it takes 11 optimal plain layers"),
    ("gradient_bound", "it grows", "and here?", "28.2", "Right: it grows"),
    ("ideal_circuit", "2, one for each label", "4096 embeddings: where?", "Suffix invariance", "Not quite: there are six."),
    ("labels_in_context", "1 time in 2", "How often is it right", "exactly", "Not quite: one layer repeats"),
    ("layer_steps", "for all four", "Σ now has condition number 6.", "0.035", "Not quite: for −γ I only."),
    ("layer_training", "together, at the best equal size", "0.300 and 0.310", "optim", "Not quite: the sizes end at the"),
    ("layers", "also come to rest", "layers: ?", "No layer raised", "Not quite: they jump back and forth"),
    ("one_head", "it turns", "every cluster becomes twice as wide", "limit", "Not quite: the arrow keeps"),
    ("one_layer_knows", "7,000 and 7", "how many examples until 20%?", "6,592", "6,592 examples if it compares all bits"),
    ("one_picture", "linear", "contours of a function K: shown after you answer", "Σq", "Yes. Attention"),
    ("one_step", "that is my guess", "Which weights does it reach?", "w₁", "The step leaves 0 at a right angle"),
    ("oracle_value", "not at all", "How much can a small step", "remainder", "Right: such labels gain nothing"),
    ("plateaus", "later by a fixed amount", "step sizes start 10⁻⁶ apart", "2.392", "Yes. Starting a hundred"),
    ("product", "when the first token gains influence", "When does the loss (still", "its cost", "Not quite. Token 4 is"),
    ("quadratic_field", "rises", "what does the cross-entropy do?", "uphill", "Right: it rises"),
    ("second_valley", "at the optimum", "Where does it end?", "valley", "Not quite: training ends in the second valley"),
    ("spike_steps", "all ξ turn by a few degrees", "after step 31", "length 1 or more", "Right: a few degrees are enough."),
    ("step_sizes", "these are my roots", "Drag its three roots", "Chebyshev is", "Your roots 0.80, 1.00, 1.25"),
    ("task_model", "any of the twelve", "You flip one of the twelve tokens", "changing this token", "Not quite."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "asks", "hidden", "told"), ASKED)
def test_a_question_is_put_first_and_nothing_tells_its_answer(name, answer, asks, hidden, told, show):
    page = show(make(name))
    explorer = mounted(page, asking=True)
    text = lambda: explorer.evaluate("node => [...node.querySelectorAll('p, svg')].map((one) => one.textContent).join(' ')")  # noqa: E731
    assert asks in text()
    assert hidden not in text()
    assert explorer.locator("[role=status]").text_content() == ""
    explorer.get_by_role("button", name=answer, exact=True).click()
    assert told in explorer.get_by_role("note").inner_text()
    assert status(explorer) != ""
    assert page.complaints == []


def drag_by_touch(page, handle, right, down, held=lambda: None):
    """Drag with a finger, slowly; the page must not take the movement for its own. `held` looks before the release."""
    handle.scroll_into_view_if_needed()
    page.evaluate("window.canceled = 0; addEventListener('pointercancel', () => { window.canceled += 1; }, true);")
    scrolled = page.evaluate("[scrollX, scrollY]")
    box, touch = handle.bounding_box(), page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for part in range(1, 6):
        page.wait_for_timeout(16)
        there = {"x": x + right * part / 5, "y": y + down * part / 5}
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [there]})
    held()
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.evaluate("window.canceled") == 0
    assert page.evaluate("[scrollX, scrollY]") == scrolled


# The handles that move along one axis only, across (0) or down (1).
TIED = {
    "softmax": 1,
    "feature_flow": 1,
    "one_layer_knows": 0,
    "plateaus": 0,
    "step_sizes": 0,
    "layer_training": 1,
    "posterior_forms": 1,
}
FREE = [
    "answer_forms",
    "attention_field",
    "forward_pass",
    "layers",
    "one_head",
    "one_picture",
    "one_step",
    "oracle_value",
    "quadratic_field",
]


@pytest.mark.parametrize("name", [*FREE, "second_valley", *TIED])
def test_a_handle_follows_a_finger_all_the_way(name, show):
    page = show(make(name), has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    explorer = mounted(page)
    handle, reply = explorer.locator(".ao-handle").first, explorer.locator(".ao-guessed")
    picture = handle.locator("xpath=ancestor::*[local-name()='svg'][1]")
    page.evaluate("document.body.style.paddingBottom = '150vh'")  # a page that could scroll
    handle.scroll_into_view_if_needed()
    said_before = status(explorer)

    def seen(node):
        return np.array([handle.bounding_box()[axis] - (node.bounding_box()[axis] if node else 0) for axis in "xy"])

    begun, at, replies, held = seen(None), seen(picture), reply.count(), []
    drag_by_touch(page, handle, 40, -24, held=lambda: held.append((seen(None) - begun, reply.count())))
    axes = [TIED[name]] if name in TIED else [0, 1]
    for moved in (seen(picture) - at, held[0][0]):  # in its picture and under the finger
        np.testing.assert_allclose(moved[axes], np.array([40, -24])[axes], atol=8)
    assert held[0][1] == replies  # what was said of the state before waits for the release
    assert reply.count() == 0
    assert status(explorer) != said_before


RUNS = [
    ("attention_field", {}, "After 5 steps"),
    ("one_picture", {}, "their counts decide"),
    ("spike_steps", {"step": 0}, "After step 3 "),
    ("layer_training", {"time": 0.0}, "At time 0.0"),
]


@pytest.mark.parametrize(("name", "traits", "end"), RUNS)
def test_a_run_goes_on_by_itself_and_stops_where_it_is_asked_to(name, traits, end, show):
    page = show(make(name, **traits))
    explorer = mounted(page)
    explorer.get_by_role("button", name="play").click()
    page.wait_for_function("end => document.querySelector('[role=status]').textContent.includes(end)", arg=end)
    if explorer.get_by_role("button", name="pause").count():
        explorer.get_by_role("button", name="pause").click()
    page.wait_for_timeout(150)
    assert explorer.get_by_role("button", name="play").count() == 1
    assert page.complaints == []


def test_the_bars_of_softmax_go_up_and_down_only(show):
    page = show(make("softmax"))
    explorer = mounted(page)
    bar = explorer.get_by_role("button", name="Score of class 3")
    for key, sign in (("ArrowUp", 1), ("ArrowRight", 1), ("ArrowDown", -1), ("ArrowLeft", -1)):
        before = float(explorer.get_by_role("slider", name="score 3").input_value())
        bar.press(key)
        assert sign * (float(explorer.get_by_role("slider", name="score 3").input_value()) - before) > 0.1
    box, _ = drag(page, bar, 40, -30)
    assert abs(bar.bounding_box()["x"] - box["x"]) < 1


def test_the_zero_of_the_attention_field_is_marked_where_there_is_one(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    assert explorer.locator(".ao-zero").count() == explorer.get_by_text("would rest here").count() == 0
    act(page, explorer, ("label softness", "0.1"))
    explorer.get_by_role("radio", name="1").check()
    assert explorer.locator(".ao-zero").count() == 2
    sums = (
        ("attention’s average", "label’s average"),
        ("attention’s sum", "label’s sum"),
    )
    for axis, labels in zip(("classes", "tokens"), sums, strict=True):
        act(page, explorer, f"={axis}")
        assert [explorer.get_by_text(label).count() for label in (*labels, *sums[axis == "classes"])] == [1, 1, 0, 0]
        totals = explorer.locator("svg").nth(1).locator("text", has_text="sum ")
        bold = "all => all.filter((one) => getComputedStyle(one).fontWeight === '700').map((one) => one.textContent)"
        assert totals.evaluate_all(bold) == ["sum 1.00"] * 3


@pytest.mark.parametrize("point", [(2.0, 0.25), (-1.0, 2.0), (0.5, -2.0), (2.9, -0.4)])
def test_the_quadratic_field_is_shaded_where_the_formula_leads_uphill(point, show):
    explorer = mounted(show(make("quadratic_field", point=list(point))))
    x, y = 42 + 304 * (1 + point[0] / 3) / 2, 24 + 304 * (1 - point[1] / 3) / 2
    shaded = explorer.locator(".ao-uphill").evaluate("(path, [x, y]) => path.isPointInFill(new DOMPoint(x, y))", [x, y])
    assert shaded == ("leads uphill" in status(explorer))


@pytest.mark.parametrize(("second", "examples"), [(0.5, 20), (0.2, 100)])
def test_the_drawn_line_parts_the_starts_by_their_ends(second, examples, show):
    explorer = mounted(show(make("second_valley", second=second, examples=examples)))
    *points, _ = explorer.locator(".second-valley").get_attribute("points").split()
    line = [((float(x) - 44) / 134, (290 - float(y)) / 134) for x, y in (point.split(",") for point in points)]
    assert len(line) == 22
    assert all(np.diff([beta for _, beta in line]) >= 0)
    for b, beta in line[2::5]:
        for valley, start in ((0, beta + 0.04), (1, beta - 0.04)):
            assert make("second_valley", start=[b, start], second=second, examples=examples).compute()["valley"] == valley


# What tours say in words, of the numbers where they say it.
WIDE = [[-2.7, -1.9], [-1.9, -2.2], [-1.2, -0.3], [-0.5, -1.0], [0.7, 1.0], [1.4, 0.5], [2.0, 2.4], [2.9, 1.9]]
TOURS = [
    ("posterior_forms", {"words": [8.0] * 8}, lambda n: n["topics"][2] > 0.99 and n["divergence"][2] < 0.05),
    ("posterior_forms", {}, lambda n: n["divergence"][2] < 0.1 * n["divergence"][0]),
    ("weighted_count", {"model": "plain"}, lambda n: n["margin"] * n["flips"][0][1] < 0 and abs(n["shifts"][9]) < 0.1),
    ("weighted_count", {"model": "twos"}, lambda n: n["margin"] * n["flips"][9][1] > 0 and 1.7 < abs(n["shifts"][9]) < 2.1),
    ("weighted_count", {"tokens": [1] * 5 + [0] * 4 + [1, 0, 0]}, lambda n: n["count"] > n["levels"][6][0] + 0.5),
    ("answer_forms", {"part": 2}, lambda n: n["curve"][0] > 0 > n["curve"][40] and n["bayes"] > 0),
    ("answer_forms", {"part": 4}, lambda n: -n["curve"][0] > 1.2 * 3 * n["bayes"] and n["curve"][40] > 1.2 * 3 * n["bayes"]),
    ("answer_forms", {"part": 6, "steps": 4}, lambda n: abs(n["descent"] - n["bayes"]) < 0.03),
    ("answer_forms", {}, lambda n: 1.2 < n["readings"][6] / n["output"] < 1.25 < n["readings"][4] / n["output"]),
    ("answer_forms", {"steps": 4, "points": WIDE}, lambda n: n["descent"] < -5 and 1.5 < n["output"] < 1.6),
    ("attention_field", {"steps": 40}, lambda n: 0.48 < n["losses"][40] / n["losses"][20] < 0.52),
    ("attention_field", {"softness": 0.1, "selected": 0, "steps": 10}, lambda n: n["zero"] is not None),
    ("forward_pass", {"layers": 8}, lambda n: abs(n["labels"][8][-1] + n["label"]) < 0.1 * abs(n["label"])),
    ("forward_pass", {"step": 1.6}, lambda n: n["losses"][8] > n["losses"][0]),
    ("forward_pass", {"mask": "off"}, lambda n: abs(n["labels"][8][-1]) < 0.9 * abs(n["label"])),
    ("gradient_bound", {"value": 0.01}, lambda n: 0.5 < n["totals"][0] / n["totals"][2] < 1),
    ("gradient_bound", {"value": 0.001}, lambda n: 7.5 < n["totals"][0] / n["totals"][2] < 8.5 and n["ratios"][0] > 1),
    ("gradient_bound", {"along": "logits"}, lambda n: all(np.diff(n["curves"][0])[40:] < 0) and n["curves"][0][-1] > 0),
    ("ideal_circuit", {"query": [2.0, 0.0]}, lambda n: 0.15 < n["most"] < 0.18),
    ("ideal_circuit", {"rest": [0.0, 2.0]}, lambda n: n["accuracy"] == 1 and n["suffix"] > 1 - 1e-9),
    ("layer_training", {"starts": [0.3, 0.3, 0.9, 0.0], "time": 1.0}, lambda n: n["away"][1] > 0.5),
    ("one_head", {"clusters": 1, "tokens": 2000}, lambda n: np.abs(n["gradient"]).max() < 1e-12),
    ("one_head", {"tokens": 2000, "query": [2.4, 1.6]}, lambda n: max(n["count"], n["effective"]) < 100),
    ("one_layer_knows", {"knows": "sequences", "decades": 3.0}, lambda n: n["left"]["sequences"] > 0.5),
    ("one_layer_knows", {"knows": "positions", "decades": 1.7}, lambda n: n["now"] == 50 and n["left"]["positions"] < 0.25),
    ("one_layer_knows", {}, lambda n: (n["needed"]["counts"], n["needed"]["parity"]) == (7, 3)),
    ("one_layer_knows", {"length": 20, "weight": 3, "sharpness": 0.9}, lambda n: 3.7 < n["number"] / n["hypotheses"] < 4.3),
    ("one_step", {"examples": 30, "spread": 1.0, "step": 2.5}, lambda n: n["losses"]["reached"] > n["losses"]["start"]),
    ("one_step", {"examples": 30, "spread": 0.1, "step": 1.0}, lambda n: n["longest"] < n["steps"][1]),
    ("oracle_value", {"oracle": "own", "temperature": 0.5}, lambda n: max(n["gains"]) < 1e-12),
    ("oracle_value", {"oracle": "witness", "reliability": 1.0}, lambda n: abs(n["parts"][1] - n["trace"]) < 1e-12),
    ("oracle_value", {"oracle": "own", "temperature": 2.0, "truth": 2.0}, lambda n: n["gain"] > 0),
    ("oracle_value", {"oracle": "witness", "reliability": 0.6}, lambda n: n["gains"][-1] < max(n["gains"])),
    ("quadratic_field", {"point": [0.5, -2.0]}, lambda n: n["losses"]["paper"][-1] < n["losses"]["paper"][0]),
    ("quadratic_field", {"point": [1.25, 1.15]}, lambda n: -n["true"][0] + n["true"][1] > 0 > n["paper"][1] - n["paper"][0]),
    ("second_valley", {"start": [0.4, 1.2]}, lambda n: n["valley"] == 0 and abs(n["path"][-1][0]) < 1e-6),
    ("second_valley", {"start": [1.2, 0.4], "second": 1.0}, lambda n: n["valley"] == 1),
    ("second_valley", {}, lambda n: f"{n['times_floor']:.1f}" == "2.9"),
    ("spike_steps", {"step": 1}, lambda n: n["wrong"] == 0 and 1 / 55 < n["step_length"] < 1 / 45),
    ("spike_steps", {"step": 2}, lambda n: n["wrong"] == 0 and n["step_length"] > 0.1),
    ("spike_steps", {"step": 26}, lambda n: n["wrong"] > 0.01 and n["step_length"] > 1),
    ("spike_steps", {"step": 32}, lambda n: 0.09 < n["wrong"] < 0.11 and n["turn"] < 3),
    ("spike_steps", {"step": 33}, lambda n: n["wrong"] == 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "traits", "so"), TOURS)
def test_tours_say_what_is_so(name, traits, so):
    assert so(make(name, **traits).compute())
