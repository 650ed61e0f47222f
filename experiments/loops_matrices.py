"""Which differences between layers of full matrices grow first at the best loop, and when: rates, and matrix flows.

    python experiments/loops_matrices.py

Writes results/loops_matrices.json.

Layers A_1, …, A_k are full d × d matrices in whitened coordinates, trained by gradient flow on the exact mean loss over
Gaussian prompts of n examples. A layer has three parts: the mean of its diagonal, times I; a symmetric traceless one; and an
antisymmetric one. The spread of a kind is the largest Frobenius distance of two layers' parts, over √d.

"rates": for d in DIMS, n = d times FACTORS and k in LAYERS a row d, n, k, the rate κ/d at which differences of traces grow
at the best loop, and the largest rates of symmetric traceless and of antisymmetric directions as multiples of it (minus the
least eigenvalues of `transverse_hessians`; negative if all such directions shrink).

"flows": for each of SIZES the flow from RUNS[d] starts, NOISE times standard normal numbers in every entry. For each run:

    seen     when the first of the three spreads reaches REACHED
    kind     of that spread: 0 traces, 1 symmetric, 2 antisymmetric
    traces   the prediction of `plateau_time` from the traces of the start alone
    all      the prediction from all parts of the start: each kind is linearized along the flow of equal multiples of I, and
             the first of the three to reach REACHED counts
    end      in two dimensions, the loss at LATE times the prediction from the traces, over that of the best multiples of I,
             minus 1 (reported, and not part of the rule)

Decision rule, fixed before the runs, with "ratio" the larger of the two multiples of a size:

    A  Where the ratio is at most LOSES, the traces tell the time: |traces/seen - 1| <= HOLDS in every run of every such
       size.
    B  Where it is at least WINS, a traceless spread comes first in at least three quarters of the runs of every such size.
    C  At all sizes the linearization tells the time: |all/seen - 1| <= HOLDS in every run.

Between LOSES and WINS nothing is claimed of the traces; the numbers are reported. Each of A, B and C is reported as it comes
out, with the sizes at which it fails. Left out: d = 4 and 5, and d = 3 with k = 6, where the exact quadrature of the loss is
too large for one core (the runs summed over its nodes at every step; the script now takes moments from it once); more seeds
at d = 3.

"kinds" was added after the runs: for each of SIZES the kind that reaches REACHED first in the linearization, by run.
"""

import functools
import itertools
import math

import numpy as np
import torch
from lab import Record
from scipy.integrate import solve_ivp
from torch import Tensor

from attnopt.in_context import gram_quadrature, optimal_step_sizes, transverse_hessians, wishart_quadrature
from attnopt.synthesis import plateau_time, tied_optimum, tied_rates

RECORD = Record("loops_matrices", digits=5)
DIMS, FACTORS, LAYERS = (2, 3, 4, 5), (1, 2, 5, 10, 20, 50), (2, 3, 4, 5, 6)
PLANE = ((10, 2), (10, 3), (100, 3), (10, 4), (100, 4), (10, 5), (100, 5), (4, 6), (10, 6), (40, 6), (100, 6))
SPACE = ((15, 2), (15, 3), (150, 3), (15, 4), (150, 4), (150, 5))
SIZES = [(2, *size) for size in PLANE] + [(3, *size) for size in SPACE]
RUNS, SEED, NOISE, REACHED, MOMENTS, LATE = {2: 8, 3: 3}, 2026, 1e-5, 0.1, 1500, 10
LOSES, WINS, HOLDS = 0.75, 1.25, 0.02


def ratios(dim: int, examples: int, layers: int) -> tuple[float, float, float]:
    """κ/d, and the largest symmetric and antisymmetric rates at the best loop as multiples of it."""
    loop, rate = tied_optimum(dim, examples, layers)[0], tied_rates(dim, examples, layers)[1] / dim
    blocks = transverse_hessians([loop] * layers, dim, examples)
    return rate, *(-torch.linalg.eigvalsh(block)[0].item() / rate for block in blocks)


def parts(matrices: np.ndarray) -> list[np.ndarray]:
    """Multiples of I, symmetric traceless and antisymmetric parts of matrices, shape (..., d, d) each."""
    turned, eye = np.swapaxes(matrices, -1, -2), np.eye(matrices.shape[-1])
    middle = np.trace(matrices, axis1=-2, axis2=-1)[..., None, None] / len(eye) * eye
    return [middle, (matrices + turned) / 2 - middle, (matrices - turned) / 2]


def spreads(matrices: np.ndarray) -> np.ndarray:
    """Of layers' matrices, shape (..., k, d, d), the spread of each kind, shape (3, ...)."""
    found = []
    for part in parts(matrices):
        apart = part[..., :, None, :, :] - part[..., None, :, :, :]
        found.append(np.sqrt((apart**2).sum((-1, -2)).max((-1, -2)) / matrices.shape[-1]))
    return np.stack(found)


def crossings(times: np.ndarray, values: np.ndarray) -> list[float]:
    """When each row of positive values first reaches REACHED, infinity if it does not."""
    found = []
    for row in values:
        after = int(np.argmax(row >= REACHED))
        if row[after] < REACHED:
            found.append(math.inf)
            continue
        low, high = np.log(row[after - 1 : after + 1])
        found.append(float(times[after - 1] + (math.log(REACHED) - low) / (high - low) * (times[after] - times[after - 1])))
    return found


@functools.cache
def polynomials(dim: int, examples: int, layers: int) -> tuple[Tensor, Tensor]:
    """Monomials of degree at most k in the entries of H = G - I: how they arise, and the means of their products.

    Returns:
        The monomial that times H_ab gives monomial t, or the number of monomials if there is none, shape (monomials, d, d);
        and the moments, shape (monomials, monomials).
    """
    entries = list(itertools.combinations_with_replacement(range(dim), 2))
    powers = [power for power in itertools.product(range(layers + 1), repeat=len(entries)) if sum(power) <= layers]
    place = {power: t for t, power in enumerate(sorted(powers, key=sum))}
    source, ways = torch.full((len(place), dim, dim), len(place)), []
    for power, t in place.items():
        for e, (a, b) in enumerate(entries):
            if power[e]:
                one_less = (*power[:e], power[e] - 1, *power[e + 1 :])
                source[t, a, b] = source[t, b, a] = place[one_less]
                way = place[one_less], a, b
        ways.append(way if t else None)
    grams, weights = (torch.from_numpy(part) for part in gram_quadrature(dim, examples, 2 * layers))
    moments = grams.new_zeros(len(place), len(place))
    for some, weight in zip(grams.split(20_000), weights.split(20_000), strict=True):
        values = [torch.ones_like(weight)]
        for t, a, b in ways[1:]:
            values.append(values[t] * (some[:, a, b] - float(a == b)))
        values = torch.stack(values)
        moments += (values * weight) @ values.mT
    return source, moments


def loss(source: Tensor, moments: Tensor, layers: Tensor) -> Tensor:
    """The mean over prompts of ‖Π (I + G A_i)‖², from the product's coefficients and the moments of `polynomials`."""
    eye = torch.eye(layers.shape[-1], dtype=layers.dtype)
    left = torch.cat([eye[None], eye.new_zeros(len(source) - 1, *eye.shape)])
    for layer in layers:
        shifted = torch.cat([left, torch.zeros_like(left[:1])])[source]
        left = left @ (eye + layer) + torch.einsum("tabia->tib", shifted) @ layer
    return ((moments @ left.flatten(1)) * left.flatten(1)).sum()


def flow(start: np.ndarray, examples: int, times: np.ndarray) -> tuple[np.ndarray, float]:
    """Matrices at each time, shape (times, k, d, d), along the flow, and the loss at the end."""
    layers, dim = start.shape[:2]
    rule = polynomials(dim, examples, layers)

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        now = torch.from_numpy(flat).reshape(start.shape).requires_grad_()
        return -torch.autograd.grad(loss(*rule, now), now)[0].numpy().ravel()

    found = solve_ivp(velocity, (0, times[-1]), start.ravel(), "LSODA", times, rtol=1e-8, atol=1e-13)
    if not found.success:
        raise RuntimeError(found.message)
    ways = found.y.T.reshape(-1, *start.shape)
    return ways, loss(*rule, torch.from_numpy(ways[-1].copy())).item()


@functools.cache
def transverse_series(dim: int, examples: int, layers: int) -> tuple[float, np.ndarray]:
    """Chebyshev series of the blocks of `transverse_hessians` at equal steps, from 1.1 times the best loop's to 0."""
    low, degree = 1.1 * tied_optimum(dim, examples, layers)[0], 2 * layers - 2
    places = np.polynomial.chebyshev.chebpts1(degree + 1)  # blocks are polynomials of this degree in the common step
    blocks = [torch.stack(transverse_hessians([low * (1 - x) / 2] * layers, dim, examples)) for x in places]
    return low, np.polynomial.chebyshev.chebfit(places, torch.stack(blocks).reshape(len(places), -1).numpy(), degree)


def linearized(start: np.ndarray, examples: int, times: np.ndarray) -> np.ndarray:
    """The three spreads at each time if all parts but the mean trace stay small, shape (3, times)."""
    layers, dim = start.shape[:2]
    nodes, weights = wishart_quadrature(dim, examples, layers + 1)
    low, series = transverse_series(dim, examples, layers)
    middle, symmetric, antisymmetric = parts(start)
    mean = np.trace(middle.mean(0)) / dim

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        step, traces, *others = flat[0], *flat[1:].reshape(3, layers, -1)
        left = 1 + step * nodes
        slope = -2 / dim * weights @ (nodes * left ** (2 * layers - 1))
        rate = 2 / dim * weights @ (nodes**2 * left ** (2 * layers - 2))
        hessians = np.polynomial.chebyshev.chebval(1 - 2 * step / low, series).reshape(2, layers, layers)
        moved = [-hessian @ other for hessian, other in zip(hessians, others, strict=True)]
        return np.concatenate([[slope], *(part.ravel() for part in (rate * traces, *moved))])

    state = np.concatenate([[mean], *(part.ravel() for part in (middle - mean * np.eye(dim), symmetric, antisymmetric))])
    found = solve_ivp(velocity, (0, times[-1]), state, "LSODA", times, rtol=1e-9, atol=1e-14)
    ways = found.y[1:].T.reshape(len(times), 3, layers, dim, dim)
    return np.stack([spreads(ways[:, kind])[kind] for kind in range(3)])


def begun(dim: int, examples: int, layers: int, seed: int) -> tuple[np.ndarray, float]:
    """A start, and the time that its traces tell."""
    rng = np.random.default_rng([SEED, dim, examples, layers, seed])
    start = NOISE * rng.standard_normal((layers, dim, dim))
    traces = torch.from_numpy(np.trace(start, axis1=1, axis2=2) / dim)
    return start, dim * plateau_time(traces, dim, examples, REACHED).item()


def run(dim: int, examples: int, layers: int, seed: int) -> dict:
    """One flow, and both predictions."""
    start, told = begun(dim, examples, layers, seed)
    times = np.linspace(0, 1.1 * told, MOMENTS)
    ways, end = flow(start, examples, np.append(times, LATE * told) if dim == 2 else times)
    reached = crossings(times, spreads(ways[:MOMENTS]))
    floor = float(optimal_step_sizes(dim, examples, layers)[1])
    return {
        "seen": min(reached),
        "kind": int(np.argmin(reached)),
        "traces": told,
        "all": min(crossings(times, linearized(start, examples, times))),
        "end": end / floor - 1 if dim == 2 else None,
    }


@RECORD.section
def rates() -> list:
    """Rows of `ratios`."""
    sizes = [(dim, dim * factor, layers) for dim in DIMS for factor in FACTORS for layers in LAYERS]
    return [[*size, *ratios(*size)] for size in sizes]


@RECORD.section
def flows() -> list:
    """Runs at each size, and how they stand to the rule."""
    found = []
    for size in SIZES:
        runs = [run(*size, seed) for seed in range(RUNS[size[0]])]
        miss = {name: max(abs(one[name] / one["seen"] - 1) for one in runs) for name in ("traces", "all")}
        first = sum(one["kind"] > 0 for one in runs)
        found.append(
            {"size": list(size), "ratio": max(ratios(*size)[1:]), "traceless first": first, "miss": miss, "runs": runs}
        )
        print(*size, f"{found[-1]['ratio']:.3f}", first, len(runs), miss, flush=True)
    return found


@RECORD.section
def rule() -> dict:
    """A, B and C of the docstring: on how many sizes each is decided, and those at which it fails."""
    made = RECORD.stored()["flows"]
    few = [one for one in made if one["ratio"] <= LOSES]
    many = [one for one in made if one["ratio"] >= WINS]
    kept = {
        "A": (few, lambda one: one["miss"]["traces"] <= HOLDS),
        "B": (many, lambda one: one["traceless first"] >= 0.75 * len(one["runs"])),
        "C": (made, lambda one: one["miss"]["all"] <= HOLDS),
    }
    return {
        name: {"sizes": len(sizes), "fails": [one["size"] for one in sizes if not holds(one)]}
        for name, (sizes, holds) in kept.items()
    }


@RECORD.section
def kinds() -> list:
    """Of each run's linearization, the kind that comes first."""
    found = []
    for size in SIZES:
        found.append([])
        for seed in range(RUNS[size[0]]):
            start, told = begun(*size, seed)
            times = np.linspace(0, 1.1 * told, MOMENTS)
            found[-1].append(int(np.argmin(crossings(times, linearized(start, size[1], times)))))
    return found


if __name__ == "__main__":
    RECORD.main()
