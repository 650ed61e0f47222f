"""Whether a standard transformer solves sparse modular addition by counting, and how long it takes to begin.

    python experiments/counting.py --jobs 2

Writes results/counting.json, and the trained weights of STORED, in half precision, to src/attnopt/data/counters.npz. A run
that is finished stays in .cache/counting, so an interrupted call goes on where it stopped.

The task is that of Part III: the label of a sequence of L tokens is the sum of its first k modulo p; half of all sequences
are drawn for training, the others are for testing. Each of SETTINGS is trained with SEEDS: causal decoder-only transformers
that read the answer at a token after the sequence; cross-entropy; AdamW at the rate RATE after a warm-up of WARMUP steps, on
batches of BATCH from the training set. A run ends at the first evaluation (every EVERY steps) at which more than ENOUGH of
the test set are right, or after STEPS steps; it is solved if at its end more than 0.95 are right. It has escaped at the
first evaluation at which the loss on the test set lies below `escape_level`. "The state" is that of the last token after the
last attention, before the last MLP, for all pᴸ sequences. "Replaced" states are means of the state over all sequences of a
level; what follows is as trained. Levels are

label    the label;
count    how often each token occurs among the k relevant ones, where each position may have a shift x → x + c modulo p, as
         the label allows up to a constant; of all shifts, those whose levels explain most of the state's variance;
weights  for p = 2, M = Σ m_t x_t over all L positions: m_t are the coefficients of the best affine function of the bits for
         the state, along its first principal direction, over the median size of the relevant ones, rounded;
bits     all k relevant tokens.

The factors of the plateau, for p = 2: the influence of a position is the length of the mean change of the state if its bit
changes; P is the product of the influences of the relevant positions; π is the mean over all sequences of the margin times
±1 as the label is; both at every evaluation.

Rules, fixed before these runs. Earlier runs of "base" had been looked at: their rates decayed as a cosine over 20,000 steps
from 1e-3 (none of two was solved), 6e-4 (one of one), or 3e-4 (two of five; the others stayed near log 2 until the rate was
too small to leave it), so the rate is constant now, and the seeds are others. After four runs, of which two were solved
within 6000 steps and two not within 24,000, STEPS was halved to save time. A rule on runs says yes if it holds in at
least 0.8 of the solved runs of a setting, no if in at most 0.2, and mixed between. They are asked of every setting; the
chapter's answer is that of "base".

head     Some head of the last layer is a clustering head: it gives at least 0.9 of its attention, in the mean over
         sequences, to the relevant positions, and none of them gets less than half of an even share of this.
count    The state counts: with levels "count" at least 0.95 of all sequences are right, and with levels "label" less.
weights  The state counts with other weights: "count" gives less than 0.95, "weights" at least, with at most 16 levels.
bits     The state forgets the other tokens: with levels "bits" at least 0.95 of all sequences are right.
product  From the first evaluation after the start to the escape, the share of log P in the growth of log |π|: the plateau
         waits mainly for the product if the 95% interval of the median over the runs that escape, from drawing the runs
         again, lies above one half, and mainly for the readout if below; otherwise for neither more than for the other.
plateau  A setting changes the plateau if the 95% interval of the ratio of its median escape step to that of "base" does not
         contain 1; runs that do not escape count as STEPS.
solved   A setting changes how often the task is solved if the 95% Wilson intervals of the shares do not overlap.

Added after the runs, and subject to no rule: the shares of "product" up to one and to two evaluations before the escape,
because the escape is seen after the loss has fallen.
"""

import time

import joblib
import lab
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnbook.printing import wilson
from attnopt.clustering import Task, escape_level
from attnopt.standard import Transformer, as_one_hot, best_count, count_levels, level_means
from attnopt.standard.trained import COUNTERS

RECORD = lab.Record("counting", digits=5)
RATE, WARMUP, BATCH, STEPS, EVERY, SEEDS, MOST = 3e-4, 500, 64, 12_000, 200, range(10, 20), 16
ENOUGH, SOLVED, SHARE, EVEN, TIMES = 0.99, 0.95, 0.9, 0.5, 2000
BASE = {"task": (2, 12, 5), "width": 64, "layers": 1, "heads": 4, "decay": 0.0}
SETTINGS = {
    "base": BASE,
    "two layers": BASE | {"layers": 2},
    "one head": BASE | {"heads": 1},
    "width 16": BASE | {"width": 16},
    "no LayerNorm": BASE | {"plain": True},
    "decay": BASE | {"decay": 0.3},
    "modulo 3": BASE | {"task": (3, 8, 3)},
    "width 32": BASE | {"width": 32},
    "width 128": BASE | {"width": 128},
}
STORED = ("base",)
EXPLORER = lab.ROOT / "src" / "attnbook" / "explorers" / "weighted_count.npz"
PAGE = {
    "plain": (10, (1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0)),
    "twos": (11, (1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 0, 0)),
}  # "width 16"


def new_model(setting: str) -> Transformer:
    """A model of the setting's size with random weights."""
    chosen = SETTINGS[setting]
    p, length, _ = chosen["task"]
    model = Transformer(p + 1, p, length + 1, chosen["width"], chosen["layers"], chosen["heads"])
    if "plain" in chosen:
        for part in (*model.parts, model.readout):
            part[0] = nn.Identity()
    return model


def sequences(setting: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """All sequences and labels of the setting's task, in lexicographic order, and which of them are for training."""
    tokens, labels = Task(*SETTINGS[setting]["task"]).all()
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(seed))
    return tokens, labels, order < len(tokens) // 2


@lab.kept("counting")
def run(setting: str, seed: int) -> dict:
    """The trained weights of one run, and its history."""
    torch.set_num_threads(1)
    torch.manual_seed(1000 * list(SETTINGS).index(setting) + seed)
    model, generator = new_model(setting), torch.Generator().manual_seed(seed)
    p, _, k = SETTINGS[setting]["task"]
    tokens, labels, training = sequences(setting, seed)
    inputs, members, rows = as_one_hot(tokens, p), training.nonzero()[:, 0], []

    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=SETTINGS[setting]["decay"], fused=True)
    began = time.perf_counter()
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            rows.append(evaluated(model, inputs, tokens, labels, training, k))
            if rows[-1]["right"] > ENOUGH:
                break
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / WARMUP)
        batch = members[torch.randint(len(members), (BATCH,), generator=generator)]
        optimizer.zero_grad()
        F.cross_entropy(model.last(inputs[batch]), labels[batch]).backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    history = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    found = {"weights": model.state_dict(), "history": history, "seconds": round(seconds)}
    print(setting, seed, len(rows), *(f"{history[name][-1]:.3f}" for name in ("test", "right")), round(seconds), flush=True)
    return found


@torch.no_grad()
def evaluated(
    model: Transformer, inputs: Tensor, tokens: Tensor, labels: Tensor, training: Tensor, k: int
) -> dict[str, Tensor]:
    """Losses on the two halves, the share of the test set that is right, and for p = 2 the influences and π."""
    states = model.last_states(inputs)[-2]  # after the last attention
    logits = model.read(states + model.parts[-1](states))
    losses = F.cross_entropy(logits, labels, reduction="none")
    right = (logits.argmax(-1) == labels).float()
    found = {"train": losses[training].mean(), "test": losses[~training].mean(), "right": right[~training].mean()}
    if logits.shape[-1] == 2:
        signs = (2 * tokens - 1).to(states.dtype)
        found["influences"] = (2 * signs.T @ states / len(states)).norm(dim=-1)
        found["parity"] = ((logits[:, 1] - logits[:, 0]).double() * (2 * labels - 1)).mean()
    return found


@torch.no_grad()
def looked_at(setting: str, seed: int, found: dict) -> dict:
    """What the rules need to know about one trained model, computed from its weights in half precision."""
    torch.set_num_threads(1)
    model = new_model(setting)
    model.load_state_dict({name: value.half().float() for name, value in found["weights"].items()})
    p, _, k = SETTINGS[setting]["task"]
    tokens, labels, _ = sequences(setting, seed)
    inputs = as_one_hot(tokens, p)
    state = model.embed(inputs)
    for part in model.parts[:-2]:
        state = state + part(state)
    attention = model.parts[-2][1].weights(model.parts[-2][0](state))[:, :, -1].mean(0)
    model = model.double()
    states = model.last_states(inputs.double())[-2]
    right = lambda levels: answers_right(model, level_means(states, levels), labels)  # noqa: E731
    centered = states - states.mean(0)
    shown = lambda levels: level_means(centered, levels).square().sum() / centered.square().sum()  # noqa: E731
    shifts, share = best_count(states, tokens, p, k)
    count = count_levels(tokens, p, shifts)
    bits = (tokens[:, :k] * p ** torch.arange(k)).sum(-1)
    rows = {
        "right": answers_right(model, states, labels),
        "attention": attention,
        "shifts": shifts,
        "count": {"right": right(count), "share": share},
        "label": {"right": right(labels), "share": shown(labels)},
        "bits": {"right": right(bits), "share": shown(bits)},
    }
    if p == 2:
        signs = 2.0 * tokens.double() - 1
        effects = 2 * signs.T @ states / len(states)
        rows["affine"] = (signs @ effects / 2).square().sum() / centered.square().sum()
        along = effects @ torch.linalg.svd(effects, full_matrices=False).Vh[0]
        weights = along / along[:k].abs().median()
        rounded = weights.round().long()
        levels = (tokens * rounded).sum(-1)
        rows["weights"] = {"values": weights, "right": right(levels), "share": shown(levels), "levels": len(levels.unique())}
    return rows


def answers_right(model: Transformer, states: Tensor, labels: Tensor) -> Tensor:
    """The share of right answers from the last token's states after the last attention."""
    return (model.read(states + model.parts[-1](states)).argmax(-1) == labels).double().mean()


def training(setting: str):
    """The section of a setting."""

    def trained() -> dict:
        """For every seed the history of its test loss, its time, and what `looked_at` finds."""
        runs = joblib.Parallel()(joblib.delayed(run)(setting, seed) for seed in SEEDS)
        looked = joblib.Parallel()(
            joblib.delayed(looked_at)(setting, seed, found) for seed, found in zip(SEEDS, runs, strict=True)
        )
        if setting in STORED:
            arrays = dict(np.load(COUNTERS, allow_pickle=False)) if COUNTERS.exists() else {}
            for seed, found in zip(SEEDS, runs, strict=True):
                arrays |= {f"{setting}/{seed}/{name}": value.half().numpy() for name, value in found["weights"].items()}
            lab.store_arrays(COUNTERS, arrays)
        k, level = SETTINGS[setting]["task"][2], escape_level(SETTINGS[setting]["task"][0])
        seeds = []
        for found, rows in zip(runs, looked, strict=True):
            history = found["history"]
            below = (history["test"] < level).nonzero()[:, 0]
            row = {"escape": int(below[0]) * EVERY if len(below) else None, "solved": bool(history["right"][-1] > SOLVED)}
            row |= {"test": history["test"], "right": history["right"][-1], "train": history["train"][-1]}
            if "parity" in history and len(below):
                product = history["influences"][:, :k].log().sum(1)
                grown = history["parity"].abs().log()
                ends = [torch.tensor([1, int(below[0]) - sooner]) for sooner in range(3)]
                row["shares"] = [(product[pair].diff() / grown[pair].diff()).item() for pair in ends]
            seeds.append(row | {"seconds": found["seconds"], "final": rows})
        return {"seeds": seeds}

    trained.__name__ = setting
    return trained


for name in SETTINGS:
    RECORD.section(training(name))


@RECORD.section
def explorer() -> dict:
    """The explorer's models, which go to its file, and how much of their counts an affine function reads from the state."""
    arrays, found = {}, {}
    for name, (seed, weights) in PAGE.items():
        model = new_model("width 16")
        model.load_state_dict({key: value.half().float() for key, value in run("width 16", seed)["weights"].items()})
        tokens, labels, _ = sequences("width 16", seed)
        model = model.double().requires_grad_(False)
        states = model.last_states(as_one_hot(tokens, 2).double())[-2]
        logits = model.read(states + model.parts[-1](states))
        count = (tokens * torch.tensor(weights)).sum(-1).double()
        known = torch.cat([states, torch.ones(len(states), 1)], -1)
        reading = torch.linalg.lstsq(known, count[:, None]).solution[:, 0]
        shown = torch.stack([known @ reading, logits[:, 1] - logits[:, 0]], -1)
        arrays[f"{name}_weights"] = torch.nn.utils.parameters_to_vector(model.parameters()).float().numpy()
        arrays[f"{name}_reading"] = reading.float().numpy()
        arrays[f"{name}_levels"] = torch.stack([shown[count == level].mean(0) for level in count.unique()]).float().numpy()
        left = (known @ reading - count).square().mean() / count.var(correction=0)
        right = answers_right(model, level_means(states, count.long()), labels)
        found[name] = {"read": 1 - left, "right": right}
    np.savez_compressed(EXPLORER, **arrays)
    return found


def is_clustering(shares: np.ndarray, k: int) -> bool:
    """Whether a head gives the relevant positions what the rule "head" asks for; shares of attention, shape (L + 1,)."""
    total = shares[:k].sum()
    return bool(total >= SHARE and shares[:k].min() >= EVEN * total / k)


def asked(seeds: list[dict], k: int) -> dict:
    """Of how many solved runs each rule on runs holds, and its verdict."""
    solved = [seed["final"] for seed in seeds if seed["solved"]]
    rules = {
        "head": lambda row: any(is_clustering(np.array(head), k) for head in row["attention"]),
        "count": lambda row: row["count"]["right"] >= SOLVED > row["label"]["right"],
        "weights": lambda row: (
            "weights" in row
            and row["count"]["right"] < SOLVED <= row["weights"]["right"]
            and row["weights"]["levels"] <= MOST
        ),
        "bits": lambda row: row["bits"]["right"] >= SOLVED,
    }
    found: dict = {"solved": [len(solved), len(seeds), *wilson(len(solved), len(seeds))]}
    for name, holds in rules.items():
        held = sum(map(holds, solved))
        share = held / len(solved) if solved else 0.5
        found[name] = {"held": held, "verdict": "yes" if share >= 0.8 else "no" if share <= 0.2 else "mixed"}
    return found


def interval(values: list[np.ndarray], measure) -> list[float]:
    """A measure of samples, and its 95% interval from drawing each of them again."""
    rng = np.random.default_rng(0)
    again = [measure(*(one[rng.integers(0, len(one), len(one))] for one in values)) for _ in range(TIMES)]
    return [float(measure(*values)), *map(float, np.quantile(again, (0.025, 0.975)))]


@RECORD.section
def verdicts() -> dict:
    """What the rules say, for the settings that are stored."""
    stored = RECORD.stored()
    found: dict = {}
    escapes = lambda seeds: np.array([STEPS if seed["escape"] is None else seed["escape"] for seed in seeds])  # noqa: E731
    for setting, chosen in SETTINGS.items():
        if setting not in stored:
            continue
        seeds = stored[setting]["seeds"]
        found[setting] = asked(seeds, chosen["task"][2])
        shares = np.array([seed["shares"] for seed in seeds if "shares" in seed])
        if len(shares):
            found[setting]["product"] = [interval([some], np.median) for some in shares.T]
        if "base" in stored:
            ratio = interval([escapes(seeds), escapes(stored["base"]["seeds"])], lambda a, b: np.median(a) / np.median(b))
            found[setting]["plateau"] = ratio
    return found


if __name__ == "__main__":
    RECORD.main()
