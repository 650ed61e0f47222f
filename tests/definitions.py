"""The functions of the book a second time, slowly: sums over entries, automatic differentiation, fractions, all cases.

`DEFINITIONS` has the definition of each function, and choices for the arguments that tests/test_arguments.py would give one
value only; a test there compares the two on drawn arguments. Nothing here is fast, and nothing is taken from the package
but what is not being tested: models, tasks, and for a few functions one whose definition stands above them.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import torch
from numpy.polynomial import Polynomial
from scipy.integrate import quad, solve_ivp
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import one_hot

from attnopt import clustering, in_context, regression, softmax, standard, synthesis

DEFINITIONS = {}


def defines(function, **choices):
    """Marks what a function is."""

    def mark(definition):
        DEFINITIONS[function] = definition, choices
        return definition

    return mark


def tensor(values):
    """Numbers as float64."""
    return torch.from_numpy(np.array(values, dtype=float))


def shares(logits, axis):
    """The softmax, from its definition."""
    powers = logits.exp()
    return powers / powers.sum(-2 if axis == "sequence" else -1, keepdim=True)


def cross_entropy(logits, labels, axis):
    return -(labels * shares(logits, axis).log()).sum()


def slope(function, point):
    """The gradient, by automatic differentiation."""
    point = point.clone().requires_grad_()
    return torch.autograd.grad(function(point), point)[0]


# ---------------------------------------------------------------- Part I

defines(softmax.softmax)(shares)


@defines(softmax.logsumexp)
def _(logits, axis):
    return logits.exp().sum(-2 if axis == "sequence" else -1).log()


@defines(softmax.softmax_jacobian)
def _(probabilities):
    return torch.func.jacrev(lambda scores: torch.softmax(scores, -1))(probabilities.log())


@defines(softmax.smooth_maximum, temperature=(0.2, 1.0, 4.0))
def _(scores, temperature):
    with mpmath.workdps(40):
        powers = (mpmath.exp(mpmath.mpf(score) / temperature) for score in scores.tolist())
        return float(temperature * mpmath.log(mpmath.fsum(powers)))


@defines(regression.pointwise_cross_entropy)
def _(logits, labels, axis):
    return cross_entropy(logits, labels, axis)


@defines(regression.cross_attention)
def attention(features, weights, axis):
    return torch.einsum("sk,kf->sf", shares(torch.einsum("sf,kf->sk", features, weights), axis), weights)


@defines(regression.self_attention)
def _(x, axis):
    return attention(x, x, axis)


@defines(regression.linear_gradient)
def linear_slope(features, weights, labels, axis):
    return slope(lambda z: cross_entropy(z @ weights.mT, labels, axis), features)


@defines(regression.quadratic_gradient)
def _(features, weights, labels, axis):
    return slope(lambda z: cross_entropy(z @ weights @ z.mT, labels, axis), features)


@defines(regression.quadratic_gradient_of_paper)
def _(features, weights, labels, axis):
    scores = torch.einsum("sf,fg,tg->st", features, weights, features)
    return torch.einsum("st,tf,fg->sg", 2 * shares(scores, axis) - labels - labels.mT, features, weights)


@defines(regression.multi_head_gradient)
def _(features, projections, weights, labels, axis):
    heads = list(zip(projections, weights, labels, strict=True))
    return slope(lambda z: sum(cross_entropy(z @ p @ theta.mT, c, axis) for p, theta, c in heads), features)


@defines(regression.sinkhorn_attention)
def balanced(scores):
    matrix = scores.exp()
    for _ in range(3000):
        matrix = matrix / matrix.sum(-1, keepdim=True)
        matrix = matrix / matrix.sum(-2, keepdim=True)
    return matrix


@defines(regression.sinkhorn_value)
def _(scores):
    attention = balanced(scores)
    return (attention * (scores - attention.log())).sum()


@defines(regression.feature_flow)
def _(features, weights, labels, axis, times, model, printed):
    def velocity(_, flat):
        return -linear_slope(torch.from_numpy(flat).view_as(features), weights, labels, axis).flatten().numpy()

    span = 0, times[-1].item()
    found = solve_ivp(velocity, span, features.flatten().numpy(), "DOP853", times.numpy(), rtol=1e-11, atol=1e-12)
    return torch.from_numpy(found.y.T.copy()).view(len(times), *features.shape)


@defines(regression.block_step, scheme=("euler", "printed"), step=(0.3, 1.0))
def _(features, weights, labels, axis, step, scheme, model):
    return features - step * linear_slope(features, weights, labels, axis)


@defines(regression.unroll, scheme=("euler", "printed"), layers=(0, 1, 3))
def _(features, weights, labels, axis, layers, step, scheme, model):
    path = [features]
    for _ in range(layers):
        path.append(path[-1] - step * linear_slope(path[-1], weights, labels, axis))
    return torch.stack(path)


@defines(regression.unroll_logits, layers=(0, 1, 3))
def _(logits, weights, labels, axis, layers, step):
    path = [logits]
    for _ in range(layers):
        path.append(path[-1] - step * (shares(path[-1], axis) - labels) @ (weights @ weights.mT))
    return torch.stack(path)


# ---------------------------------------------------------------- Part II


@defines(in_context.linear_transformer)
def states(prompts, P, Q):
    """The paper's (4), word by word: tokens in columns, an explicit mask."""
    Z, n = prompts.mT, len(prompts) - 1
    M = torch.diag(tensor([1.0] * n + [0.0]))
    found = [Z]
    for p, q in zip(P, Q, strict=True):
        found.append(found[-1] + p @ found[-1] @ M @ (found[-1].mT @ q @ found[-1]) / n)
    return torch.stack(found).mT


@defines(in_context.in_context_loss)
def _(prompts, targets, P, Q):
    errors = [states(prompt, P, Q)[-1, -1, -1] + target for prompt, target in zip(prompts, targets, strict=True)]
    return sum(error**2 for error in errors) / len(errors)


@defines(in_context.prompt_losses)
def _(grams, A, B):
    T = K = torch.eye(len(grams), dtype=torch.float64)
    for a, b in zip(A, B, strict=True):
        T, K = T + T @ grams @ K.mT @ a @ K, K + b @ K @ grams @ K.mT @ a @ K
    return (T**2).sum()


@defines(in_context.one_layer_optimum, n_context=(1, 3, 20))
def _(covariance, n_context):
    loss = lambda A: one_layer(A, covariance, n_context, torch.eye(len(covariance)).double())  # noqa: E731
    zero = torch.zeros_like(covariance)
    hessian = torch.func.hessian(loss)(zero).reshape(zero.numel(), -1)
    return -torch.linalg.solve(hessian, torch.func.grad(loss)(zero).flatten()).view_as(zero)


@defines(in_context.one_layer_loss, n_context=(1, 3, 20))
def one_layer(preconditioner, covariance, n_context, weight_covariance):
    """E tr (I + HA)ᵀ Ω (I + HA) Σ, from Isserlis' sums over entries of H."""
    S = covariance
    pairs = torch.einsum("ik,jl->ijkl", S, S) + torch.einsum("il,jk->ijkl", S, S)
    second = torch.einsum("ij,kl->ijkl", S, S) + pairs / n_context  # E[H_ij H_kl]
    squared = torch.einsum("ijkl,jk->il", second, weight_covariance)
    linear = torch.einsum("ij,ji", S @ weight_covariance @ S, preconditioner)
    quadratic = torch.einsum("ai,ij,jb,ba", preconditioner.mT, squared, preconditioner, S)
    return torch.einsum("ij,ji", S, weight_covariance) + 2 * linear + quadratic


@defines(in_context.layers_loss, n_context=(1, 2))
def _(A, covariance, n_context, weight_covariance):
    """By Gauss rules for the entries of H, prompt after prompt."""
    root, total = torch.linalg.cholesky(covariance), 0.0
    for G, weight in zip(
        *map(torch.from_numpy, in_context.gram_quadrature(len(covariance), n_context, 2 * len(A))), strict=True
    ):
        T = torch.eye(len(covariance), dtype=torch.float64)
        for a in A:
            T = T + T @ root @ G @ root.mT @ a
        total += weight * torch.trace(weight_covariance @ T @ covariance @ T.mT)
    return total


def moments(dim, n_context, count):
    """E tr G^m as fractions, by the recursion over partitions."""
    return [in_context.wishart_trace_moment([m], dim, n_context) / Fraction(n_context) ** m for m in range(count)]


def mean_square(coefficients, dim, n_context):
    """E tr p(G)², exactly, from the coefficients of p."""
    square = np.convolve([Fraction(c) for c in coefficients], [Fraction(c) for c in coefficients])
    return float(sum(c * m for c, m in zip(square, moments(dim, n_context, len(square)), strict=True)))


@defines(in_context.spectral_moments, dim=(1, 2, 5), dof=(1, 3, 8), count=(1, 2, 9))
def _(dim, dof, count):
    return [int(in_context.wishart_trace_moment([m], dim, dof)) for m in range(count)]


@defines(in_context.wishart_recurrence, dim=(1, 2, 5), n_context=(1, 3, 8), degree=(1, 2, 3))
def recurrence(dim, n_context, degree):
    """By Gram and Schmidt; a law of one point has no second polynomial, so that β ends there with 0."""
    m = moments(dim, n_context, 2 * degree + 2)
    inner = lambda p, q: sum(a * b * m[i + j] for i, a in enumerate(p) for j, b in enumerate(q))  # noqa: E731
    now, before, norm, alpha, beta = [Fraction(1)], [], Fraction(1), [], []
    for _ in range(degree):
        size = inner(now, now)
        alpha.append(inner([0, *now], now) / size)
        beta.append(size / norm)
        norm = size
        longer = [*before, *[Fraction(0)] * (len(now) + 1 - len(before))]
        after = [up - alpha[-1] * same - beta[-1] * low for up, same, low in zip([0, *now], [*now, 0], longer, strict=True)]
        now, before = after, now
    return [float(x) for x in alpha], [float(x) for x in beta]


@defines(in_context.wishart_quadrature, dim=(1, 2, 5), n_context=(1, 3, 8), n_nodes=(1, 2, 3))
def _(dim, n_context, n_nodes):
    """Eigenvalues of the Jacobi matrix, and the weights that give the first moments."""
    alpha, beta = recurrence(dim, n_context, n_nodes)
    with mpmath.workdps(40):
        matrix = mpmath.diag(alpha)
        for j in range(1, n_nodes):
            matrix[j - 1, j] = matrix[j, j - 1] = mpmath.sqrt(beta[j])
        nodes = mpmath.eigsy(matrix, eigvals_only=True)
        powers = mpmath.matrix([[node**j for node in nodes] for j in range(n_nodes)])
        weights = mpmath.lu_solve(
            powers, [mpmath.mpf(m.numerator) / m.denominator for m in moments(dim, n_context, n_nodes)]
        )
        return [float(node) for node in nodes], [float(weight) for weight in weights]


@defines(in_context.marchenko_pastur_steps, ratio=(0.25, 1.0, 2.5), n_layers=(1, 2, 4))
def _(ratio, n_layers):
    """The best residual polynomial for the law whose moments are Narayana's, from the normal equations."""
    k = n_layers
    with mpmath.workdps(40):
        m = [mpmath.mpf(1)]
        for r in range(1, 2 * k + 1):
            m.append(mpmath.fsum(mpmath.binomial(r, j) * mpmath.binomial(r - 1, j) / (j + 1) * ratio**j for j in range(r)))
        normal = mpmath.matrix([[m[i + j] for j in range(1, k + 1)] for i in range(1, k + 1)])
        found = mpmath.lu_solve(normal, [-m[i] for i in range(1, k + 1)])
        roots = mpmath.polyroots([*reversed(list(found)), 1], maxsteps=200, extraprec=200)
        steps = sorted((float(-1 / root.real) for root in roots), reverse=True)
        return tensor(steps), float(m[0] + mpmath.fsum(r * m[i] for i, r in enumerate(found, 1)))


@defines(in_context.residual_polynomial)
def residual(steps):
    return math.prod((Polynomial([1, step]) for step in steps.tolist()), start=Polynomial([1.0]))


@defines(in_context.step_loss, dim=(1, 2, 5), n_context=(1, 3, 20))
def _(steps, dim, n_context):
    return mean_square(residual(steps).coef, dim, n_context)


def bent(steps, curvatures):
    """R_k of GD++ by multiplying polynomials out."""
    value, seen = Polynomial([1.0]), Polynomial([0.0, 1.0])
    for step, bend in itertools.zip_longest(steps.tolist(), curvatures.tolist(), fillvalue=0.0):
        value, seen = value * (1 + step * seen), seen * (1 + bend * seen) ** 2
    return value


@defines(in_context.gdpp_residuals)
def _(steps, curvatures, eigenvalues):
    values = eigenvalues.numpy()
    residuals = [tensor(bent(steps[:k], curvatures[: max(k - 1, 0)])(values)) for k in range(len(steps) + 1)]
    seen = [eigenvalues]
    for bend in curvatures:
        seen.append(seen[-1] * (1 + bend * seen[-1]) ** 2)
    return torch.stack(residuals), torch.stack(seen)


@defines(in_context.gdpp_loss, dim=(1, 2, 5), n_context=(1, 3, 20))
def _(steps, curvatures, dim, n_context):
    return mean_square(bent(steps, curvatures).coef, dim, n_context)


# ---------------------------------------------------------------- Part III


@defines(clustering.normalize, norm=("unit", "rms", "smooth"))
def unit(vectors, norm):
    length = math.sqrt(sum(x * x for x in vectors.tolist()))
    root = math.sqrt(len(vectors))
    if norm == "smooth":
        fall = lambda r: math.exp(-1 / r) if r > 0 else 0.0  # noqa: E731
        step = fall(length) / (fall(length) + fall(1 - length))
        return root * (length + (1 - length) * step) / length * vectors
    return vectors / (length if norm == "unit" else length / root + 1e-5)


@defines(clustering.gelu_derivative)
def _(x):
    return slope(lambda x: torch.nn.functional.gelu(x).sum(), x)


@defines(clustering.cluster_counts, p=(2, 3, 5), k=(1, 2, 4))
def _(p, k):
    return tensor([row for row in itertools.product(range(k + 1), repeat=p) if sum(row) == k])


def mean_losses(models, tokens, targets):
    return -models.logits(tokens).log_softmax(-1)[:, range(len(targets)), targets].mean(1)


@defines(clustering.closed_form_gradients)
def gradients(models, tokens, targets):
    names = ("query", "value", "receptors", "assemblers")
    leaves = models.replace(**{name: models.weights[name].clone().requires_grad_() for name in names})
    mean_losses(leaves, tokens, targets).sum().backward()
    return {name: leaves.weights[name].grad for name in names}


def of_bounds(models, tokens, targets, printed):
    """What both bounds are made of, one model and sequence at a time."""
    spectral = lambda array: np.linalg.norm(array.numpy(), 2)  # noqa: E731
    for model in models:
        stages, E = model.stages(tokens), model.weights["token"][0]
        V, W, U = (spectral(model.weights[name][0]) for name in ("value", "receptors", "assemblers"))
        errors = stages["logits"][0].softmax(-1) - one_hot(targets, len(E))
        c = math.erf(1) / 2 + 0.5 + math.exp(-1) / math.sqrt(math.pi)  # the largest slope of the GELU, at √2
        apart = max((one - other).norm().item() for one in E for other in E)
        rows = []
        for error, xi in zip(errors, stages["sequence"][0], strict=True):
            distance = error.abs().sum().item() / 2
            if printed:
                rows.append([distance, (error @ E).square().sum().item()])
            else:
                kappa = 1 + c * U * W / xi.norm().item()
                rows.append([V * kappa / model.dim**0.5, kappa, c * U, W] * np.array(distance * apart))
        yield model, (V, W, U), np.mean(rows, 0)


@defines(clustering.gradient_bound_terms)
def _(models, tokens, targets):
    return list(tensor([mean for _, _, mean in of_bounds(models, tokens, targets, False)]).mT)


@defines(clustering.gradient_bound)
def _(models, tokens, targets):
    return tensor([np.linalg.norm(mean) for _, _, mean in of_bounds(models, tokens, targets, False)])


def printed_factors(model, V, W, U):
    """Those of (29)-(32)."""
    d, L = model.dim, model.length
    query = 2 * L * d**0.5 * V * (1 + (2 / math.pi) ** 0.5 * W**2 * U)
    return np.array([query, d**0.5 * (1 + 2 * W * U), 2 * U, W])


@defines(clustering.gradient_bound_terms_of_paper)
def _(models, tokens, targets):
    parts = of_bounds(models, tokens, targets, True)
    return list(tensor([printed_factors(model, *norms) * mean[1] ** 0.5 for model, norms, mean in parts]).mT)


@defines(clustering.gradient_bound_of_paper)
def _(models, tokens, targets):
    return tensor(
        [
            (4 * model.dim * model.weights["token"].abs().max().item() ** 2 * mean[0]) ** 0.5
            * np.linalg.norm(printed_factors(model, *norms))
            for model, norms, mean in of_bounds(models, tokens, targets, True)
        ]
    )


def relevant(task):
    """The positions at which another token changes some label."""
    label = {tuple(tokens): target for tokens, target in zip(*map(Tensor.tolist, task.all()), strict=True)}
    changes = lambda at: any(label[s] != label[(*s[:at], x, *s[at + 1 :])] for s in label for x in range(task.p))  # noqa: E731
    return [at for at in range(task.length) if changes(at)]


TASKS = (
    clustering.Task(2, 4, 2),
    clustering.Task(2, 4, 1, rule=[0, 3, 2, -1]),
    clustering.Task(2, 4, 4, rule=lambda tokens: tokens[..., 0] * tokens[..., 2] * tokens[..., 3]),
    clustering.Task(2, 4, 3, rule=[0, 1] * 8),
    clustering.Task(2, 4, 3, rule=[0, 2, 0, 0]),
    type("Last", (clustering.Task,), {"labels": lambda self, tokens: tokens[..., -1]})(2, 4, 2),
)


@defines(clustering.invariance, task=TASKS)
def _(models, task):
    tokens, found, known = task.all()[0].tolist(), [], relevant(task)
    for points in models.stages(task.all()[0])["sequence"]:
        groups, means = {}, {}
        for sequence, point in zip(tokens, points, strict=True):
            groups.setdefault(tuple(sequence[at] for at in known), []).append(point)
        for prefix, group in groups.items():
            means.setdefault(tuple(sorted(prefix)), []).append(torch.stack(group).mean(0))
        spread = lambda some: (torch.stack(some) - torch.stack(some).mean(0)).square().sum().item()  # noqa: E731
        total = spread(list(points)) / len(points)
        within = sum(map(spread, groups.values())) / len(points)
        orders = sum(map(spread, means.values())) / len(groups)
        found.append([1 - within / total, 1 - orders / total])
    return list(tensor(found).mT)


@defines(clustering.spurious_attention, task=TASKS)
def _(models, task):
    others = [at for at in range(task.length) if at not in relevant(task)]
    there = models.stages(task.all()[0])["attention"][..., others].sum(-1)
    return there.amin(1), there.amax(1)


@defines(clustering.margins)
def _(models):
    tokens = tensor(list(itertools.product(range(2), repeat=models.length))).long()
    return models.logits(tokens) @ tensor([-1.0, 1.0])


@defines(clustering.parity_coefficient, k=(1, 2, 4))
def _(margin, k):
    signs = [1 if sum(row[:k]) % 2 else -1 for row in itertools.product(range(2), repeat=4)]
    return (margin * tensor(signs)).sum() / 16


@defines(clustering.log_cosh_half)
def _(margin):
    return float(mpmath.log(mpmath.cosh(mpmath.mpf(margin.item()) / 2)))


@defines(clustering.activation_sparsity)
def _(activations, thresholds):
    active = torch.nn.functional.gelu(activations).abs().flatten(1).tolist()
    return tensor([[sum(size < limit for size in row) / len(row) for limit in thresholds] for row in active])


# ---------------------------------------------------------------- Part IV


@defines(synthesis.oracle_value)
def _(weights, predictions, posterior):
    return tensor([(((s - c) @ weights) ** 2).sum().item() for s, c in zip(predictions, posterior, strict=True)])


@defines(synthesis.attention_spread)
def _(weights, predictions):
    """The trace of attention's Jacobian at logits of these predictions."""
    jacobian = lambda s: weights.mT @ torch.func.jacrev(lambda x: torch.softmax(x, -1))(s.log()) @ weights  # noqa: E731
    return torch.stack([torch.trace(jacobian(s)) for s in predictions])


@defines(synthesis.gain_bounds, step=(0.1, 1.0))
def _(weights, predictions, labels, posterior, step):
    curvature = max(((one - other) ** 2).sum().item() for one in weights for other in weights) / 4
    low, high = [], []
    for s, q, c in zip(predictions, labels, posterior, strict=True):
        move, right = (s - q) @ weights, (s - c) @ weights
        high.append(step * (move @ right).item())
        low.append(high[-1] - step**2 * curvature / 2 * (move @ move).item())
    return tensor(low), tensor(high)


@defines(synthesis.information_split)
def _(predictions, shares, posterior):
    parts = []
    for s, answers, rows in zip(predictions.tolist(), shares.tolist(), posterior.tolist(), strict=True):
        true = [sum(p * row[k] for p, row in zip(answers, rows, strict=True)) for k in range(len(s))]
        left = -sum(p * x * math.log(x) for p, row in zip(answers, rows, strict=True) for x in row)
        wrong = sum(x * math.log(x / y) for x, y in zip(true, s, strict=True))
        parts.append((left, -sum(x * math.log(x) for x in true) - left, wrong))
    return list(tensor(parts).mT)


@defines(synthesis.own_label_energy, temperature=(0.3, 0.9, 2.0))
def _(logits, temperature):
    """The mean entropy between the temperatures."""

    def entropy(tau, row):
        powers = [math.exp((x - max(row)) / tau) for x in row]
        return -sum(w / sum(powers) * math.log(w / sum(powers)) for w in powers if w)

    return tensor([quad(entropy, temperature, 1, (row,), epsabs=1e-12, epsrel=1e-12)[0] for row in logits.tolist()])


@defines(synthesis.softmax_price, dim=(1, 2, 5, 100))
def _(dim):
    value = lambda r: math.log(1 - r) - math.log(r) - (dim / 2 + 1) * math.log(1 - 2 * r)  # noqa: E731
    least = minimize_scalar(value, bounds=(1e-9, 0.5 - 1e-9), method="bounded", options={"xatol": 1e-14})
    with mpmath.workdps(30):
        place = mpmath.findroot(lambda r: -1 / (1 - r) - 1 / r + (dim + 2) / (1 - 2 * r), least.x)
        return float((1 - place) / (place * (1 - 2 * place) ** (mpmath.mpf(dim) / 2 + 1))), float(place)


def number(kernel, rule):
    """ν of a kernel on all sequences, a row for each example and a column for each query, for one of its eigenfunctions."""
    eigenvalue = (rule.conj() @ kernel @ rule / (rule.conj() @ rule) / len(rule)).real
    return ((kernel.abs() ** 2).mean() / eigenvalue**2).item()


def rules(length, weight, p):
    """All sequences, and the values of all rules of a weight on them."""
    tokens = torch.cartesian_prod(*[torch.arange(p)] * length).view(-1, length)
    words = tokens[(tokens != 0).sum(1) == weight]
    return tokens, torch.exp(2j * math.pi / p * (words @ tokens.mT % p).to(torch.complex128))


@defines(synthesis.agreement_number, length=(2, 3, 4), weight=(1, 2), p=(2, 3), sharpness=(0.4, 1.3))
def _(length, weight, p, sharpness):
    tokens, values = rules(length, weight, p)
    agree = (tokens[:, None] == tokens).sum(-1).double()
    return number(torch.exp(sharpness * agree).to(values.dtype), values[0])


@defines(synthesis.positive_number, length=(2, 3, 4), weight=(1, 2), p=(2, 3))
def _(length, weight, p):
    _, values = rules(length, weight, p)
    total = (values.mH @ values).real
    return min(number((sign * total).clamp_min(0).to(values.dtype), values[0]) for sign in (1, -1))


@defines(synthesis.unseen_mass)
def missed(shares, examples):
    """By all ways to draw the examples' cells and the query's."""
    found = []
    for count in examples:
        draws = itertools.product(range(len(shares)), repeat=count + 1)
        found.append(sum(shares[list(draw)].prod().item() for draw in draws if draw[0] not in draw[1:]))
    return tensor(found)


@defines(synthesis.examples_needed, left=(0.02, 0.3, 0.9))
def _(shares, left):
    mass = lambda n: sum(p * (1 - p) ** n for p in shares.tolist())  # noqa: E731
    return tensor(next(n for n in itertools.count() if mass(n) <= left))


@defines(synthesis.read_context)
def _(queries, tokens, members):
    found, within = [], []
    for query in queries:
        weights = members * (tokens @ query).exp()[:, None]
        found.append(weights.sum(0) / weights.sum())
        within.append((weights / weights.sum(0)).mT @ tokens)
    return torch.stack(found), torch.stack(within)


def normal_mean(dim, kappa):
    """E Φ(κ‖x‖) for x ~ N(0, I)."""
    log_scale = (1 - dim / 2) * math.log(2) - math.lgamma(dim / 2)
    density = lambda r: math.exp(log_scale + (dim - 1) * math.log(r) - r * r / 2)  # noqa: E731
    value = lambda r: (1 + math.erf(kappa * r / math.sqrt(2))) / 2 * density(r)  # noqa: E731
    return quad(value, 1e-300, math.sqrt(dim) + 12, epsabs=1e-13, epsrel=1e-12, limit=300)[0]


@defines(synthesis.own_label_accuracy, dim=(1, 2, 7), examples=(2, 5), variance=(0.0, 0.5, 3.0))
def _(dim, examples, variance):
    rho = (1 + examples * variance) / math.sqrt((1 + variance) * examples * (1 + examples * variance))
    return normal_mean(dim, rho / math.sqrt(1 - rho**2))


@defines(synthesis.context_accuracy_bound, dim=(1, 2, 7), examples=(1, 5), variance=(0.0, 0.5, 3.0))
def _(dim, examples, variance):
    rho = examples * variance / math.sqrt((1 + variance) * examples * (1 + examples * variance))
    return normal_mean(dim, rho / math.sqrt(1 - rho**2))


@defines(synthesis.tied_optimum, dim=(1, 2, 5), examples=(1, 3, 20), layers=(1, 2, 3))
def tied(dim, examples, layers):
    """The only zero of the derivative of E tr (I + aG)^2k."""
    m = moments(dim, examples, 2 * layers + 1)
    loss = Polynomial([float(math.comb(2 * layers, j) * m[j]) for j in range(2 * layers + 1)])
    step = next(root.real for root in loss.deriv().roots() if abs(root.imag) < 1e-7)
    return step, loss(step)


@defines(synthesis.tied_rates, dim=(1, 2, 5), examples=(1, 3, 20), layers=(2, 3))
def _(dim, examples, layers):
    steps = torch.full((layers,), tied(dim, examples, layers)[0], dtype=torch.float64)
    values = torch.linalg.eigvalsh(torch.func.hessian(lambda a: in_context.step_loss(a, dim, examples))(steps))
    return values[-1].item(), -values[0].item()


# ---------------------------------------------------------------- Part V


@defines(standard.as_tokens)
def _(covariates, labels):
    tokens = []
    for point, label in zip(covariates, labels, strict=True):
        tokens += [[*point.tolist(), 0.0], [0.0] * len(point) + [label.item()]]
    return tensor(tokens[:-1])


@defines(standard.krylov_answers, count=(1, 2, 4))
def _(covariates, labels, query, count):
    n = len(labels)
    gram = covariates.T @ covariates / n
    return torch.stack([query @ torch.linalg.matrix_power(gram, j) @ covariates.T @ labels / n for j in range(count)])


@defines(standard.newton_answers, steps=(0, 1, 4))
def _(covariates, labels, query, steps):
    """In the singular directions, where Newton's iteration takes a number s to m (2 - s m)."""
    left, values, right = torch.linalg.svd(covariates, full_matrices=False)
    found = []
    for step in range(steps + 1):
        inverse = values**2 / values[0] ** 4
        for _ in range(step):
            inverse = inverse * (2 - values**2 * inverse)
        found.append((right @ query) @ (inverse * values * (left.T @ labels)))
    return torch.stack(found)


@defines(standard.ridge_answers, penalty=(0.0, 0.7, 30.0))
def _(covariates, labels, query, penalty):
    """From the dual problem."""
    kernel = covariates @ covariates.T + penalty * torch.eye(len(labels), dtype=torch.float64)
    return query @ covariates.T @ torch.linalg.pinv(kernel, rtol=1e-12, hermitian=True) @ labels


@defines(standard.fitted_reading, fit=(2, 3), penalty=(1e-3, 2.0))
def _(features, target, fit, penalty):
    """Ridge regression as least squares with a further row for each feature."""
    known = features[:fit] - features[:fit].mean(0)
    rows = torch.cat([known, torch.diag(penalty**0.5 * known.norm(dim=0))])
    sought = torch.cat([target[:fit] - target[:fit].mean(), torch.zeros(known.shape[1], dtype=torch.float64)])
    weights = torch.linalg.lstsq(rows, sought[:, None]).solution[:, 0]
    return target[:fit].mean() + (features[fit:] - features[:fit].mean(0)) @ weights


@defines(standard.explained)
def _(prediction, target):
    error = sum((a - b) ** 2 for a, b in zip(prediction.tolist(), target.tolist(), strict=True))
    mean = target.mean().item()
    return tensor(1 - error / sum((value - mean) ** 2 for value in target.tolist()))
