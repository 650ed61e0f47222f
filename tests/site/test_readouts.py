"""What explorers say: the numbers that Python computes, and what is true of them, after their controls have been moved."""

import itertools

import numpy as np
from explorer_pages import assert_finite, mounted, status
from explorer_states import make

from attnopt.explorers import (
    AttentionFieldExplorer,
    FeatureFlowExplorer,
    GdppExplorer,
    GradientBoundExplorer,
    IdealCircuitExplorer,
    LayersExplorer,
    LayerStepsExplorer,
    OneLayerExplorer,
    SoftmaxExplorer,
    StepSizesExplorer,
    TaskModelExplorer,
)

METHODS = ("plain", "covariance", "optimal", "newton")


def test_softmax_explorer_shows_its_numbers(show):
    page = show(make("softmax"))
    explorer = mounted(page)
    for name, value in (("logit 1", "2"), ("logit 2", "-1"), ("logit 3", "0.5"), ("temperature", "0.5")):
        explorer.get_by_role("slider", name=name).fill(value)
    expected = SoftmaxExplorer(logits=[2.0, -1.0, 0.5], temperature=0.5).compute()
    shown = ", ".join(f"{x:.2f}" for x in expected["softmax"])
    assert f"softmax ({shown})" in status(explorer)
    assert f"exceeds max by {expected['smooth_maximum'] - 2:.3f}" in status(explorer)


def test_attention_field_shows_its_numbers_on_both_axes(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    start = AttentionFieldExplorer().state()
    for label, axis in (("tokens", "sequence"), ("classes", "class")):
        explorer.get_by_role("radio", name=label).check()
        expected = AttentionFieldExplorer(**start | {"axis": axis}).compute()
        assert f"Cross-entropy {expected['loss']:.3f}" in status(explorer)
        table = explorer.locator("svg").nth(1).text_content()
        for value in np.array(expected["attention"]).ravel():
            assert f"{value:.2f}" in table
    explorer.get_by_role("radio", name="3").check()
    assert "token 3:" in status(explorer)


def test_moving_one_token_moves_the_others_rows_only_on_the_sequence_axis(show):
    page = show(make("attention_field"))
    explorer = mounted(page)
    cells = lambda: [text.text_content() for text in explorer.locator("svg").nth(1).locator("text").all()]  # noqa: E731
    for label, coupled in (("classes", False), ("tokens", True)):
        explorer.get_by_role("radio", name=label).check()
        explorer.get_by_role("slider", name="first feature").fill("-0.9")
        before = cells()
        explorer.get_by_role("slider", name="first feature").fill("0.6")
        changed = [a != b for a, b in zip(before, cells(), strict=True)]
        # the row of token 3 (its sign, then the key's name, then three cells) closes the table
        last_row = next(i for i, text in enumerate(before) if text.startswith("■"))
        assert any(changed[last_row + 2 : last_row + 5]) == coupled


def test_feature_flow_shows_its_numbers_and_who_climbs(show):
    page = show(make("feature_flow"))
    explorer = mounted(page)
    assert explorer.get_by_role("radio", name="as printed").is_disabled()
    explorer.get_by_role("radio", name="quadratic").check()
    for label, formula in (("gradient", "true"), ("as printed", "printed")):
        explorer.get_by_role("radio", name=label).check()
        numbers = FeatureFlowExplorer(model="quadratic", formula=formula).compute()
        for index, value in enumerate(numbers["now_losses"]):
            assert f"{value:.3f} from start {index + 1}" in status(explorer)
        assert ("risen from start 2" in status(explorer)) == (formula == "printed")
    before = status(explorer)
    explorer.get_by_role("radio", name="exchanged").check()
    assert status(explorer) != before
    assert "infimum 1.386" in status(explorer)
    explorer.get_by_role("radio", name="3").check()
    assert "Start 3" in status(explorer)
    explorer.get_by_role("slider", name="time").press("End")
    assert "time 40.00" in status(explorer)
    assert page.complaints == []


def test_layers_show_their_numbers_and_the_first_that_climbs(show):
    page = show(make("layers"))
    explorer = mounted(page)
    start = LayersExplorer().state()
    for model in ("linear", "quadratic"):
        explorer.get_by_role("radio", name=model).check()
        for label, scheme in (("Euler", "euler"), ("printed", "printed"), ("Lie", "lie"), ("Strang", "strang")):
            explorer.get_by_role("radio", name=label).check()
            losses = LayersExplorer(**start | {"model": model, "scheme": scheme}).compute()["losses"]
            assert status(explorer).startswith(f"{label}, 12 layers")
            assert f"cross-entropy {losses[-1]:.3f}; exact" in status(explorer)
            rises = [layer for layer in range(1, 13) if losses[layer] > losses[layer - 1] + 1e-9 * (1 + losses[layer])]
            assert (f"Layer {rises[0]} is the first" if rises else "No layer raised") in status(explorer)
    for name in ("step", "scale of θ", "layers"):
        explorer.get_by_role("slider", name=name).press("End")
    assert "beyond a million" in status(explorer)
    assert_finite(explorer)
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


def test_moving_a_step_takes_it_from_the_optimum_and_the_loss_rises(show):
    page = show(make("step_sizes"))
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
    assert "All better than predicting 0" in status(explorer)
    explorer.get_by_role("slider", name="scale s").fill("1.2")
    assert "Worse than predicting 0: GD++." in status(explorer)
    explorer.get_by_role("radio", name="eigenvalues in GD++").check()
    assert explorer.get_by_text("eigenvalue / largest").count() == 1
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
        assert f"Label {numbers['label']}:" in status(explorer)
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


def test_ideal_circuit_shows_its_numbers_and_loses_them_under_strain(show):
    page = show(make("ideal_circuit"))
    explorer = mounted(page)
    assert "Right on 100.0 % of the 4096 sequences. Suffix invariance 1.000" in status(explorer)
    assert "overlap" not in status(explorer)
    start = IdealCircuitExplorer().state()
    for label, name, value in (
        ("query length", "length", 2.0),
        ("query angle", "angle", 60.0),
        ("split positions", "split", 0.6),
        ("noise", "noise", 0.4),
    ):
        explorer.get_by_role("slider", name=label).fill(f"{value:g}")
        start[name] = value
        numbers = IdealCircuitExplorer(**start).compute()
        assert f"Right on {100 * numbers['accuracy']:.1f} %" in status(explorer)
        assert f"permutation invariance {numbers['permutation']:.3f}" in status(explorer)
        ends = dict.fromkeys(f"{100 * numbers[end]:.2f} %" for end in ("least", "most"))  # one if they are equal
        assert f"get {' to '.join(ends)} of" in status(explorer)
    assert "overlap" in status(explorer)
    assert page.complaints == []


def test_gradient_bound_says_what_is_broken(show):
    page = show(make("gradient_bound"))
    explorer = mounted(page)
    assert "16 of 16 sequences correct" in status(explorer)
    assert "No printed term is broken." in status(explorer)
    explorer.get_by_role("slider", name="factor of V").press("Home")
    assert "printed bound" in status(explorer)
    assert ", broken. Broken term by term for query and value." in status(explorer)
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
    assert_finite(explorer)
    assert page.complaints == []
