"""Labels in context: layers against differentiation, the Bayes layer against Bayes' rule, accuracies against samples."""

import cmath
import itertools
import math

import labels_in_context as experiment
import pytest
import torch

from attnopt.regression import linear_gradient
from attnopt.synthesis import bayes_layer, context_accuracy_bound, label_layers, own_label_accuracy

HALVES = torch.tensor([[-0.5], [0.5]], dtype=torch.float64)  # class vectors for which Z is the log-odds of the second class


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def named(labels, count=2):
    return torch.nn.functional.one_hot(labels, count).double()


def close(actual, expected, rtol=1e-10):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), rtol=rtol, atol=rtol)


def counted(right, expected):
    """A share of samples against a probability, within four standard errors."""
    assert abs(right.double().mean().item() - expected) < 4 * math.sqrt(0.25 / right.numel()) + 1e-12


# Layers are steps


@pytest.mark.evidence("book-label-layers")
@pytest.mark.parametrize("queries", [0, 1, 3])
def test_every_token_shows_the_weights_of_preconditioned_gradient_descent(queries, generator):
    m, d, classes, width = 9, 4, 3, 2
    X, A, theta = normal(generator, m, d), normal(generator, d, d), normal(generator, classes, width)
    C, steps = torch.softmax(normal(generator, m, classes), -1), [0.7, 2.0, -0.4]
    found = label_layers(X @ A @ X.T, C, theta, steps, queries)
    W, n = torch.zeros(d, width, dtype=torch.float64, requires_grad=True), m - queries
    for layer, step in enumerate(steps):
        close(found[layer], X @ W.detach())
        loss = -(C[:n] * torch.log_softmax(X[:n] @ W @ theta.T, -1)).sum() / n
        W = (W - step * A @ torch.autograd.grad(loss, W)[0]).detach().requires_grad_()
    close(found[-1], X @ W.detach())


@pytest.mark.evidence("book-label-layers")
def test_with_a_kernel_a_layer_is_a_step_in_function_space(generator):
    x, C, theta = normal(generator, 7, 1), named(torch.tensor([0, 1, 2, 0, 1, 2, 0]), 3), normal(generator, 3, 2)
    similarities = torch.exp(-((x - x.T) ** 2))
    found = label_layers(similarities, C, theta, [0.9, 0.9])

    # f = Σ k(·, x_l) b_l with inner product tr bᵀ𝒦b': the gradient g satisfies Df(v) = ⟨g, v⟩ for all v in the space
    def loss(b):
        return -(C[:6] * torch.log_softmax(similarities[:6, :6] @ b @ theta.T, -1)).sum() / 6

    b, inner = torch.zeros(6, 2, dtype=torch.float64), similarities[:6, :6]
    for _ in range(2):
        slope = torch.func.grad(loss)(b)
        b = b - 0.9 * torch.linalg.solve(inner, slope)
    close(found[-1], similarities[:, :6] @ b, 1e-8)


@pytest.mark.evidence("book-label-layers")
def test_the_identity_gives_the_block_of_part_one(generator):
    C, theta = named(torch.tensor([0, 1, 1, 2]), 3), normal(generator, 3, 2)
    found = label_layers(4 * torch.eye(4, dtype=torch.float64), C, theta, [1.0, 1.0], queries=0)
    Z = found[1]
    close(found[2], Z - linear_gradient(Z, theta, C, "class"))


@pytest.mark.evidence("book-label-layers")
def test_what_leaks_is_the_diagonal_and_nothing_leaks_of_the_query(generator):
    X, theta = normal(generator, 6, 3), normal(generator, 4, 2)
    similarities, C = X @ X.T, torch.softmax(normal(generator, 6, 4), -1)
    jacobian = torch.func.jacrev(lambda C: label_layers(similarities, C, theta, [0.8]))(C)[
        1
    ]  # (token, feature, token, class)
    for token in range(5):
        close(jacobian[token, :, token], 0.8 / 5 * similarities[token, token] * theta.T)
    other = C.clone()
    other[5] = torch.tensor([1.0, 0, 0, 0])
    deep = [label_layers(similarities, labels, theta, [0.8] * 6) for labels in (C, other)]
    assert torch.equal(*deep)
    seen = [label_layers(similarities, labels, theta, [0.8], queries=0) for labels in (C, other)]
    assert not torch.allclose(*seen)


def test_labels_of_queries_need_be_no_distribution():
    similarities = torch.ones(2, 2, dtype=torch.float64)
    labels = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    close(label_layers(similarities, labels, HALVES, [1.0])[-1], [[0.5], [0.5]])
    with pytest.raises(ValueError, match="labels must be distributions"):
        label_layers(similarities, labels, HALVES, [1.0], queries=0)
    with pytest.raises(ValueError, match="labels must be distributions"):
        label_layers(similarities, labels + torch.tensor([-0.5, 0.5]).double() * labels.sum(-1, True), HALVES, [1.0])
    with pytest.raises(ValueError, match="queries must leave an example of 2 tokens, got 2"):
        label_layers(similarities, labels, HALVES, [1.0], queries=2)
    with pytest.raises(ValueError, match="steps must be one number per layer"):
        label_layers(similarities, labels, HALVES, torch.ones(2, 2, dtype=torch.float64))


# How much leaks


def sample(dim, examples, variance, count, generator):
    """Points times labels of the examples and of a query, whose signs then are all plus."""
    mean = math.sqrt(variance) * normal(generator, count, 1, dim)
    return mean + normal(generator, count, examples + 1, dim)


@pytest.mark.evidence("book-leak")
@pytest.mark.parametrize(
    ("dim", "examples", "variance"), [(5, 20, 0.0), (2, 9, 0.0), (1, 4, 0.0), (3, 6, 0.4), (5, 20, 0.5)]
)
def test_accuracies_are_those_of_layers_on_samples(dim, examples, variance, generator):
    flips = 2 * torch.randint(2, (50_000, examples + 1, 1), generator=generator) - 1.0
    X = flips * sample(dim, examples, variance, 50_000, generator)
    labels = (flips[..., 0] > 0).long()
    Z = label_layers(X @ X.mT, named(labels), HALVES, [0.3])[-1, ..., 0]
    right = (Z > 0) == (labels == 1)
    counted(right[:, 0], own_label_accuracy(dim, examples, variance))
    counted(right[:, -1], context_accuracy_bound(dim, examples, variance))
    put_in = label_layers(X @ X.mT, named(labels), HALVES, [0.3], queries=0)[-1, :, -1, 0]
    counted((put_in > 0) == (labels[:, -1] == 1), own_label_accuracy(dim, examples + 1, variance))


@pytest.mark.evidence("book-leak")
def test_in_the_plane_the_leak_is_one_over_a_root():
    for examples in (2, 4, 9, 16, 25, 100):
        assert own_label_accuracy(2, examples) == pytest.approx((1 + 1 / math.sqrt(examples)) / 2, rel=1e-12)
        assert own_label_accuracy(1, examples) == pytest.approx(0.5 + math.asin(examples**-0.5) / math.pi, rel=1e-12)
    for n, t in itertools.product((1, 5, 40), (0.1, 1.0, 7.0)):
        product = t / (1 + t) * n * t / (1 + n * t)
        assert context_accuracy_bound(2, n, t) == pytest.approx((1 + math.sqrt(product)) / 2, rel=1e-12)
    assert own_label_accuracy(3, 1) == own_label_accuracy(3, 1, 2.0) == 1.0
    assert context_accuracy_bound(3, 4, 0) == 0.5
    assert context_accuracy_bound(3, 4, 1e300) == 1.0


# One layer is Bayes' rule


def symmetric(generator, d):
    root = normal(generator, d, d)
    return root @ root.T / d + 0.3 * torch.eye(d, dtype=torch.float64)


@pytest.mark.evidence("book-bayes-layer")
@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 3), (3, 5)])
def test_the_layer_is_the_ratio_of_two_joint_densities(d, n, generator):
    """Bayes' rule from the joint normal law of all signed points, with no posterior in between."""
    noise, prior = symmetric(generator, d), symmetric(generator, d)
    labels = torch.randint(2, (n + 1,), generator=generator)
    X = normal(generator, n + 1, d)
    A = bayes_layer(noise, prior, n)
    assert torch.equal(A, A.T)
    Z = label_layers(X @ A @ X.T, named(labels), HALVES, [1.0])[-1, -1, 0]
    one = torch.ones(n + 1, n + 1, dtype=torch.float64)
    joint = torch.kron(one, prior) + torch.kron(torch.eye(n + 1, dtype=torch.float64), noise)
    law = torch.distributions.MultivariateNormal(torch.zeros(d * (n + 1), dtype=torch.float64), joint)
    signs = (2 * labels - 1.0).to(X)
    densities = []
    for label in (1.0, -1.0):
        signs[-1] = label
        densities.append(law.log_prob((signs[:, None] * X).flatten()))
    close(Z, densities[0] - densities[1], 1e-8)


@pytest.mark.evidence("book-bayes-layer")
def test_no_other_layer_has_less_cross_entropy_and_no_constant_depends_on_the_dimension(generator):
    for d, n, t in ((2, 3, 0.5), (6, 3, 0.5)):
        eye = torch.eye(d, dtype=torch.float64)
        close(bayes_layer(eye, t * eye, n), 4 * n / (n + 1 + 1 / t) * eye)
    noise, prior, n = symmetric(generator, 3), symmetric(generator, 3), 4
    A, points = bayes_layer(noise, prior, n), normal(generator, 40_000, 5, 3) @ torch.linalg.cholesky(noise).T
    points = points + normal(generator, 40_000, 1, 3) @ torch.linalg.cholesky(prior).T

    def loss(A):
        odds = (points[:, -1] * (points[:, :-1].sum(1) @ A)).sum(-1) / (2 * n)
        return torch.nn.functional.softplus(-odds)

    for direction in (A, torch.eye(3, dtype=torch.float64), symmetric(generator, 3)):
        for sign in (0.3, -0.3):
            worse = loss(A + sign * direction) - loss(A)
            assert worse.mean() > 0
        slope = loss(A + 0.01 * direction) - loss(A - 0.01 * direction)
        assert slope.mean().abs() < 4 * slope.std() / len(slope) ** 0.5


# Depth


def alone(steps, s):
    """Log-odds of an example of squared length s, all others 0, after layers with these factors; s may be complex."""
    z = 0j
    for a in steps:
        z += a * s / (1 + cmath.exp(z))
    return z


@pytest.mark.evidence("book-depth-worthless")
def test_a_prompt_of_one_example_follows_the_recursion_of_the_proof(generator):
    steps, n, x = [0.7, 1.9, -0.6], 4, normal(generator, 3)
    X = torch.zeros(n + 1, 3, dtype=torch.float64)
    X[0] = X[-1] = x
    Z = label_layers(X @ X.T, named(torch.tensor([1, 0, 1, 0, 0])), HALVES, steps)[-1, :, 0]
    expected = alone([h / n for h in steps], (x @ x).item())
    close(Z[-1], expected.real)
    assert torch.equal(Z[0], Z[-1])


@pytest.mark.evidence("book-depth-worthless")
@pytest.mark.parametrize("steps", [(1.0, 0.7), (0.4, -1.3), (1.0, 0.5, 0.8), (2.0, -0.3, 0.6, 1.1)])
def test_two_or_more_layers_have_a_pole_and_one_has_none(steps):
    """The proof's poles, found one after the other by Newton's method: z reaches (2j + 1)πi before the last layer."""
    place = 2j * cmath.pi / steps[0]  # e^z = -1 after one layer, z = a s/2
    for layer in range(2, len(steps)):
        # near a pole of the layer's odds these take the value (2j + 1)πi: look along small circles
        odds = lambda s, layer=layer: alone(steps[:layer], s)  # noqa: E731
        found = None
        for size, turn, j in itertools.product((0.3, 0.1, 0.03), range(24), range(-8, 9)):
            s, goal = place + size * cmath.exp(2j * cmath.pi * turn / 24), (2 * j + 1) * cmath.pi * 1j
            for _ in range(60):
                slope = (odds(s + 1e-6) - odds(s - 1e-6)) / 2e-6
                if slope == 0 or abs(s) > 50:
                    break
                s -= (odds(s) - goal) / slope
            if abs(odds(s) - goal) < 1e-7 and abs(s) > 0.1 and abs(s - place) > 1e-4:
                found = s
                break
        assert found is not None
        place = found
    # around a pole the mean of z(s)(s - place) over a small circle is the residue: not 0, so that z is not linear
    radius = 1e-4
    turns = [cmath.exp(2j * cmath.pi * k / 64) for k in range(64)]
    residue = sum(alone(steps, place + radius * turn) * radius * turn for turn in turns) / 64
    assert abs(residue) > 1e-3


def bayes_of_sizes(sizes, prior, points, x):
    """Log-odds at x by adding up over the sizes, noise N(0, size I), points multiplied by their labels."""
    n, d = points.shape
    total = points.sum(0)
    parts = {1: [], -1: []}
    for size in sizes:
        spread = size + size / (n + size / prior)
        middle = total / (n + size / prior)
        inside = points.square().sum() / size - total.square().sum() / (size * (n + size / prior))
        weight = -inside / 2 - n * d / 2 * math.log(size) - d / 2 * math.log(n * prior / size + 1)
        for sign in parts:
            parts[sign].append(weight - (x - sign * middle).square().sum() / (2 * spread) - d / 2 * math.log(spread))
    return torch.logsumexp(torch.stack(parts[1]), 0) - torch.logsumexp(torch.stack(parts[-1]), 0)


@pytest.mark.evidence("book-random-noise")
def test_with_noise_of_unknown_size_no_single_layer_is_best(generator):
    points, sizes, prior = normal(generator, 4, 2) + 0.5, (0.3, 2.0), 1.0
    total, n = points.sum(0), 4
    slopes = [2 * total.square().sum() / ((n + 1) * size + size**2 / prior) for size in sizes]
    near, far = (bayes_of_sizes(sizes, prior, points, t * total) / t for t in (1e-6, 1e3))
    close(far, slopes[1], 1e-3)
    assert slopes[1] * 1.001 < near < slopes[0]
    one = bayes_of_sizes((0.7,), prior, points, normal(generator, 2))
    generator.manual_seed(0)
    normal(generator, 4, 2)
    x, eye = normal(generator, 2), torch.eye(2, dtype=torch.float64)
    close(one, x @ bayes_layer(0.7 * eye, eye, 4) @ total / 8, 1e-9)


# The experiment


@pytest.mark.evidence("book-depth-pays", "book-new-classes")
def test_the_experiments_layers_are_the_packages(generator):
    X, A = normal(generator, 3, 11, 4), symmetric(generator, 4)
    C = named(torch.randint(3, (3, 10), generator=generator), 3)
    steps = torch.tensor([2.0, 0.5], dtype=torch.float64)
    W = experiment.descend(X[:, :10], C, steps, A)
    labels = torch.cat([C, torch.zeros(3, 1, 3, dtype=torch.float64)], 1)
    close(label_layers(X @ A @ X.mT, labels, torch.eye(3, dtype=torch.float64), steps)[-1], X @ W)
    odds = experiment.two_classes(
        X[..., :-1, :1].expand(3, 10, experiment.DIM), X[:, -1, :1].expand(3, experiment.DIM), steps
    )
    Y = torch.cat([X[..., :-1, :1].expand(3, 10, 5), X[:, -1:, :1].expand(3, 1, 5)], 1)
    ones = named(torch.ones(3, 11, dtype=torch.long))
    scaled = steps * 10 / experiment.EXAMPLES
    close(label_layers(Y @ Y.mT, ones, HALVES, scaled)[-1, :, -1, 0], odds)


@pytest.mark.evidence("book-depth-pays")
def test_depth_lowers_the_loss_where_the_noise_is_new_in_every_prompt():
    prompts = experiment.draw("random", 4000, torch.Generator().manual_seed(5))
    assert (prompts[2] > 0).double().mean() == pytest.approx(0.966, abs=0.01)
    losses = []
    for layers in (1, 2, 4):
        steps = experiment.trained_steps("random", layers, torch.Generator().manual_seed(0), 2000)
        losses.append(experiment.entropy(experiment.two_classes(*prompts[:2], steps), prompts[2]))
    assert losses[0] > losses[1] + 0.03
    assert losses[1] > losses[2] + 0.02


@pytest.mark.evidence("book-new-classes")
def test_prompts_of_the_experiment_name_classes_anew_and_share_no_image(generator):
    images = [torch.arange(100 * k, 100 * k + 40.0)[:, None] for k in range(10)]
    context, labels, asked, truth = experiment.prompts(images, [5, 6, 7, 8, 9], 50, generator)
    named_by = (context[:, :: experiment.SHOTS, 0] // 100).long()
    assert {tuple(sorted(row)) for row in named_by.tolist()} == {(5, 6, 7, 8, 9)}
    assert len({tuple(row) for row in named_by.tolist()}) > 20
    assert torch.equal((asked[..., 0] // 100).long(), named_by.gather(1, truth))
    assert torch.equal((context[..., 0] // 100).long(), named_by.gather(1, labels.argmax(-1)))
    for one, other in zip(context[..., 0].tolist(), asked[..., 0].tolist(), strict=True):
        assert len({*one, *other}) == 75


def held(matrices, signed):
    """Weights that layers with class vectors ∓½ hold after a prompt of points multiplied by their labels."""
    weights = torch.zeros(signed.shape[-1], dtype=torch.float64)
    for matrix in matrices:
        weights = weights + matrix @ (torch.sigmoid(-signed @ weights) @ signed) / len(signed)
    return weights


def antisymmetric(generator, dim):
    matrix = normal(generator, dim, dim)
    return matrix - matrix.mT


@pytest.mark.evidence("book-depth-worthless")
def test_antisymmetric_layers_that_cancel_on_one_example_do_not_on_two(generator):
    noise, prior = torch.eye(3, dtype=torch.float64), 0.5 * torch.eye(3, dtype=torch.float64)
    for n in (1, 2, 4):
        best, extra, signed = bayes_layer(noise, prior, n), antisymmetric(generator, 3), normal(generator, n, 3)
        wanted = best @ signed.sum(0) / (2 * n)
        for stack in ([extra, best - extra], [best, extra, -extra], [extra, -extra, best]):
            missed = (held(stack, signed) - wanted).abs().max()
            assert (missed < 1e-12) == (n == 1)
        close(held([best], signed), wanted)
        close(held([0 * best, best], signed), wanted)


@pytest.mark.evidence("book-depth-worthless")
def test_the_third_order_of_a_stack_is_that_of_the_proof(generator):
    matrices, signed = [normal(generator, 3, 3) for _ in range(4)], normal(generator, 2, 3)
    n, total, gram = len(signed), signed.sum(0), signed.mT @ signed
    pairs = sum(matrices[i] @ gram @ matrices[j] for i in range(4) for j in range(i))
    third = -pairs @ total / (8 * n**2)
    found = []
    for scale in (1e-2, 1e-3):
        first = sum(matrices) @ (scale * total) / (2 * n)
        found.append((held(matrices, scale * signed) - first) / scale**3)
    close(found[0], third, 5e-2)
    close(found[1], third, 5e-4)


def test_bayes_layer_takes_covariances_alone():
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="noise must be positive definite"):
        bayes_layer(-eye, eye, 3)
    with pytest.raises(ValueError, match="prior must be positive definite"):
        bayes_layer(eye, torch.stack([eye, -eye]), 3)
    with pytest.raises(ValueError, match="prior must have shape"):
        bayes_layer(eye, torch.eye(3, dtype=torch.float64), 3)
