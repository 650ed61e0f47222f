import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize

from attnopt.in_context import one_layer_loss, one_layer_optimum
from attnopt.synthesis import (
    agreement_number,
    best_agreement,
    draw_prompts,
    examples_needed,
    positive_number,
    read_out,
    softmax_price,
    unseen_mass,
)

SMALL = [(length, weight, p) for p, length in ((2, 4), (2, 3), (3, 3)) for weight in range(1, length + 1)]


def left_of(signal, square, size=1.0):
    """What the best scale leaves of the variance."""
    return 1 - abs(signal) ** 2 / (square * size)


# One number


def number_of(kernel, values):
    """ν by sums over all pairs of points of a finite space, drawn uniformly, and the eigenvalue."""
    size = len(values)
    image = kernel.mT @ values / size  # of the query
    eigenvalue = (values.conj() @ image) / (values.conj() @ values)
    assert torch.allclose(image, eigenvalue * values, atol=1e-10)
    second = (kernel.abs().square() * values.abs().square()[:, None]).mean()
    return (second / (eigenvalue.abs().square() * values.abs().square().mean())).item(), eigenvalue.item()


@pytest.mark.evidence("book-one-number")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_what_is_left_by_all_prompts_is_what_the_number_says(n):
    """Every prompt of n examples over six points, with a kernel that has g among its eigenfunctions, not symmetric."""
    generator = torch.Generator().manual_seed(3)
    g = torch.randn(6, generator=generator, dtype=torch.float64)
    kernel = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    kernel += torch.outer(g, (0.7 * 6 * g - kernel.mT @ g)) / (g @ g)  # rows x, columns q
    number, eigenvalue = number_of(kernel, g)
    assert eigenvalue == pytest.approx(0.7)
    signal = square = 0.0
    for prompt in itertools.product(range(6), repeat=n):
        answer = (kernel[list(prompt)] * g[list(prompt), None]).mean(0)
        signal += (answer * g).mean().item() / 6**n
        square += answer.square().mean().item() / 6**n
    assert left_of(signal, square, g.square().mean().item()) == pytest.approx(1 - n / (n + number - 1))


@pytest.mark.evidence("book-one-number")
@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 5), (5, 20), (7, 3)])
def test_the_linear_kernel_on_normal_covariates_is_the_layer_of_part_two(d, n):
    optimum = one_layer_optimum(torch.eye(d, dtype=torch.float64), n)
    loss = one_layer_loss(optimum, torch.eye(d, dtype=torch.float64), n)
    assert loss.item() / d == pytest.approx(1 - n / (n + (d + 2) - 1))


# Softmax


def answers(beta, z):
    p = torch.softmax(beta * z, -1)
    return (p * z).sum(-1), p.square().sum(-1)


@pytest.mark.evidence("book-softmax-price")
def test_the_softmax_head_falls_apart_into_two_numbers():
    """Prompts in full against the one-dimensional form, on the same covariates; and Stein's identity."""
    generator, d, n, s, count = torch.Generator().manual_seed(0), 3, 8, 0.6, 40_000
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x, q, w = normal(count, n, d), normal(count, d), normal(count, d)
    z = torch.einsum("cnd,cd->cn", x, q / q.norm(dim=1, keepdim=True))
    beta = s * q.norm(dim=1, keepdim=True)
    m, squares = answers(beta, z)
    p = torch.softmax(s * torch.einsum("cnd,cd->cn", x, q), -1)
    full = (p * torch.einsum("cnd,cd->cn", x, w)).sum(1) / s - (w * q).sum(1)
    apart = full.square() - ((m - beta[:, 0]).square() + (d - 1) * squares) / s**2
    assert abs(apart.mean()) < 4 * apart.std() / count**0.5
    stein = m - beta[:, 0] * (1 - squares)
    assert abs(stein.mean()) < 4 * stein.std() / count**0.5


@pytest.mark.evidence("book-softmax-price")
@pytest.mark.parametrize("n", [1, 3, 30, 1000])
def test_the_two_numbers_keep_below_their_bounds(n):
    generator = torch.Generator().manual_seed(n)
    z = torch.randn(2_000_000 // n if n > 30 else 50_000, n, generator=generator, dtype=torch.float64)
    for beta in (0.0, 0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0):
        m, squares = answers(beta, z)
        assert n * squares.mean() <= 7 * math.exp(beta**2)
        assert n * (m - beta).square().mean() <= 7 * (1 + beta**2) * math.exp(beta**2)
    if n == 1000:
        m, squares = answers(0.7, z)
        grown = math.exp(0.49)
        assert n * squares.mean() == pytest.approx(grown, rel=0.02)
        assert n * (m - 0.7).square().mean() == pytest.approx(grown * 1.49, rel=0.1)


def in_one_dimension(n, scales):
    """n times what is left for d = 1, by quadrature: 1/S² = ∫ t e^(-tS) dt makes the examples independent."""
    z = torch.linspace(-12, 12, 961, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    b = torch.linspace(0.02, 7, 60, dtype=torch.float64)
    logs = []
    for beta in b.tolist():
        grown = torch.exp(beta * z)
        t = torch.exp(torch.linspace(-math.log(n) - 8 * beta - 12, 8 * beta + 6, 600, dtype=torch.float64))
        width = 18 + 16 * beta + math.log(n)
        tilt = -t[:, None] * grown
        each = torch.exp(tilt)
        rest = torch.log1p((torch.expm1(tilt) @ density).clamp_min(-1 + 1e-300))
        first, second = t * (each @ (density * z * grown)), t.square() * (each @ (density * z.square() * grown.square()))
        squares = n * t.square() * (each @ (density * grown.square())) * torch.exp((n - 1) * rest)
        square = n * second * torch.exp((n - 1) * rest) + n * (n - 1) * first.square() * torch.exp((n - 2) * rest)
        overlap, moment = (part.sum().item() * width / 599 for part in (squares, square))
        logs.append([math.log(overlap), math.log(moment - 2 * beta**2 * (1 - overlap) + beta**2)])  # B_n and A_n
    q = (np.arange(2000) + 0.5) / 200
    weights, spline = np.exp(-(q**2) / 2) / 200 * 2 / math.sqrt(2 * math.pi), CubicSpline(b.numpy(), np.array(logs))
    found = []
    for r in scales:
        overlap, error = np.exp(spline(np.clip(math.sqrt(r) * q, 0.02, 7))).T
        own, cross = (weights * error).sum() / r, -(weights * q**2 * overlap).sum()
        found.append(n * (own - cross**2) / (own + 2 * cross + 1))
    return found


@pytest.mark.evidence("book-softmax-price")
def test_in_one_dimension_no_scale_beats_the_limit():
    """By quadrature: the stored simulations at 100 and 1000 examples, and all scales at a million."""
    limit, r = softmax_price(1)
    assert limit == pytest.approx(8.436, abs=5e-4)
    for n, value in ((100, 7.127), (1000, 8.016)):
        assert in_one_dimension(n, [r]) == pytest.approx([value], abs=2e-3)
    values = in_one_dimension(10**6, [*np.linspace(0.1, 0.45, 8), r, 0.6, 1.0, 2.0])
    assert min(values) == pytest.approx(limit, rel=3e-3)
    assert np.argmin(values) == 8
    assert min(values[-3:]) > 3 * limit


@pytest.mark.evidence("book-opposite-heads")
def test_two_opposite_heads_cost_one_example():
    """Small scores of both signs leave the centred moment, whose law is that of one example fewer."""
    generator, d, n, s, count = torch.Generator().manual_seed(5), 2, 6, 1e-4, 200_000
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x, q, w = normal(count, n, d), normal(count, d), normal(count, d)
    scores, y = torch.einsum("cnd,cd->cn", x, q), torch.einsum("cnd,cd->cn", x, w)
    heads = [(torch.softmax(sign * s * scores, -1) * y).sum(1) for sign in (1, -1)]
    answer, truth = (heads[0] - heads[1]) / (2 * s), (w * q).sum(1)
    centred = ((scores - scores.mean(1, keepdim=True)) * y).mean(1)
    assert (answer - centred).abs().max() < 1e-4
    first, second = (answer * truth).mean(), answer.square().mean()
    left = 1 - first**2 / second / d
    assert left.item() == pytest.approx(1 - (n - 1) / (n + d), abs=0.01)


# Agreement


@pytest.mark.evidence("book-agreement")
def test_the_example_by_hand_in_fractions():
    """Three bits, one of which counts, e^β = 3."""
    weights, ways = [Fraction(3**m, 8) for m in range(4)], [Fraction(math.comb(3, m), 8) for m in range(4)]
    mean = [Fraction(2 * m - 3, 3) for m in range(4)]
    assert sum(w * k for w, k in zip(ways, weights, strict=True)) == 1
    assert sum(w * k * g for w, k, g in zip(ways, weights, mean, strict=True)) == Fraction(1, 2)
    number = sum(w * k * k for w, k in zip(ways, weights, strict=True)) / Fraction(1, 4)
    assert number == Fraction(125, 16)
    assert agreement_number(3, 1, 2, math.log(3)) == pytest.approx(125 / 16)
    assert best_agreement(3, 1)[1] == pytest.approx(27 / 4)
    assert best_agreement(30, 20)[1] == 2**30
    for length, weight in ((3000, 1000), (3000, 2000)):  # numbers that no float holds
        assert best_agreement(length, weight)[1] == math.inf


@pytest.mark.evidence("book-agreement")
@pytest.mark.parametrize(("length", "weight", "p"), [*SMALL, (2, 1, 3), (12, 5, 2), (20, 3, 2), (9, 4, 5), (6, 5, 3)])
def test_the_best_sharpness_and_the_hypotheses(length, weight, p):
    beta, number = best_agreement(length, weight, p)
    hypotheses = math.comb(length, weight) * (p - 1) ** weight
    assert hypotheses * (1 - 1e-12) <= number
    others = [agreement_number(length, weight, p, sharpness) for sharpness in (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0)]
    assert min(others) >= number * (1 - 1e-12)
    if weight * p < length * (p - 1):
        assert number <= math.sqrt(2 * length) * hypotheses * (1 + 1e-12)
        assert agreement_number(length, weight, p, beta) == pytest.approx(number)
        share = weight / length
        entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        assert number == pytest.approx(math.exp(length * entropy) * (p - 1) ** weight)
    else:
        assert beta == math.inf
        assert agreement_number(length, weight, p, 40.0) == pytest.approx(number) == p**length
    if (length, weight, p) == (12, 5, 2):
        assert number == pytest.approx(3464.5, abs=0.05)
        assert hypotheses == 792


def test_a_number_too_large_is_infinite():
    assert agreement_number(20, 20, 2, 1e-20) == math.inf


@pytest.mark.evidence("book-hypotheses")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_no_weighted_sum_of_labels_leaves_less_than_the_rank_says(n):
    """The best coefficients for all secrets at once, given the examples: a projection, with all queries listed."""
    generator = torch.Generator().manual_seed(n)
    tokens = torch.tensor(list(itertools.product(range(2), repeat=4)))
    secrets = torch.stack([1.0 - 2 * (tokens[:, list(s)].sum(1) % 2) for s in itertools.combinations(range(4), 2)]).double()
    for _ in range(20):
        shown = torch.randint(16, (n,), generator=generator)
        best = torch.linalg.lstsq(secrets[:, shown], secrets, driver="gelsd").solution  # α for every query
        left = (secrets - secrets[:, shown] @ best).square().mean()
        assert left >= 1 - n / 6 - 1e-12


@pytest.mark.evidence("book-hypotheses")
def test_the_kernel_of_one_weight_has_as_its_number_the_hypotheses():
    tokens = torch.tensor(list(itertools.product(range(2), repeat=4)))
    secrets = torch.stack([1.0 - 2 * (tokens[:, list(s)].sum(1) % 2) for s in itertools.combinations(range(4), 2)]).double()
    number, eigenvalue = number_of(secrets.mT @ secrets, secrets[3])
    assert (number, eigenvalue) == pytest.approx((6, 1))


@pytest.mark.evidence("book-hypotheses")
def test_the_harmonic_mean_of_the_numbers_is_at_least_the_hypotheses():
    """Random kernels with all rules of one weight among their eigenfunctions, and other things besides, not symmetric."""
    tokens = torch.tensor(list(itertools.product(range(2), repeat=6)))
    secrets = torch.stack([1.0 - 2 * (tokens[:, list(s)].sum(1) % 2) for s in itertools.combinations(range(6), 2)]).double()
    rest = torch.eye(64, dtype=torch.float64) - secrets.mT @ secrets / 64
    lowest = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        eigenvalues = torch.randn(15, generator=generator, dtype=torch.float64)
        other = 0.1 * seed * torch.randn(64, 64, generator=generator, dtype=torch.float64)
        kernel = (secrets.mT * eigenvalues) @ secrets + rest @ other @ rest
        numbers = [number_of(kernel, g) for g in secrets]
        assert [eta for _, eta in numbers] == pytest.approx(eigenvalues.tolist())
        assert sum(1 / number for number, _ in numbers) <= 1 + 1e-12
        lowest.append(min(number for number, _ in numbers))
    assert min(lowest) < 15  # one rule may have less


def parities(length, weight):
    """All parities of so many bits, as rows over all sequences."""
    tokens = torch.tensor(list(itertools.product(range(2), repeat=length)))
    sets = itertools.combinations(range(length), weight)
    return torch.stack([1.0 - 2 * (tokens[:, list(one)].sum(1) % 2) for one in sets]).double()


def strengths(kernel, secrets):
    """η_g and E|K|² of votes with any kernel, rows x, and the mean over q of |E[Kg | q]|², each for all secrets."""
    image = secrets @ kernel / len(kernel)
    return (image * secrets).mean(1), kernel.square().mean(), image.square().mean(1)


@pytest.mark.evidence("book-hypotheses")
@pytest.mark.parametrize("n", [1, 3, 20, 500])
def test_no_votes_leave_less_on_average_over_the_rules(n):
    """Kernels of which the rules are not eigenfunctions, each rule with its own best scale."""
    generator, secrets = torch.Generator().manual_seed(n), parities(4, 2)
    least = (6 - 1) / (n + 6 - 1)
    for blend in (0.0, 0.1, 1.0, 10.0):
        kernel = secrets.mT @ secrets + blend * torch.randn(16, 16, generator=generator, dtype=torch.float64)
        signal, square, image = strengths(kernel, secrets)
        left = 1 - signal.square() / (square / n + (1 - 1 / n) * image)
        assert left.mean() >= least - 1e-12
        assert left.mean().item() == pytest.approx(least) or blend


@pytest.mark.evidence("book-positive-weights")
@pytest.mark.parametrize("n", [1, 20, 500])
def test_no_positive_votes_leave_less_for_odd_parities(n):
    generator, secrets = torch.Generator().manual_seed(n), parities(5, 3)
    least = (20 - 1) / (n + 20 - 1)
    for blend in (0.0, 0.3, 1.0, 10.0):
        kernel = (secrets.mT @ secrets + blend * torch.randn(32, 32, generator=generator, dtype=torch.float64)).clamp_min(0)
        signal, square, image = strengths(kernel, secrets)
        left = 1 - signal.square() / (square / n + (1 - 1 / n) * image)
        assert left.mean() >= least - 1e-12
        assert left.mean().item() == pytest.approx(least) or blend


@pytest.mark.evidence("book-positive-weights")
@pytest.mark.parametrize(("length", "weight", "most"), [(3, 1, 1 / 2), (4, 3, 1 / 2), (4, 2, 3 / 4)])
def test_the_best_positive_kernel_by_search(length, weight, most):
    """The largest Σ 1/ν that a search over positive kernels finds: ½ for odd weights, as proved; ¾ = 6/8 for two of four."""
    secrets, size = parities(length, weight), 2**length

    def loss(root):
        root = torch.tensor(root, requires_grad=True)
        signal, square, _ = strengths(root.reshape(size, size).square(), secrets)
        value = -signal.square().sum() / square
        value.backward()
        return value.item(), root.grad.numpy()

    draw = np.random.default_rng(0)
    found = [-minimize(loss, draw.standard_normal(size**2), jac=True, method="L-BFGS-B").fun for _ in range(3)]
    assert max(found) == pytest.approx(most, abs=2e-3)
    assert max(found) <= most + 1e-9
    assert len(secrets) / positive_number(length, weight) == pytest.approx(most)


@pytest.mark.evidence("book-positive-weights")
@pytest.mark.parametrize(("length", "weight", "p"), [*SMALL, (5, 4, 2), (5, 3, 2)])
def test_the_positive_part_of_the_sum_of_rules_has_the_least_number(length, weight, p):
    """By all pairs of sequences, against other positive kernels with one eigenvalue for all rules."""
    tokens = torch.tensor(list(itertools.product(range(p), repeat=length)))
    words = tokens[(tokens != 0).sum(1) == weight]
    rules = torch.exp(2j * math.pi / p * (words @ tokens.mT % p).to(torch.complex128))
    total = (rules.mH @ rules).real
    least = positive_number(length, weight, p)
    parts = [(sign * total).clamp_min(0).to(torch.complex128) for sign in (1, -1)]
    for g in (rules[0], rules[-1]):
        assert min(number_of(part, g)[0] for part in parts) == pytest.approx(least)
    assert len(words) <= least <= 2 * len(words)
    if p == 2 and weight % 2:
        assert least == 2 * len(words)
    agree = (tokens[:, None] == tokens[None]).sum(-1)
    apart = torch.eye(len(tokens), dtype=torch.complex128) - rules.mH @ rules / len(tokens)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        profile = torch.rand(length + 1, generator=generator, dtype=torch.float64) + 0.05
        other = torch.randn(len(tokens), len(tokens), generator=generator, dtype=torch.float64).to(torch.complex128)
        other = (apart.conj() @ other @ apart).real
        kernel = profile[agree] + 0.05 * other / other.abs().max()
        assert kernel.min() >= 0
        assert number_of(kernel.to(torch.complex128), rules[0])[0] >= least


@pytest.mark.evidence("book-sampled-sum")
@pytest.mark.parametrize(("weight", "n"), [(1, 2), (1, 4), (2, 3)])
def test_the_sampled_sum_keeps_the_bound(weight, n):
    """All prompts of n examples of three bits; the query is 000, by symmetry."""
    length, beta = 3, 1.2
    tokens = torch.tensor(list(itertools.product(range(2), repeat=length)))
    labels = 1.0 - 2 * (tokens[:, :weight].sum(1) % 2).double()
    weights = torch.exp(-beta * tokens.sum(1).double())
    prompts = torch.tensor(list(itertools.product(range(8), repeat=n)))
    top, total = (weights[prompts] * labels[prompts]).sum(1), weights[prompts].sum(1)
    rho, number = math.tanh(beta / 2), agreement_number(length, weight, 2, beta)
    error = (top / total / rho**weight - 1).square().mean()
    bound = (math.sqrt((number - 1) / n) + math.sqrt((number - rho ** (-2 * weight)) / n)) ** 2
    assert error <= bound <= 4 * number / n


# Cells


def binomial(k):
    return torch.tensor([math.comb(k, c) / 2**k for c in range(k + 1)], dtype=torch.float64)


@pytest.mark.evidence("book-cells")
def test_no_reader_of_cells_leaves_less_and_a_sharp_head_no_more():
    """All prompts of two examples over cells of four points, all labellings of the cells; the mean given what is shown."""
    cell, n = [0, 0, 1, 2], 2
    shares = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    features = torch.tensor([[float(c)] for c in cell], dtype=torch.float64)
    bayes = head = 0.0
    for labelling in itertools.product((1.0, -1.0), repeat=3):
        labels = torch.tensor([labelling[c] for c in cell], dtype=torch.float64)
        for *shown, query in itertools.product(range(4), repeat=n + 1):
            known = any(cell[j] == cell[query] for j in shown)
            bayes += (0.0 if known else 1.0) / 8 / 4 ** (n + 1)  # given what is shown an unseen cell's label has the mean 0
            top, total = read_out(features, labels, torch.tensor([shown]), torch.tensor([query]), 1e4, torch.tensor([n]))
            head += (top / (total + 1e-9) - labels[query]).square().item() / 8 / 4 ** (n + 1)
    mass = unseen_mass(shares, [n]).item()
    assert bayes == pytest.approx(mass)
    assert head == pytest.approx(mass, abs=1e-6)


@pytest.mark.evidence("book-cells")
@pytest.mark.parametrize(("shares", "n"), [((0.9, 0.1), 1), ((0.9, 0.1), 3), ((0.8, 0.1, 0.1), 2)])
def test_no_table_of_answers_has_less_error_averaged_over_labelings(shares, n):
    """Any answer to the cells and labels shown and the query's cell, one for all labelings; the best one is the mean."""
    mass, draw = unseen_mass(torch.tensor(shares, dtype=torch.float64), [n]).item(), np.random.default_rng(0)
    cells, labelings = range(len(shares)), list(itertools.product((1, -1), repeat=len(shares)))
    events = {}
    for *shown, query in itertools.product(cells, repeat=n + 1):
        chance = math.prod(shares[cell] for cell in (*shown, query)) / len(labelings)
        for labeling in labelings:
            seen = (*shown, *(labeling[cell] for cell in shown), query)
            events.setdefault(seen, []).append((chance, labeling[query]))
    tables = [{seen: draw.normal() for seen in events} for _ in range(5)]
    tables.append({seen: sum(p * y for p, y in pairs) / sum(p for p, _ in pairs) for seen, pairs in events.items()})
    errors = [sum(p * (table[seen] - y) ** 2 for seen, pairs in events.items() for p, y in pairs) for table in tables]
    assert min(errors) >= mass - 1e-12
    assert errors[-1] == pytest.approx(mass)


def test_needed_of_batches_and_of_none():
    both = torch.stack([binomial(1), torch.tensor([1.0, 0.0], dtype=torch.float64)])
    assert examples_needed(both, 0.2).tolist() == [3, 1]
    assert examples_needed(both, 1.0).tolist() == [0, 0]
    with pytest.raises(ValueError, match="examples must be some"):
        unseen_mass(both, [])
    assert unseen_mass(both, [0, 1]).tolist() == [[1, 0.5], [1, 0]]


# The reader


def test_read_out_is_attention_with_a_sink():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    labels = torch.tensor([1.0, -1, 1, 1, -1, 1, -1, -1, 1], dtype=torch.float64)
    context, queries = draw_prompts(9, 5, 7, generator)
    assert all(len({*row.tolist(), query}) == 6 for row, query in zip(context, queries.tolist(), strict=True))
    top, total = read_out(features, labels, context, queries, 1.7, torch.tensor([2, 5]))
    variance = features.var(0, correction=0).sum().item()
    for prompt in range(7):
        for place, n in enumerate((2, 5)):
            weights = [
                math.exp(-1.7 / 2 * math.dist(features[j].tolist(), features[queries[prompt]].tolist()) ** 2 / variance)
                for j in context[prompt, :n]
            ]
            assert total[prompt, place].item() == pytest.approx(sum(weights))
            assert top[prompt, place].item() == pytest.approx(
                sum(w * labels[j].item() for w, j in zip(weights, context[prompt, :n], strict=True))
            )


def test_the_reader_says_what_is_wrong():
    features, labels = torch.zeros(4, 1), torch.ones(4)
    context, queries, numbers = torch.tensor([[0, 1]]), torch.tensor([2]), torch.tensor([1, 2])
    for changed, message in (
        ({"features": torch.zeros(2, 4, 1)}, "features must have shape"),
        ({"labels": torch.ones(3)}, "labels must have shape"),
        ({"labels": torch.ones(4, dtype=torch.float64)}, "labels must have the dtype"),
        ({"labels": torch.full((4,), math.nan)}, "labels must be finite"),
        ({"context": torch.tensor([0, 1])}, "context must have shape"),
        ({"context": torch.tensor([[4, 1]])}, "context must lie in"),
        ({"queries": torch.tensor([1, 2])}, "queries must have shape"),
        ({"numbers": torch.tensor([2, 2])}, "numbers must have shape"),
        ({"numbers": torch.tensor([0, 1])}, "numbers must have shape"),
        ({"numbers": torch.tensor([1, 3])}, "numbers must be at most"),
        ({"sharpness": 0.0}, "sharpness must be positive"),
    ):
        given = {"features": features, "labels": labels, "context": context, "queries": queries, "numbers": numbers}
        with pytest.raises((TypeError, ValueError), match=message):
            read_out(**{"sharpness": 1.0} | given | changed)
    assert read_out(features, labels, context, queries, 1.0, numbers)[1].tolist() == [[1.0, 2.0]]  # features all alike


def test_prompts_are_even():
    """Every sequence is as often an example, and as often the query."""
    context, queries = draw_prompts(5, 2, 30_000, torch.Generator().manual_seed(0))
    for values, share in ((queries, 1 / 5), (context, 1 / 5)):
        found = torch.bincount(values.flatten(), minlength=5) / values.numel()
        assert (found - share).abs().max() < 5 * math.sqrt(share / values.numel())
    with pytest.raises(ValueError, match="examples must be fewer"):
        draw_prompts(5, 5, 1, torch.Generator())


def test_more_sequences_than_single_precision_tells_apart_are_refused():
    with pytest.raises(ValueError, match="size must be at most 2²⁰, beyond which single precision draws ties, got"):
        draw_prompts(2**20 + 1, 3, 1, torch.Generator().manual_seed(0))
