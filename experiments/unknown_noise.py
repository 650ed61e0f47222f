"""How far layers with labels stay from Bayes' rule when the covariance of the noise is new in every prompt.

    python experiments/unknown_noise.py

Writes results/unknown_noise.json. The task is "random" of labels_in_context.py in two dimensions: points x = y(μ + noise),
EXAMPLES of them labeled; μ ~ N(0, I); the noise has uniformly random eigenvectors and eigenvalues that are log-uniform from
1/10 to 10. Given the direction of an eigenvector, the density of all points is a product of two integrals over one
eigenvalue each, so Bayes' rule takes Gauss-Legendre quadrature over the logarithms of the eigenvalues, NODES each, and
equally spaced directions, ANGLES of them over a quarter turn.

Rule, fixed before the runs. Layers step by W ← W - A_i∇CE(W) with A_i = h_i I ("steps") or any 2 x 2 matrix A_i
("matrices"). Each of STARTS starts for each kind and number of layers minimizes the mean divergence of the layers from
Bayes' rule over FITTED prompts by L-BFGS. The start with the least divergence on CHOSEN other prompts is tested on TESTED
fresh ones. "excess" is the mean divergence there, which is the cross-entropy beyond that of Bayes' rule, its label averaged
over what the rule says; the interval is two-sided, 95%, normal.

Decided: if the excess with eight layers of either kind is below 0.01 nats, such layers suffice. If it is above 0.03 nats
with both six and eight layers of both kinds, layers of this kind lack something that Bayes' rule needs. Anything else leaves
the question open.

A second search, "wider", fixed after it had turned out that starts up to 8 / depth miss better optima, in which one step is
near 20, and that rare prompts dominate the means. For steps, WIDE layers start log-uniformly from 1/5 to 20: SCREENED starts
on 2000 prompts; the best REFINED of them go on from there on PLENTY prompts; the one that is best on PLENTY others is tested
on TESTED_WIDE. The same thresholds decide: below 0.01 for any of these depths, such layers suffice; above 0.03 for all of
them, they lack something.

Also stored: the accuracies; the excess of the rule that is given the covariance (negative); the change of Bayes' log-odds if
NODES and ANGLES are halved; and "linear", the excess of the best rule that is linear in the query, as every stack of layers
is: for each of PROMPTS other prompts, the log-odds w·x of the w with the least mean divergence over QUERIES queries, drawn
from a normal distribution around the examples and weighted by the ratio of their density given the examples to it.
"""

import joblib
import numpy as np
import torch
from lab import Record
from scipy.optimize import minimize
from torch import Tensor

RECORD = Record("unknown_noise", digits=5)
EXAMPLES, NODES, ANGLES = 40, 64, 256
DEPTHS, STARTS, FITTED, CHOSEN, TESTED = (1, 2, 3, 4, 6, 8), 20, 6000, 10_000, 10_000
ROUNDS, PROMPTS, QUERIES = 200, 100, 1000
WIDE, SCREENED, REFINED, PLENTY, TESTED_WIDE = (8,), 60, 3, 20_000, 100_000


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Points times their labels, shape (count, n, 2); queries, likewise times their labels; and the noise."""
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    frames = torch.linalg.qr(normal(count, 2, 2))[0]
    values = 10 ** (2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1)
    noise = frames * values[:, None] @ frames.mT
    points = normal(count, 1, 2) + normal(count, EXAMPLES + 1, 2) @ torch.linalg.cholesky(noise).mT
    return points[:, :-1], points[:, -1], noise


def log_density(second: Tensor, first: Tensor, nodes: int, angles: int) -> Tensor:
    """Logarithm of the density of n + 1 signed points, up to a constant, from Σ xxᵀ and Σ x, shapes (P, 2, 2) and (P, 2)."""
    turn = torch.arange(2 * angles, dtype=torch.float64) * (torch.pi / 2 / angles)
    along = torch.stack([turn.cos(), turn.sin()])
    square = torch.einsum("ia,pij,ja->pa", along, second, along)
    drift = (first @ along).square()
    place, weight = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(nodes))
    value, count = 10**place, EXAMPLES + 1  # eigenvalues
    # ∫ exp(-½ (square - drift / (λ + n + 1)) / λ) λ^(-n/2) (λ + n + 1)^(-½) d log λ
    power = weight.log() - count / 2 * value.log() - 0.5 * torch.log1p(count / value)
    exponent = power - 0.5 * (square[..., None] - drift[..., None] / (value + count)) / value
    one = torch.logsumexp(exponent, -1)
    return torch.logsumexp(one[:, :angles] + one[:, angles:], -1)


def bayes(points: Tensor, queries: Tensor, nodes: int = NODES, angles: int = ANGLES) -> Tensor:
    """Bayes' log-odds of the label for each query, shape (P,), if the covariance is not given."""
    found = []
    for part, query in zip(points.split(200), queries.split(200), strict=True):
        second, first = part.mT @ part + query[:, :, None] * query[:, None], part.sum(1)
        plus, minus = (log_density(second, first + sign * query, nodes, angles) for sign in (1, -1))
        found.append(plus - minus)
    return torch.cat(found)


def given(points: Tensor, queries: Tensor, noise: Tensor) -> Tensor:
    """The log-odds of the rule that is given the covariance."""
    rule = 2 * torch.linalg.inv((EXAMPLES + 1) * noise + noise @ noise)
    return (queries * (rule @ points.sum(1)[..., None])[..., 0]).sum(-1)


def layered(points: Tensor, queries: Tensor, layers: Tensor) -> Tensor:
    """The layers' log-odds, from matrices of shape (layers, 2, 2) or steps of shape (layers,)."""
    weights = points.new_zeros(len(points), 2)
    for layer in layers:
        move = (points.mT @ torch.sigmoid(-points @ weights[..., None]))[..., 0] / EXAMPLES
        weights = weights + (move @ layer.mT if layer.ndim else layer * move)
    return (queries * weights).sum(-1)


def divergence(odds: Tensor, best: Tensor) -> Tensor:
    """Of the label's distribution with these log-odds from that with the best ones, shape (P,)."""
    soft = torch.nn.functional.logsigmoid
    return best.sigmoid() * (soft(best) - soft(odds)) + (-best).sigmoid() * (soft(-best) - soft(-odds))


def descended(layers: Tensor, points: Tensor, queries: Tensor, best: Tensor) -> tuple[float, Tensor]:
    """The mean divergence on these prompts and the layers, after L-BFGS from some layers."""

    def value_and_slope(values: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.from_numpy(values).reshape(layers.shape).requires_grad_()
        loss = divergence(layered(points, queries, at), best).mean()
        loss.backward()
        return loss.item(), at.grad.flatten().numpy()

    options = {"maxiter": ROUNDS, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(value_and_slope, layers.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    return found.fun, torch.from_numpy(found.x).reshape(layers.shape)


def fitted(kind: str, depth: int, start: int, prompts: tuple[Tensor, Tensor, Tensor]) -> tuple[float, list]:
    """The divergence on the prompts for choosing, and the layers, of one start."""
    torch.set_num_threads(1)
    fit, choose = ([part[cut] for part in prompts] for cut in (slice(FITTED), slice(FITTED, None)))
    generator = torch.Generator().manual_seed(1000 * depth + start)
    layers = torch.rand(depth, generator=generator, dtype=torch.float64) * 8 / depth
    if kind == "matrices":
        noise = torch.randn(depth, 2, 2, generator=generator, dtype=torch.float64)
        layers = layers[:, None, None] * (torch.eye(2, dtype=torch.float64) + 0.5 * noise)
    layers = descended(layers, *fit)[1]
    points, queries, best = choose
    return divergence(layered(points, queries, layers), best).mean().item(), layers.tolist()


def screened(depth: int, start: int, prompts: tuple[Tensor, ...]) -> tuple[float, list]:
    """What a start of the wider search comes to on the first 2000 prompts."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1000 * depth + start)
    layers = 0.2 * 100 ** torch.rand(depth, generator=generator, dtype=torch.float64)
    value, layers = descended(layers, *(part[:2000] for part in prompts))
    return value, layers.tolist()


def refined(layers: list, prompts: tuple[Tensor, ...]) -> tuple[float, list]:
    """The divergence on the second half of the prompts after a descent on the first."""
    torch.set_num_threads(1)
    layers = descended(torch.tensor(layers, dtype=torch.float64), *(part[:PLENTY] for part in prompts))[1]
    points, queries, best = (part[PLENTY:] for part in prompts)
    return divergence(layered(points, queries, layers), best).mean().item(), layers.tolist()


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prompts, their queries, and Bayes' log-odds."""
    points, queries, _ = draw(count, torch.Generator().manual_seed(seed))
    return points, queries, bayes(points, queries)


@RECORD.section
def depths() -> dict:
    """The excess for each kind and number of layers."""
    test = torch.Generator().manual_seed(2)
    prompts = drawn(FITTED + CHOSEN, 1)
    points, queries, noise = draw(TESTED, test)
    best = bayes(points, queries)
    coarse = bayes(points, queries, NODES // 2, ANGLES // 2)
    found: dict = {"bayes": (best > 0).double().mean(), "halved": (best - coarse).abs().max(), "linear": linear()}
    soft = torch.nn.functional.logsigmoid
    found["entropy"] = -(best.sigmoid() * soft(best) + (-best).sigmoid() * soft(-best)).mean()
    told = given(points, queries, noise)
    found["given"] = {"accuracy": (told > 0).double().mean(), "excess": (soft(best) - soft(told)).mean()}
    print({key: found[key] for key in ("bayes", "halved", "linear", "given")}, flush=True)
    for kind in ("steps", "matrices"):
        for depth in DEPTHS:
            runs = joblib.Parallel()(joblib.delayed(fitted)(kind, depth, start, prompts) for start in range(STARTS))
            chosen, layers = min(runs)
            odds = layered(points, queries, torch.tensor(layers, dtype=torch.float64))
            row = {"chosen": chosen, "starts": sorted(run[0] for run in runs), "layers": layers}
            found[f"{kind} {depth}"] = row | excess(odds, best) | {"accuracy": (odds > 0).double().mean()}
            print(kind, depth, found[f"{kind} {depth}"]["excess"], flush=True)
    return found


@RECORD.section
def wider() -> dict:
    """The excess for each number of layers from wider starts."""
    prompts, found = drawn(2 * PLENTY, 5), {}
    points, queries, best = drawn(TESTED_WIDE, 4)
    for depth in WIDE:
        rough = sorted(joblib.Parallel()(joblib.delayed(screened)(depth, start, prompts) for start in range(SCREENED)))
        fine = joblib.Parallel()(joblib.delayed(refined)(layers, prompts) for _, layers in rough[:REFINED])
        chosen, layers = min(fine)
        odds = layered(points, queries, torch.tensor(layers, dtype=torch.float64))
        row = {"chosen": chosen, "screened": [value for value, _ in rough], "layers": layers}
        found[str(depth)] = row | excess(odds, best) | {"accuracy": (odds > 0).double().mean()}
        print(depth, found[str(depth)], flush=True)
    return found


def linear() -> dict:
    """The excess of the best rule that is linear in the query."""
    generator = torch.Generator().manual_seed(3)
    points, _, _ = draw(PROMPTS, generator)
    each = []
    for part in points:
        law = torch.distributions.MultivariateNormal(part.mean(0), 2 * part.T.cov())
        noise = torch.randn(QUERIES, 2, generator=generator, dtype=torch.float64)
        queries = law.loc + noise @ law.scale_tril.T
        moments = part.T @ part + queries[:, :, None] * queries[:, None]
        plus, minus = (log_density(moments, part.sum(0) + sign * queries, NODES // 2, ANGLES // 2) for sign in (1, -1))
        best, weight = plus - minus, torch.softmax(plus - law.log_prob(queries), 0)

        def value_and_slope(values: np.ndarray, queries=queries, best=best, weight=weight) -> tuple[float, np.ndarray]:
            at = torch.from_numpy(values).requires_grad_()
            loss = (weight * divergence(queries @ at, best)).sum()
            loss.backward()
            return loss.item(), at.grad.numpy()

        each.append(minimize(value_and_slope, np.zeros(2), jac=True, method="L-BFGS-B").fun)
    each = torch.tensor(each)
    return {"excess": each.mean(), "half": 1.96 * each.std() / len(each) ** 0.5}


def excess(odds: Tensor, best: Tensor) -> dict:
    """The mean divergence and half the width of its 95% interval."""
    each = divergence(odds, best)
    return {"excess": each.mean(), "half": 1.96 * each.std() / len(each) ** 0.5}


if __name__ == "__main__":
    RECORD.main()
