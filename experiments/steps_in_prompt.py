"""What a standard transformer does with a linear regression in its prompt: errors, states, exchanges, ablations.

    python experiments/steps_in_prompt.py --jobs 2

Writes results/steps_in_prompt.json, and the trained weights, in half precision, to src/attnopt/data/regressors.npz. A run
that is finished stays in .cache/steps_in_prompt, so an interrupted call goes on where it stopped.

Each of SETTINGS is trained with SEEDS: decoder-only transformers of width 64 with 4 heads, on prompts of POINTS points and
labels y = ⟨w, x⟩ + noise, x ~ N(0, Σ), w ~ N(0, Σ⁻¹), all new in every step of BATCH prompts; squared error at every
label; AdamW without decay, rate 1e-3 with warm-up and cosine. Everything below is computed from the stored weights, on the
same FIT + TEST fresh prompts for all seeds of a setting, at the query after n = 8 and n = 16 labeled examples. "Answer" is
⟨w, x⟩ without noise. A "reading" of a state is a linear probe, fitted to the answer on FIT prompts and judged on TEST
others, as is every share of variance. K_j = ⟨x, Gʲb⟩ are the Krylov answers of `attnopt.standard.krylov`, G and b being the
examples' second moments, and "K_1 beyond K_0" is what remains of K_1 after its regression on K_0, and so on: what the first
step of gradient descent does not give. In the setting "skewed", P_j are the same from whitened points, as with
preconditioning by Σ⁻¹.

Rules, fixed before the runs. A rule asks that something hold in at least four of the five seeds of the setting; anything
between the two sides of a rule is called mixed. All but the last two concern "base" at n = 16.

first    The first layer only pairs labels with points, if after it a probe explains less than 0.1 of the answer.
several  The second layer does more than one gradient step, if after it a probe explains at least 0.5 of K_1 beyond K_0; it
         does one step, if at most 0.1. (After one step of any size from 0 there is only K_0.)
kind     The readings after layers 2 and 3 are polynomials in G applied to b, if combinations of K_0 … K_8 explain at least
         0.99 of them. They are something else, if a single family, ridge regression with its best λ or Newton's iteration
         with its best number of steps, explains at least 0.01 more than K_0 … K_8 do.
added    Later layers add to the query what they would have added anyway, if the query's state after layer 2, taken from
         another prompt with the same query, moves the output by at least 0.9 of the difference of the two readings (the
         slope of a regression through 0); they correct it, if by at most 0.1.
parts    The MLPs of layers 2 and 3 can be spared, if replacing what they add by its mean over prompts, at every position,
         less than doubles the error; they matter, if it multiplies the error by at least 10. Likewise the MLP of layer 1.
whitens  In "skewed" the second layer preconditions, if after it a probe explains at least 0.1 more of P_0 beyond K_0 than
         of K_0 beyond P_0; it does not, if at least 0.1 less.
ridge    In "noise" the output is Bayes' rule, ridge regression with λ = σ², if the best λ of the grid at n = 8 lies
         between σ²/2 and 2σ², and ridge regression with it explains at least 0.01 more of the output than least squares do.
"""

from collections.abc import Callable

import joblib
import numpy as np
import torch
from lab import CACHE, ROOT, Record
from torch import Tensor

from attnopt.standard import Transformer, as_tokens, train

RECORD = Record("steps_in_prompt", digits=5)
WEIGHTS = ROOT / "src" / "attnopt" / "data" / "regressors.npz"
POINTS, BATCH, STEPS, SEEDS, FIT, TEST, PLACES = 17, 64, 10_000, range(5), 4000, 4000, (8, 16)
ROUND = {"variances": (1.0,) * 4, "noise": 0.0}
SETTINGS = {
    "base": ROUND | {"layers": 3},
    "skewed": ROUND | {"layers": 3, "variances": (4.0, 2.0, 0.5, 0.25)},
    "noise": ROUND | {"layers": 3, "noise": 1.0},
    "two": ROUND | {"layers": 2},
    "four": ROUND | {"layers": 4},
    "six": ROUND | {"layers": 6},
    "eight": ROUND | {"layers": 4, "variances": (1.0,) * 8},
}


def prompts(setting: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Points, shape (count, POINTS, d), labels, and answers, which are the labels without noise, (count, POINTS) each."""
    chosen = SETTINGS[setting]
    spread = torch.tensor(chosen["variances"]).sqrt()
    points = torch.randn(count, POINTS, len(spread), generator=generator) * spread
    answers = (points @ (torch.randn(count, len(spread), 1, generator=generator) / spread[:, None]))[..., 0]
    return points, answers + chosen["noise"] * torch.randn(answers.shape, generator=generator), answers


def new_model(setting: str) -> Transformer:
    """A model of the setting's size with random weights."""
    chosen = SETTINGS[setting]
    return Transformer(len(chosen["variances"]) + 1, 1, 2 * POINTS - 1, layers=chosen["layers"])


def run(setting: str, seed: int) -> dict:
    """The trained weights of one run, and the loss over the training."""
    path = CACHE / "steps_in_prompt" / f"{setting}-{seed}.pt"
    if path.exists():
        return torch.load(path)
    torch.set_num_threads(1)
    torch.manual_seed(1000 * list(SETTINGS).index(setting) + seed)
    model, generator, losses = new_model(setting), torch.Generator().manual_seed(seed), []

    def loss() -> Tensor:
        points, labels, _ = prompts(setting, BATCH, generator)
        value = (model(as_tokens(points, labels))[:, ::2, 0] - labels).square().mean()
        losses.append(value.item())
        return value

    train(model, loss, STEPS)
    found = {"weights": model.state_dict(), "losses": torch.tensor(losses).view(100, -1).mean(1).tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(found, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)
    print(setting, seed, found["losses"][-1], flush=True)
    return found


def training(setting: str) -> Callable[[], dict]:
    """The section of a setting."""

    def trained() -> dict:
        """The mean training loss of each hundredth of the training, for every seed; the weights go to their file."""
        runs = joblib.Parallel()(joblib.delayed(run)(setting, seed) for seed in SEEDS)
        arrays = dict(np.load(WEIGHTS)) if WEIGHTS.exists() else {}
        for seed, found in zip(SEEDS, runs, strict=True):
            arrays |= {f"{setting}/{seed}/{name}": value.half().numpy() for name, value in found["weights"].items()}
        np.savez_compressed(WEIGHTS, **arrays)
        return {"losses": [found["losses"] for found in runs]}

    trained.__name__ = setting
    return trained


for name in SETTINGS:
    RECORD.section(training(name))


if __name__ == "__main__":
    RECORD.main()
