"""What a standard transformer does with a linear regression in its prompt: errors, states, exchanges, ablations.

    python experiments/steps_in_prompt.py --jobs 2

Writes results/steps_in_prompt.json, and the trained weights of STORED, in half precision, to
src/attnopt/data/regressors.npz. A run that is finished stays in .cache/steps_in_prompt, so an interrupted call goes on
where it stopped.

Each of SETTINGS is trained with SEEDS: decoder-only transformers of width 64 with 4 heads, on prompts of POINTS points and
labels y = ⟨w, x⟩ + noise, x ~ N(0, Σ), w ~ N(0, Σ⁻¹), all new in every step of BATCH prompts; squared error at every
label; Adam, rate 1e-3 with warm-up and cosine. Everything below is computed from the stored weights, on the
same FIT + TEST fresh prompts for all seeds of a setting, at the query after n = 8 and n = 16 labeled examples. "Answer" is
⟨w, x⟩ without noise. A "reading" of a state is a linear probe, fitted to the answer on FIT prompts and judged on TEST
others, as is every share of variance. K_j = ⟨x, Gʲb⟩ are the answers of `krylov_answers`, G and b being the examples'
second moments, and "K_1 beyond K_0" is what remains of K_1 after its regression on K_0, and so on: what the first step of
gradient descent does not give. In the setting "skewed", P_j are the same from whitened points, as with preconditioning by
Σ⁻¹. The family "weighted", ridge regression in which an example counts less the longer its point is, by 1/|x_i|², was added
after the runs, and no rule concerns it.

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

The rules on other sizes were fixed after those above had been applied to "base" and "skewed", and before any run of "two",
"four", "six", or "eight". "Steps" are the best gradient steps of Part II with the same error, interpolated by logarithms, at
n = 16. No size is trained longer than "base", so a large model may be further from its best.

two      With two layers, the output is worth several steps, if at least 1.5; it is worth one, if at most 1.1.
six      Further layers add steps at the same pace, if the output of six layers is worth at least 3 more than the median
         output of "base", one for each added layer; they add little, if at most 1 more.
eight    With d = 8 too, the reading after the second layer is worth several steps, if at least 1.5; one, if at most 1.1.
"""

import time
from collections.abc import Callable

import joblib
import numpy as np
import torch
from lab import ROOT, Record, kept, store_arrays
from torch import Tensor

from attnopt.in_context import optimal_step_sizes
from attnopt.standard import (
    Transformer,
    as_tokens,
    explained,
    fitted_reading,
    krylov_answers,
    load_regressor,
    newton_answers,
    ridge_answers,
    train,
)
from attnopt.standard.trained import REGRESSORS

EXPLORER = ROOT / "src" / "attnbook" / "explorers" / "answer_forms.npz"
RECORD = Record("steps_in_prompt", digits=5)
POINTS, BATCH, STEPS, SEEDS, FIT, TEST, PLACES = 17, 64, 10_000, range(5), 4000, 4000, (8, 16)
PENALTIES = (0.0, *(2.0**power for power in range(-10, 9)))
RATES = tuple(tenth / 10 for tenth in range(1, 16))
POWERS, DESCENT, NEWTON, MOST = 9, 24, 12, 12
ROUND = {"variances": (1.0,) * 4, "noise": 0.0}
SETTINGS = {
    "base": ROUND | {"layers": 3},
    "skewed": ROUND | {"layers": 3, "variances": (4.0, 2.0, 0.5, 0.25)},
    "noise": ROUND | {"layers": 3, "noise": 1.0},
    "two": ROUND | {"layers": 2},
    "four": ROUND | {"layers": 4},
    "six": ROUND | {"layers": 6},
    "eight": ROUND | {"layers": 4, "variances": (1.0,) * 8},
    "line": {"variances": (1.0,), "noise": 0.5, "layers": 3, "width": 32},  # for the explorer
}
STORED = ("base", "skewed")


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
    return Transformer(len(chosen["variances"]) + 1, 1, 2 * POINTS - 1, chosen.get("width", 64), chosen["layers"])


@kept("steps_in_prompt")
def run(setting: str, seed: int) -> dict:
    """The trained weights of one run, and the loss over the training."""
    torch.set_num_threads(1)
    torch.manual_seed(1000 * list(SETTINGS).index(setting) + seed)
    model, generator, losses = new_model(setting), torch.Generator().manual_seed(seed), []
    began = time.perf_counter()

    def loss() -> Tensor:
        points, labels, _ = prompts(setting, BATCH, generator)
        value = (model(as_tokens(points, labels))[:, ::2, 0] - labels).square().mean()
        losses.append(value.item())
        return value

    train(model, loss, STEPS)
    found = {
        "weights": model.state_dict(),
        "losses": torch.tensor(losses).view(100, -1).mean(1).tolist(),
        "seconds": round(time.perf_counter() - began),
    }
    print(setting, seed, found["losses"][-1], flush=True)
    return found


def trained_model(setting: str, seed: int) -> Transformer:
    """The model of one run, its weights rounded to half precision as they are stored."""
    if setting in STORED and REGRESSORS.exists():
        return load_regressor(setting, seed)
    model = new_model(setting)
    model.load_state_dict({name: value.half().float() for name, value in run(setting, seed)["weights"].items()})
    return model


def training(setting: str) -> Callable[[], dict]:
    """The section of a setting."""

    def trained() -> dict:
        """For every seed the mean loss of each hundredth of the training, its time, and what `looked_at` finds."""
        runs = joblib.Parallel()(joblib.delayed(run)(setting, seed) for seed in SEEDS)
        if setting in STORED:
            arrays = dict(np.load(REGRESSORS, allow_pickle=False)) if REGRESSORS.exists() else {}
            for seed, found in zip(SEEDS, runs, strict=True):
                arrays |= {f"{setting}/{seed}/{name}": value.half().numpy() for name, value in found["weights"].items()}
            store_arrays(REGRESSORS, arrays)
        looked = joblib.Parallel()(joblib.delayed(looked_at)(setting, seed) for seed in SEEDS)
        return {key: [found.get(key) for found in runs] for key in ("losses", "seconds")} | {"seeds": looked}

    trained.__name__ = setting
    return trained


for name in SETTINGS:
    if name != "line":
        RECORD.section(training(name))


def judged(prediction: Tensor, target: Tensor) -> Tensor:
    """The share of a target's variance that predictions explain on half the samples, combined as is best on the others.

    Args:
        prediction: shape (..., n_samples, F).
        target: shape (n_samples,).

    Returns:
        Shape (...).
    """
    half = len(target) // 2
    return explained(fitted_reading(prediction, target.expand(prediction.shape[:-1]), half), target[half:])


def algorithms(points: Tensor, labels: Tensor, query: Tensor, spread: Tensor) -> dict[str, dict[str, Tensor]]:
    """The answers of each family's members, shape (P,); for "plain" and "whitened" polynomials the Krylov answers."""
    n, prompt = points.shape[-2], (points, labels, query)
    found: dict[str, dict[str, Tensor]] = {
        "ridge": {f"{penalty:g}": ridge_answers(*prompt, penalty) for penalty in PENALTIES},
        "newton": {str(step): answers for step, answers in enumerate(newton_answers(*prompt, NEWTON).unbind(-1))},
        "weighted": {},
        "descent": {},
    }
    length = points.norm(dim=-1)
    for penalty in PENALTIES:
        members = points / length[..., None], labels / length, query
        found["weighted"][f"{penalty:g}"] = ridge_answers(*members, penalty / n)
    for rate in RATES:
        weights = torch.zeros_like(query)
        for step in range(1, DESCENT + 1):
            residual = labels - (points @ weights[..., None])[..., 0]
            weights = weights + rate / n * (points.mT @ residual[..., None])[..., 0]
            found["descent"][f"{step} at {rate:.1f}"] = (weights * query).sum(-1)
    for name, scale in {"plain": torch.ones_like(spread), "whitened": spread}.items():
        powers = krylov_answers(points / scale, labels, query / scale, POWERS)
        found[name] = {str(j): answers for j, answers in enumerate(powers.unbind(-1))}
    return found


def matches(reading: Tensor, families: dict[str, dict[str, Tensor]]) -> dict:
    """Of each family the best member, its share of the reading, and the first one's share; of polynomials, all shares."""
    found: dict = {}
    for name, members in families.items():
        answers = torch.stack(list(members.values()))[:, -len(reading) :]
        if name in ("plain", "whitened"):
            found[name] = [judged(answers[:count].T, reading) for count in range(1, POWERS + 1)]
        else:
            shares = judged(answers[..., None], reading)
            found[name] = {"member": list(members)[shares.argmax()], "share": shares.max(), "zero": shares[0]}
    return found


@torch.no_grad()
def looked_at(setting: str, seed: int) -> dict:
    """Everything about one trained model but its training."""
    torch.set_num_threads(1)
    model, generator = trained_model(setting, seed), torch.Generator().manual_seed(12345)
    points, labels, answers = prompts(setting, FIT + TEST, generator)
    tokens = as_tokens(points, labels)
    spread = torch.tensor(SETTINGS[setting]["variances"]).sqrt().double()
    states = model.states(tokens)
    errors = (model.read(states[-1])[:, ::2, 0] - answers).square().mean(0) / len(spread)
    penalty = SETTINGS[setting]["noise"] ** 2
    best = [ridge_answers(*exact(points / spread.float(), labels, n), penalty) for n in range(1, POINTS)]
    bayes = [(guess - answers[:, n]).square().mean() / len(spread) for n, guess in enumerate(best, 1)]
    found = {"errors": errors, "bayes": [answers[:, 0].square().mean() / len(spread), *bayes]}
    found |= {f"states {n}": states_at(model, states, n, exact(points, labels, n), answers[:, n], spread) for n in PLACES}
    return found | {"exchanges": exchanges(model, points, labels, answers), "spared": spared(model, tokens, answers)}


def exact(points: Tensor, labels: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first n examples and the query after them, in double precision."""
    return points[:, :n].double(), labels[:, :n].double(), points[:, n].double()


def states_at(
    model: Transformer, states: list[Tensor], n: int, prompt: tuple[Tensor, ...], answers: Tensor, spread: Tensor
) -> list[dict]:
    """For each state of the query after n examples: what probes read, and which algorithms match the reading."""
    families, rows = algorithms(*prompt, spread), []
    plain, whitened = (torch.stack(list(families[name].values()), -1) for name in ("plain", "whitened"))
    beyond = {f"K{j}": left_over(plain[:, j], plain[:, :j]) for j in range(4)}
    if spread.var() > 0:
        beyond |= {"P0-K0": left_over(whitened[:, 0], plain[:, :1]), "K0-P0": left_over(plain[:, 0], whitened[:, :1])}
    for state in (*states, None):
        if state is None:  # the output itself
            reading, row = model.read(states[-1])[FIT:, 2 * n, 0].double(), {}
        else:
            here = state[:, 2 * n].double()
            reading = fitted_reading(here, answers.double(), FIT)
            carried = {key: explained(fitted_reading(here, value, FIT), value[FIT:]) for key, value in beyond.items()}
            own = model.read(state)[FIT:, 2 * n, 0].double()
            row = {"carried": carried, "readout": judged(own[:, None], answers[FIT:].double())}
        rows.append(row | {"answer": explained(reading, answers[FIT:].double()), "matches": matches(reading, families)})
    return rows


def left_over(target: Tensor, known: Tensor) -> Tensor:
    """What of a target its regression on what is known leaves."""
    known = torch.cat([known, torch.ones_like(target)[:, None]], -1)
    return target - (known @ torch.linalg.lstsq(known, target[:, None]).solution)[:, 0]


def exchanges(model: Transformer, points: Tensor, labels: Tensor, answers: Tensor) -> list[dict]:
    """After each part, how the output moves with the query's state, or the examples', of another prompt with this query."""
    others = torch.cat([points.roll(1, 0)[:, :-1], points[:, -1:]], 1)
    here, there = as_tokens(points, labels), as_tokens(others, labels.roll(1, 0))
    own, donor = model.states(here), model.states(there)
    before, wanted = (model.read(states[-1])[:, -1, 0] for states in (own, donor))
    rows = []
    for i in range(len(own)):
        both = torch.cat([own[i][:, -1], donor[i][FIT:, -1]]).double()
        target = torch.cat([answers[:, -1], torch.zeros(TEST)]).double()
        reading = fitted_reading(both, target, FIT)
        query, examples = (
            patched(model, here[FIT:], i, donor[i][FIT:], part) - before[FIT:] for part in ("query", "examples")
        )
        moved, far = (reading[TEST:] - reading[:TEST]).float(), (wanted - before)[FIT:]
        rows.append({"reading": slope(query, moved), "query": slope(query, far), "examples": slope(examples, far)})
    return rows


def patched(model: Transformer, tokens: Tensor, after: int, donor: Tensor, part: str) -> Tensor:
    """The output at the last token if some states after a part are the donor's."""

    def change(i: int, state: Tensor) -> Tensor:
        if i != after:
            return state
        cut = (donor[:, :-1], state[:, -1:]) if part == "examples" else (state[:, :-1], donor[:, -1:])
        return torch.cat(cut, 1)

    return model.read(model.states(tokens, change)[-1])[:, -1, 0]


def slope(response: Tensor, cause: Tensor) -> dict:
    """Of the regression through 0, and the share of the response that it leaves unexplained."""
    response, cause = response.double(), cause.double()
    value = (response @ cause) / (cause @ cause)
    return {"slope": value, "left": (response - value * cause).square().mean() / response.square().mean().clamp_min(1e-12)}


def spared(model: Transformer, tokens: Tensor, answers: Tensor) -> list[float]:
    """For each part, the factor by which its mean over prompts, in its place, raises the error at the last query."""
    rows = []
    for which in range(-1, len(model.parts)):
        state = model.embed(tokens)
        for i, part in enumerate(model.parts):
            more = part(state)
            state = state + (more.mean(0) if i == which else more)
        rows.append((model.read(state[:, -1])[:, 0] - answers[:, -1]).square().mean().item())
    return [row / rows[0] for row in rows[1:]]


@RECORD.section
def explorer() -> dict:
    """The explorer's model and probes, which go to its file, and what the probes explain of the answer after 8 examples."""
    model = trained_model("line", 0)
    points, labels, answers = prompts("line", FIT + TEST, torch.Generator().manual_seed(12345))
    with torch.no_grad():
        states = [state[:, 16].double() for state in model.double().states(as_tokens(points, labels).double())]
    ones, target = torch.ones(FIT + TEST, 1).double(), answers[:, 8].double()
    states = [torch.cat([state, ones], 1) for state in states]
    probes = torch.stack([torch.linalg.lstsq(state[:FIT], target[:FIT, None]).solution[:, 0] for state in states])
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    np.savez_compressed(EXPLORER, weights=flat.float().numpy(), probes=probes.float().numpy())
    return {"answer": [explained((state @ probe)[FIT:], target[FIT:]) for state, probe in zip(states, probes, strict=True)]}


def worth(setting: str, row: dict, n: int = PLACES[1]) -> float:
    """How many best gradient steps leave the error of an answer."""
    dim = len(SETTINGS[setting]["variances"])
    errors = [1.0, *(float(optimal_step_sizes(dim, n, k)[1]) / dim for k in range(1, MOST + 1))]
    return float(np.interp(-np.log(1 - row["answer"]), -np.log(errors), range(MOST + 1)))


def decided(seeds: list, yes: Callable[[dict], bool], no: Callable[[dict], bool]) -> str:
    """What at least four seeds say, or "mixed"."""
    for word, holds in (("yes", yes), ("no", no)):
        if sum(map(holds, seeds)) >= 4:
            return word
    return "mixed"


@RECORD.section
def verdicts() -> dict:
    """What the rules say, for the settings that are stored."""
    stored = RECORD.stored()
    base, skewed, noise = (stored.get(setting, {}).get("seeds", []) for setting in ("base", "skewed", "noise"))
    state = lambda seed, part, n=16: seed[f"states {n}"][part]  # noqa: E731
    carried = lambda seed, key: state(seed, 4)["carried"][key]  # noqa: E731
    single = lambda row: max(row["matches"][family]["share"] for family in ("ridge", "newton"))  # noqa: E731
    powers = lambda row: max(row["matches"]["plain"])  # noqa: E731
    rows = lambda seed: (state(seed, 4), state(seed, 6))  # noqa: E731
    moved = lambda seed: seed["exchanges"][4]["reading"]["slope"]  # noqa: E731
    whiter = lambda seed: carried(seed, "P0-K0") - carried(seed, "K0-P0")  # noqa: E731
    ridge = lambda seed: state(seed, 7, 8)["matches"]["ridge"]  # noqa: E731
    found = {
        "first": decided(base, lambda seed: state(seed, 2)["answer"] < 0.1, lambda seed: state(seed, 2)["answer"] >= 0.1),
        "several": decided(base, lambda seed: carried(seed, "K1") >= 0.5, lambda seed: carried(seed, "K1") <= 0.1),
        "kind": decided(
            base,
            lambda seed: all(powers(row) >= 0.99 for row in rows(seed)),
            lambda seed: any(single(row) - powers(row) >= 0.01 for row in rows(seed)),
        ),
        "added": decided(base, lambda seed: moved(seed) >= 0.9, lambda seed: moved(seed) <= 0.1),
    }
    for setting, part in (("two", -1), ("eight", 4)):
        if setting in stored:
            steps = lambda seed, setting=setting, part=part: worth(setting, state(seed, part))  # noqa: E731
            found[setting] = decided(
                stored[setting]["seeds"],
                lambda seed, steps=steps: steps(seed) >= 1.5,
                lambda seed, steps=steps: steps(seed) <= 1.1,
            )
    if "six" in stored:
        more = lambda seed: worth("six", state(seed, -1)) - middle  # noqa: E731
        middle = np.median([worth("base", state(seed, -1)) for seed in base])
        found["six"] = decided(stored["six"]["seeds"], lambda seed: more(seed) >= 3, lambda seed: more(seed) <= 1)
    if skewed:
        found["whitens"] = decided(skewed, lambda seed: whiter(seed) >= 0.1, lambda seed: whiter(seed) <= -0.1)
    if noise:
        found["ridge"] = decided(
            noise,
            lambda seed: 0.5 <= float(ridge(seed)["member"]) <= 2 and ridge(seed)["share"] - ridge(seed)["zero"] >= 0.01,
            lambda seed: not 0.5 <= float(ridge(seed)["member"]) <= 2,
        )
    for layer in (1, 2, 3):
        factor = lambda seed, part=2 * layer - 1: seed["spared"][part]  # noqa: E731
        found[f"MLP {layer} spared"] = decided(
            base, lambda seed, factor=factor: factor(seed) < 2, lambda seed, factor=factor: factor(seed) >= 10
        )
    return found


if __name__ == "__main__":
    RECORD.main()
