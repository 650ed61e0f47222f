"""Training runs for the visual sandbox: many models are trained, typical ones are recorded.

    python experiments/sandbox_runs.py
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnopt.clustering import forward, invariance, modular_addition, sequences_by_table
from attnopt.clustering.model import Params
from attnopt.clustering.sandbox import LAYERS, Run, pack

FRAMES, THINNED = 140, 5  # frames a run, about; epochs from one point of the history to the next
LENGTH, PREFIX, NORM = 12, 5, "rms"
WITH_BIAS = {"receptors": "receptor_biases", "assemblers": "assembler_bias"}


def figures(values: Tensor, digits: int = 3) -> np.ndarray:
    """Numbers rounded to significant digits."""
    return np.array([float(f"{value:.{digits}g}") for value in values.tolist()])


def chosen_epochs(losses: Tensor) -> np.ndarray:
    """Epochs for frames: denser where the loss changes, every one about its largest jump, the first and the last."""
    change = losses.log().diff().abs()
    smooth = change.unfold(0, 5, 1).mean(1)
    smooth = torch.cat([smooth[:1].expand(2), smooth, smooth[-1:].expand(2)])
    density = smooth / smooth.sum() + 0.7 / len(smooth)
    along = torch.cat([density.new_zeros(1), density.cumsum(0)])
    wanted = torch.linspace(0, along[-1].item(), FRAMES, dtype=along.dtype)
    epochs = torch.searchsorted(along, wanted).clamp(max=len(change))
    jump = int((losses.log().diff(2).abs() if len(losses) > 2 else change).argmax()) + 1
    around = torch.arange(max(0, jump - 5), min(len(change), jump + 8) + 1)
    return torch.cat([epochs, around]).unique().numpy()


def losses_by_epoch(params: Params, tokens: Tensor, targets: Tensor, part: int = 25) -> tuple[Tensor, Params]:
    """Training loss of every epoch's parameters, shape (E,), and the norms of its gradients."""
    losses, norms = [], {name: [] for name in LAYERS}
    for start in range(0, len(params["token"]), part):
        now = {name: value[start : start + part].double().requires_grad_() for name, value in params.items()}
        logits = forward(now, tokens, norm=NORM)
        each = cross_entropy(logits.flatten(0, 1), targets.repeat(len(logits)), reduction="none")
        loss = each.unflatten(0, logits.shape[:2]).mean(1)
        gradients = dict(zip(now, torch.autograd.grad(loss.sum(), list(now.values())), strict=True))
        losses.append(loss.detach())
        for name in LAYERS:
            square = gradients[name].flatten(1).square().sum(1)
            if name in WITH_BIAS:
                square = square + gradients[WITH_BIAS[name]].flatten(1).square().sum(1)
            norms[name].append(square.sqrt())
    return torch.cat(losses), {name: torch.cat(values) for name, values in norms.items()}


def right_answers(params: Params, tokens: Tensor, targets: Tensor, part: int) -> Tensor:
    """Which of the sequences each model answers rightly, shape (M, n)."""
    right = []
    for start in range(0, len(params["token"]), part):
        now = {name: value[start : start + part].double() for name, value in params.items()}
        sequence = sequences_by_table(now, tokens, NORM)
        direction = sequence / (sequence.norm(dim=-1, keepdim=True) / sequence.shape[-1] ** 0.5 + 1e-5)
        active = torch.nn.functional.gelu(direction @ now["receptors"].mT + now["receptor_biases"].unsqueeze(1))
        output = sequence + active @ now["assemblers"].mT + now["assembler_bias"].unsqueeze(1)
        right.append((output @ now["token"].mT).argmax(-1) == targets)
    return torch.cat(right)


def record(name: str, title: str, description: str, params: Params, tokens: Tensor, targets: Tensor, p: int, settings: dict) -> Run:
    """A run from the parameters after every epoch.

    Args:
        name: of the run.
        title: a few words.
        description: one sentence.
        params: parameters after epochs 0, 1, …, shape (E + 1, …) each.
        tokens: training sequences.
        targets: their labels.
        p: size of the vocabulary.
        settings: of the training.
    """
    losses, norms = losses_by_epoch(params, tokens, targets)
    frames = chosen_epochs(losses)
    points = np.union1d(frames, np.arange(0, len(losses), THINNED))
    at = lambda epochs: {name: value[torch.from_numpy(epochs)] for name, value in params.items()}  # noqa: E731
    everything, labels = modular_addition(p, LENGTH, PREFIX)
    places = lambda rows: (rows * p ** torch.arange(LENGTH - 1, -1, -1)).sum(1)  # noqa: E731
    unseen = torch.ones(len(everything), dtype=torch.bool)
    unseen[places(tokens)] = False
    few = 50 if p == 2 else 1
    history = {"all": [], "unseen": [], "train": []}
    for start in range(0, len(points), few):
        right = right_answers(at(points[start : start + few]), everything, labels, few)
        for which, rows in (("all", slice(None)), ("unseen", unseen), ("train", places(tokens))):
            history[which] += right[:, rows].double().mean(1).tolist()
    shares = [invariance(at(frames[start : start + few]), p, PREFIX, NORM) for start in range(0, len(frames), few)]
    return Run(
        name=name,
        title=title,
        description=description,
        p=p,
        length=LENGTH,
        k=PREFIX,
        norm=NORM,
        settings=settings,
        epochs=frames,
        packed=pack(at(frames)),
        frames={key: torch.cat([share[key] for share in shares]).double().numpy().round(4) for key in ("suffix", "permutation")},
        history={"epoch": points, "loss": figures(losses[points])}
        | {key: np.array(values).round(4) for key, values in history.items()}
        | {key: figures(norms[key][points]) for key in LAYERS},
    )
