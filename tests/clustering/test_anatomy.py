"""What a trained model is made of, on models whose anatomy is known."""

import math

import pytest
import torch

from attnopt.clustering import (
    Models,
    Task,
    attention_by_pair,
    counting_form,
    cyclic_step,
    position_effects,
    token_effects,
)
from attnopt.clustering.invariance import variance_shares

L, K = 8, 3
TASK = Task(2, L, K)
TOKENS, TARGETS = TASK.all()


def embedded(weights, curve=lambda level: level):
    """ξ of a model that counts with the given weights, along a curve in the plane."""
    level = TOKENS.double() @ torch.tensor(weights, dtype=torch.float64)
    return torch.stack([curve(level), 0.3 * curve(level) ** 2], 1).unsqueeze(0)


def test_attention_by_pair_is_the_mean_over_the_sequences_that_have_the_pair():
    models = Models.random(3, 2, L, norm="unit", generator=torch.Generator().manual_seed(0))
    attention = models.stages(TOKENS)["attention"]
    found = attention_by_pair(attention, TOKENS)
    for token in range(2):
        for position in range(L):
            wanted = attention[:, TOKENS[:, position] == token, position].mean(1)
            torch.testing.assert_close(found[:, token, position], wanted)
    torch.testing.assert_close(found.mean(1).sum(1), torch.ones(3, dtype=torch.float64))


def test_attention_by_pair_needs_every_pair():
    model = Models.random(1, 2, L, norm="unit", generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="every token at every position"):
        attention_by_pair(model.stages(TOKENS[:4])["attention"], TOKENS[:4])
    both = torch.stack([torch.zeros(L, dtype=torch.int64), torch.ones(L, dtype=torch.int64)])
    attention = model.stages(both)["attention"]
    torch.testing.assert_close(attention_by_pair(attention, both), attention)
    with pytest.raises(ValueError, match=r"attention must have shape \(M, \*\(2, 8\)\), got \(1, 2, 7\)"):
        attention_by_pair(attention[..., 1:], both)


def test_position_effects_of_a_linear_embedding_are_the_squared_weights():
    weights = [1, -3, 1, 0, 2, 0, 0, 4]
    level = TOKENS.double() @ torch.tensor(weights, dtype=torch.float64)
    found = position_effects(torch.stack([level, -2 * level], 1).unsqueeze(0), TASK)
    squares = torch.tensor(weights, dtype=torch.float64).square()
    torch.testing.assert_close(found[0], squares / squares.sum())


def test_position_effects_sum_to_one_at_least_and_see_interactions():
    parity = (TOKENS[:, :2].sum(1) % 2).double().view(1, -1, 1)  # all variance is an interaction of two positions
    torch.testing.assert_close(position_effects(parity, TASK)[0], torch.tensor([1.0, 1.0] + [0.0] * 6, dtype=torch.float64))


@pytest.mark.evidence("odonnat-realisations")
@pytest.mark.parametrize(
    "weights",
    [[1, 1, 1, 0, 0, 0, 0, 0], [1, -1, -1, 0, 0, 0, 0, 0], [1, 3, -1, 0, 2, 0, 0, -2], [3, 1, 1, 0, 0, 4, 0, 2]],
)
def test_counting_form_is_found_on_a_line_and_on_a_bent_curve(weights):
    for curve in (lambda level: level, lambda level: level / (20 + level)):
        found, explained = counting_form(embedded(weights, curve), TASK)
        assert found[0].tolist() == weights
        assert explained.item() == pytest.approx(1)


def test_counting_form_is_in_units_of_the_relevant_positions():
    weights = [0, 2, 0, -1, 4, 0, 1, 3]  # the first of which does not count, and the second is even
    parity = lambda tokens: tokens[..., [3, 6, 7]].sum(-1) % 2  # noqa: E731
    for rule in ([0, 2, 0, 1, 4, 0, -1, 3], parity(TOKENS), parity):
        found, explained = counting_form(embedded(weights), Task(2, L, K, rule))
        assert found[0].tolist() == [0, -2, 0, 1, -4, 0, -1, -3]
        assert explained.item() == pytest.approx(1)
    with pytest.raises(ValueError, match="task must have a label that depends on some token, got Task"):
        counting_form(embedded(weights), Task(2, L, K, rule=[2] * L))


def test_counting_form_is_zero_where_a_token_of_the_prefix_has_no_effect():
    found, explained = counting_form(embedded([1, 0, 1, 0, 0, 0, 0, 2]), TASK)
    assert found[0].tolist() == [0] * L
    assert explained.item() == pytest.approx(0)


@pytest.mark.evidence("odonnat-realisations")
def test_label_is_a_function_of_the_form_modulo_two_exactly_for_odd_and_even_weights():
    length, k = 5, 2
    tokens, targets = Task(2, length, k).all()
    for code in range(3**length):
        weights = torch.tensor([code // 3**t % 3 for t in range(length)])
        level = tokens @ weights % 2
        says = all(len(targets[level == value].unique()) <= 1 for value in range(2))
        right = (weights[:k] % 2 == 1).all() and (weights[k:] % 2 == 0).all()
        assert says == bool(right)


@pytest.mark.evidence("odonnat-realisations")
def test_signed_counting_has_six_clusters_and_no_permutation_invariance():
    tokens = Task().all()[0]
    level = (tokens @ torch.tensor([1, 1, -1, -1, -1] + [0] * 7)).double().view(1, -1, 1)
    shares = variance_shares(level, Task())
    assert len(level.unique()) == 6
    assert shares["suffix"].item() == 1
    assert math.isclose(shares["permutation"].item(), 1 / 25)


def shifted(p, steps, shifts, length=4):
    """All sequences, and ξ on a line of Σ (u_t x_t + c_t modulo p) over the first positions, in the plane."""
    tokens = Task(p, length, len(steps)).all()[0]
    levels = sum((u * tokens[:, t] + c) % p for t, (u, c) in enumerate(zip(steps, shifts, strict=True))).double()
    return tokens, torch.stack([2 * levels, -levels], 1).unsqueeze(0)


def test_token_effects_recover_a_count_with_shifts():
    tokens, xi = shifted(5, [2, 2, 2], [0, 3, 4])
    effects, explained = token_effects(xi, tokens, 5)
    assert explained.item() == pytest.approx(1)
    rows = [[(2 * x + c) % 5 - 2.0 for x in range(5)] for c in (0, 3, 4)] + [[0.0] * 5]
    wanted = torch.tensor(rows, dtype=torch.float64) * 5**0.5
    found = effects[0] * effects[0, 0, 2].sign() * wanted[0, 2].sign()
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    assert cyclic_step(effects, 3).item() in (2, 3)  # the axis has no direction
    assert cyclic_step(effects[:, :3], 3) == cyclic_step(effects, 3)


def test_token_effects_do_not_depend_on_the_sign_that_svd_gives_the_axis():
    tokens = torch.cartesian_prod(*[torch.arange(3)] * 3)
    values = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 1.5, 0.0]])
    xi = sum(values[t][tokens[:, t]] for t in range(3))[:, None] * torch.tensor([0.6, -0.8])
    effects, _ = token_effects(torch.stack([xi, -xi]).double(), tokens, 3)
    assert torch.allclose(effects[0], effects[1])
    assert torch.allclose(effects[0], -(values - values.mean(1, keepdim=True)).double())  # 0 adds more than 2 at first


@pytest.mark.parametrize(("steps", "step"), [([1, 1, 1], {1, 4}), ([1, 1, 2], {0}), ([1, 1, 4], {0})])
def test_cyclic_step_is_one_for_all_positions_or_none(steps, step):
    tokens, xi = shifted(5, steps, [1, 0, 2])
    assert cyclic_step(token_effects(xi, tokens, 5)[0], 3).item() in step


def test_cyclic_step_is_how_far_a_token_moves_the_rank():
    for p, step in ((2, 1), (5, 2), (5, 4), (7, 3)):
        ranks = torch.stack([(step * torch.arange(p) + shift) % p for shift in (0, 1, p - 1)])
        assert cyclic_step((0.1 * ranks.double() - 7).unsqueeze(0), 3).item() == step
    with pytest.raises(ValueError, match="effects must be finite, got nan"):
        cyclic_step(torch.full((1, 4, 3), math.nan), 2)
    with pytest.raises(ValueError, match=r"effects must have shape \(M, L, p\), got \(4, 3\)"):
        cyclic_step(torch.rand(4, 3), 2)
    with pytest.raises(TypeError, match="effects must be a torch.Tensor"):
        cyclic_step([[[1.0]]], 1)


def test_token_effects_refuse_what_they_cannot_read():
    tokens, xi = shifted(3, [1, 1], [0, 2])
    with pytest.raises(ValueError, match="every token at every position"):
        token_effects(xi[:, :5], tokens[:5], 3)
    with pytest.raises(ValueError, match="tokens must lie in 0 … 1"):
        token_effects(xi, tokens, 2)
    with pytest.raises(ValueError, match="at most the 4 positions, got 5"):
        cyclic_step(token_effects(xi, tokens, 3)[0], 5)


@pytest.mark.parametrize(
    "of_all",
    [
        lambda xi: counting_form(xi, Task(2, 6, 3)),
        lambda xi: position_effects(xi, Task(2, 6, 3)),
        lambda xi: variance_shares(xi, Task(2, 6, 3)),
    ],
)
def test_what_needs_all_sequences_says_so(of_all):
    xi = torch.randn(2, 64, 2, generator=torch.Generator().manual_seed(0))
    of_all(xi)
    for part in (xi[:, :32], xi[:, :63], torch.cat([xi, xi], 1), xi[0]):
        with pytest.raises(ValueError, match=r"sequence must have shape \(M, 64, d\): all 2\^6 sequences are needed"):
            of_all(part)
    with pytest.raises(TypeError, match="sequence must have a real floating-point dtype"):
        of_all(xi.long())


def test_counting_is_of_two_tokens():
    with pytest.raises(ValueError, match="task must have two tokens, got 3: .* token_effects measures what each adds"):
        counting_form(torch.zeros(1, 27, 2), Task(3, 3, 2))


def test_counting_form_explains_little_of_parity_and_random_weights_seldom_have_the_right_parities():
    parity = (TOKENS[:, :2].sum(1) % 2).double().view(1, -1, 1)
    assert counting_form(parity, TASK)[1].item() == pytest.approx(0, abs=0.01)
    models = Models.random(500, 2, L, norm="unit", generator=torch.Generator().manual_seed(2))
    weights, explained = models.count(TASK)
    right = (weights[:, :K] % 2 == 1).all(1) & (weights[:, K:] % 2 == 0).all(1)
    assert (right & (explained > 0.95)).double().mean() < 0.01


def test_a_counting_form_has_at_most_the_sum_of_its_sizes_and_one_levels_which_alternate_in_class():
    for weights in ([1, 1, 1, 0, 0, 0, 0, 0], [1, -1, 3, 2, 0, 0, -2, 0], [3, 3, 1, 4, 0, 0, 0, 2]):
        level = TOKENS @ torch.tensor(weights)
        assert len(level.unique()) <= sum(abs(weight) for weight in weights) + 1
        assert ((level - TARGETS) % 2 == 0).all()


def test_token_effects_of_a_model_do_not_depend_on_its_company():
    tokens, one = shifted(3, [1, 2], [0, 1])
    other = shifted(3, [1, 1, 1], [0, 2, 0])[1]
    both, explained = token_effects(torch.cat([one, other.square() + 5]), tokens, 3)
    for model, xi in enumerate((one, other.square() + 5)):
        alone, share = token_effects(xi, tokens, 3)
        torch.testing.assert_close(both[model].abs(), alone[0].abs())  # the axes have no direction
        torch.testing.assert_close(explained[model], share[0])


def test_token_effects_explain_what_is_additive_and_on_one_line():
    tokens, xi = shifted(3, [1, 1], [0, 2])
    noise = torch.randn(xi.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    effects, explained = token_effects(xi + noise, tokens, 3)
    whole = (xi + noise) - (xi + noise).mean(1, keepdim=True)
    axis = torch.linalg.svd(effects.flatten(1), full_matrices=False)  # one row: nothing to rotate
    assert axis.S.numel() == 1
    fitted = sum(effects[0, t, tokens[:, t]] for t in range(4))
    best = min(
        (whole[0] - fitted.unsqueeze(1) * torch.tensor([math.cos(a), math.sin(a)])).square().sum()
        for a in torch.linspace(0, 2 * math.pi, 20001).tolist()
    )
    assert explained.item() == pytest.approx(1 - best.item() / whole.square().sum().item(), abs=1e-6)
