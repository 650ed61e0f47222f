"""Does softmax attention learn gradient steps? Trained transformers (2) of one to three layers beside linear ones.

    python experiments/softmax_attention.py

Writes results/softmax_attention.json; finished settings are kept in .cache/softmax_attention and not repeated.

Setting: d = 5, n = 20, x ~ N(0, I), w⋆ ~ N(0, I) (whitened). A layer adds, summed over its heads, P Z M softmax(Zᵀ W Z),
with the softmax over all n + 1 keys (columns sum to 1), M hiding the query's value, and P, W = W_kᵀW_q any (d + 1) × (d + 1)
matrices; the prediction is -[Z_k]_{d+1,n+1}. Linear attention has Zᵀ W Z/n in place of the softmax, and one head.

All entries start at independent N(0, SCALE²); Adam with BATCH fresh prompts a step, STEPS steps, its rate falling from RATE
to 0 along a cosine, each seed's gradient clipped to norm 1. The seeds of a setting are trained side by side as one tensor,
each on prompts of its own, in single precision.

Sections: "settings", "optimum" and "runs". "optimum" holds exact losses over the layers' number:
"steps" (plain optimal steps, A_i = a_i I) and "gdpp" (A_i = a_i I, B_i = b_i I, which linear attention also can express).
For one softmax layer whose scores are multiples of xᵀx and whose values are the labels it holds "one_head" (a negative
multiple), "one_head_positive" and "two_heads" (opposite multiples), the best "loss", "score_scale" (the multiple) and
"label_scale" (P[d, d]), of two heads those of the one with the positive multiple, over SAMPLE prompts, and
"two_heads_limit", the exact loss of two opposite heads with scores near 0. A run is one seed:

    layers, heads, kind, seed   the setting; kind is "softmax" or "linear"
    curve                       [step, mean loss of the training batches since the entry before]
    test_loss, test_se          mean squared error on TEST fresh prompts, the same for all runs, and its standard error
    distance_to_steps           for j = 1 … 8: E (prediction - j optimal steps' prediction)² / E (the latter)²
    distance_to_gdpp            the same for the optimal GD++ of j = 1, 2, 3 layers
    nonlinear_share             share of the prediction's mean square, given the covariates, that no linear function of w⋆
                                (so of the labels) explains; 0 if the prediction is linear in the labels
    slope_cosine                mean cosine of ∂prediction/∂y with that of j optimal steps, a vector in Rⁿ for each prompt
    slope_mean_share            share of ‖∂prediction/∂y‖² in the direction (1, …, 1): what multiplies the mean label
    label_scale                 one layer: P[d, d] of each head, what multiplies the labels
    score_scale                 one layer: tr W_xx/d of each head, W_xx the upper d × d block of W
    score_dist                  one layer: Dist(W_xx, I) of each head
    score_labels                one layer: ‖W[d, :d]‖/‖W_xx‖ of each head, how far labels enter the query's scores
    heads_cosine                one layer, two heads: cosine of the two W_xx; near -1 if they are opposite
    P, W                        one layer: the matrices, a list over heads
"""

import json
import math
import time
from collections.abc import Callable

import torch
from covariances import DIM, dist
from lab import CACHE, Record, rounded, store
from scipy.optimize import minimize_scalar
from torch import Tensor
from tqdm import tqdm

from attnopt.in_context import (
    gdpp_optimum,
    gdpp_residuals,
    linear_transformer,
    optimal_step_sizes,
    sample_prompts,
)

RECORD = Record("softmax_attention")
N_CONTEXT = 20
SEEDS = {1: range(16), 2: range(4), 3: range(4)}  # by the number of layers
SETTINGS = [(layers, heads, kind) for layers in (1, 2, 3) for heads, kind in ((1, "linear"), (1, "softmax"), (2, "softmax"))]
STEPS = {1: 4000, 2: 4000, 3: 4000}
BATCH, TEST, PROBES, WEIGHTS, CHUNK, CURVE = 128, 40_000, 400, 40, 2_500, 40
SCALE, RATE, MOST_STEPS, SAMPLE = 0.1, 0.02, 8, 100_000


def softmax_transformer(prompts: Tensor, P: Tensor, W: Tensor) -> Tensor:
    """The prediction -[Z_k] at the query's label of layers (2).

    Args:
        prompts: Z_0, shape (..., prompts, n + 1, d + 1), rows are tokens and the last one is the query.
        P: shape (..., k, heads, d + 1, d + 1).
        W: shape (..., k, heads, d + 1, d + 1).

    Returns:
        Predictions, shape (..., prompts).
    """
    state = prompts
    for i in range(P.shape[-4]):
        last = i + 1 == P.shape[-4]
        queries = state[..., -1:, :] if last else state  # of the last layer only the query's column is read
        update = torch.zeros_like(queries)
        for head in range(P.shape[-3]):
            scores = queries @ W[..., i, head, :, :].mT.unsqueeze(-3) @ state.mT
            attention = torch.softmax(scores, -1)[..., :-1]
            update = update + attention @ state[..., :-1, :] @ P[..., i, head, :, :].mT.unsqueeze(-3)
        state = queries + update
    return -state[..., -1, -1]


def linear_prediction(prompts: Tensor, P: Tensor, W: Tensor) -> Tensor:
    """The prediction of linear attention with one head; arguments and result as in `softmax_transformer`."""
    return -linear_transformer(prompts, P[..., 0, :, :].unsqueeze(-4), W[..., 0, :, :].unsqueeze(-4))[-1][..., -1, -1]


MODELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": softmax_transformer,
    "linear": linear_prediction,
}


def train(
    layers: int, heads: int, kind: str, seeds: list[int], steps: int, batch: int = BATCH
) -> tuple[Tensor, Tensor, list[list[float]]]:
    """Train all seeds of a setting side by side.

    Args:
        layers: k.
        heads: of each layer.
        kind: "softmax" or "linear".
        seeds: each draws its initial matrices and its prompts.
        steps: how many.
        batch: prompts a step and seed.

    Returns:
        P and W, shape (seeds, k, heads, d + 1, d + 1), and for each stretch of training its last step and mean losses.
    """
    generators = [torch.Generator().manual_seed(10_000 * layers + 1000 * heads + seed) for seed in seeds]
    shape = (2, layers, heads, DIM + 1, DIM + 1)
    start = torch.stack([SCALE * torch.randn(shape, generator=generator) for generator in generators], 1)
    P, W = (part.clone().requires_grad_() for part in start)
    adam = torch.optim.Adam([P, W], lr=RATE)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    identity, curve, losses = torch.eye(DIM), [], []
    for step in range(1, steps + 1):
        drawn = [sample_prompts(batch, identity, N_CONTEXT, generator) for generator in generators]
        prompts, targets = (torch.stack(part) for part in zip(*drawn, strict=True))
        loss = (MODELS[kind](prompts, P, W) - targets).square().mean(-1)
        adam.zero_grad()
        loss.sum().backward()
        slopes = torch.stack([P.grad, W.grad]).movedim(1, 0).flatten(1).norm(dim=1)
        for parameter in (P, W):  # each seed's gradient clipped to norm 1
            parameter.grad /= slopes.clamp(min=1)[:, None, None, None, None]
        adam.step()
        rate.step()
        losses.append(loss.detach())
        if step % math.ceil(steps / CURVE) == 0 or step == steps:
            curve.append([step, *torch.stack(losses).mean(0).tolist()])
            losses = []
    return P.detach(), W.detach(), curve


def references(prompts: Tensor) -> tuple[dict[str, dict[int, Tensor]], dict[int, Tensor]]:
    """Predictions of optimal steps and of optimal GD++, and the steps' derivatives in the labels.

    R(G) is what an algorithm leaves of the error, so that it predicts xᵀ(I - R(G))w with Gw = Xy/n, that is sᵀy with
    s = Xᵀ q(G) x/n and λq(λ) = 1 - R(λ).

    Args:
        prompts: Z_0, shape (prompts, n + 1, d + 1), float64, n at least d.

    Returns:
        Predictions by family and number of steps or layers, and slopes s by number of steps, shape (prompts, n).
    """
    covariates, labels, queries = prompts[:, :-1, :DIM], prompts[:, :-1, DIM], prompts[:, -1, :DIM]
    values, basis = torch.linalg.eigh(covariates.mT @ covariates / covariates.shape[1])
    queries = (basis.mT @ queries.unsqueeze(-1)).squeeze(-1)

    def slopes(steps: Tensor, curvatures: Tensor) -> Tensor:
        residuals = gdpp_residuals(steps, curvatures, values.flatten())[0][-1].reshape(values.shape)
        weights = basis @ ((1 - residuals) / values * queries).unsqueeze(-1)
        return (covariates @ weights).squeeze(-1) / covariates.shape[1]

    found: dict[str, dict[int, Tensor]] = {"steps": {}, "gdpp": {}}
    for j in range(1, MOST_STEPS + 1):
        found["steps"][j] = slopes(optimal_step_sizes(DIM, N_CONTEXT, j)[0], values.new_zeros(j - 1))
    for j in range(1, 4):
        found["gdpp"][j] = slopes(*gdpp_optimum(DIM, N_CONTEXT, j)[:2])
    predictions = {family: {j: (s * labels).sum(-1) for j, s in of.items()} for family, of in found.items()}
    return predictions, found["steps"]


def two_heads_limit(dim: int, n_context: int) -> float:
    """Exact loss of two opposite softmax heads as their scores shrink and their labels' factor grows.

    With scores ±ε xᵀx and ε → 0 the heads' difference becomes a multiple of wᵀv, v = (1/n) Σ_j x_j (x_jᵀx - m), where m is
    the mean of xᵀx over all n + 1 keys, the query's among them: a gradient step and a remainder. With the best multiple the
    loss is d - (E xᵀv)²/E ‖v‖².
    """
    d, n = dim, n_context
    along = d * n / (n + 1)
    square = d / n * ((n + d + 1) * (n - 1) / (n + 1) + (d + 2) * (n + d) / (n + 1) ** 2)
    return d - along**2 / square


def small_models() -> dict[str, dict[str, float] | float]:
    """The best one-layer models whose score is s times xᵀx, with one head or two opposite ones, over sampled prompts."""
    generator = torch.Generator().manual_seed(3)
    prompts, targets = sample_prompts(SAMPLE, torch.eye(DIM, dtype=torch.float64), N_CONTEXT, generator)
    products = (prompts[..., :DIM] @ prompts[:, -1, :DIM, None]).squeeze(-1)

    def fitted(scale: float, heads: int) -> tuple[float, float]:
        """Loss with the best factor for the labels, and that factor."""
        means = (torch.softmax(scale * products, -1) * prompts[..., DIM]).sum(-1)
        if heads == 2:
            means = means - (torch.softmax(-scale * products, -1) * prompts[..., DIM]).sum(-1)
        factor = (means @ targets) / (means @ means)
        return (factor * means - targets).square().mean().item(), factor.item()

    found: dict[str, dict[str, float] | float] = {"two_heads_limit": rounded(two_heads_limit(DIM, N_CONTEXT), 10)}
    for name, heads, bounds in (("one_head", 1, (-3, 0)), ("one_head_positive", 1, (0, 3)), ("two_heads", 2, (0.01, 3))):
        scale = minimize_scalar(lambda s: fitted(s, heads)[0], bounds=bounds, method="bounded").x  # noqa: B023
        loss, factor = fitted(scale, heads)
        found[name] = {"loss": rounded(loss, 5), "score_scale": rounded(float(scale), 4), "label_scale": rounded(-factor, 4)}
    return found


def nonlinear_share(predict: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
    """Share of the mean square that no linear function of w⋆ explains, covariates and query being fixed.

    Args:
        predict: from prompts, shape (prompts, n + 1, d + 1), to predictions, shape (seeds, prompts).
        generator: draws PROBES sets of covariates and for each WEIGHTS vectors w⋆.

    Returns:
        The share, shape (seeds,), corrected for the degrees of freedom of the fit.
    """
    covariates = torch.randn(PROBES, 1, N_CONTEXT + 1, DIM, generator=generator, dtype=torch.float64)
    weights = torch.randn(PROBES, WEIGHTS, DIM, 1, generator=generator, dtype=torch.float64)
    labels = covariates @ weights
    labels[..., -1, :] = 0
    prompts = torch.cat([covariates.expand(-1, WEIGHTS, -1, -1), labels], -1)
    predictions = predict(prompts.flatten(0, 1)).unflatten(-1, (PROBES, WEIGHTS))
    span = torch.linalg.qr(weights.squeeze(-1))[0]
    rest = predictions - (span @ (span.mT @ predictions.unsqueeze(-1))).squeeze(-1)
    return rest.square().sum((-2, -1)) / (WEIGHTS - DIM) / predictions.square().mean((-2, -1)) / PROBES


def evaluate(kind: str, P: Tensor, W: Tensor) -> dict[str, Tensor]:
    """What trained models do on the test prompts, in double precision; every entry starts with a dimension of seeds."""
    P, W = P.double(), W.double()
    generator = torch.Generator().manual_seed(99)
    sums: dict[str, Tensor] = {}

    def add(key: str, value: Tensor) -> None:
        sums[key] = sums.get(key, 0) + value

    for _ in range(TEST // CHUNK):
        prompts, targets = sample_prompts(CHUNK, torch.eye(DIM, dtype=torch.float64), N_CONTEXT, generator)
        known, slopes = references(prompts)
        labels = prompts[:, :, -1:].expand(len(P), -1, -1, -1).clone().requires_grad_()
        tokens = torch.cat([prompts[:, :, :-1].expand(len(P), -1, -1, -1), labels], -1)
        predictions = MODELS[kind](tokens, P, W)
        (slope,) = torch.autograd.grad(predictions.sum(), labels)
        slope, predictions = slope[..., :-1, 0], predictions.detach()
        errors = (predictions - targets).square()
        add("loss", errors.sum(-1))
        add("square", errors.square().sum(-1))
        for family, of in known.items():
            add(family, torch.stack([(predictions - one).square().sum(-1) for one in of.values()], -1))
            add(f"{family} size", torch.stack([one.square().sum() for one in of.values()]))
        add("cosine", torch.stack([torch.cosine_similarity(slope, s, -1).sum(-1) for s in slopes.values()], -1))
        add("mean", slope.mean(-1).square().sum(-1) * N_CONTEXT)
        add("size", slope.square().sum((-2, -1)))
    loss = sums["loss"] / TEST
    return {
        "test_loss": loss,
        "test_se": ((sums["square"] / TEST - loss**2) / TEST).sqrt(),
        "distance_to_steps": sums["steps"] / sums["steps size"],
        "distance_to_gdpp": sums["gdpp"] / sums["gdpp size"],
        "nonlinear_share": nonlinear_share(
            lambda prompts: MODELS[kind](prompts.expand(len(P), -1, -1, -1), P, W), generator
        ),
        "slope_cosine": sums["cosine"] / TEST,
        "slope_mean_share": sums["mean"] / sums["size"],
    }


def finish(layers: int, heads: int, kind: str) -> dict:
    """Train and measure one setting."""
    began = time.perf_counter()
    P, W, curve = train(layers, heads, kind, list(SEEDS[layers]), STEPS[layers])
    found = evaluate(kind, P, W)
    runs = []
    for s, seed in enumerate(SEEDS[layers]):
        run = {"layers": layers, "heads": heads, "kind": kind, "seed": seed}
        for key, value in found.items():
            numbers = rounded(value[s], 5)
            run[key] = dict(enumerate(numbers, 1)) if isinstance(numbers, list) else numbers
        if layers == 1:
            scores = W[s, 0, :, :DIM, :DIM]
            run["label_scale"] = P[s, 0, :, DIM, DIM]
            run["score_scale"] = scores.diagonal(dim1=-2, dim2=-1).mean(-1)
            run["score_dist"] = dist(scores)
            run["score_labels"] = W[s, 0, :, DIM, :DIM].norm(dim=-1) / torch.linalg.matrix_norm(scores)
            if heads == 2:
                run["heads_cosine"] = torch.cosine_similarity(*scores.flatten(1), 0).item()
            run |= {"P": P[s, 0], "W": W[s, 0]}
        run["curve"] = [[int(step), rounded(means[s], 4)] for step, *means in curve]
        runs.append({key: rounded(value, 5) for key, value in run.items()})
    return {"runs": runs, "seconds": round(time.perf_counter() - began, 1)}


@RECORD.section
def settings() -> dict:
    """The constants above."""
    return {
        "dim": DIM,
        "n_context": N_CONTEXT,
        "seeds": {layers: list(seeds) for layers, seeds in SEEDS.items()},
        "steps": STEPS,
        "batch": BATCH,
        "rate": RATE,
        "initial_scale": SCALE,
        "test_prompts": TEST,
        "probes": PROBES,
        "weights_a_probe": WEIGHTS,
        "sample": SAMPLE,
    }


@RECORD.section
def optimum() -> dict:
    """Exact losses that the runs are compared with."""
    return {
        "steps": {j: rounded(float(optimal_step_sizes(DIM, N_CONTEXT, j)[1]), 10) for j in range(1, MOST_STEPS + 1)},
        "gdpp": {j: rounded(float(gdpp_optimum(DIM, N_CONTEXT, j)[2]), 10) for j in (1, 2, 3)},
        **small_models(),
    }


@RECORD.section
def runs() -> list[dict]:
    """Train what is missing, and gather all."""
    paths = {setting: CACHE / "softmax_attention" / "{} {} {}.json".format(*setting) for setting in SETTINGS}
    for setting in tqdm([setting for setting, path in paths.items() if not path.exists()], "settings", ncols=79):
        store(paths[setting], finish(*setting))
    return [run for path in paths.values() for run in json.loads(path.read_text(encoding="utf-8"))["runs"]]


if __name__ == "__main__":
    RECORD.main()
