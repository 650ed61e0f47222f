"""What trained clustering heads are worth to a layer that reads them, and five simulations beside the theorems.

    python experiments/one_layer_knows.py

Writes results/one_layer_knows.json.

"heads": a prompt shows n sequences with labels ε(-1)^(sum of the first five tokens), ε = ±1 unknown, and asks for that of
another sequence; all are different. One attention head reads features ξ of the sequences (`read_out`): the sequence
embeddings of a trained model of Part III, before or after its normalization; those of the same seed's untrained model;
positions, counts or the parity, as the ideal; the tokens themselves. It has a sink, a token of value 0, and a free value
scale. Sharpness, sink's weight and scale are, for each n and each feature, those of SHARPNESS, of SINKS and of least squares
(at most LOUDEST) that leave least on TUNING prompts; the curve is what they leave of the variance on TEST other prompts, the
same for all features, in thousandths, at most MOST, at NUMBERS. ε cancels: labels exchanged give the answer exchanged.
"other rule": the same trained embeddings, but labels of the last five tokens.

"strangers": tokens alone, examples drawn uniformly with replacement, L = 12, k = 5: accuracy of the head with scores β times
the number of equal tokens, for each β and n, from REPEATS multinomial draws of how many examples of either label agree in
how many places. "needed" has for each share the number of examples, by interpolation on n's logarithm, at the theorem's β
and at the best of all, with standard errors from 200 resamplings of the draws.

"softmax": n·loss/d of a softmax head on linear rules, value scale 1/s, at the best s of the limit, with standard errors.
Given β = s‖q‖ it is n(E(m - β)² + (d - 1) E Σ p_j²)/(s²d), p = softmax(βz), z standard normal, m = Σ p_j z_j. Integrated by
parts that is e^(2β²) E[(d + β² + β(z_1 - 2m))/S²]/(s²d), S = mean e^(βz_j), with z_1 about 2β, which has lighter tails;
queries are drawn from the law that e^(β²) makes likelier, and weighted back.

"scale": the same heads at their best value scale. "overlap" is n E‖q‖²Σ p_j²/d, from draws of the same law, by parts
n e^(2β²) E[‖q‖²/S²]/d; with e the stored error, the best scale leaves a share whose n-fold is "left",
(e - overlap²/n)/(1 + (e - 2 overlap)/n).

"softmax_of_strangers": examples until a fifth and a fiftieth is left, tokens alone, L = 12, k = 5, for a softmax (sampled
sum, no sink) with the best value scale, at each of ten sharpnesses, by interpolation, with standard errors from 200
resamplings; "best" is the least of the ten.

"normalized": what the best scale leaves of the variance if the head divides by the sampled partition sum, and if it divides
by the expected one, at the theorem's β, with standard errors.
"""

import math

import numpy as np
import torch
from lab import Record

from attnopt.clustering import Settings, Task, initial_models, load_models, normalize
from attnopt.synthesis import best_agreement, draw_prompts, read_out, softmax_price

RECORD = Record("one_layer_knows", digits=5)
TASK, SEEDS = Task(), 200
TUNING, TEST = 400, 1000
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 101, 128, 161, 203, 256, 323, 406, 512)
SHARPNESS = tuple(2.0**power for power in range(-1, 18, 2))
SINKS = (1e-6, 1e-3, 0.03, 1.0, 1e3)
MOST = 2000  # thousandths: where all choices fit noise, what is left can be anything
LOUDEST = 1e4  # of the value scale, which would else fit what is nearly 0 on a few prompts
REPEATS = 20_000
SHARES = (0.9, 0.99)


def prompts(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the longest length; the shorter ones are their beginnings."""
    return draw_prompts(TASK.size, NUMBERS[-1], count, torch.Generator().manual_seed(seed))


def curve(features: torch.Tensor, labels: torch.Tensor, sets: tuple) -> list[int]:
    """What is left at each number of examples, in thousandths; all choices are made on the first set of prompts."""
    which, moments = torch.tensor(NUMBERS), []
    for context, queries in sets:
        means = []
        for sharpness in SHARPNESS:
            top, total = read_out(features, labels, context, queries, sharpness, which)
            for sink in SINKS:
                answer = top / (total + sink)
                means.append(torch.stack([(answer * labels[queries, None]).mean(0), answer.square().mean(0)]))
        moments.append(torch.stack(means))  # choice, moment, number
    (first, second), (test_first, test_second) = (part.unbind(1) for part in moments)
    scale = (first.clamp_min(0) / second.clamp_min(1e-300)).clamp_max(LOUDEST)
    chosen = (1 - 2 * scale * first + scale**2 * second).argmin(0)
    left = (1 - 2 * scale * test_first + scale**2 * test_second).gather(0, chosen[None])[0]
    return [min(round(1000 * value), MOST) for value in left.tolist()]


def agreement_cells(length: int, weight: int) -> np.ndarray:
    """Probabilities of m disagreements with the query, an even or odd number of them among the k that count, (L + 1, 2)."""
    cells = np.zeros((length + 1, 2))
    for inside in range(weight + 1):
        for outside in range(length - weight + 1):
            chance = math.comb(weight, inside) * math.comb(length - weight, outside) / 2**length
            cells[inside + outside, inside % 2] += chance
    return cells


def sums(length: int, weight: int, number: int, sharpness: np.ndarray, repeats: int, seed: int) -> tuple[np.ndarray, ...]:
    """Numerator and partition sum, in units of the largest weight, for each sharpness and repeat."""
    cells = agreement_cells(length, weight)
    draws = np.random.default_rng(seed).multinomial(number, cells.ravel(), size=repeats).reshape(repeats, length + 1, 2)
    weights = np.exp(-np.outer(sharpness, np.arange(length + 1)))
    return weights @ (draws[..., 0] - draws[..., 1]).T, weights @ draws.sum(-1).T


def head_errors(beta: np.ndarray, z: np.ndarray, dim: int) -> np.ndarray:
    """Draws of n(E(m - β)² + (d - 1) E Σ p_j²) for each β, by parts; z standard normal, shape (queries, n), is changed."""
    z[:, 0] += 2 * beta
    top = z.max(1, keepdims=True)
    powers = np.exp(beta[:, None] * (z - top))
    total = powers.mean(1)
    mean = (powers * z).mean(1) / total
    return (dim + beta**2 + beta * (z[:, 0] - 2 * mean)) / total**2 * np.exp(2 * beta**2 - 2 * beta * top[:, 0])


def crossing(numbers: np.ndarray, values: np.ndarray, level: float) -> float:
    """Where values first reach the level, linearly in the logarithm of the number."""
    above = np.flatnonzero(values >= level)
    if not len(above) or above[0] == 0:
        return float("nan")
    last = above[0]
    part = (level - values[last - 1]) / (values[last] - values[last - 1])
    return float(np.exp(np.log(numbers[last - 1]) + part * np.log(numbers[last] / numbers[last - 1])))


@RECORD.section
def settings() -> dict:
    """What the numbers rest on."""
    return {"numbers": NUMBERS, "sharpness": SHARPNESS, "sinks": SINKS, "tuning": TUNING, "test": TEST, "repeats": REPEATS}


@RECORD.section
def heads() -> dict:
    """Curves of all models, and of the tokens."""
    tokens, targets = TASK.all()
    labels = 1 - 2 * targets.double()
    other = 1 - 2 * (tokens[:, -TASK.k :].sum(1) % 2).double()
    sets = prompts(TUNING, 1), prompts(TEST, 2)
    trained = load_models()
    fresh = initial_models(range(SEEDS), Settings(), dtype=torch.float64)
    prefix = tokens[:, : TASK.k].double()
    ideal = {
        "nothing": tokens.double(),
        "positions": prefix,
        "counts": prefix.sum(1, keepdim=True),
        "parity": labels[:, None],
    }
    found = {"ideal": {name: curve(features, labels, sets) for name, features in ideal.items()}}
    for name, models in (("trained", trained), ("untrained", fresh)):
        xi = models.sequences(tokens)
        found[name] = {
            "embedding": [curve(one, labels, sets) for one in xi],
            "direction": [curve(one, labels, sets) for one in normalize(xi, models.norm)],
        }
    found["other rule"] = [curve(one, other, sets) for one in trained.sequences(tokens)]
    return found


@RECORD.section
def strangers() -> dict:
    """Accuracy without any knowledge of the positions."""
    best = best_agreement(TASK.length, TASK.k)[0]
    sharpness = np.array([0.7, 1.0, 1.25, 1.5, 2.0, 2.5, 3.5]) * best
    numbers = np.round(2 ** np.arange(5, 15.3, 0.5)).astype(int)
    right = []
    for at, number in enumerate(numbers):
        top, _ = sums(TASK.length, TASK.k, int(number), sharpness, REPEATS, 100 + at)
        right.append((top > 0) + (top == 0) / 2)
    share = np.array([one.mean(1) for one in right])  # number, sharpness
    draw, needed = np.random.default_rng(0), {}
    error = np.sqrt(share * (1 - share) / REPEATS)
    samples = share + error * draw.standard_normal((200, *share.shape))
    for level in SHARES:
        for name, pick in (("theorem", lambda table: table[:, 1]), ("best", lambda table: table.max(1))):
            resampled = [crossing(numbers, pick(one), level) for one in samples]
            needed[f"{level:g}, {name}"] = [crossing(numbers, pick(share), level), float(np.std(resampled))]
    return {"sharpness": sharpness.tolist(), "numbers": numbers.tolist(), "accuracy": share.tolist(), "needed": needed}


@RECORD.section
def softmax() -> list[dict]:
    """n·loss/d beside its limit."""
    found = []
    for dim in (1, 2, 3, 5, 10, 20):
        price, spread = softmax_price(dim)
        for number in (100, 1000, 10_000):
            draw, values = np.random.default_rng(1000 * dim + number), []
            for _ in range(20):
                count = 2_000_000 // number
                beta = np.sqrt(spread / (1 - 2 * spread) * draw.chisquare(dim, count))
                likely = (1 - 2 * spread) ** (-dim / 2) * np.exp(-(beta**2))
                z = draw.standard_normal((count, number))
                values.append(likely * head_errors(beta, z, dim) / spread / dim)
            values = np.concatenate(values)
            error = float(values.std() / len(values) ** 0.5)
            found.append({"d": dim, "n": number, "value": float(values.mean()), "error": error, "limit": price})
    return found


@RECORD.section
def scale() -> list[dict]:
    """n times what the best value scale leaves, from the stored errors at the scale 1/s."""
    found = []
    for row in RECORD.stored()["softmax"]:
        dim, number, spread = row["d"], row["n"], softmax_price(row["d"]).spread
        draw, count, values = np.random.default_rng(1000 * dim + number + 1), 500_000 // number, []
        for _ in range(20):
            length = draw.chisquare(dim, count) / (1 - 2 * spread)
            beta = np.sqrt(spread * length)
            z = draw.standard_normal((count, number))
            z[:, 0] += 2 * beta
            total = np.exp(beta[:, None] * z).mean(1)
            values.append(length * (1 - 2 * spread) ** (-dim / 2) * np.exp(beta**2) / total**2 / dim)
        values = np.concatenate(values)
        overlap, error = float(values.mean()), float(values.std() / len(values) ** 0.5)
        below = 1 + (row["value"] - 2 * overlap) / number
        left = (row["value"] - overlap**2 / number) / below
        slopes = (1 - left / number) / below, 2 * (left - overlap) / number / below
        spread_of = math.hypot(slopes[0] * row["error"], slopes[1] * error)
        found.append({"d": dim, "n": number, "overlap": [overlap, error], "left": [left, spread_of]})
    return found


@RECORD.section
def softmax_of_strangers() -> dict:
    """Examples that a softmax over all tokens needs, at the best of several sharpnesses."""
    sharpness = np.array([1.75, 2.1, 2.5, 3.0, 3.5, 4.2, 5.0, 6.0, 7.0, 10.0])
    numbers = np.round(2 ** np.arange(11.5, 15.6, 0.25)).astype(int)
    draw, first, second, errors = np.random.default_rng(0), [], [], []
    for at, number in enumerate(numbers):
        top, partition = sums(TASK.length, TASK.k, int(number), sharpness, REPEATS, 500 + at)
        answer = top / partition
        first.append(answer.mean(1))
        second.append((answer**2).mean(1))
        slope = -2 * (first[-1] / second[-1])[:, None] * answer + ((first[-1] / second[-1]) ** 2)[:, None] * answer**2
        errors.append(slope.std(1) / REPEATS**0.5)
    left, errors = 1 - np.array(first) ** 2 / np.array(second), np.array(errors)
    needed = {}
    for level in (0.2, 0.02):
        each = [crossing(numbers, -one, -level) for one in left.T]
        again = [
            np.nanmin([crossing(numbers, -one, -level) for one in sample.T])
            for sample in left + errors * draw.standard_normal((200, *left.shape))
        ]
        needed[f"{level:g}"] = {"each": each, "best": float(np.nanmin(each)), "error": float(np.std(again))}
    return {"sharpness": sharpness.tolist(), "numbers": numbers.tolist(), "left": left.tolist(), "needed": needed}


@RECORD.section
def normalized() -> list[dict]:
    """What is left of the variance, with either partition sum."""
    found = []
    for length, weight in ((12, 5), (12, 3), (20, 3), (20, 8)):
        beta, number = best_agreement(length, weight)
        for part in (0.25, 1, 4):
            count = round(part * number)
            top, partition = sums(length, weight, count, np.array([beta]), REPEATS, round(100 * part) + length)
            entry = {"L": length, "k": weight, "n": count, "number": number}
            for name, answer in (("sampled", top / partition), ("expected", top)):
                first, second = answer[0], answer[0] ** 2
                left = 1 - first.mean() ** 2 / second.mean()
                slope = -2 * first.mean() / second.mean() * first + (1 - left) / second.mean() * second
                entry[name] = [float(left), float(slope.std() / REPEATS**0.5)]
            found.append(entry)
    return found


if __name__ == "__main__":
    RECORD.main()
