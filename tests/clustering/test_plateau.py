import itertools
import math

import pytest
import torch
from product_and_readout import first_term
from scipy.stats import binomtest
from torch.nn.functional import cross_entropy

from attnbook.folder import results
from attnopt.clustering import (
    Models,
    Settings,
    Task,
    Watch,
    curvature,
    escape_epochs,
    escape_level,
    find_drops,
    influences,
    log_cosh_half,
    margins,
    parity_coefficient,
    successes,
    train,
    walsh,
)


def random(count, length, seed=0, width=6, norm="unit"):
    generator = torch.Generator().manual_seed(seed)
    return Models.random(count, 2, length, 2, width, norm=norm, generator=generator, biases=True), generator


@pytest.fixture(scope="module")
def record():
    return results("two_phase_learning")


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("norm", ["unit", "rms"])
def test_loss_is_log_two_plus_cost_minus_parity(k, norm):
    models, _ = random(4, 6, norm=norm)
    tokens, targets = Task(2, 6, k).all()
    logits = models.logits(tokens)
    loss = cross_entropy(logits.mT, targets.expand(4, -1), reduction="none").mean(1)
    margin = margins(models)
    ours = math.log(2) + log_cosh_half(margin).mean(1) - parity_coefficient(margin, k) / 2
    torch.testing.assert_close(ours, loss, rtol=1e-12, atol=1e-13)


def test_walsh_is_a_mean_with_signs_and_keeps_the_power():
    margin = margins(random(3, 5)[0])
    assert margins(random(3, 1)[0]).shape == (3, 2)
    coefficients = walsh(margin)
    tokens, _ = Task(2, 5, 1).all()
    for subset in (0, 1, 0b10110, 0b11111):
        digits = torch.tensor([int(digit) for digit in f"{subset:05b}"])
        sign = (-1.0) ** (tokens * digits).sum(1)
        torch.testing.assert_close(coefficients[:, subset], (margin * sign).mean(1), rtol=0, atol=1e-14)
    torch.testing.assert_close(coefficients.square().sum(1), margin.square().mean(1))
    torch.testing.assert_close(-coefficients[:, 0b11100], parity_coefficient(margin, 3), rtol=0, atol=1e-14)
    torch.testing.assert_close(walsh(margin[1]), coefficients[1])
    torch.testing.assert_close(walsh(margin.view(1, 3, -1)), coefficients.view(1, 3, -1))
    assert walsh(torch.tensor([3.0])).item() == 3  # the empty sequence alone
    with pytest.raises(ValueError, match="values must be"):
        walsh(torch.ones(3, 12))


def test_margins_want_two_tokens():
    params = Models.random(1, 3, 4, norm="unit", generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="models must have two tokens, got 3: of more logits, .* use Models.logits"):
        margins(params)


@pytest.mark.parametrize("p", [2, 3, 5])
def test_the_influence_of_a_position_is_the_largest_difference_of_what_its_tokens_add(p):
    models = Models.random(2, p, 4, norm="rms", generator=torch.Generator().manual_seed(p))
    sums = models.summands()
    for at, t in itertools.product(range(2), range(4)):
        apart = [(sums[at, x, t] - sums[at, y, t]).norm().item() for x in range(p) for y in range(x)]
        assert influences(models)[at, t].item() == pytest.approx(max(apart))
    token = models.weights["token"]
    blind = models.replace(token=token.mean(1, keepdim=True).expand_as(token).clone())
    assert influences(blind).abs().max() < 1e-15


def test_the_plateau_is_left_at_the_same_share_of_log_p():
    assert escape_level(2) == 0.6  # of the book's experiments, to the bit
    assert [escape_level(p) / math.log(p) for p in (2, 3, 7)] == pytest.approx([0.6 / math.log(2)] * 3)
    epochs = torch.tensor([0, 10, 20, 25])
    loss = torch.tensor(
        [[1.1, 0.7, 0.9, math.nan], [0.96, 0.97, 1.0, math.nan], [0.94, 0.96, 0.5, 0.2], [0.3, 0.97, 2.0, 1.0]]
    )
    right = torch.tensor([[0.3] * 4, [0.95] * 4, [0.9] * 4, [0.91, 0.9, math.nan, 1.0]])
    history = {"epoch": epochs, "loss": loss, "accuracy_all": right}
    assert escape_epochs(history, 3).tolist() == [20, 0, 0, 20]
    assert escape_epochs(history, 2).tolist() == [25, -1, 20, 20]
    assert successes(history).tolist() == [True, False, False, True]
    for wrong in (None, {"loss": loss}, loss):
        with pytest.raises(
            TypeError, match="history must be a dict with epoch and (loss|accuracy_all), as training.history"
        ):
            escape_epochs(wrong, 2)
        with pytest.raises(
            TypeError, match="history must be a dict with epoch and (loss|accuracy_all), as training.history"
        ):
            successes(wrong)
    said = []
    settings = Settings(Task(3, 4, 2), epochs=60, n_train=256, learning_rate=2e-2)
    each = lambda epoch, models, history: said.append(successes(history))  # noqa: E731
    training = train(range(4), settings, Watch(every=1), each=each)
    assert torch.equal(said[-1], training.history["accuracy_all"][-1] > 0.9)
    left = escape_epochs(training.history, 3)
    assert (left > 0).any()
    for model, epoch in enumerate(left.tolist()):
        curve = training.history["loss"][:, model]
        assert (curve[: epoch if epoch >= 0 else None] >= 0.6 * math.log2(3)).all()
        assert epoch < 0 or curve[epoch] < 0.6 * math.log2(3)


def test_factors_scale_what_a_token_changes():
    models, generator = random(3, 5)
    torch.testing.assert_close(margins(models, torch.ones(5).double()), margins(models), rtol=1e-12, atol=1e-13)
    factors = torch.rand(3, 5, generator=generator, dtype=torch.float64) * 3
    tokens, sums = Task(2, 5, 1).all()[0], models.summands()
    for at in range(3):
        single = []
        for row in tokens.tolist():
            total = torch.zeros(3, dtype=torch.float64)
            for t, token in enumerate(row):
                middle = (sums[at, 0, t] + sums[at, 1, t]) / 2
                total += middle + factors[at, t] * (sums[at, token, t] - middle)
            single.append(models[at].classify((total[:-1] / total[-1]).view(1, 1, -1))[0, 0])
        expected = torch.stack(single)
        torch.testing.assert_close(margins(models, factors)[at], expected[:, 1] - expected[:, 0], rtol=1e-11, atol=1e-12)
    without = margins(models, torch.tensor([1, 0, 1, 1, 1.0]).double())
    assert parity_coefficient(without, 3).abs().max() < 1e-15  # a token that changes nothing leaves no parity
    with pytest.raises(ValueError, match=r"factors must have shape \(5,\) or \(3, 5\), got \(4,\)"):
        margins(models, torch.ones(4).double())
    with pytest.raises(ValueError, match="factors must leave each sequence's weights a positive, finite sum, got"):
        margins(models, torch.full((5,), 50.0).double())
    with pytest.raises(ValueError, match="factors must leave each sequence's weights a positive, finite sum, got"):
        margins(models.replace(query=models.weights["query"] * 1e4), torch.ones(5).double())
    with pytest.raises(TypeError, match="factors must have the dtype of weights"):
        margins(models, torch.ones(5))


def test_the_first_term_is_the_limit_of_small_influences():
    models, _ = random(4, 5, seed=6)
    small = 3e-3
    exact = parity_coefficient(margins(models, torch.tensor([small] * 3 + [1.0] * 2).double()), 3) / small**3
    torch.testing.assert_close(first_term(models, 3), exact, rtol=5e-3, atol=1e-7)


@pytest.mark.evidence("odonnat-saddle-points")
@pytest.mark.parametrize("blind", [0, 1, 2, 3, 4])
def test_parity_coefficient_has_the_order_of_the_blind_positions(blind):
    params, generator = random(20, 6)
    start, end = params.weights["token"].unbind(1)
    along = (end - start) / (end - start).norm(dim=1, keepdim=True)
    for t in range(blind):
        far = 0.5 + torch.rand(20, 1, generator=generator, dtype=torch.float64)
        params.weights["position"][:, t] = far * along - start
    way = params.map(lambda value: torch.randn(value.shape, generator=generator, dtype=torch.float64)).weights
    at = lambda eps: parity_coefficient(margins(params.moved(way, eps)), 5).abs()  # noqa: E731
    assert (at(0.0).max() < 1e-15) == (blind > 0)
    assert (at(8e-3) / at(4e-3)).log2().median().item() == pytest.approx(blind, abs=0.3)


@pytest.mark.evidence("odonnat-saddle-points")
@pytest.mark.parametrize("k", [2, 5])
def test_coinciding_tokens_are_stationary_with_one_curvature(k):
    params, _ = random(1, 6)
    params.weights["token"][:, 1] = params.weights["token"][:, 0]
    tokens, targets = Task(2, 6, k).all()
    psi = params.stages(tokens)["output"][0, 0]
    slope, hessian = curvature(params, tokens, targets)
    values = torch.linalg.eigvalsh(hessian)
    assert slope.norm() < 1e-14
    assert values[:-1].abs().max() < 1e-14
    assert values[-1].item() == pytest.approx(psi.square().sum().item() / 2)


@pytest.mark.evidence("odonnat-saddle-points")
@pytest.mark.parametrize(("k", "saddle"), [(2, True), (4, False), (5, False)])
def test_coinciding_tokens_are_a_minimum_from_four_counted_tokens_on(k, saddle):
    params, _ = random(100, 6, seed=3)
    params.weights["token"][:, 1] = params.weights["token"][:, 0]
    psi = params.stages(torch.zeros(1, 6, dtype=torch.long))["output"][:, 0]
    axis = psi / psi.norm(dim=1, keepdim=True)
    side = torch.stack([-axis[:, 1], axis[:, 0]], 1)
    excess = []
    for eps in (0.01, -0.01):

        def at(c, eps=eps):
            half = (eps * side + eps**2 * c * axis) / 2
            middle = params.weights["token"][:, 0]
            return margins(params.replace(token=torch.stack([middle - half, middle + half], 1)))

        c = torch.zeros(100, 1, dtype=torch.float64)
        for _ in range(6):  # Newton: mean margin 0
            mean = at(c).mean(1, keepdim=True)
            c = c - 1e-3 * mean / (at(c + 1e-3).mean(1, keepdim=True) - mean)
        excess.append(log_cosh_half(at(c)).mean(1) - parity_coefficient(at(c), k) / 2)
    below = (torch.minimum(*excess) < 0).double().mean()
    assert below > 0.9 if saddle else below < 0.03


@pytest.mark.evidence("odonnat-saddle-points")
def test_no_sequence_moves_a_model_whose_tokens_coincide_with_no_output():
    params, generator = random(1, 6)
    params.weights["token"][:, 1] = params.weights["token"][:, 0]
    psi = params.stages(torch.zeros(1, 6, dtype=torch.long))["output"][:, 0]
    params.weights["assembler_bias"] -= psi
    tokens = torch.randint(2, (1, 6), generator=generator)
    for label in (0, 1):
        assert curvature(params, tokens, torch.tensor([label]))[0].norm() < 1e-14


@pytest.mark.parametrize("biases", [True, False])
def test_curvature_is_that_of_autograd_and_counts_repeated_sequences(biases):
    params, generator = random(1, 4, width=3, norm="rms")
    if not biases:
        params = Models({name: value for name, value in params.weights.items() if "bias" not in name}, "rms")
    tokens = torch.randint(2, (30, 4), generator=generator)
    targets = tokens[:, :2].sum(1) % 2
    shapes = [value.shape for value in params.weights.values()]
    sizes = [value.numel() for value in params.weights.values()]

    def loss(flat):
        parts = [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
        return cross_entropy(params.replace(**dict(zip(params.weights, parts, strict=True))).logits(tokens)[0], targets)

    here = torch.cat([value.flatten() for value in params.weights.values()])
    slope, hessian = curvature(params, tokens, targets)
    torch.testing.assert_close(slope, torch.func.grad(loss)(here))
    torch.testing.assert_close(hessian, torch.autograd.functional.hessian(loss, here))
    with pytest.raises(ValueError, match="tokens must lie in 0 … 1"):
        curvature(params, tokens + 1, targets)
    with pytest.raises(ValueError, match="model must be one, got 2"):
        curvature(params[[0, 0]], tokens, targets)
    for wrong in (targets[:-1], targets.unsqueeze(1)):
        with pytest.raises(ValueError, match="tokens and targets must have shapes"):
            curvature(params, tokens, wrong)
    with pytest.raises(ValueError, match="scores span less than about 700"):
        curvature(params.replace(query=1e5 * params.weights["query"]), tokens, targets)


def test_drops_are_cut_to_their_top_and_their_floor():
    hill = torch.cat([torch.linspace(0.5, 1, 11), torch.linspace(1, 0, 11)[1:], torch.zeros(30)])
    assert find_drops(hill, smooth=1) == [(10, 20)]
    assert find_drops(torch.tensor([1.0, 0.0]), smooth=1) == [(0, 1)]
    begins = torch.cat([torch.linspace(1, 0.9, 21), torch.full((30,), 0.9)])
    assert find_drops(begins, fall=0.099, smooth=5) == [(0, 20)]  # the first value counts whole
    slow = 1 - 0.001 * torch.arange(100.0) - 0.5 * (torch.arange(100) >= 30)
    assert find_drops(slow, smooth=1) == [(10, 49)]  # windows of twenty steps that hold the fall
    step = torch.cat([torch.ones(30), torch.full((30,), 0.5)])
    assert find_drops(step, fall=0.5)[0][1] == 30
    assert find_drops(step, fall=0.51) == []
    assert find_drops(torch.linspace(1, 0, 100))[-1][1] == 99


@pytest.mark.evidence("odonnat-two-phase")
def test_find_drops_counts_falls_not_spikes_nor_slow_declines():
    step = torch.cat([torch.full((100,), 0.69), torch.full((100,), 0.4), torch.full((100,), 0.05)])
    found = find_drops(step)
    assert [(abs(first - at) <= 20, abs(last - at) <= 20) for (first, last), at in zip(found, (100, 200), strict=True)] == [
        (True, True),
        (True, True),
    ]
    spiked = step.clone()
    spiked[50:53] += 2.0
    assert len(find_drops(spiked)) == 2
    assert find_drops(torch.linspace(0.69, 0.0, 300)) == []
    assert find_drops(torch.full((5,), 0.7)) == []
    with pytest.raises(ValueError, match="one curve"):
        find_drops(torch.ones(2, 3))
    with pytest.raises(ValueError, match="odd"):
        find_drops(step, smooth=4)
    with pytest.raises(ValueError, match="fall"):
        find_drops(step, fall=0.0)


@pytest.mark.evidence("odonnat-two-phase")
def test_two_drops_are_not_typical(record):
    main = record["events"]["main"]
    won = [run for run, final in enumerate(main["final"]) if final > 0.9]
    for row in main["drops"]:
        assert binomtest(sum(row[run] == 2 for run in won), len(won)).proportion_ci(method="wilson").low < 0.45
        assert sum(row[run] == 2 for run in won) < 0.55 * len(won)
    most = [sum(row[run] >= 2 for run in won) > 0.5 * len(won) for row in main["drops"]]
    assert any(most)  # at least two: that depends on the threshold
    assert not all(most)
    assert binomtest(len(won), 200).proportion_ci(method="wilson").high < 0.6


@pytest.mark.evidence("odonnat-saddle-points")
def test_some_runs_end_where_tokens_coincide(record):
    main, end = record["events"]["main"], record["walsh"]["main"]["end"]
    collapsed = [run for run in range(200) if end["apart"][run] < 0.1 and end["output"][run] < 0.1]
    assert 6 <= len(collapsed) <= 24
    assert sum(main["escape"][run] is None for run in collapsed) > 0.85 * len(collapsed)


def test_influences_are_those_of_the_formula():
    models, _ = random(3, 5, norm="rms")
    weights, found = models.weights, influences(models)
    for one, t in ((0, 0), (2, 4)):
        ends = []
        for token in (0, 1):
            z = weights["token"][one, token] + weights["position"][one, t]
            z = z / (z.square().mean().sqrt() + 1e-5)
            w = (z @ weights["query"][one] / 2**0.5).exp()
            ends.append(torch.cat([w[None], w * (weights["value"][one] @ z)]))
        assert found[one, t].item() == pytest.approx((ends[1] - ends[0]).norm().item())
