"""What explorers say: the numbers that Python computes, and what is true of them, after their controls have been moved."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from explorer_pages import assert_finite, drag, mounted, status
from explorer_states import make
from scipy.integrate import solve_ivp
from scipy.optimize import linprog

from attnbook.explorers import (
    AttentionFieldExplorer,
    CircuitsExplorer,
    FeatureFlowExplorer,
    ForwardPassExplorer,
    GdppExplorer,
    GradientBoundExplorer,
    IdealCircuitExplorer,
    LabelsInContextExplorer,
    LayersExplorer,
    LayerStepsExplorer,
    LayerTrainingExplorer,
    OneHeadExplorer,
    OneLayerExplorer,
    OneLayerKnowsExplorer,
    OnePictureExplorer,
    OneStepExplorer,
    OracleValueExplorer,
    PlateausExplorer,
    ProductExplorer,
    SecondValleyExplorer,
    SoftmaxExplorer,
    SpikeStepsExplorer,
    StepSizesExplorer,
    TaskModelExplorer,
)
from attnbook.explorers.one_step import standard_normals
from attnopt.clustering.trained import load_overview
from attnopt.in_context import (
    attention_loss,
    linear_transformer,
    one_layer_loss,
    one_layer_optimum,
    optimal_step_sizes,
    second_valley,
    step_loss,
    valley_loss,
    valley_parameters,
)
from attnopt.regression import linear_gradient, stationary_margin

METHODS = ("plain", "covariance", "optimal", "newton")


def shown_number(value, digits=2):
    """A number as explorers write it, with a fixed number of digits and a true minus sign."""
    return re.sub(r"^-(?=[0.]*$)", "", f"{value:.{digits}f}").replace("-", "−")


def shown_pair(values):
    return f"({', '.join(shown_number(value) for value in values)})"


def test_softmax_explorer_shows_its_numbers(show):
    page = show(make("softmax"))
    explorer = mounted(page)
    for name, value in (("score 1", "2"), ("score 2", "-1"), ("score 3", "0.5"), ("temperature", "0.5")):
        explorer.get_by_role("slider", name=name).fill(value)
    expected = SoftmaxExplorer(logits=[2.0, -1.0, 0.5], temperature=0.5).compute()
    before = np.array(SoftmaxExplorer().before)
    assert f"The weights are ({', '.join(f'{x:.2f}' for x in expected['softmax'])})." in status(explorer)
    assert f"exceeds the maximum by {expected['smooth_maximum'] - 2:.3f} of at most {np.log(3) / 2:.3f}." in status(explorer)
    # the nudge, from the definitions
    scores = np.array([2.0, -1.0, 0.5])
    now, start = (np.exp(2 * value) / np.exp(2 * value).sum() for value in (scores, before))
    rise = (np.log(np.exp(2 * scores).sum()) - np.log(np.exp(2 * before).sum())) / 2
    mean = start @ (scores - before)
    step = 2 * start * (scores - before - mean)
    moved = ", ".join(shown_number(x) for x in scores - before)
    assert (
        f"The scores have moved by ({moved}), the weights by {np.linalg.norm(now - start):.2f} "
        f"(to first order, purple, {np.linalg.norm(step):.2f}). "
        f"Log-sum-exp has risen by {rise:.3f}; the old weights' average of the nudge is {shown_number(mean, 3)}."
    ) in status(explorer)
    assert page.complaints == []


def test_softmax_explorer_asks_where_a_nudge_leads(show):
    page = show(make("softmax"))
    explorer = mounted(page, asking=True)
    assert "0.44" not in explorer.inner_text()
    point = explorer.get_by_role("button", name="Your guess")
    point.focus()
    for _ in range(3):
        point.press("ArrowDown")
    explorer.get_by_role("button", name="that is my guess").click()
    told = explorer.get_by_role("note").inner_text()
    assert "(0.44, 0.44, 0.11)" in told
    assert "straight towards the corner △" in told
    np.testing.assert_allclose(9 * np.array(SoftmaxExplorer().compute()["softmax"]), [4, 4, 1], rtol=1e-12)
    np.testing.assert_allclose(7 * np.array(SoftmaxExplorer().compute()["start"]), [4, 2, 1], rtol=1e-12)


def test_softmax_explorer_nudges_one_score_all_scores_and_along_an_axis(show):
    page = show(make("softmax"))
    explorer = mounted(page)
    explorer.get_by_role("button", name="start here").click()
    assert "moved" not in status(explorer)
    explorer.get_by_role("button", name="raise △").click()  # exponentials 2, 4, 1/2
    assert (
        "The weights are (0.31, 0.62, 0.08). Only the score of △ has moved, and the weights go straight towards"
        in status(explorer)
    )
    explorer.get_by_role("button", name="raise all").click()
    assert "All scores have moved alike, and the weights stay where they were." in status(explorer)
    assert "(0.69, 0.69, 0.69), the weights by 0.00" in status(explorer)
    assert "Log-sum-exp has risen by 0.693" in status(explorer)
    for _ in range(4):  # past the end of the slider: softmax does not see what is taken off all three
        explorer.get_by_role("button", name="raise △").click()
        assert "(0.00, 0.69, 0.00)" in status(explorer)
    explorer.get_by_role("button", name="longer axis").click()
    assert "by 0.00 " not in status(explorer)
    assert page.complaints == []


def test_softmax_explorer_drags_a_score_by_its_bar(show):
    page = show(make("softmax"))
    explorer = mounted(page)
    bar = explorer.get_by_role("button", name="Score of class 3")
    before = explorer.get_by_role("slider", name="score 3").input_value()
    for key, sign in (("ArrowUp", 1), ("ArrowRight", 1), ("ArrowDown", -1), ("ArrowLeft", -1)):
        bar.press(key)
        after = explorer.get_by_role("slider", name="score 3").input_value()
        assert sign * (float(after) - float(before)) > 0.1
        before = after
    box, _ = drag(page, bar, 40, -30)
    moved = bar.bounding_box()
    assert abs(moved["x"] - box["x"]) < 1  # bars go up and down only
    assert abs(moved["y"] - box["y"] + 30) < 3


def attention_again(tokens, weights, softness, axis):
    """Attention and cross-entropy as the definitions have them, of tensors."""
    labels = (1 - softness) * torch.eye(3, dtype=torch.float64) + softness / 3
    logits, dim = tokens @ weights.T, {"class": 1, "sequence": 0}[axis]
    return logits.softmax(dim), -(labels * logits.log_softmax(dim)).sum()


def stepped(tokens, weights, softness, axis, steps):
    """Tokens and cross-entropy after some steps, the gradient by differentiation."""
    tokens, weights = (torch.tensor(value, dtype=torch.float64) for value in (tokens, weights))
    for _ in range(steps):
        tokens = tokens.requires_grad_()
        tokens = (tokens - torch.autograd.grad(attention_again(tokens, weights, softness, axis)[1], tokens)[0]).detach()
    return tokens, *attention_again(tokens, weights, softness, axis)


def attention_cells(explorer):
    return explorer.locator("svg").nth(1).locator(".ao-cell").all_text_contents()


def test_attention_by_hand_is_a_matrix_of_fractions():
    by_class, by_token = (AttentionFieldExplorer(axis=axis).compute() for axis in ("class", "sequence"))
    np.testing.assert_allclose(7 * np.array(by_class["attention"]), [[4, 2, 1], [7 / 3] * 3, [2, 4, 1]], rtol=1e-12)
    np.testing.assert_allclose(7 * np.array(by_class["output"]), [[3, 1], [0, 0], [1, 3]], atol=1e-12)
    np.testing.assert_allclose(4 * np.array(by_token["attention"]), [[2, 1, 1], [1, 1, 2], [1, 2, 1]], rtol=1e-12)


def test_attention_field_shows_its_numbers_on_both_axes(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    start = AttentionFieldExplorer().state()
    for label, axis in (("tokens", "sequence"), ("classes", "class")):
        explorer.get_by_role("radio", name=label).check()
        for steps in (0, 1, 7):
            explorer.get_by_role("slider", name="steps").fill(str(steps))
            tokens, attention, loss = stepped(start["tokens"], start["weights"], 0, axis, steps)
            before = {0: "Before the first step", 1: "After 1 step", 7: "After 7 steps"}[steps]
            where = f"{before} token 3 is at {shown_pair(tokens[2].tolist())} and the cross-entropy is {loss:.3f}."
            assert status(explorer).startswith(where)
            assert attention_cells(explorer) == [f"{value:.2f}" for value in attention.flatten()]
            row = ", ".join(f"{value:.2f}" for value in attention[2])
            assert (f"Attention of token 3 over the classes: {row};" in status(explorer)) == (axis == "class")
            # over tokens the row of a token need not sum to one
            assert (f"Share of each class's attention that falls on token 3: {row};" in status(explorer)) == (
                axis != "class"
            )
            totals = explorer.locator("svg").nth(1).get_by_text(re.compile("^sum "))
            bold = totals.evaluate_all(
                "all => all.filter((one) => getComputedStyle(one).fontWeight === '700').map((one) => one.textContent)"
            )
            assert bold == ["sum 1.00"] * 3
            assert totals.count() == 6
    explorer.get_by_role("radio", name="2").check()
    assert "Attention of token 2 over" in status(explorer)
    assert page.complaints == []


def test_moving_one_token_moves_the_others_rows_only_on_the_sequence_axis(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    for label, coupled in (("classes", False), ("tokens", True)):
        explorer.get_by_role("radio", name=label).check()
        explorer.get_by_role("slider", name="first feature at the start").fill("-0.9")
        before = attention_cells(explorer)
        explorer.get_by_role("slider", name="first feature at the start").fill("0.6")
        changed = [a != b for a, b in zip(before, attention_cells(explorer), strict=True)]
        assert any(changed[6:])  # the row of token 3
        assert any(changed[:6]) == coupled


def test_steps_are_taken_by_button_and_run_and_go_on_from_what_is_moved(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    for steps in ("1 step", "2 steps"):
        explorer.get_by_role("button", name="take a step").click()
        assert f"After {steps} token" in status(explorer)
    explorer.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('After 5 steps')")
    explorer.get_by_role("button", name="pause").click()
    steps = int(explorer.get_by_role("slider", name="steps").input_value())
    explorer.get_by_role("slider", name="first feature at the start").fill("-1.5")
    state = AttentionFieldExplorer().state()
    tokens, _, loss = stepped([*state["tokens"][:2], [-1.5, state["tokens"][2][1]]], state["weights"], 0, "class", steps)
    assert f"After {steps} steps token 3 is at {shown_pair(tokens[2].tolist())}" in status(explorer)
    assert f"the cross-entropy is {loss:.3f}" in status(explorer)
    explorer.get_by_role("slider", name="steps").press("End")
    assert explorer.get_by_role("button", name="take a step").is_disabled()
    assert page.complaints == []


@pytest.mark.parametrize("axis", ["class", "sequence"])
@pytest.mark.parametrize("softness", [0.0, 0.02, 0.3, 1.0])
def test_the_zero_of_the_field_is_one_and_is_missing_only_where_there_is_none(axis, softness):
    for seed in range(40):
        numbers = np.random.default_rng(seed)
        weights, tokens = numbers.uniform(-1.5, 1.5, (3, 2)), numbers.uniform(-3, 3, (3, 2))
        if seed % 4 == 1:
            weights[1] = 0.3 * weights[0] + 0.7 * weights[2]  # between the others
        if seed % 4 == 2:
            weights[1] = 0.6 * weights[0] + 0.7 * weights[2]  # in their cone
        if seed % 4 == 3:
            weights = weights.round()
        explorer = AttentionFieldExplorer(
            weights=weights.tolist(), tokens=tokens.tolist(), axis=axis, softness=softness, selected=seed % 3, steps=seed % 2
        )
        found, s = explorer.compute(), explorer.selected
        theta, label = torch.tensor(weights), ((1 - softness) * torch.eye(3, dtype=torch.float64) + softness / 3)[s]
        if axis == "class":
            exists = stationary_margin(theta, label[None], "class") > 0
        else:  # the largest t for which some p in [t, 1 - t] has pθ = label θ
            sides = np.vstack([np.hstack([sign * np.eye(3), np.ones((3, 1))]) for sign in (-1, 1)])
            equations = np.hstack([weights.T, np.zeros((2, 1))])
            program = linprog([0, 0, 0, -1], sides, [0] * 3 + [1] * 3, equations, label.numpy() @ weights, (None, None))
            exists = -program.fun > 1e-7
        if found["zero"] is None:
            far = exists and np.linalg.svd(weights - weights.mean(0))[1].min() < 0.5  # flat triangles have far ones
            assert far or not exists
            continue
        assert exists
        now = torch.tensor(found["path"][-1], dtype=torch.float64)
        now[s] = torch.tensor(found["zero"], dtype=torch.float64)
        labels = (1 - softness) * torch.eye(3, dtype=torch.float64) + softness / 3
        assert linear_gradient(now, theta, labels, axis)[s].norm() < 1e-9
        others = [c for c in range(3) if c != s]
        if axis == "class" and softness and abs(np.linalg.det(weights[others] - weights[s])) > 1e-6:  # P = C: two equations
            logits = np.log(label[others].numpy() / label[s].item())
            np.testing.assert_allclose(found["zero"], np.linalg.solve(weights[others] - weights[s], logits), 1e-6, 1e-9)


def test_attention_field_marks_the_zero_and_says_where_there_is_none(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    assert "no point lets it rest: it moves off to infinity, ever more slowly." in status(explorer)
    assert explorer.locator(".ao-zero").count() == explorer.get_by_text("here it would rest").count() == 0
    explorer.get_by_role("slider", name="label softness").fill("0.1")
    explorer.get_by_role("radio", name="1").check()
    zero = np.linalg.solve([[-1, 1], [-2, -1]], [np.log(1 / 28)] * 2)  # the logits of the label (28, 1, 1)/30
    assert f"it would rest at {shown_pair(zero)}." in status(explorer)
    assert explorer.locator(".ao-zero").count() == 2
    assert explorer.get_by_text("here it would rest").is_visible()
    sums = ("average under its belief", "average under its label"), ("sum by its shares", "sum by its label")
    for axis, labels in zip(("classes", "tokens"), sums, strict=True):
        explorer.get_by_role("radio", name=axis).check()
        assert [explorer.get_by_text(label).count() for label in (*labels, *sums[axis == "classes"])] == [1, 1, 0, 0]
    weights = "weights:1,0.001,1,0,1,-0.001"  # all but equal: the zero is far
    explorer = mounted(show(make("attention_field"), hash=f"#attention_field=softness:0.1;{weights}"))
    assert "it would rest only farther out than 50." in status(explorer)
    explorer = mounted(show(make("attention_field"), hash="#attention_field=selected:1;weights:1,0,0.5,0.5,0,1"))
    assert "it would rest at (" in status(explorer)  # one-hot, but between the others
    assert page.complaints == []


def test_tour_of_the_attention_field_says_what_is_so(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    explorer.get_by_role("button", name="tour").click()
    start = attention_cells(explorer)
    assert "its attention is (2, 4, 1)/7" in explorer.locator(".ao-tour").inner_text()
    assert start[6:] == [f"{value / 7:.2f}" for value in (2, 4, 1)]
    explorer.get_by_role("button", name="next").click()
    assert "rows 2 and 3 are what they were" in explorer.locator(".ao-tour").inner_text()
    assert attention_cells(explorer)[3:] == start[3:]
    assert attention_cells(explorer)[:3] != start[:3]
    explorer.get_by_role("button", name="next").click()
    moved = attention_cells(explorer)
    explorer.get_by_role("slider", name="first feature at the start").press("ArrowLeft")
    assert all(moved[row : row + 3] != attention_cells(explorer)[row : row + 3] for row in (0, 3, 6))
    explorer.get_by_role("button", name="next").click()
    assert "step 20: 0.0645" in explorer.locator(".ao-tour").inner_text()
    state = AttentionFieldExplorer().state()
    at20, at40 = (stepped(state["tokens"], state["weights"], 0, "class", steps)[2] for steps in (20, 40))
    assert f"{at20:.4f}" == "0.0645"
    assert at40 / at20 == pytest.approx(0.5, abs=0.02)
    explorer.get_by_role("button", name="next").click()
    assert "(0.93, 0.03, 0.03)" in explorer.locator(".ao-tour").inner_text()
    tokens, *_ = stepped(state["tokens"], state["weights"], 0.1, "class", 400)
    assert f"it would rest at {shown_pair(tokens[0].tolist())}." in status(explorer)
    assert page.complaints == []


def drag_by_touch(page, handle, right, down, held=lambda: None):
    """Drag with a finger, slowly; the page must not take the movement for its own. `held` looks before the release."""
    handle.scroll_into_view_if_needed()
    page.evaluate("window.cancelled = 0; addEventListener('pointercancel', () => { window.cancelled += 1; }, true);")
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
    assert page.evaluate("window.cancelled") == 0
    assert page.evaluate("[scrollX, scrollY]") == scrolled


def test_weights_and_tokens_are_moved_by_a_finger(show):
    page = show(make("attention_field"), has_touch=True, width=390)
    explorer = mounted(page)
    for name in ("Token 1", "Weight of class 3", "Weight of class 2"):
        before = status(explorer)
        drag_by_touch(page, explorer.get_by_role("button", name=name), 30, 25)
        assert status(explorer) != before
    assert_finite(explorer)
    assert page.complaints == []


def quadratic_again(z, theta, labels):
    """Cross-entropy, gradient by differentiation, and Corollary 2 of the paper, of two tokens with one feature."""
    C = torch.tensor(
        {
            "identity": [[1, 0], [0, 1]],
            "exchange": [[0, 1], [1, 0]],
            "first": [[1, 1], [0, 0]],
            "opposed": [[6 / 8, 3 / 8], [2 / 8, 5 / 8]],
        }[labels]
    ).double()
    Z = torch.tensor(z, dtype=torch.float64)[:, None].requires_grad_()
    logits = theta * Z @ Z.T
    loss = -(C * logits.log_softmax(0)).sum()
    (gradient,) = torch.autograd.grad(loss, Z)
    paper = theta * (2 * logits.softmax(0) - C - C.T) @ Z
    return loss.item(), gradient[:, 0].numpy(), paper[:, 0].detach().numpy()


def ends_again(z, theta, labels):
    """The cross-entropy at the start, and at time 20 along minus the gradient and minus the paper's formula."""
    flows = [
        solve_ivp(lambda _, z, which=which: -quadratic_again(z, theta, labels)[which], (0, 20), z, rtol=1e-7, atol=1e-9)
        for which in (1, 2)
    ]
    return [quadratic_again(z, theta, labels)[0], *(quadratic_again(flow.y[:, -1], theta, labels)[0] for flow in flows)]


@pytest.mark.parametrize("guessed", ["falls", "rises", "stays as it is"])
def test_quadratic_field_asks_first_and_then_says_what_the_papers_formula_does(guessed, show):
    page = show(make("quadratic_field"))
    explorer = mounted(page, asking=True)
    question = "From the point, follow the paper's formula downhill. What does the cross-entropy do?"
    assert explorer.get_by_text(question).is_visible()
    assert explorer.locator(".ao-uphill, polyline").count() == 0  # nothing gives the answer away
    explorer.get_by_role("button", name=guessed, exact=True).click()
    start, gradient, paper = (f"{value:.3f}" for value in ends_again((2.0, 0.25), 1, "identity"))
    assert (start, gradient, paper) == ("0.965", "0.002", "1.386")
    told = f"It rises, from {start} to {paper} by time 20; along minus the gradient it falls, to {gradient}."
    assert explorer.get_by_role("note").inner_text() == f"You said that it {guessed}. {told}"
    assert explorer.locator(".ao-uphill").count() == 1
    assert page.complaints == []


@pytest.mark.parametrize(
    ("point", "theta", "labels"),
    [
        ((2.0, 0.25), 1.0, "identity"),
        ((0.5, -2.0), 1.0, "identity"),
        ((2.0, 0.25), -0.6, "first"),
        ((-1.0, 2.0), 1.5, "exchange"),
        ((-2.5, 2.9), -1.0, "exchange"),
        ((1.0, 0.3), 1.2, "first"),
        ((1.5, 1.5), 1.0, "identity"),
        ((0.0, 0.0), 1.0, "first"),
        ((2.0, 1.0), 0.0, "identity"),
        ((-0.5, 1.0), 0.7, "opposed"),
    ],
)
def test_quadratic_field_says_where_both_formulas_lead(point, theta, labels, show):
    hash = f"#quadratic_field=point:{point[0]},{point[1]};theta:{theta};labels:{labels}"
    page = show(make("quadratic_field"), hash=hash)
    explorer = mounted(page)
    loss, gradient, paper = quadratic_again(point, theta, labels)
    said = status(explorer)
    assert said.startswith(f"At {shown_pair(point)} the cross-entropy is {loss:.3f}; ")
    if min(np.linalg.norm(gradient), np.linalg.norm(paper)) > 1e-9:
        cosine = gradient @ paper / np.linalg.norm(gradient) / np.linalg.norm(paper)
        assert f"have the cosine {shown_number(cosine, 3)}" in said
        assert ("a small step against the formula leads uphill" in said) == (cosine < 0)
        x, y = 42 + 304 * (1 + point[0] / 3) / 2, 24 + 304 * (1 - point[1] / 3) / 2
        shaded = "(path, [x, y]) => path.isPointInFill(new DOMPoint(x, y))"
        assert explorer.locator(".ao-uphill").evaluate(shaded, [x, y]) == (cosine < 0)
    else:
        assert max(np.linalg.norm(gradient), np.linalg.norm(paper)) < 1e-9
        assert "gradient and the paper's formula vanish." in said
    _, along_gradient, along_paper = ends_again(point, theta, labels)
    ends = f"{along_gradient:.3f} along minus the gradient and {along_paper:.3f} along minus the paper's formula."
    assert f"By time 20 the cross-entropy is {ends}" in said
    assert_finite(explorer)
    assert page.complaints == []


def test_tour_of_the_quadratic_field_says_what_is_so(show):
    page = show(make("quadratic_field"))
    explorer = mounted(page)
    explorer.get_by_role("button", name="tour").click()
    tour = explorer.locator(".ao-tour")
    assert "falls from 0.965 to 0.002" in tour.inner_text()
    assert "2 log 2 = 1.386" in tour.inner_text()
    explorer.get_by_role("button", name="next").click()
    start, *ends = ends_again((0.5, -2.0), 1, "identity")
    assert max(ends) < start
    _, gradient, paper = quadratic_again((0.5, -2.0), 1, "identity")
    assert abs(paper.sum()) < 1e-12 < abs(gradient.sum())
    explorer.get_by_role("button", name="next").click()
    _, gradient, paper = quadratic_again((1.25, 1.15), 1, "identity")
    assert (
        f"cosine {shown_number(gradient @ paper / np.linalg.norm(gradient) / np.linalg.norm(paper), 3)}:"
        in tour.inner_text()
    )
    assert -gradient @ [1, -1] > 0 > -paper @ [1, -1]  # away from the diagonal, and to it
    assert "cosine −0.994" in status(explorer)
    explorer.get_by_role("button", name="next").click()
    _, gradient, paper = quadratic_again((1.0, 0.0), np.log(3), "opposed")
    np.testing.assert_allclose(gradient, np.log(3) * np.array([0, 1 / 8]), atol=1e-12)
    np.testing.assert_allclose(paper, -gradient, atol=1e-12)
    assert "The gradient is log 3 · (0, 1/8), the paper's formula log 3 · (0, −1/8)" in tour.inner_text()
    assert "have the cosine −1.000" in status(explorer)
    assert "At (1.00, 0.00)" in status(explorer)
    assert page.complaints == []


def test_the_point_of_the_quadratic_field_is_moved_by_keys_mouse_and_finger(show):
    page = show(make("quadratic_field"), has_touch=True, width=390)
    explorer = mounted(page)
    handle = explorer.get_by_role("button", name="Start")
    handle.press("ArrowLeft")
    assert status(explorer).startswith("At (1.95, 0.25)")
    handle.press("ArrowUp")
    assert status(explorer).startswith("At (1.95, 0.30)")
    before = status(explorer)
    drag(page, handle, -40, 50)
    assert status(explorer) != before
    before = status(explorer)
    drag_by_touch(page, handle, -40, 30)
    assert status(explorer) != before
    drag_by_touch(page, handle, 3000, -2000)
    assert status(explorer).startswith("At (3.00, 3.00)")
    assert_finite(explorer)
    assert page.complaints == []


def test_feature_flow_asks_first_and_says_how_far_tokens_are(show):
    page = show(make("feature_flow"))
    explorer = page.locator("div.attnopt-explorer[data-mounted]")
    explorer.get_by_role("button", name="all come to rest").click()
    assert "No: all leave for infinity" in explorer.locator(".ao-guessed").inner_text()
    distances = np.linalg.norm(FeatureFlowExplorer().compute()["now"], axis=1)
    for sign, value in zip("●▲■", distances, strict=True):
        assert f"{sign} {value:.2f}" in status(explorer)
    assert "none comes to rest" in status(explorer)
    assert "● 1.72, ▲ 1.72, ■ 1.09" in status(explorer)  # log 10 over the margins 3/√5, 3/√5 and 3/√2
    explorer.get_by_role("slider", name="label softness").press("End")
    assert "at the distance ● 0.00, ▲ 0.00, ■ 0.00" in status(explorer)
    explorer.get_by_role("radio", name="cross-entropy").check()
    assert "infimum 1.099" in explorer.inner_text()
    assert page.complaints == []


def test_feature_flow_says_which_pairs_climb(show):
    page = show(make("feature_flow"))
    explorer = mounted(page)
    explorer.get_by_role("radio", name="quadratic").check()
    pairs = {"model": "quadratic", "starts": [[2.5, 2.3], [2.0, 0.25], [-0.5, -1.2]]}
    for label, formula in (("the gradient", "true"), ("the paper's formula", "paper")):
        explorer.get_by_role("radio", name=label).check()
        for sign, value in zip("●▲■", FeatureFlowExplorer(**pairs, formula=formula).compute()["now_losses"], strict=True):
            assert f"{sign} {value:.3f}" in status(explorer)
        assert ("risen from ▲" in status(explorer)) == (formula == "paper")
    before = status(explorer)
    explorer.get_by_role("radio", name="exchanged").check()
    assert status(explorer) != before
    assert "infimum 1.386" in status(explorer)
    explorer.get_by_role("radio", name="3").check()
    assert "■ at (−0.50, −1.20)" in status(explorer)
    assert page.complaints == []


def test_layers_show_their_numbers_and_the_first_that_climbs(show):
    page = show(make("layers", scale=1.0))
    explorer = mounted(page)
    start = LayersExplorer(scale=1.0).state()
    for model in ("linear", "quadratic"):
        explorer.get_by_role("radio", name=model).check()
        for label, scheme in (("Euler", "euler"), ("the paper's", "printed"), ("Lie", "lie"), ("Strang", "strang")):
            explorer.get_by_role("radio", name=label, exact=True).check()
            losses = LayersExplorer(**start | {"model": model, "scheme": scheme}).compute()["losses"]
            assert status(explorer).startswith(f"{label}, 12 layers")
            assert f"cross-entropy {losses[-1]:.3f}; exact" in status(explorer)
            rises = [layer for layer in range(1, 13) if losses[layer] > losses[layer - 1] + 1e-9 * (1 + losses[layer])]
            assert (f"Layer {rises[0]} is the first" if rises else "No layer raised") in status(explorer)
    for name in ("step", "scale of θ", "layers"):
        explorer.get_by_role("slider", name=name).press("End")
    assert "beyond a million" in status(explorer)
    assert "● far away" in status(explorer)
    assert_finite(explorer)
    assert page.complaints == []


def test_layers_ask_first_where_long_steps_lead(show):
    page = show(make("layers"))
    explorer = page.locator("div.attnopt-explorer[data-mounted]")
    assert "layers: ?" in explorer.inner_text()
    explorer.get_by_role("button", name="come to rest as well").click()
    assert "No: they jump to and fro" in explorer.locator(".ao-guessed").inner_text()
    assert "above 4, so a layer may climb" in status(explorer)
    explorer.get_by_role("slider", name="scale of θ").press("Home")
    assert "at most 4, so no layer can climb" in status(explorer)
    assert "No layer raised the cross-entropy." in status(explorer)
    explorer.get_by_role("radio", name="error by step").check()
    assert "order 2" in explorer.inner_text()
    assert page.complaints == []


def test_one_layer_says_which_preconditioner_is_ahead(show):
    page = show(make("one_layer"))
    explorer = mounted(page)
    for key, n in (("Home", 1), ("End", 1000)):
        explorer.get_by_role("slider", name="examples n").press(key)
        losses = OneLayerExplorer(examples=n).compute()["losses"]
        assert ("Σ⁻¹ beats I" if losses["newton"] < losses["plain"] else "I beats Σ⁻¹") in status(explorer)
        assert f"{losses['optimal']:.3g} for the optimal layer" in status(explorer)
    for name in ("eigenvalue 1", "eigenvalue 2", "eigenvalue 3"):
        explorer.get_by_role("slider", name=name).press("Home")
    assert "Σ⁻¹ and I do as well" in status(explorer)  # Σ = 0.01 I
    assert_finite(explorer)
    assert page.complaints == []


def test_one_layer_calls_no_winner_that_its_digits_do_not_show(show):
    page = show(make("one_layer", examples=19))
    losses = OneLayerExplorer(examples=19).compute()["losses"]
    assert f"{losses['newton']:.3g}" == f"{losses['plain']:.3g}" == "0.579"
    assert losses["newton"] != pytest.approx(losses["plain"], rel=1e-6)
    said = status(mounted(page))
    assert "0.579 for the best multiple of Σ⁻¹, 0.579 for that of I: these two are equal to the digits shown." in said
    assert "beats" not in said
    assert page.complaints == []


def shown_loss(value):
    return "0.000" if value < 0.0005 else f"{value:.3f}" if value < 1 else f"{value:.4g}"


def one_step_again(*, weights, query, examples, step, spread, covariates):
    """The layer of the package on the prompt, and a gradient step by differentiation, without the explorer's formulas."""
    X, w_star, x = (torch.tensor(value, dtype=torch.float64) for value in (covariates, weights, query))
    assert len(X) == examples
    tokens = torch.cat([X, (X @ w_star)[:, None]], 1)
    prompt = torch.cat([tokens, torch.cat([x, x.new_zeros(1)])[None]])[None]
    P, Q = torch.zeros(2, 1, 3, 3, dtype=torch.float64)
    P[0, 2, 2] = 1

    def layer(A):
        Q[0, :2, :2] = A
        return -linear_transformer(prompt, P, Q)[-1, 0, -1, -1].item()

    def loss(w):
        return ((X @ w - X @ w_star) ** 2).mean() / 2

    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(w), w)
    best = one_layer_optimum(torch.diag(torch.tensor([1, spread], dtype=torch.float64)), examples)
    trained = best @ slope
    assert layer(best) == pytest.approx((trained @ x).item(), abs=1e-12)
    return {
        "reached": (-step * slope).tolist(),
        "trained": trained.tolist(),
        "prediction": layer(-step * torch.eye(2, dtype=torch.float64)),
        "of_trained": layer(best),
        "label": (w_star @ x).item(),
        "losses": [loss(v).item() for v in (torch.zeros_like(slope), -step * slope, trained)],
        "curvature": torch.linalg.matrix_norm(torch.autograd.functional.hessian(loss, slope), 2).item(),
    }


ONE_STEP_STATES = [
    {},
    {"examples": 1},
    {"step": 2.5, "spread": 1.0, "examples": 30},
    {"prompt": 7, "examples": 2, "weights": [-1.5, 0.25], "query": [2.0, 2.5], "spread": 0.05, "step": 1.7},
    {"step": 0.0},
    {"weights": [0.0, 0.0]},
]


@pytest.mark.parametrize("traits", ONE_STEP_STATES)
def test_one_step_says_what_the_layer_predicts_and_that_it_is_a_gradient_step(traits, show):
    explorer, page = OneStepExplorer(**traits), show(make("one_step", **traits))
    known = {name: value for name, value in explorer.state().items() if name != "prompt"}
    numbers = one_step_again(**known, covariates=explorer.compute()["covariates"])
    said, (start, reached, trained) = status(mounted(page)), numbers["losses"]
    assert numbers["prediction"] == pytest.approx(np.dot(numbers["reached"], explorer.query), abs=1e-12)
    predicted = shown_number(numbers["prediction"])
    assert said.startswith(f"The layer predicts {predicted} for the query; the label is {shown_number(numbers['label'])}. ")
    assert f"w₁ = {shown_pair(numbers['reached'])}" in said
    assert ("outside the picture" in said) == (max(map(abs, numbers["reached"])) > 3)
    if shown_loss(start) == shown_loss(reached):
        assert f"leaves the loss on the {explorer.examples} examples at {shown_loss(start)}. " in said
    else:
        assert f"from {shown_loss(start)} to {shown_loss(reached)}. " in said
        assert ("lowers" if reached < start else "raises") in said
    limit = 2 / numbers["curvature"]
    assert (f"Beyond {limit:.2f}, two over the largest curvature" in said) == (explorer.step > limit)
    assert f"comes to {shown_loss(trained)} and predicts {shown_number(numbers['of_trained'])}. " in said
    assert ("Least squares would find w⋆" in said) == (explorer.examples > 1)
    assert_finite(mounted(page))
    assert page.complaints == []


def test_one_step_draws_covariates_of_its_distribution():
    X = np.concatenate([OneStepExplorer(prompt=k, examples=30, spread=1.0).compute()["covariates"] for k in range(10)])
    assert len(np.unique(X)) == 600
    assert np.abs(X.mean(0)).max() < 3 / 300**0.5
    assert np.abs(X.T @ X / 300 - np.eye(2)).max() < 0.25  # three standard deviations are 3 √(2/300)
    assert np.mean(np.abs(X) < 1) == pytest.approx(0.683, abs=0.06)
    narrow = OneStepExplorer(spread=0.25).compute()["covariates"]
    np.testing.assert_allclose(narrow, X[:8] * [1, 0.5], rtol=1e-12)


def test_one_step_asks_where_the_step_lands_and_measures_the_guess(show):
    page = show(make("one_step"))
    explorer = mounted(page, asking=True)
    assert explorer.locator(".ao-readout").text_content() == ""
    weights = explorer.locator("svg").nth(1)
    assert "w₁" not in weights.text_content()
    assert "predict" not in explorer.locator("svg").first.text_content()
    point = explorer.get_by_role("button", name="Your guess")
    for _ in range(4):
        point.press("ArrowRight")
    explorer.get_by_role("button", name="that is my guess").click()
    said = explorer.get_by_role("note").inner_text()
    numbers = OneStepExplorer().compute()
    reached, w_star = np.array(numbers["reached"]), np.array(OneStepExplorer().weights)
    marked = np.array([-1 + 16 / (268 / 6), -1])
    angle = np.degrees(np.arccos(reached @ w_star / np.linalg.norm(reached) / np.linalg.norm(w_star)))
    assert f"You marked {shown_pair(marked)}, {np.linalg.norm(marked - reached):.2f} away" in said
    assert f"w₁ = {shown_pair(reached)}" in said
    assert f"{angle:.0f}° off the way to w⋆ = {shown_pair(w_star)}." in said
    assert "w₁" in weights.text_content()
    assert page.complaints == []


@pytest.mark.parametrize("context", [0.0, 0.5, 1.0, 1.6, 2.0])
@pytest.mark.parametrize("query", [[1.2, 1.2], [-0.5, 1.0]])
def test_one_picture_says_attention_in_its_two_parts(context, query, show):
    traits = {"context": context, "query": query, "ones": 4}
    numbers, page = OnePictureExplorer(**traits).compute(), show(make("one_picture", **traits))
    said = status(mounted(page))
    parts = {name: shown_pair(numbers[name]) for name in ("attention", "between", "within")}
    assert said.startswith(
        f"Attention is {parts['attention']}: {parts['between']} between the clusters and {parts['within']} within them; "
        f"K is {shown_number(numbers['potential'])}. "
    )
    share = ", ".join(f"{mark} {shown_number(value)}" for mark, value in zip("●▲■", numbers["weights"], strict=True))
    assert (share in said) == (context != 1 and not (context == 2 and query == [1.2, 1.2]))
    assert ("Σq" in said) == (context == 1)
    assert ("their counts decide: 1 to 4" in said) == (context == 2 and query == [1.2, 1.2])
    assert page.complaints == []


def test_one_picture_is_asked_first_and_its_tour_says_what_is_so(show):
    page = show(make("one_picture"))
    explorer = mounted(page, asking=True)
    assert "attention is the gradient of a function K: ?" in explorer.locator("svg").nth(1).text_content()
    explorer.get_by_role("button", name="linear", exact=True).click()
    assert "You said linear. So it is. Linear: press II." in explorer.get_by_role("note").inner_text()
    steps = list(toured(explorer, 5))
    for (told, said), context, ones in zip(steps, (0.0, 0.5, 1.0, 2.0, 2.0), (2, 2, 2, 2, 4), strict=True):
        found = shown_pair(OnePictureExplorer(context=context, ones=ones).compute()["attention"])
        assert f"Attention is {found}" in said
        assert context < 2 or f"attention is {found}" in told
    explorer.get_by_role("button", name="end").click()
    explorer.get_by_role("button", name="II, a loose cloud").click()
    assert "Σq" in status(explorer)
    explorer.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('their counts decide')")
    assert page.complaints == []


def oracle_again(*, oracle, reliability, temperature, truth, step, tokens):
    """The explorer's world by sums over tokens, classes and answers, one at a time."""
    theta = np.array([[1.0, 0], [0, 1], [-1, -1]])
    found = dict.fromkeys(("label", "value", "off", "trace", "gain", "slope", "square", "limit"), 0.0)
    shares = lambda x: np.exp(x) / np.exp(x).sum()  # noqa: E731
    for z in np.array(tokens):
        s, p = shares(theta @ z), shares(theta @ z / truth)
        chance = {
            "witness": lambda o, c: (1 - reliability) / 3 + reliability * (o == c),
            "hint": lambda o, c: (1 + reliability) / 2 if (o == 1) == (c == 2) else (1 - reliability) / 2,
            "own": lambda o, c: 1.0,
        }[oracle]
        found["off"] += np.square((s - p) @ theta).sum() / 3
        for c in range(3):
            found["label"] += p[c] * np.square(s @ theta - theta[c]).sum() / 3
            found["trace"] += s[c] * np.square(s @ theta - theta[c]).sum() / 3
        for o in range({"witness": 3, "hint": 2, "own": 1}[oracle]):
            joint = np.array([p[c] * chance(o, c) for c in range(3)])
            honest = joint / joint.sum()
            labels = shares(theta @ z / temperature) if oracle == "own" else honest
            move = (s - labels) @ theta
            after = shares(theta @ (z - step * move))
            for c in range(3):
                found["gain"] += joint[c] / 3 * np.log(after[c] / s[c])
                found["limit"] += joint[c] / 3 * np.log(labels[c] / s[c]) if joint[c] else 0
            found["value"] += joint.sum() / 3 * np.square((s - honest) @ theta).sum()
            found["slope"] += joint.sum() / 3 * ((s - honest) @ theta @ move)
            found["square"] += joint.sum() / 3 * move @ move
    return found


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"oracle": "hint", "reliability": 1.0, "step": 2.5},
        {"oracle": "own", "temperature": 0.5},
        {"oracle": "own", "temperature": 2.0, "truth": 2.0, "step": 1.5},
        {"oracle": "witness", "reliability": 1.0, "truth": 0.5, "tokens": [[1.5, -2.0], [0.2, 0.3], [-1.0, 1.0]]},
    ],
)
def test_an_oracle_s_value_is_said_with_its_parts_and_the_gain_with_its_bounds(traits, show):
    explorer, page = OracleValueExplorer(**traits), show(make("oracle_value", **traits))
    known, said = oracle_again(**explorer.state()), status(mounted(page))
    number = lambda value: shown_number(value, 3)  # noqa: E731
    calibrated = explorer.truth == 1
    trace = "the trace" if calibrated else f"the trace {number(known['trace'])}: the belief is not calibrated"
    assert f"The label is worth {number(known['label'])}, {trace}. " in said
    own, left = known["value"] - known["off"], known["label"] - known["value"]
    assert f"the oracle has {number(own)}, miscalibration {number(known['off'])}, and {number(left)} is left. " in said
    low, high = (explorer.step * known["slope"] - part * known["square"] * explorer.step**2 for part in (5 / 8, 0))
    assert low - 1e-12 <= known["gain"] <= high + 1e-12
    assert f"{number(low)} and " in said
    assert f"{number(high)}. " in said
    word = "lowers" if known["gain"] > -5e-4 else "raises"
    assert f"{word} the expected cross-entropy by {number(abs(known['gain']))}: " in said
    assert f"The flow gains {number(known['limit'])} in the end" in said
    assert page.complaints == []


@pytest.mark.parametrize("guessed", ["all of it", "nothing"])
def test_an_oracle_s_value_is_asked_first(guessed, show):
    page = show(make("oracle_value"))
    explorer = mounted(page, asking=True)
    assert "what it leaves" not in explorer.locator("svg").nth(1).text_content()
    explorer.get_by_role("button", name=guessed).click()
    said = explorer.get_by_role("note").inner_text()
    assert said.startswith(f"You said {guessed}. Nothing: ")
    assert f"The true label is worth {oracle_again(**OracleValueExplorer().state())['label']:.3f}" in said
    assert page.complaints == []


def test_the_tour_of_an_oracle_s_value_says_what_is_so(show):
    page = show(make("oracle_value"))
    steps = list(toured(mounted(page), 5))
    states = [
        {"oracle": "own", "temperature": 0.5},
        {"oracle": "hint", "reliability": 1.0},
        {"oracle": "witness", "reliability": 1.0},
        {"oracle": "own", "temperature": 2.0, "truth": 2.0},
        {"oracle": "witness", "reliability": 0.6, "step": 3.0},
    ]
    numbers = [oracle_again(**OracleValueExplorer(**state).state()) for state in states]
    for (_, said), known in zip(steps, numbers, strict=True):
        assert f"The flow gains {shown_number(known['limit'], 3)} in the end" in said
    assert max(OracleValueExplorer(**states[0]).compute()["gains"]) < 1e-12
    assert f"{numbers[1]['value']:.3f} of {numbers[1]['label']:.3f}" in steps[1][0]
    assert numbers[2]["value"] == pytest.approx(numbers[2]["trace"])
    assert numbers[3]["gain"] > 0
    last = OracleValueExplorer(**states[4]).compute()["gains"]
    assert last[-1] < max(last)
    assert page.complaints == []


def spelled(value):
    """A count as the explorer writes it."""
    if value < 1e5:
        return f"{value:,.0f}"
    digits, exponent = f"{value:.1e}".split("e+")
    return f"{digits}·10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(sign)] for sign in str(int(exponent)))


def left_again(knows, k, length, beta, n):
    """What a head leaves, by sums over every word of the k tokens, or by moments over the numbers of equal tokens."""
    if knows == "nothing":
        ways = np.array([math.comb(length, m) for m in range(length + 1)]) / 2**length
        weights = np.exp(beta * np.arange(length + 1))
        weights = weights / (ways @ weights)
        signs = [
            sum((-1) ** a * math.comb(k, a) * math.comb(length - k, length - m - a) for a in range(length - m + 1))
            for m in range(length + 1)
        ]
        strength = np.array(signs) / 2**length @ weights
        number = ways @ weights**2 / strength**2
        return (number - 1) / (n + number - 1), number
    words = np.array(list(itertools.product(range(2), repeat=k)))
    if knows == "sequences":
        return (1 - 0.5**length) ** n, 2**length
    keys = {"positions": words @ (1 << np.arange(k)), "counts": words.sum(1), "parity": words.sum(1) % 2}[knows]
    shares = np.unique(keys, return_counts=True)[1] / 2**k
    return shares @ (1 - shares) ** n, len(shares)


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"knows": "nothing"},
        {"knows": "nothing", "decades": 3.5, "length": 20, "weight": 3, "sharpness": 0.9},
        {"knows": "nothing", "length": 7, "weight": 7, "decades": 1.0},
        {"knows": "positions", "weight": 7, "decades": 2.0},
        {"knows": "counts", "weight": 20, "length": 9, "decades": 0.0},
        {"knows": "parity", "decades": 0.5},
    ],
)
def test_what_one_layer_knows_is_said(traits, show):
    explorer, page = OneLayerKnowsExplorer(**traits), show(make("one_layer_knows", **traits))
    said, n = status(mounted(page)), round(10**explorer.decades)
    k = min(explorer.weight, explorer.length)
    left, number = left_again(explorer.knows, k, explorer.length, explorer.sharpness, n)
    assert f"After {spelled(n)} example{'s' * (n > 1)} {100 * left:.1f} % of the variance are left" in said
    needed = int(re.search(r"A fifth is left after ([\d,]+)", said)[1].replace(",", ""))
    for count, enough in ((needed, True), (needed - 1, False)):
        assert bool(left_again(explorer.knows, k, explorer.length, explorer.sharpness, count)[0] <= 0.2 + 1e-9) is enough
    hypotheses = math.comb(explorer.length, k)
    if explorer.knows in ("nothing", "sequences"):
        assert f"is one of {spelled(hypotheses)}. " in said
        assert f"at least {100 * max(0, 1 - n / hypotheses):.1f} % are" in said
    if explorer.knows == "nothing":
        assert f"has ν = {spelled(number)} at" in said
        line = f"dashed: {spelled(hypotheses)} hypothes{'i' if hypotheses == 1 else 'e'}s"
        assert line in mounted(page).locator("svg").last.text_content()
    else:
        assert f"which makes {spelled(number)} cells; " in said
    bound = "dashed: bound if the rule is unknown" in mounted(page).locator("svg").first.text_content()
    assert bound is (explorer.knows in ("nothing", "sequences"))
    assert page.complaints == []


def test_what_one_layer_knows_is_asked_first(show):
    page = show(make("one_layer_knows"))
    explorer = mounted(page, asking=True)
    assert "how far to the right?" in explorer.locator("svg").first.text_content()
    explorer.get_by_role("button", name="7,000 and 500").click()
    said = explorer.get_by_role("note").inner_text()
    assert said.startswith("You said 7,000 and 500. 6,592 if its scores are sharp, and 7: ")
    assert page.complaints == []


def test_the_tour_of_what_one_layer_knows_says_what_is_so(show):
    page = show(make("one_layer_knows"))
    steps = list(toured(mounted(page), 5))
    assert left_again("sequences", 5, 12, 2.5, 1000)[0] > 0.5
    assert left_again("positions", 5, 12, 2.5, 50)[0] < 0.25
    assert "A fifth is left after 7," in steps[2][1]
    assert "A fifth is left after 3," in steps[3][1]
    assert left_again("nothing", 3, 20, 0.9, 1)[1] / 1140 == pytest.approx(4, abs=0.3)
    assert page.complaints == []


def test_a_finger_moves_the_number_of_examples(show):
    page = show(make("one_layer_knows", knows="counts"), has_touch=True, width=390)
    explorer = mounted(page)
    before = status(explorer)
    box = explorer.locator(".ao-handle").first.bounding_box()
    touch = page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for kind, dx in (("touchStart", 0), ("touchMove", 20), ("touchMove", 40), ("touchEnd", None)):
        points = [] if dx is None else [{"x": x + dx, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert status(explorer) != before
    assert page.complaints == []


def head_again(*, means, axis, query, clusters, **_):
    """The limit over a long context, by quadrature of the tilted clusters."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    u, v = (part.ravel() for part in np.meshgrid(nodes, nodes))
    a, b = axis
    noise = np.stack([a * u - b * v / 2, b * u + a * v / 2], -1)
    points = np.array(means[:clusters])[:, None] + noise
    tilted = np.outer(weights, weights).ravel() * np.exp(points @ query)
    squares = np.outer(weights, weights).ravel() * np.exp(2 * points @ query)
    total = weights.sum() ** 2
    own = tilted[0] @ points[0] / tilted[0].sum()
    everyone = np.einsum("kp,kpf->f", tilted, points) / tilted.sum()
    return {"everyone": everyone, "gradient": everyone - own, "spread": clusters * total * squares.sum() / tilted.sum() ** 2}


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"axis": [0.0, 0.0]},
        {"clusters": 1, "tokens": 2000},
        {"clusters": 2, "query": [-0.5, 1.2], "number": 7},
        {"tokens": 10, "number": 3, "axis": [-0.3, 0.8]},
    ],
)
def test_one_head_says_its_limit_and_what_the_tokens_make_of_it(traits, show):
    explorer, page = OneHeadExplorer(**traits), show(make("one_head", **traits))
    known, found, said = head_again(**explorer.state()), explorer.compute(), status(mounted(page))
    assert f"Attention returns {shown_pair(found['everyone'])}. " in said
    assert f"In a long context it is {shown_pair(known['everyone'])}: " in said
    assert f"Part I's gradient is {shown_pair(known['gradient'])}. " in said
    assert f"Everyone minus the classmates is {shown_pair(found['pull'])}; " in said
    expected = shown_number(explorer.tokens / known["spread"], 1)
    assert f"{explorer.tokens} tokens count like {shown_number(found['count'], 1)} here, {expected} expected;" in said
    assert page.complaints == []


def test_one_head_asks_what_becomes_of_the_arrow(show):
    page = show(make("one_head"))
    explorer = mounted(page, asking=True)
    assert "limit" not in explorer.locator("svg").nth(1).text_content()
    explorer.get_by_role("button", name="it turns").click()
    said = explorer.get_by_role("note").inner_text()
    assert said.startswith("You said it turns. It stays: both ends move by the same")
    step = -head_again(**OneHeadExplorer().state())["gradient"]
    assert shown_pair(step) in said
    wider = OneHeadExplorer(axis=[1.0, 0.7])
    np.testing.assert_allclose(-head_again(**wider.state())["gradient"], step, atol=1e-10)
    assert page.complaints == []


def test_the_tour_of_one_head_says_what_is_so(show):
    page = show(make("one_head"))
    steps = list(toured(mounted(page), 5))
    start = OneHeadExplorer().compute()
    assert f"Part I's gradient is {shown_pair(start['gradient'])}" in steps[3][1]
    assert "Part I's gradient is (0.00, 0.00)" in steps[2][1]
    last = OneHeadExplorer(tokens=2000, query=[2.4, 1.6]).compute()
    assert max(last["count"], last["effective"]) < 100
    assert page.complaints == []


def toured(explorer, steps):
    """What the explorer says at each step of its tour."""
    explorer.get_by_role("button", name="tour").click()
    for step in range(steps):
        assert explorer.get_by_text(f"{step + 1} of {steps}: ").count() == 1
        yield explorer.locator(".ao-tour").inner_text(), status(explorer)
        if step + 1 < steps:
            explorer.get_by_role("button", name="next").click()


def test_the_tour_of_one_step_says_what_is_so(show):
    page = show(make("one_step"))
    one, many, large, unequal, trained = toured(mounted(page), 5)
    states = [
        OneStepExplorer(examples=1),
        OneStepExplorer(examples=30, spread=1.0, step=1.0),
        OneStepExplorer(examples=30, spread=1.0, step=2.5),
        OneStepExplorer(examples=30, spread=0.1, step=1.0),
        OneStepExplorer(examples=30, spread=0.1, step=1.0, weights=[-1.4, 1.6]),
    ]
    numbers = [state.compute() for state in states]
    for (_, said), found in zip((one, many, large, unequal, trained), numbers, strict=True):
        assert f"w₁ = {shown_pair(found['reached'])}" in said
    (u, v), (x, y) = numbers[0]["reached"], numbers[0]["covariates"][0]
    assert u * y == pytest.approx(v * x)  # on the line along x₁
    gap = np.array(numbers[1]["reached"]) - states[1].weights
    assert np.linalg.norm(gap) < 0.2 * np.linalg.norm(states[1].weights)
    assert numbers[2]["losses"]["reached"] > numbers[2]["losses"]["start"]
    assert np.array(numbers[2]["reached"]) @ states[2].weights > np.square(states[2].weights).sum()
    shares = np.array(numbers[3]["reached"]) / states[3].weights
    assert shares[0] > 0.9
    assert shares[1] < 0.15
    assert 2 / numbers[3]["curvatures"][0] < 1 / 0.1  # the second direction's Newton step
    steps = -one_layer_optimum(torch.diag(torch.tensor([1, 0.1], dtype=torch.float64)), 30).diagonal()
    assert "{:.2f} along the first weight and {:.2f} along the second".format(*steps.tolist()) in trained[0]
    assert numbers[4]["losses"]["trained"] < 0.1 * numbers[4]["losses"]["reached"]
    assert page.complaints == []


FORWARD_PASS_STATES = [
    {},
    {"mask": "off"},
    {"layers": 0},
    {"layers": 8, "step": 2.4, "examples": 12, "spread": 1.0, "mask": "off"},
    {"layers": 5, "prompt": 4, "examples": 1, "weights": [-1.5, 0.25], "query": [2.0, 2.5]},
]


def descent_on(X, y, step, layers):
    """Gradient descent from 0 on half the mean of squares over the first n rows, by differentiation."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    path = [w.tolist()]
    for _ in range(layers):
        loss = ((X @ w - y) ** 2).sum() / 2
        w = (w - step * torch.autograd.grad(loss, w)[0]).detach().requires_grad_()
        path.append(w.tolist())
    return np.array(path)


@pytest.mark.parametrize("traits", FORWARD_PASS_STATES)
def test_forward_pass_is_descent_with_the_mask_and_on_the_query_with_label_zero_without(traits, show):
    explorer, page = ForwardPassExplorer(**traits), show(make("forward_pass", **traits))
    n, x, w_star = explorer.examples, np.array(explorer.query), np.array(explorer.weights)
    X = standard_normals(explorer.prompt)[:n] * torch.tensor([1, explorer.spread], dtype=torch.float64).sqrt()
    y = X @ torch.tensor(explorer.weights, dtype=torch.float64)
    if explorer.mask == "off":
        X, y = torch.cat([X, torch.tensor([explorer.query], dtype=torch.float64)]), torch.cat([y, y.new_zeros(1)])
    path = descent_on(X, y, explorer.step / n, 8)
    numbers = explorer.compute()
    np.testing.assert_allclose(numbers["path"], path, rtol=1e-9, atol=1e-9)
    entries = np.array(numbers["labels"])
    np.testing.assert_allclose(entries[:, -1], -path @ x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(entries[:, :n], ((w_star - path) @ X.numpy()[:n].T), rtol=1e-9, atol=1e-9)
    said, k = status(mounted(page)), explorer.layers
    assert f"the prediction is {shown_number(path[k] @ x)}, the label {shown_number(w_star @ x)}. " in said
    assert f"{shown_pair(path[k])}{', outside the picture' if np.abs(path[k]).max() > 3 else ''}. " in said
    assert ("counts as an example whose label is 0" in said) == (explorer.mask == "off")
    assert_finite(mounted(page))
    assert page.complaints == []


def test_forward_pass_asks_where_the_querys_entry_ends(show):
    page = show(make("forward_pass"))
    explorer = mounted(page, asking=True)
    row = explorer.locator("svg").nth(1)
    assert row.locator("circle").count() == 5 * 2 + 1  # five examples before and after one layer, and the legend
    explorer.get_by_role("button", name="at 0").click()
    said = explorer.get_by_role("note").inner_text()
    numbers = ForwardPassExplorer().compute()
    assert said.startswith("At minus its label. ")
    assert f"After 8 layers it is {shown_number(numbers['labels'][8][-1])}, " in said
    assert f"its label is {shown_number(numbers['label'])}: " in said
    assert max(map(abs, numbers["labels"][8][:-1])) < 0.1 * max(map(abs, numbers["labels"][0]))
    assert row.locator("circle").count() > 11
    assert page.complaints == []


def test_the_tour_of_forward_pass_says_what_is_so(show):
    page = show(make("forward_pass"))
    steps = [{"layers": 0}, {"layers": 1}, {"layers": 8}, {"layers": 8, "step": 1.6}, {"layers": 8, "mask": "off"}]
    for (_, said), traits in zip(toured(mounted(page), 5), steps, strict=True):
        numbers = ForwardPassExplorer(**traits).compute()
        assert f"the prediction is {shown_number(-numbers['labels'][traits['layers']][-1])}, " in said
    near, large, bare = (ForwardPassExplorer(**traits).compute() for traits in steps[2:])
    assert abs(near["labels"][8][-1] + near["label"]) < 0.1 * abs(near["label"])
    assert large["losses"][8] > large["losses"][0]
    assert (np.diff(np.sign(np.array(large["labels"])[4:, -1] - large["labels"][8][-1])) != 0).any()
    assert abs(bare["labels"][8][-1]) < 0.9 * abs(bare["label"])
    assert page.complaints == []


@pytest.mark.parametrize("step", [1, 26, 32, 33])
def test_spike_steps_says_what_the_step_did(step, show):
    page = show(make("spike_steps", step=step))
    numbers, said = SpikeStepsExplorer(step=step).compute(), status(mounted(page))
    wrong = numbers["wrong"]
    assert (f"{shown_number(100 * wrong, 1 if wrong < 0.01 else 0)} % are wrong" if wrong else "all are right") in said
    assert f"The step is {shown_number(numbers['step_length'])} learning rates long" in said
    assert f"by {shown_number(numbers['turn'], 1)}° on average, by {shown_number(numbers['largest'], 1)}° at most" in said
    assert f"ξ is {shown_number(numbers['length'])} long on average" in said
    assert_finite(mounted(page))
    assert page.complaints == []


@pytest.mark.parametrize("guessed", ["flip", "turn", "boundaries"])
def test_spike_steps_asks_what_makes_the_loss_jump(guessed, show):
    page = show(make("spike_steps"))
    explorer = mounted(page, asking=True)
    assert "after step 31" in explorer.inner_text()
    assert "length 1 or more" not in explorer.inner_text()
    explorer.get_by_role("button", name=guessed).click()
    said, numbers = explorer.get_by_role("note").inner_text(), SpikeStepsExplorer().compute()
    assert said.startswith("Yes, a few degrees do it." if guessed == "turn" else "A few degrees do it.")
    assert f"by {shown_number(numbers['turn'], 1)}° on average, by {shown_number(numbers['largest'], 1)}° at most" in said
    assert f"the loss would be {shown_number(numbers['layer'], 4)} instead of {shown_number(numbers['loss'])}" in said
    assert numbers["largest"] < 10
    assert 10 * numbers["layer"] < 2 * numbers["far"] < 0.2 * numbers["loss"]
    assert "after step 32" in explorer.inner_text()
    assert page.complaints == []


def test_the_tour_of_spike_steps_says_what_is_so(show):
    page = show(make("spike_steps"))
    quiet, first, off, peak, back = (SpikeStepsExplorer(step=step).compute() for step in (1, 2, 26, 32, 33))
    steps = [said for _, said in toured(mounted(page), 5)]
    for step, said in zip((1, 2, 26, 32, 33), steps, strict=True):
        assert said.startswith(f"After step {step} the loss is ")
    assert quiet["wrong"] == first["wrong"] == back["wrong"] == 0
    assert 1 / 55 < quiet["step_length"] < 1 / 45
    assert np.linalg.norm(quiet["sequence"], axis=1).max() < 1
    assert first["step_length"] > 5 * quiet["step_length"]
    assert off["wrong"] > 0.01
    assert off["step_length"] > 1
    assert 0.09 < peak["wrong"] < 0.11
    assert peak["turn"] < 3
    assert page.complaints == []


def test_a_click_on_the_curves_of_spike_steps_chooses_a_step(show):
    page = show(make("spike_steps"))
    explorer = mounted(page)
    for x, said in ((48, "After step 0 the loss is 3.5 × 10⁻⁵. "), (314, "After step 64 ")):
        box = explorer.locator("svg").first.bounding_box()  # after the first click it stands where the answer stood
        page.mouse.click(box["x"] + box["width"] * x / 320, box["y"] + box["height"] * 230 / 324)
        assert status(explorer).startswith(said)
    explorer.get_by_role("button", name="play").click()
    page.wait_for_function("/After step [1-9] /.test(document.querySelector('[role=status]').textContent)")
    assert page.complaints == []


def test_layer_steps_asks_what_conditioning_changes(show):
    page = show(make("layer_steps"))
    explorer = mounted(page, asking=True)
    explorer_asked = explorer.locator(".ao-guess").inner_text()
    explorer.get_by_role("button", name="for all four").click()
    said = explorer.get_by_role("note").inner_text()
    start, round_, long = (LayerStepsExplorer(conditioning=value).compute()["errors"] for value in (6.0, 1.0, 30.0))
    assert "Σ has the condition number 6 here." in explorer_asked
    for name in ("covariance", "optimal", "newton"):
        np.testing.assert_allclose(round_[name], long[name], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(round_[name], start[name], rtol=1e-6, atol=1e-12)
    assert said.startswith("For −γ I only. Their error goes from ")
    assert f"goes from {start['plain'][-1]:.3f} to {long['plain'][-1]:.3f}. " in said
    assert f"optimal stays at {long['optimal'][-1]:.3f}" in said
    assert page.complaints == []


@pytest.mark.parametrize("label", ["true", "soft", "Bag"])
def test_image_steps_asks_what_is_seen_after_five_blocks(label, show):
    explorer_ = make("image_steps", label=label, iteration=5)
    page = show(explorer_)
    explorer = mounted(page, asking=True)
    explorer.get_by_role("button", name="the label at the star").click()
    said, numbers = explorer.get_by_role("note").inner_text(), explorer_.compute()
    first, last = (explorer_.classes[numbers["predicted"][k]] for k in (0, 5))
    if label == "soft":
        assert said.strip() == f"It sees {first} as before: the image does not move."
    else:
        put = explorer_.classes[int(np.argmax(numbers["imposed"]))]
        assert f"{last}, with probability {max(numbers['probabilities'][5]):.2f}" in said
        assert said.startswith("Yes: ") == (last == put)
        assert ("put in was" in said) == (last != put)
        assert f"It saw {first} at the start." in said
    assert page.complaints == []


VALLEY_STATES = [
    {},
    {"start": [0.4, 1.2]},
    {"start": [1.2, 0.4]},
    {"second": 1.0},
    {"examples": 200},
    {"second": 0.1, "examples": 1, "start": [0.05, 0.3]},
]


@pytest.mark.parametrize("traits", VALLEY_STATES)
def test_second_valley_is_the_flow_of_the_whole_loss(traits):
    explorer = SecondValleyExplorer(**traits)
    numbers, covariance = explorer.compute(), torch.diag(torch.tensor([1, explorer.second], dtype=torch.float64))

    def loss(z):
        return attention_loss(z[:3], z[3:].reshape(3, 2), covariance, explorer.examples)

    def velocity(_, state):
        z = torch.tensor(state, requires_grad=True)
        return -torch.autograd.grad(loss(z), z)[0].numpy()

    times = [time for time in numbers["times"] if time < 5]
    start = [explorer.start[0], 0, explorer.start[1], *[0] * 6]
    states = solve_ivp(velocity, (0, times[-1]), start, method="LSODA", t_eval=times, rtol=1e-9, atol=1e-11).y.T
    seen = len(times)
    np.testing.assert_allclose(states[:, [0, 2]], numbers["path"][:seen], rtol=1e-5, atol=1e-6)
    losses = [loss(torch.tensor(state)).item() for state in states]
    np.testing.assert_allclose(losses, numbers["losses"][:seen], rtol=1e-5, atol=1e-6)
    outside = [1, 4, 5, 8]  # b's second entry, A₁'s off-diagonal, α's second: x₂ and w₂ may change their sign
    assert np.abs(states[:, outside]).max() < 1e-9
    assert (np.diff(numbers["losses"]) < 1e-9).all()


@pytest.mark.parametrize("traits", [*VALLEY_STATES, {"start": [1.0, 0.0]}, {"start": [0.0, 0.0]}])
def test_second_valley_says_where_training_ends(traits, show):
    explorer, page = SecondValleyExplorer(**traits), show(make("second_valley", **traits))
    spectrum, n = torch.tensor([1, explorer.second], dtype=torch.float64), explorer.examples
    covariance = torch.diag(spectrum)
    best = one_layer_loss(one_layer_optimum(covariance, n), covariance, n).item()
    angle, floor = second_valley(spectrum, n)
    said, numbers = status(mounted(page)), explorer.compute()
    path, end = numbers["path"][-1], numbers["losses"][-1]
    trace = 1 + explorer.second
    assert f"with loss {trace:.3f}. " in said  # A = 0 predicts 0
    if explorer.start == [0.0, 0.0]:
        assert f"nothing moves, and the loss stays {trace:.3f}. This is a saddle." in said
    elif explorer.start[1] == 0:
        at_90 = best + n * explorer.second**2 / ((n + 1) * explorer.second + trace)
        assert end == pytest.approx(at_90, rel=1e-6)
        assert f"training ends at {at_90:.3f} and 90°" in said
        b, A = valley_parameters(torch.tensor(np.pi / 2, dtype=torch.float64), spectrum, n)
        point = torch.cat([b, A.flatten()])
        hessian = torch.autograd.functional.hessian(
            lambda z: attention_loss(z[:3], z[3:].reshape(3, 2), covariance, n), point
        )
        assert torch.linalg.eigvalsh(hessian)[0] < -1e-3  # "This point is a saddle"
    elif numbers["valley"] == 0:
        assert end == pytest.approx(best, rel=1e-4)
        assert f"Training ends at the optimum, {best:.3f}. The second valley's floor, {floor:.3f}" in said
        assert f"is {floor / best:.{1 if floor > 1.1 * best else 2}f} times as high." in said
    else:
        assert end == pytest.approx(floor, rel=1e-4)
        assert np.degrees(np.arctan2(*path)) == pytest.approx(np.degrees(angle), abs=0.05)
        assert f"in the second valley, at {floor:.3f} and {np.degrees(angle):.1f}°: {floor / best:.1f} times" in said
    assert numbers["along"][0] == pytest.approx(best)
    turns = torch.deg2rad(torch.tensor(numbers["angles"], dtype=torch.float64))
    np.testing.assert_allclose(numbers["along"], valley_loss(turns, spectrum, n), rtol=1e-12)
    assert_finite(mounted(page))
    assert page.complaints == []


def test_second_valley_is_a_minimum_of_all_nine_parameters_wherever_the_sliders_go():
    for n, second in itertools.product((1, 2, 5, 20, 60, 200), (0.1, 0.25, 0.5, 0.75, 1.0)):
        spectrum = torch.tensor([1, second], dtype=torch.float64)
        b, A = valley_parameters(torch.tensor(second_valley(spectrum, n)[0], dtype=torch.float64), spectrum, n)
        hessian = torch.autograd.functional.hessian(
            lambda z, n=n, s=spectrum: attention_loss(z[:3], z[3:].reshape(3, 2), torch.diag(s), n),
            torch.cat([b, A.flatten()]),
        )
        curvatures = torch.linalg.eigvalsh(hessian)
        assert curvatures[0] > -1e-7  # 0 along the re-scaling, and for Σ = I along the turning
        if (n, second) == (20, 0.5):
            assert curvatures[1] > 1e-3


def test_second_valley_surprises_who_trusts_the_gradient_and_then_shows_the_way(show):
    page = show(make("second_valley"))
    for answer, verdict in (("at the optimum", "No."), ("somewhere else", "Yes.")):
        page.reload()
        explorer = mounted(page, asking=True)
        assert explorer.locator(".ao-readout").text_content() == ""
        assert "valley" not in explorer.locator("svg").nth(1).text_content()
        explorer.get_by_role("button", name=answer).click()
        said = explorer.get_by_role("note").inner_text()
        assert said.startswith(
            f"{verdict} Training ends in the second valley, at 0.568 and 78.8°: 2.9 times the optimum, 0.194"
        )
    assert page.complaints == []


def test_the_tour_of_the_second_valley_says_what_is_so(show):
    page = show(make("second_valley"))
    near, far, equal, more = toured(mounted(page), 4)
    assert "Training ends at the optimum" in near[1]
    path = SecondValleyExplorer(start=[0.4, 1.2]).compute()["path"]
    assert abs(path[-1][0]) < 1e-6  # "where b₁ = 0"
    for _, said in (far, equal, more):
        assert "Training ends in the second valley" in said
    assert "and 75.5°" in equal[1]
    assert "at 75.5°" in equal[0]
    assert ": 9.8 times the optimum" in more[1]
    assert "is 9.8 times as high, with 20 examples 2.9 times" in more[0]
    floors = []
    for n in (20, 200):
        spectrum = torch.tensor([1, 0.5], dtype=torch.float64)
        low, high = valley_loss(torch.zeros(1, dtype=torch.float64), spectrum, n).item(), second_valley(spectrum, n)[1]
        floors.append([low, high, f"{high / low:.1f}"])
    assert [row[2] for row in floors] == ["2.9", "9.8"]
    assert floors[1][0] < floors[0][0]
    assert floors[1][1] < floors[0][1]
    assert page.complaints == []


@pytest.mark.parametrize(("second", "examples"), [(0.5, 20), (1.0, 20), (0.2, 100)])
def test_the_drawn_line_parts_the_starts_by_their_ends(second, examples, show):
    page = show(make("second_valley", second=second, examples=examples))
    region = mounted(page).locator(".second-valley")
    region.wait_for(state="attached")
    *points, _ = (tuple(map(float, point.split(","))) for point in region.get_attribute("points").split())
    line = [((x - 44) / 134, (290 - y) / 134) for x, y in points]
    assert len(line) == 22
    assert all(before[1] <= after[1] for before, after in itertools.pairwise(line))
    for b, beta in line[2::5]:
        for valley, start in ((0, beta + 0.04), (1, beta - 0.04)):
            assert SecondValleyExplorer(start=[b, start], second=second, examples=examples).compute()["valley"] == valley
    assert page.complaints == []


def test_handles_of_both_pictures_follow_a_finger(show):
    page = show(make("one_step"), make("second_valley"), has_touch=True, width=390)
    page.locator("div.attnopt-explorer[data-mounted]").nth(1).wait_for()
    for index, names in ((0, ("The query", "The weights of the labels")), (1, ("The start of training",))):
        explorer = page.locator("div.attnopt-explorer").nth(index)
        explorer.get_by_role("button", name="show me").tap()
        for name in names:
            handle = explorer.get_by_role("button", name=name)
            handle.scroll_into_view_if_needed()
            before, box = status(explorer), handle.bounding_box()
            x, y = box["x"] + box["width"] / 2 + 6, box["y"] + box["height"] / 2 + 6  # a finger misses the middle
            touch = page.context.new_cdp_session(page)
            touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
            touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x - 30, "y": y - 20}]})
            touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
            assert status(explorer) != before
            assert handle.bounding_box()["x"] < box["x"] - 10
    assert page.complaints == []


def test_layer_steps_show_their_numbers(show):
    page = show(make("layer_steps"))
    explorer = mounted(page)
    for label, method in zip(("−γ I", "−γ Σ⁻¹", "optimal steps times Σ⁻¹", "−γ H⁻¹ (Newton)"), METHODS, strict=True):
        explorer.get_by_role("radio", name=label, exact=True).check()
        numbers = LayerStepsExplorer(method=method).compute()
        assert status(explorer).startswith(f"{label}, 5 layers: excess error {numbers['errors'][method][0]:.3f} at first")
        assert f"condition number {numbers['condition']:.1f}" in status(explorer)
        rises = [i for i in range(1, 6) if numbers["losses"][i] > numbers["losses"][i - 1] * (1 + 1e-9)]
        assert (f"Layer {rises[0]} is the first" if rises else "No layer raised") in status(explorer)
    explorer.get_by_role("radio", name="3").check()
    for name in ("layers", "step γ", "conditioning"):
        before = status(explorer)
        explorer.get_by_role("slider", name=name).press("End")
        assert status(explorer) != before
    assert "8 layers" in status(explorer)
    explorer.get_by_role("radio", name="−γ I", exact=True).check()
    assert_finite(explorer)
    assert page.complaints == []


def listed(values):
    *others, last = (shown_number(value, 3) for value in values)
    return f"{', '.join(others)} and {last}" if others else last


@pytest.mark.parametrize(
    ("traits", "told"),
    [
        ({}, "different starts keep their order. From time 0.374 to 1.39 the loss is within 5 % of 0.499,"),
        ({"time": 1.0}, "all have come to their places in the optimum."),
        ({"starts": [0.3] * 4, "layers": 3}, "Equal layers have equal gradients and stay equal: they end at 0.716,"),
        ({"starts": [0.3, 0.9, 0.3, 0.0], "layers": 3}, "Layers that start equal stay equal: they end at"),
        ({"tied": True, "layers": 3}, "One size for all ends at 0.716 from every start,"),
        ({"layers": 1}, "from every start it ends at 0.769, the optimum."),
        ({"starts": [3.0, -1.0, 0.7, 0.1], "layers": 4, "time": 0.05}, "different starts keep their order."),
    ],
)
def test_layer_training_says_sizes_loss_and_where_training_ends(traits, told, show):
    page, explorer = show(make("layer_training", **traits)), LayerTrainingExplorer(**traits)
    said, numbers, layers = status(mounted(page)), explorer.compute(), explorer.layers
    one = explorer.tied or layers == 1
    starts, now = (values[: 1 if one else layers] for values in (explorer.starts, numbers["now"]))
    assert f"d = 5, n = 20, {layers} layer" in said
    assert f"started at {listed(starts)}. At time {numbers['moment']:.3g} the size" in said
    assert f"{listed(now)} and the loss is {numbers['loss']:.4g}," in said
    assert told in said
    if len(set(starts)) == layers:
        order = np.argsort(np.argsort(starts))
        ends = np.array([-size for size in optimal_step_sizes(5, 20, layers)[0].tolist()])[order]
        assert layers == 1 or f"They end at the optimum, {listed(ends)}:" in said
        away = np.abs(np.array(numbers["now"]) - ends)
        assert f"{away.max():.3f} from its place in the optimum" in said or away.max() < 5e-4
    assert_finite(mounted(page))
    assert page.complaints == []


@pytest.mark.parametrize("guessed", ["together, at the best equal size", "apart, in the order of their starts"])
def test_layer_training_asks_where_two_layers_end_and_then_shows_them_part(guessed, show):
    page = show(make("layer_training"))
    explorer = mounted(page, asking=True)
    assert "start with the step sizes 0.300 and 0.310" in explorer.inner_text()
    assert not any(word in text for text in explorer.locator("svg").all_text_contents() for word in ("optim", "best"))
    assert explorer.locator("svg polyline").count() == 0
    explorer.get_by_role("button", name=guessed).click()
    told = explorer.get_by_role("note").inner_text()
    assert told.startswith("So it is." if guessed.startswith("apart") else "No.")
    assert "They end at the optimum, 0.515 and 1.250" in told
    assert explorer.locator("svg polyline").count() == 3
    assert page.complaints == []


def test_the_tour_of_layer_training_says_what_is_so(show):
    page = show(make("layer_training"))
    explorer = mounted(page)
    compute = lambda **traits: LayerTrainingExplorer(**traits).compute()  # noqa: E731
    seen, steps = [], []
    for name in ("tour", "next", "next", "next"):
        explorer.get_by_role("button", name=name, exact=True).click()
        seen.append(status(explorer))
        steps.append(explorer.locator(".ao-tour").inner_text())
        assert_finite(explorer)
    assert "is 0.507 from its place in the optimum. Equal layers" in seen[0]
    assert "started at 0.300 and 0.301." in seen[1]
    assert f"log 10 over the rate, {np.log(10) / compute()['rate']:.2f}." in steps[1]
    assert "They end at the optimum, 1.714, 0.422 and 0.689:" in seen[2]
    few, many = (compute(layers=3, n_context=n, starts=[0.3, 0.31, 0.32, 0.0]) for n in (20, 100))
    assert many["rate"] < 0.1 * few["rate"]
    assert np.ptp(many["best"]) < 0.6 * np.ptp(few["best"])
    assert "d = 5, n = 100, 3 layers" in seen[3]
    assert page.complaints == []


@pytest.mark.parametrize(
    "traits", [{}, {"layers": 3}, {"layers": 3, "spread": -4.0, "pair": 4.0}, {"layers": 3, "spread": -2.0, "pair": -2.0}]
)
def test_plateaus_say_the_time_before_and_after(traits, show):
    page, explorer = show(make("plateaus", **traits)), PlateausExplorer(**traits)
    said, numbers = status(mounted(page)), explorer.compute()
    assert f"{'Two' if explorer.layers == 2 else 'Three'} layers, d = 5, n = 20, start 10" in said
    assert (
        f"wait at the loss {numbers['level']:.3f} for ever; differences grow there as exp({numbers['rate']:.3f} t)" in said
    )
    assert f"at time {numbers['first']:.3g}. The run: at {numbers['apart']:.3g}." in said
    late = (-2 - explorer.spread) * np.log(10) / numbers["rate"]
    assert (f"That is {late:.3g} later than from a spread of 10⁻²" in said) == (explorer.spread < -2)
    waits = explorer.layers == 3 and explorer.pair != 0
    assert (f"repel at the rate {numbers['pair_rate'] or 0:.3f}" in said) == waits
    assert not waits or f"The {'lower' if explorer.pair < 0 else 'upper'} two, " in said
    assert not waits or f"part at about {numbers['second']:.3g}." in said
    assert page.complaints == []


def test_plateaus_draw_the_time_first_and_the_run_after_the_answer(show):
    page = show(make("plateaus"))
    explorer = mounted(page, asking=True)
    assert "two steps that start 10⁻⁶ apart will part" in explorer.inner_text()
    assert explorer.locator("svg polyline").count() == 1  # the run from far apart
    assert explorer.get_by_text("said beforehand").count() == 1
    explorer.get_by_role("button", name="later by a fixed amount").click()
    rate = PlateausExplorer().compute()["rate"]
    told = explorer.get_by_role("note").inner_text()
    assert f"So it is: later by log(100) / {rate:.3f} = {np.log(100) / rate:.2f}, whatever the start" in told
    assert explorer.locator("svg polyline").count() == 4
    assert page.complaints == []


def test_a_finger_moves_the_time_of_the_plateau_s_end(show):
    page = show(make("plateaus"), has_touch=True, width=390)
    explorer = mounted(page)
    before = status(explorer)
    box = explorer.locator(".ao-handle").first.bounding_box()
    touch = page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for kind, dx in (("touchStart", 0), ("touchMove", 25), ("touchMove", 50), ("touchEnd", None)):
        points = [] if dx is None else [{"x": x + dx, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert status(explorer) != before
    moved = explorer.locator(".ao-handle").first.bounding_box()["x"] - box["x"]
    assert 45 < moved < 55
    assert page.complaints == []


def test_layer_training_runs_through_time_and_stops_where_a_start_is_moved(show):
    page = show(make("layer_training", time=0.0))
    explorer = mounted(page)
    assert "At time 0 the sizes are 0.300 and 0.310" in status(explorer)
    explorer.get_by_role("button", name="play").click()
    page.wait_for_function("!document.querySelector('[role=status]').textContent.includes('At time 0 ')")
    explorer.get_by_role("slider", name="start 1").press("ArrowRight")
    assert explorer.get_by_role("button", name="play").count() == 1
    explorer.get_by_role("slider", name="time").press("End")
    assert "At time 100 the sizes are" in status(explorer)
    explorer.get_by_role("button", name="all equal").click()
    assert "started at 0.310 and 0.310." in status(explorer)
    explorer.get_by_role("button", name="0.001 apart").click()
    assert "started at 0.310 and 0.311." in status(explorer)
    explorer.get_by_role("button", name="far apart").click()
    assert "They end at the optimum, 1.250 and 0.515:" in status(explorer)
    explorer.get_by_role("radio", name="one size for all").check()
    assert len([one for one in explorer.locator(".ao-handle").all() if one.is_visible()]) == 2  # a start, and the moment
    assert page.complaints == []


def test_fingers_move_the_starts_and_the_moment_of_layer_training(show):
    page = show(make("layer_training", layers=4), has_touch=True, width=390)
    explorer = mounted(page)
    for name in ("Start of layer 1", "Start of layer 2", "Start of layer 3", "Start of layer 4", "The moment"):
        before, handle = status(explorer), explorer.get_by_role("button", name=name)
        box = handle.bounding_box()
        drag_by_touch(page, handle, 30, -40)
        after = handle.bounding_box()
        assert status(explorer) != before
        way = ("x", 30) if name == "The moment" else ("y", -40)
        assert after[way[0]] - box[way[0]] == pytest.approx(way[1], abs=8)
    assert_finite(explorer)
    assert page.complaints == []


def test_step_sizes_say_loss_optimum_and_steps(show):
    page = show(make("step_sizes"))
    explorer = mounted(page)
    for label, scheme in (("optimal", "optimal"), ("best equal", "constant"), ("Chebyshev", "chebyshev")):
        explorer.get_by_role("radio", name=label).check()
        numbers = StepSizesExplorer(scheme=scheme).compute()
        assert f"{label} steps of size {', '.join(f'{size:.3f}' for size in numbers['sizes'])}" in status(explorer)
        assert f"loss {numbers['loss']:.4g}," in status(explorer)
        assert ("That is the optimum" in status(explorer)) == (scheme == "optimal")
    explorer.get_by_role("radio", name="optimal").check()
    assert "2.672 % of the loss" in status(explorer)
    assert "Errors of curvature 2.37, 1.45, 0.58 are removed." in status(explorer)


def test_step_sizes_asks_for_roots_and_measures_them(show):
    page = show(make("step_sizes"))
    explorer = mounted(page, asking=True)
    assert explorer.locator(".ao-readout").text_content() == ""
    assert not any(word in text for text in explorer.locator("svg").all_text_contents() for word in ("best", "Chebyshev"))
    handle = explorer.get_by_role("button", name="Root 1")
    for _ in range(4):
        handle.press("ArrowUp")
    explorer.get_by_role("button", name="these are my roots").click()
    own = [float(one) for one in re.findall(r"size ([\d., ]+):", status(explorer))[0].split(", ")]
    roots = sorted(1 / size for size in own)
    assert roots[:2] == pytest.approx([0.8, 1.0], abs=1e-3)
    assert roots[2] == pytest.approx(1.25 + 4 * 0.01 * StepSizesExplorer().compute()["grid"][-1], abs=0.01)
    best = StepSizesExplorer(scheme="optimal").compute()
    equal = 20 * StepSizesExplorer().compute()["losses"]["constant"][2]
    said = explorer.get_by_role("note").inner_text()
    mine = 20 * step_loss([-size for size in own], 5, 20).item()
    found = re.match(
        r"Your roots 0\.80, 1\.00, 1\.37 leave ([\d.]+) % of the error; the best, 0\.58, 1\.45, 2\.37, leave", said
    )
    assert float(found[1]) == pytest.approx(mine, rel=0.01)  # whose sizes have three digits
    assert f"leave {20 * best['loss']:.3g} %" in said
    assert said.endswith(f"One root for all layers leaves at least {equal:.3g} %.")
    assert explorer.get_by_text("best roots").count() == 1
    assert page.complaints == []


def test_a_click_chooses_the_layers_of_step_sizes(show):
    page = show(make("step_sizes"))
    explorer = mounted(page)
    box = explorer.locator("svg").nth(1).bounding_box()
    for layers in (1, 4, 2):
        page.mouse.click(box["x"] + box["width"] * (50 + 65.5 * (layers - 0.5)) / 320, box["y"] + box["height"] / 2)
        assert f"{layers} layer" in status(explorer)
        assert explorer.get_by_role("slider", name="layers").input_value() == str(layers)
        assert len([one for one in explorer.locator(".ao-handle").all() if one.is_visible()]) == layers
    assert page.complaints == []


def test_a_finger_drags_a_root(show):
    page = show(make("step_sizes"), has_touch=True, width=390)
    explorer = mounted(page)
    handle = explorer.get_by_role("button", name="Root 1")
    place = lambda: [float(one) for one in re.findall(r"[-\d.]+", handle.get_attribute("transform"))[:2]]  # noqa: E731
    x, y = place()
    drag_by_touch(page, handle, 50, 9)
    unit = 320 / explorer.locator("svg").first.bounding_box()["width"]
    assert place() == pytest.approx([x + 50 * unit, y], abs=2)  # it stays on the axis
    assert page.complaints == []


def test_moving_a_step_takes_it_from_the_optimum_and_the_loss_rises(show):
    page = show(make("step_sizes", scheme="optimal"))
    explorer = mounted(page)
    slider = explorer.get_by_role("slider", name="size of step 2")
    before = slider.get_attribute("aria-valuetext")
    for _ in range(3):
        slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") != before
    assert explorer.get_by_role("radio", name="own").is_checked()
    assert "% above" in status(explorer)
    assert "own steps of size 0.422," in status(explorer)  # the others stayed
    explorer.get_by_role("slider", name="layers").press("Home")
    assert explorer.get_by_role("slider", name="size of step 2").count() == 0
    explorer.get_by_role("slider", name="examples n").press("Home")
    assert "No steps come below 4" in status(explorer)
    assert page.complaints == []


def test_gdpp_says_what_is_drawn(show):
    page = show(make("gdpp"))
    explorer = mounted(page)
    losses = GdppExplorer().compute()["losses"]
    assert f"GD++ {losses['gdpp'][2]:.3g}" in status(explorer)
    assert f"optimal steps {losses['plain'][2]:.3g}" in status(explorer)
    assert "It takes 11 optimal plain layers to be as good." in status(explorer)
    assert "All better than predicting 0" in status(explorer)
    explorer.get_by_role("slider", name="scale s").fill("1.2")
    assert "Worse than predicting 0: GD++." in status(explorer)
    explorer.get_by_role("radio", name="error left").check()
    assert explorer.get_by_text("error left after 3 layers").count() == 1
    explorer.get_by_role("radio", name="eigenvalues in GD++").check()
    for name, end in itertools.product(("examples n", "layers k", "scale s"), ("Home", "End")):
        explorer.get_by_role("slider", name=name).press(end)
        assert_finite(explorer)
    assert "n = 100, 4 layers, covariates times 1.50" in status(explorer)
    assert page.complaints == []


def test_task_model_buttons_change_tokens_by_mouse_and_keyboard(show):
    page = show(make("task_model"))
    explorer = mounted(page)
    tokens = list(TaskModelExplorer().tokens)
    for position, by_key in ((0, False), (4, True), (11, False), (6, True)):
        button = explorer.get_by_role("button", name=f"token {position + 1}", exact=True)
        assert button.get_attribute("aria-pressed") == str(tokens[position] == 1).lower()
        if by_key:
            button.focus()
            button.press("Space")
        else:
            button.click()
        tokens[position] = 1 - tokens[position]
        numbers = TaskModelExplorer(tokens=tokens).compute()
        assert f": label {numbers['label']}." in status(explorer)
        assert f"probability {numbers['probabilities'][1]:.4f}" in status(explorer)
        assert f"prefix {100 * sum(numbers['attention'][:5]):.2f} %" in status(explorer)
    explorer.get_by_role("button", name="rotate the prefix").click()
    tokens = [tokens[4], *tokens[:4], *tokens[5:]]
    explorer.get_by_role("button", name="flip the suffix").press("Enter")
    tokens = [*tokens[:5], *(1 - x for x in tokens[5:])]
    shown = [explorer.get_by_role("button", name=f"token {t}", exact=True).inner_text() for t in range(1, 13)]
    assert shown == [str(x) for x in tokens]
    assert f"probability {TaskModelExplorer(tokens=tokens).compute()['probabilities'][1]:.4f}" in status(explorer)
    assert page.complaints == []


@pytest.mark.parametrize(
    ("guessed", "said"), [("all of the first five, no other", "So it is."), ("any of the twelve", "Not quite.")]
)
def test_task_model_asks_which_tokens_decide(guessed, said, show):
    page = show(make("task_model"))
    explorer = mounted(page, asking=True)
    assert "a change of this token" not in explorer.inner_text()
    explorer.get_by_role("button", name=guessed).click()
    note = explorer.get_by_role("note").inner_text()
    assert note.startswith(f"{said} A change of any one of the tokens 1–5 changes the answer, and of no other.")
    assert "a change of this token" in explorer.inner_text()
    assert page.complaints == []


@pytest.mark.parametrize("touch", [False, True])
def test_task_model_is_clicked_on_its_pictures(touch, show):
    page = show(make("task_model"), **({"has_touch": True} if touch else {}))
    explorer = mounted(page)

    def press(picture, x, y):  # in the picture's units
        box = explorer.locator("svg").nth(picture).bounding_box()
        at = (box["x"] + x * box["width"] / 320, box["y"] + y * box["height"] / 238)
        (page.touchscreen.tap if touch else page.mouse.click)(*at)

    tokens = TaskModelExplorer().tokens
    press(1, 40 + 274 / 12 * 1.5, 100)  # the second bar
    tokens[1] = 1 - tokens[1]
    numbers = TaskModelExplorer(tokens=tokens).compute()
    assert f"label {numbers['label']}" in status(explorer)
    assert explorer.get_by_role("button", name="token 2", exact=True).inner_text() == str(tokens[1])
    x, y = numbers["embeddings"][7]  # which stands alone on the circle
    press(0, 160 + 80 * x, 122 - 80 * y)
    assert explorer.get_by_role("button", name="token 8", exact=True).inner_text() == str(1 - tokens[7])
    press(2, 70, 210)  # far from all sentences
    unchanged = status(explorer)
    press(3, 100, 100)
    assert status(explorer) == unchanged
    explorer.get_by_role("radio", name="built by hand").check()
    points = TaskModelExplorer(tokens=[1] * 12, model="ideal").compute()["sequence"]
    reach = 1.15 * max(abs(value) for value in points)
    press(2, 156 + 96 * points[0] / reach, 120 - 96 * points[1] / reach)
    assert "The prefix holds 5 ones: label 1." in status(explorer)
    assert page.complaints == []


def test_task_model_knows_nothing_before_training(show):
    page = show(make("task_model"))
    explorer = mounted(page)
    assert "Of all 4096 sentences it gets 100 % right." in status(explorer)
    explorer.get_by_role("radio", name="before training").check()
    accuracy = TaskModelExplorer(model="untrained").compute()["accuracy"]
    assert f"Of all 4096 sentences it gets {100 * accuracy:.1f} % right." in status(explorer)
    assert "No change of a single token changes the answer." in status(explorer)
    assert page.complaints == []


def test_task_model_built_by_hand_is_right_whatever_the_suffix(show):
    page = show(make("task_model"))
    explorer = mounted(page)
    explorer.get_by_role("radio", name="built by hand").check()
    for name in ("rotate the prefix", "flip the suffix", "token 2", "token 9"):
        explorer.get_by_role("button", name=name, exact=True).click()
        assert "so the model is right" in status(explorer)
        assert "Attention on the prefix 99.95 %" in status(explorer)
    explorer.get_by_role("slider", name="factor of q").press("Home")
    assert "Attention on the prefix 41.67 %" in status(explorer)
    explorer.get_by_role("slider", name="factor of V").fill("0")
    assert "length 0.000" in status(explorer)
    assert "so the model is undecided" in status(explorer)
    assert_finite(explorer)
    assert page.complaints == []


@pytest.mark.parametrize("guessed", ["2, one a label", "6, one a number of ones"])
def test_ideal_circuit_asks_how_many_clusters(guessed, show):
    page = show(make("ideal_circuit"))
    explorer = mounted(page, asking=True)
    assert "4096 embeddings: where?" in explorer.inner_text()
    explorer.get_by_role("button", name=guessed).click()
    assert explorer.get_by_role("note").inner_text().startswith("Yes, six." if guessed[0] == "6" else "Six.")
    assert "4096 embeddings: where?" not in explorer.inner_text()
    assert page.complaints == []


def test_ideal_circuit_shows_its_numbers_and_loses_them_under_strain(show):
    page = show(make("ideal_circuit"))
    explorer = mounted(page)
    assert "Right on 100.0 % of the 4096 sequences. Six clusters" in status(explorer)
    assert "each in a wedge of its own class. Suffix invariance 1.000" in status(explorer)
    assert "overlap" not in status(explorer)
    start = IdealCircuitExplorer().state()
    for label, name, value in (
        ("query, first", "query", [2.0, 0.0]),
        ("query, second", "query", [2.0, 1.0]),
        ("suffix, first", "rest", [0.5, 0.0]),
        ("suffix, second", "rest", [0.5, 2.0]),
        ("split positions", "split", 0.6),
        ("noise", "noise", 0.4),
    ):
        shown = value if isinstance(value, float) else value[label.endswith("second")]
        explorer.get_by_role("slider", name=label).fill(f"{shown:g}")
        start[name] = value
        numbers = IdealCircuitExplorer(**start).compute()
        assert f"Right on {100 * numbers['accuracy']:.1f} %" in status(explorer)
        assert f"permutation invariance {numbers['permutation']:.3f}" in status(explorer)
        ends = dict.fromkeys(f"{100 * numbers[end]:.2f} %" for end in ("least", "most"))  # one if they are equal
        assert f"gets {' to '.join(ends)} of" in status(explorer)
    assert "overlap" in status(explorer)
    assert page.complaints == []


def test_ideal_circuit_forgets_the_suffix_where_its_squares_coincide(show):
    page = show(make("ideal_circuit"))
    explorer = mounted(page)
    explorer.get_by_role("slider", name="query, first").fill("2")
    assert "Suffix invariance 0.975" in status(explorer)
    page.evaluate("location.hash = '#ideal_circuit=query:2,0;rest:0,2'")
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('Suffix invariance 1.000')")
    assert "but not each in a wedge of its own class" in status(explorer)
    assert "The suffix gets 33.99 % of the attention" in status(explorer)
    assert page.complaints == []


@pytest.mark.parametrize("guessed", ["it grows", "it shrinks with V"])
def test_gradient_bound_asks_what_a_shorter_value_matrix_does(guessed, show):
    page = show(make("gradient_bound"))
    explorer = mounted(page, asking=True)
    assert "and here?" in explorer.inner_text()
    explorer.get_by_role("button", name=guessed).click()
    ends = [GradientBoundExplorer(value=value).compute()["totals"][0] for value in (1.0, 0.01)]
    told = f"t grows: from {ends[0]:.3g} to {ends[1]:.3g}."
    assert explorer.get_by_role("note").inner_text().startswith(f"Yes, i{told}" if guessed == "it grows" else f"I{told}")
    assert page.complaints == []


def test_gradient_bound_says_what_is_broken(show):
    page = show(make("gradient_bound"))
    explorer = mounted(page)
    assert "16 of 16 sequences correct" in status(explorer)
    assert "None of its terms is broken." in status(explorer)
    explorer.get_by_role("slider", name="factor of V").press("Home")
    assert ", broken. Of its terms those for query and value are broken." in status(explorer)
    explorer.get_by_role("radio", name="initial").check()
    correct = GradientBoundExplorer(model="initial", value=0.001).compute()["correct"]
    assert status(explorer).startswith(f"{correct} of 16 sequences correct")
    before = status(explorer)
    explorer.get_by_role("slider", name="factor of U").press("ArrowLeft")
    assert status(explorer) != before
    for name in ("factor of V", "factor of W", "factor of U", "factor of logits"):
        explorer.get_by_role("slider", name=name).press("End")
    for along in ("V", "W", "U", "logits"):
        explorer.get_by_role("group", name="curves over").get_by_role("radio", name=along, exact=True).check()
    explorer.locator(".ao-handle").press("ArrowLeft")  # it moves the factor that the curves run over
    assert explorer.get_by_role("slider", name="factor of logits").get_attribute("aria-valuetext") != "10.000"
    assert explorer.get_by_role("slider", name="factor of V").get_attribute("aria-valuetext") == "10.000"
    assert_finite(explorer)
    assert page.complaints == []


@pytest.mark.parametrize(
    "name",
    [
        "attention_field",
        "forward_pass",
        "one_head",
        "one_picture",
        "one_step",
        "oracle_value",
        "quadratic_field",
        "second_valley",
        "softmax",
        "feature_flow",
        "layers",
    ],
)
def test_a_handle_follows_a_finger_all_the_way(name, show):
    page = show(make(name), has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    explorer = mounted(page)
    handle, reply = explorer.locator(".ao-handle").first, explorer.locator(".ao-guessed")
    picture = handle.locator("xpath=ancestor::*[local-name()='svg'][1]")
    page.evaluate("document.body.style.paddingBottom = '150vh'")  # a page that could scroll
    handle.scroll_into_view_if_needed()

    def moved(begun):
        return [handle.bounding_box()[axis] - begun[axis] for axis in "xy"]

    def in_picture():
        return [handle.bounding_box()[axis] - picture.bounding_box()[axis] for axis in "xy"]

    begun, at, replies, seen = handle.bounding_box(), in_picture(), reply.count(), []
    drag_by_touch(page, handle, 40, -24, held=lambda: seen.append((*moved(begun), reply.count())))
    right, down = (there - was for there, was in zip(in_picture(), at, strict=True))
    held_right, held_down, held_replies = seen[0]
    assert [right, held_right] == pytest.approx([40, 40], abs=8)  # in its picture and under the finger
    assert [down, held_down] == pytest.approx([-24, -24], abs=8) or name in ("softmax", "feature_flow")
    assert held_replies == replies  # what was said of the state before waits for the release
    assert reply.count() == 0


@pytest.mark.parametrize(
    ("guessed", "said"), [("only with the last", "So it is in this run."), ("with the first", "Not yet.")]
)
def test_product_asks_when_the_loss_leaves_the_plateau(guessed, said, show):
    page = show(make("product"))
    explorer = mounted(page, asking=True)
    assert "its cost" not in explorer.inner_text()
    explorer.get_by_role("button", name=guessed).click()
    note = explorer.get_by_role("note").inner_text()
    assert note.startswith(f"{said} Token 4 is the last one, between the epochs 142 and 179")
    record = ProductExplorer().record["three"]
    before, after = (record["epochs"].index(epoch) for epoch in (142, 179))
    least = [min(range(5), key=row.__getitem__) for row in record["influences"]]
    assert set(least[: before + 1]) == {3}
    assert record["influences"][after][3] > 10 * record["influences"][before][3]
    assert record["loss"][after] < 0.6 < np.log(2) < record["loss"][before]
    assert page.complaints == []


def test_product_says_what_a_change_of_influences_does(show):
    page = show(make("product"))
    explorer = mounted(page)
    assert "the influences are 0.54, 0.32, 0.84, 0.064 and 1.10. π = product × readout" in status(explorer)
    assert "= 1.0 × 10⁻² × 7.5 × 10⁻³ = 7.8 × 10⁻⁵" in status(explorer)
    explorer.get_by_role("button", name="blind the least").click()
    assert "Without the influence of token 4, π is 0, whatever the others are. π = 0." in status(explorer)
    explorer.get_by_role("button", name="as trained").press("Enter")
    explorer.get_by_role("button", name="final influences").click()
    record = ProductExplorer().record["three"]
    before, after = record["influences"][record["epochs"].index(142)], record["influences"][-1]
    factors = [end / start for start, end in zip(before, after, strict=True)]
    found = ProductExplorer(factors=factors).compute()
    assert found["influences"] == pytest.approx(after, rel=1e-4)
    assert abs(found["parity"]) < 0.1 * found["cost"]  # as the answer to the question says
    grown, readout, parity = (shown_number(abs(value), 2) for value in found["changes"])
    assert max(found["changes"][1:]) < 0
    turned = "changes sign and is {} times as large"
    said = (
        f"the product is {grown} times what it was, the readout {turned.format(readout)}, and so π {turned.format(parity)}."
    )
    assert f"With these influences, {said}" in status(explorer)
    assert "π does not exceed it, so the loss is not below log 2" in status(explorer)
    explorer.get_by_role("button", name="as trained").press("Enter")
    explorer.get_by_role("slider", name="epoch").press("Home")
    explorer.get_by_role("button", name="halve each").click()
    assert "the product is 0.031 times what it was" in status(explorer)
    assert "and so π is 0.032 times what it was." in status(explorer)
    for run in ("two", "none", "never"):
        explorer.get_by_role("combobox", name="nearly blind").select_option(run)
        assert_finite(explorer)
        assert "π does not exceed it" in status(explorer)
        assert "times what it was" not in status(explorer)
    explorer.get_by_role("combobox", name="nearly blind").select_option("two")
    explorer.get_by_role("slider", name="epoch").press("End")
    assert "π exceeds it, so the loss is below log 2" in status(explorer)
    assert page.complaints == []


def test_a_bar_reaches_its_final_value(show):
    page = show(make("product"))
    explorer = mounted(page)
    bar = explorer.get_by_role("button", name="The influence of token 4")
    for _ in range(80):
        bar.press("ArrowUp")
    end = ProductExplorer().record["three"]["influences"][-1][3]
    assert f"0.84, {shown_number(end, 2)} and 1.10" in status(explorer)
    assert page.complaints == []


@pytest.mark.parametrize(("seed", "shown"), [(2, "trained"), (7, "levels"), (4, "levels"), (10, "trained")])
def test_circuits_says_what_the_model_counts(seed, shown, show):
    explorer = CircuitsExplorer(seed=seed, shown=shown)
    page, numbers = show(explorer), explorer.compute()
    said = status(mounted(page))
    percent = "100" if numbers["trained"] == 1 else shown_number(100 * numbers["trained"], 1)
    assert said.startswith(f"Seed {seed} is right on {percent} % of all sequences. ")
    if seed == 10:
        assert "No count with odd weights" in said
    else:
        counted = said.split("M = ")[1].split(",")[0].replace("− ", "+ −").replace("−", "-").split(" + ")
        found = [0] * 12
        for term in counted:
            size, position = re.fullmatch(r"(-?\d*)x([₀-₉]+)", term).groups()
            at = int("".join(str("₀₁₂₃₄₅₆₇₈₉".index(digit)) for digit in position))
            found[at - 1] = int(f"{size}1" if size in ("", "-") else size)
        assert found == numbers["m"]
        assert f"with {numbers['count']} levels" in said
        assert ("replaced by the mean" in said) == (shown == "levels")
    assert_finite(mounted(page))
    assert page.complaints == []


def test_circuits_asks_for_the_suffix_and_a_click_chooses_a_model(show):
    page = show(make("circuits"))
    explorer = mounted(page, asking=True)
    assert explorer.locator("svg").nth(1).get_by_text("?", exact=True).count() == 7
    explorer.get_by_role("button", name="even ones").click()
    said, known = explorer.get_by_role("note").inner_text(), load_overview()
    won = known["accuracy"] > 0.9
    behind = known["m"][won, 5:]
    some = (behind != 0).any(1)
    assert said.startswith(f"So it is. Of {int(won.sum())} successful models {int(some.sum())} have a weight other than 0")
    assert (behind[some] % 2 == 0).all() == ("in each of them even ones only" in said)
    box = explorer.locator("svg").first.bounding_box()
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.12 * box["height"])
    assert not status(explorer).startswith("Seed 2 ")
    for name in ("plain count", "mixed signs", "larger weights", "learned in part", "at chance"):
        before = status(explorer)
        explorer.get_by_role("button", name=name).click()
        assert status(explorer) != before
    assert page.complaints == []


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"mask": "hidden", "layers": 3, "step": 1.7},
        {"kernel": "gaussian", "width": 0.4, "labels": [0, 1, 0, 1, 0, 0, 1, 1, 0]},
    ],
)
def test_labels_in_context_says_what_gradient_descent_on_the_labels_says(traits, show):
    """Weights of the kernel's functions by differentiation, the query among them or not; shares from the same tosses."""
    explorer, page = LabelsInContextExplorer(**traits), show(make("labels_in_context", **traits))
    said, size = status(mounted(page)), 8 if explorer.mask == "hidden" else 9

    def odds(points, labels, size):
        points, signs = np.array(points), 2 * np.array(labels) - 1
        near = points @ points.T
        if explorer.kernel == "gaussian":
            near = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1) / (2 * explorer.width**2))
        f, seen = np.zeros(9), signs[:size]
        for _ in range(explorer.layers):
            f = f + explorer.step / size * near[:, :size] @ (seen / (1 + np.exp(seen * f[:size])))
        return f * signs, 1 / (1 + np.exp(-f[-1]))

    margins, chance = odds(explorer.points, explorer.labels, size)
    assert f"label 1 with probability {shown_number(chance, 3)}; its label is {explorer.labels[-1]}: " in said
    assert f": {'right' if margins[-1] > 0 else 'wrong'}. " in said
    assert f"Of the {size} labels put in, {(margins[:size] > 0).sum()} come out right. " in said
    tossed = [standard_normals(10 + toss)[:18].numpy() for toss in range(400)]
    shares = [np.mean([odds(pairs[:9], pairs[9:, 0] > 0, seen)[0][-1] > 0 for pairs in tossed]) for seen in (9, 8)]
    assert f"in {shown_number(shares[0])} with its label put in" in said
    assert f"in {shown_number(shares[1])} with it hidden, exactly 1/2 in the mean." in said
    assert ("exactly 2/3" in said) == (explorer.kernel == "linear" and explorer.layers == 1)
    assert abs(shares[1] - 0.5) < 4 * (0.25 / 400) ** 0.5


def test_labels_in_context_asks_how_often_a_label_leaks(show):
    explorer = mounted(show(make("labels_in_context")), asking=True)
    assert "exactly" not in explorer.text_content()
    explorer.get_by_role("button", name="1 time in 2").click()
    said = explorer.get_by_role("note").inner_text()
    assert said.startswith("You said 1 time in 2. One layer is right 2 times in 3, exactly")
