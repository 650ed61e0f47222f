"""A recorded run drawn frame by frame with Matplotlib, and exported as a video."""

import argparse
import colorsys
import math
import sys
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.animation import FFMpegWriter
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from attnbook.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, YELLOW, use_style
from attnopt.checks import check_count
from attnopt.clustering.sandbox import LAYERS, Run, load_run

RAMP = [PURPLE, BLUE, SKY, GREEN, YELLOW, ORANGE]
TOKENS = [BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GREY]
MARKS = "o^s"  # of the classes
CELLS = 120


def prefix_colours(run: Run) -> list[str]:
    """A colour for each prefix shown: along a ramp with its multiset, lighter or darker with its order."""
    multisets = [tuple(sorted(prefix)) for prefix in run.sentences[0].tolist()]
    kinds = list(dict.fromkeys(multisets))
    colours = []
    for number, multiset in enumerate(multisets):
        at = kinds.index(multiset) / (len(kinds) - 1) * (len(RAMP) - 1)
        low = min(int(at), len(RAMP) - 2)
        colour = [a + (at - low) * (b - a) for a, b in zip(to_rgb(RAMP[low]), to_rgb(RAMP[low + 1]), strict=True)]
        order = multisets[:number].count(multiset)
        target, part = [(0, 0), (1, 0.3), (0, 0.25)][order]
        colours.append(to_hex([a + part * (target - a) for a in colour]))
    return colours


def draw_frame(figure: Figure, run: Run, frame: int, sentence: int = 0) -> None:
    """Draw a frame on an empty figure, about square.

    Args:
        figure: to draw on.
        run: as from `load_run`.
        frame: its number.
        sentence: the one whose embeddings stand out.
    """
    held, params = run.stages(frame), {name: value[frame] for name, value in run.models.weights.items()}
    reaches = {name: values[frame] for name, values in run.reaches.items()}
    tokens, weights = run.tokens[sentence], held["attention"][sentence]
    prefixes = run.tokens[:, : run.task.k]
    labels = prefixes.sum(1) % run.task.p
    colours = [colour for colour in prefix_colours(run) for _ in run.sentences[1]]
    planes = figure.subplots(3, 3)

    axes = _plane(planes[0, 0], reaches["embeddings"], "embeddings E and P")
    for t, place in enumerate(params["position"].tolist()):
        inside = t < run.task.k
        axes.plot(*place, "os"[not inside], ms=9, color=GREY if inside else "white", mec=GREY)
        axes.annotate(str(t + 1), place, ha="center", va="center", fontsize=6, color="white" if inside else "black")
    for x, place in enumerate(params["token"].tolist()):
        axes.plot(*place, "D", ms=9, color=TOKENS[x], mec="black", mew=0.5)
        axes.annotate(str(x), place, ha="center", va="center", fontsize=7, color="white")

    radius = math.sqrt(2) if run.norm == "rms" else 1.0
    axes = _plane(planes[0, 1], 1.25 * radius, "normalized Z(x, t), query q", note=f"‖q‖ = {params['query'].norm():.1f}")
    turn = torch.linspace(0, 2 * math.pi, 200)
    axes.plot(radius * turn.cos(), radius * turn.sin(), color=GREY, lw=0.7)
    _cloud(axes, run, held["embeddings"], tokens, weights)
    length = params["query"].norm().clamp(min=1e-12)
    tip = 0.85 * radius * (1 - (-length).exp()) * params["query"] / length
    axes.annotate("", tip.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "shrinkB": 0, "color": "black"})

    axes = planes[0, 2]
    shade = torch.tensor([to_rgb(colour) for colour in TOKENS])[run.tokens]
    image = torch.cat([shade, held["attention"].sqrt().unsqueeze(-1)], -1)
    axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
    axes.axvline(run.task.k - 0.5, color="black", lw=1)
    axes.axhline(sentence, color="black", lw=0.6)
    axes.set(xticks=[], yticks=[], xlabel="attention, a row a sentence", box_aspect=1)
    axes.grid(False)

    axes = _plane(planes[1, 0], reaches["values"], "values VZ(x, t), their mean ξ")
    for t, x in enumerate(tokens.tolist()):
        ends = torch.stack([held["values"][x, t], held["sequence"][sentence]])
        axes.plot(*ends.T, color=TOKENS[x], lw=0.3 + 5 * weights[t].item(), alpha=0.45)
    _cloud(axes, run, held["values"], tokens, weights)
    axes.plot(*held["sequence"][sentence], "o", ms=8, color=colours[sentence], mec="black", mew=1.5)

    _sentences(_plane(planes[1, 1], reaches["sequence"], "sequence embeddings ξ"), held["sequence"], labels, colours)
    axes = _plane(planes[1, 2], reaches["sequence"], "answers over the plane of ξ, × wrong")
    cells = ((torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 / CELLS - 1) * reaches["sequence"]
    sure, best = run.classify(frame, torch.stack(torch.meshgrid(cells, cells, indexing="xy"), -1)).max(-1)
    alpha = 0.6 * (sure - 1 / run.task.p) / (1 - 1 / run.task.p)
    shade = torch.tensor([to_rgb(colour) for colour in TOKENS])[best]
    extent = [reaches["sequence"] * side for side in (-1, 1, -1, 1)]
    axes.imshow(torch.cat([shade, alpha.unsqueeze(-1)], -1).numpy(), origin="lower", extent=extent)
    _sentences(axes, held["sequence"], labels, colours)
    wrong = held["sequence"][held["probabilities"].argmax(1) != labels]
    axes.plot(*wrong.T, "x", color="black", ms=5, mew=1)

    axes = _plane(planes[2, 0], reaches["neurons"], "receptors ●, assemblers ▲")
    turns = torch.atan2(*run.models.weights["receptors"][-1].flip(-1).T)
    hues = [colorsys.hls_to_rgb(turn / (2 * math.pi) % 1, 0.5, 0.65) for turn in turns.tolist()]
    for part, marker in ((params["receptors"], "o"), (params["assemblers"].T, "^")):
        axes.scatter(*part.T, c=hues, marker=marker, s=18, ec="black", lw=0.3)

    history, now = run.history, run.epochs[frame]
    planes[2, 1].remove()
    halves = planes[2, 1].get_subplotspec().subgridspec(2, 1)
    upper, lower = figure.add_subplot(halves[0]), figure.add_subplot(halves[1])
    if "loss" in history:
        upper.semilogy(history["epoch"], history["loss"], lw=1)
    upper.set(ylabel="loss", xticklabels=[])
    for which, style in (("train", "-"), ("unseen", "--")):
        if which in history:
            lower.plot(history["epoch"], history[which], style, lw=1, label={"train": "training"}.get(which, which))
            lower.legend(fontsize=7, loc="lower right")
    lower.set(xlabel=f"{run.axis} {now}", ylabel="accuracy", ylim=(0, 1.05))
    axes = planes[2, 2]
    for name, letter in zip(LAYERS, "EPqVWU", strict=True):
        if name in history:
            axes.semilogy(history["epoch"], history[name], lw=0.9, label=letter)
            axes.legend(fontsize=7, ncols=3, loc="upper right")
    axes.set(xlabel=run.axis, ylabel="gradient norms")
    for curves in (upper, lower, axes):
        curves.axvline(now, color="black", lw=1)
        curves.tick_params(labelsize=7)
        curves.xaxis.label.set_size(8)
        curves.yaxis.label.set_size(8)
    for axes in planes.flat[:7]:
        axes.xaxis.label.set_size(8)


def write_video(run: Run, path: Path, fps: int = 12, every: int = 1) -> int:
    """Write the frames of a run to an mp4 file.

    Args:
        run: as from `load_run`.
        path: of the file.
        fps: frames a second.
        every: with 1 all frames, with n the first of every n.

    Returns:
        How many frames were written.

    Raises:
        TypeError: if ``every`` is no integer.
        ValueError: if ``every`` is smaller than 1.
        RuntimeError: if the program ffmpeg is not there.
    """
    frames = range(0, len(run.epochs), check_count("every", every))
    if not FFMpegWriter.isAvailable():
        raise RuntimeError(
            "ffmpeg is needed to write videos and was not found: install the package `ffmpeg` "
            "(apt-get install ffmpeg, brew install ffmpeg or conda install ffmpeg) and call again"
        )
    use_style()
    figure = Figure(figsize=(9, 9), layout="constrained", facecolor="white")
    writer = FFMpegWriter(fps=fps, extra_args=["-pix_fmt", "yuv420p"])
    white = {"figure.facecolor": "white", "savefig.facecolor": "white"}
    with mpl.rc_context(white), writer.saving(figure, str(path), dpi=100):
        for frame in tqdm(frames, desc=run.name):
            figure.clear()
            draw_frame(figure, run, frame)
            writer.grab_frame()
    return len(frames)


def main(arguments: list[str] | None = None) -> None:
    """Export a run from the command line."""
    parser = argparse.ArgumentParser(prog="run.py video", description="Export a recorded run as a video.")
    parser.add_argument("run", metavar="RUN", help="its name")
    parser.add_argument("--output", type=Path, metavar="FILE", help="RUN.mp4 unless given")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only the first of every N frames")
    options = parser.parse_args(arguments)
    try:
        run = load_run(options.run)
        path = options.output or Path(f"{run.name}.mp4")
        count = write_video(run, path, every=options.every)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"run.py video: {error}")
    print(f"{path}: {count} frames, {path.stat().st_size / 1e6:.1f} MB")


def _plane(axes: Axes, reach: float, label: str, note: str | None = None) -> Axes:
    """A square about the origin without ticks; its half width stands in a corner."""
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[], xlabel=label)
    axes.axhline(0, color=GREY, lw=0.4)
    axes.axvline(0, color=GREY, lw=0.4)
    for side in axes.spines.values():
        side.set(visible=True, color=GREY, lw=0.6)
    axes.annotate(note or f"±{reach:.2g}", (0.98, 0.02), xycoords="axes fraction", ha="right", fontsize=7)
    return axes


def _cloud(axes: Axes, run: Run, vectors: Tensor, tokens: Tensor, weights: Tensor) -> None:
    """The embeddings of all tokens at all positions, those of one sentence in full and larger with their attention."""
    for x, row in enumerate(vectors.tolist()):
        for t, place in enumerate(row):
            own = tokens[t] == x
            size, alpha = (4 + 9 * weights[t].item() ** 0.5, 0.9) if own else (3.5, 0.35)
            axes.plot(
                *place, "os"[t >= run.task.k], ms=size, alpha=alpha, color=TOKENS[x], mec="black", mew=0.6 * float(own)
            )


def _sentences(axes: Axes, sequence: Tensor, labels: Tensor, colours: list[str]) -> None:
    """Sequence embeddings coloured by prefix, with the mark of their class."""
    for number in range(int(labels.max()) + 1):
        those = (labels == number).nonzero()[:, 0].tolist()
        if those:
            marker = MARKS[number % len(MARKS)]
            axes.scatter(*sequence[those].T, c=[colours[n] for n in those], marker=marker, s=20, ec="black", lw=0.4)


if __name__ == "__main__":
    main()
