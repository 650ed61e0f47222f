"""The small transformer of the clustering-head paper, many models at once."""

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnopt.checks import check_count, check_dtype, check_flag, check_generator, check_integers, check_tensors, check_word
from attnopt.clustering.anatomy import counting_form
from attnopt.clustering.files import read_arrays, write_arrays, write_bytes, write_text
from attnopt.clustering.task import Task, check_task

Params = dict[str, Tensor]
Norm = Literal["unit", "rms", "smooth"]
TRAINED = ("query", "value", "receptors", "assemblers")  # the weights of the paper's theory
BIASES = ("receptor_biases", "assembler_bias")
NEAR = 0.01  # within this distance of 0 or 1, the smooth step is 0 or 1 up to e⁻⁹⁸
STAGES = ("embeddings", "scores", "attention", "values", "mixture", "sequence", "direction", "activations", "output")
FILES = ".npz", ".json", ".safetensors"  # formats in which models can be saved


@dataclass(frozen=True, eq=False, repr=False)
class Models:
    """An ensemble of M small transformers: their weights and the normalization that both layers use.

    Attributes:
        weights: a dict of ``token`` E (M, p, d), ``position`` P (M, L, d), ``query`` q (M, d), ``value`` V (M, d, d),
            ``receptors`` W (M, h, d) and ``assemblers`` U (M, d, h), the first and the second weight matrix of the
            feed-forward layer, and optionally their biases ``receptor_biases`` (M, h) and ``assembler_bias`` (M, d);
            `Models.random` explains the sizes.
        norm: the normalization, "unit" (the paper's formula), "rms" (its released code), or "smooth"; see `normalize`.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.2, Appendix C.2.
    """

    weights: Params
    norm: Norm

    def __post_init__(self) -> None:
        check_word("norm", self.norm, get_args(Norm))
        check_weights(self.weights)

    @classmethod
    def random(
        cls,
        count: int,
        p: int,
        length: int,
        dim: int = 2,
        width: int = 32,
        *,
        norm: Norm,
        generator: torch.Generator,
        biases: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> "Models":
        """Models with random weights: embeddings from N(0, 1), all others uniform in ± 1/√(number of inputs).

        Args:
            count: number of models, M.
            p: number of tokens with an embedding, at least 2.
            length: tokens per sequence, L.
            dim: dimension of the embeddings, d.
            width: neurons in the feed-forward layer, h.
            norm: the models' normalization.
            generator: random generator, whose device the weights are on.
            biases: whether the feed-forward layer has biases (yes in section 2.2 and the released code, no in the theory).
            dtype: dtype of the weights.

        Source: Odonnat, Bouaziz, Cabannes (2025), section 2.2; the initialization is that of their released code.
        """
        check_generator("generator", generator)
        check_dtype("dtype", dtype)
        check_flag("biases", biases)
        models, p, length = check_count("count", count), check_count("p", p, 2), check_count("length", length)
        dim, width = check_count("dim", dim), check_count("width", width)
        like = {"dtype": dtype, "device": generator.device, "generator": generator}

        def uniform(*shape: int, inputs: int) -> Tensor:
            return (2 * torch.rand(models, *shape, **like) - 1) / inputs**0.5

        weights = {
            "token": torch.randn(models, p, dim, **like),
            "position": torch.randn(models, length, dim, **like),
            "query": uniform(dim, inputs=dim),
            "value": uniform(dim, dim, inputs=dim),
            "receptors": uniform(width, dim, inputs=dim),
            "assemblers": uniform(dim, width, inputs=width),
        }
        if biases:
            weights["receptor_biases"] = uniform(width, inputs=dim)
            weights["assembler_bias"] = uniform(dim, inputs=width)
        return cls(weights, norm)

    @classmethod
    def join(cls, parts: Sequence["Models"]) -> "Models":
        """Join several ensembles of the same sizes and norm into one."""
        kinds = {(part.norm, *((name, value.shape[1:]) for name, value in part.weights.items())) for part in parts}
        if len(kinds) != 1:
            raise ValueError(f"parts must be ensembles of one norm and of the same sizes, got {', '.join(map(str, parts))}")
        weights = {name: torch.cat([part.weights[name] for part in parts]) for name in parts[0].weights}
        return cls(weights, parts[0].norm)

    def __len__(self) -> int:
        return len(self.weights["token"])

    def __getitem__(self, which: int | slice | Sequence[int] | Tensor) -> "Models":
        """The models that a slice, indices, or a mask select; a single index gives an ensemble of one model."""
        if isinstance(which, int):
            if not -len(self) <= which < len(self):
                raise IndexError(f"there are {len(self)} models, got number {which}")
            which = [which]
        return self.map(lambda value: value[which])

    def __iter__(self) -> Iterator["Models"]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        sizes = f"{self.vocabulary} tokens, L = {self.length}, d = {self.dim}, h = {self.width}"
        biases = "with" if self.biased else "without"
        return f"{len(self)} Models({sizes}, {biases} biases, norm {self.norm!r}, {self.weights['token'].dtype})"

    @property
    def vocabulary(self) -> int:
        """Number of tokens with an embedding."""
        return self.weights["token"].shape[1]

    @property
    def length(self) -> int:
        """Number of tokens per sequence, L."""
        return self.weights["position"].shape[1]

    @property
    def dim(self) -> int:
        """Dimension of the embeddings, d."""
        return self.weights["token"].shape[2]

    @property
    def width(self) -> int:
        """Number of neurons in the feed-forward layer, h."""
        return self.weights["receptors"].shape[1]

    @property
    def biased(self) -> bool:
        """Whether the feed-forward layer has biases of one or both kinds."""
        return any(name in self.weights for name in BIASES)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Models":
        """The models with a function applied to every weight tensor."""
        return changed(self, weights={name: change(value) for name, value in self.weights.items()})

    def double(self) -> "Models":
        """The models in float64."""
        return self.map(Tensor.double)

    def replace(self, **weights: Tensor) -> "Models":
        """The models with some weight tensors replaced."""
        return changed(self, weights=self.weights | weights)

    def moved(self, direction: Params, by: float | Tensor = 1.0) -> "Models":
        """The models with weights w + ``by`` · ``direction``, where ``direction`` is a dict of one tensor per weight."""
        return self.replace(**{name: value + by * direction[name] for name, value in self.weights.items()})

    def table(self) -> Tensor:
        """Z(x, t), the normalized sum of the embeddings of token x and position t, for all pairs, shape (M, p, L, d)."""
        return normalize(self.weights["token"].unsqueeze(-2) + self.weights["position"].unsqueeze(-3), self.norm)

    def scores(self, embeddings: Tensor | None = None) -> Tensor:
        """Attention scores qᵀz/√d, shape (M, …), of embeddings z (M, …, d); by default, of those in the table."""
        embeddings = self.table() if embeddings is None else embeddings
        self.check_vectors("embeddings", embeddings)
        return torch.einsum("m...d,md->m...", embeddings, self.weights["query"]) / self.dim**0.5

    def values(self, embeddings: Tensor) -> Tensor:
        """Value vectors Vz of embeddings z (M, …, d)."""
        return (embeddings.flatten(1, -2) @ self.weights["value"].mT).view_as(embeddings)

    def summands(self, embeddings: Tensor | None = None) -> Tensor:
        """The terms (eˢVz, eˢ) that embeddings z (M, …, d) add to the numerator and denominator of ξ, shape (M, …, d + 1).

        By default, the embeddings are those in the table. The maximum score is not subtracted before exponentiating, so
        large scores overflow.
        """
        embeddings = self.table() if embeddings is None else embeddings
        powers = self.scores(embeddings).exp().unsqueeze(-1)
        return torch.cat([powers * self.values(embeddings), powers], -1)

    def activations(self, direction: Tensor) -> Tensor:
        """Neurons before the GELU (M, n, h), from normalized sequence embeddings ξ (M, n, d)."""
        activations = direction @ self.weights["receptors"].mT
        return (
            activations + self.weights["receptor_biases"].unsqueeze(1) if "receptor_biases" in self.weights else activations
        )

    def output(self, sequence: Tensor, activations: Tensor) -> Tensor:
        """Output ψ (M, n, d) of the feed-forward layer, from ξ (M, n, d) and the neurons before the GELU (M, n, h)."""
        output = sequence + gelu(activations) @ self.weights["assemblers"].mT
        return output + self.weights["assembler_bias"].unsqueeze(1) if "assembler_bias" in self.weights else output

    def feed_forward(self, sequence: Tensor) -> Tensor:
        """Output ψ of the feed-forward layer with its residual connection, from sequence embeddings ξ, both (M, n, d)."""
        self.check_vectors("sequence", sequence)
        return self.output(sequence, self.activations(normalize(sequence, self.norm)))

    def classify(self, sequence: Tensor) -> Tensor:
        """Logits (M, n, p) from sequence embeddings ξ (M, n, d)."""
        return self.feed_forward(sequence) @ self.weights["token"].mT

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits ζ of every model on every sequence, shape (M, n, p); see `stages`."""
        return self.stages(tokens)["logits"]

    def stages(self, tokens: Tensor, patch: Params | None = None) -> dict[str, Tensor]:
        """The value of every stage of the computation, from sequences to logits.

        Normalization leaves the zero vector at zero: if ξ = 0, the logits are those of the feed-forward layer at 0, and with
        "unit" the gradient passes only through the residual connection (also if ‖ξ‖² underflows to 0). A model whose weights
        are not finite has logits that are not finite; the other models of the ensemble are not affected.

        Args:
            tokens: sequences, integers in 0 … p - 1, shape (n, L), the same for all models, or (M, n, L).
            patch: values that replace the computed ones at stages before the logits; they must broadcast to the stages'
                shapes and have the models' dtype (see `double`). All later stages are computed from them. The sequence
                embedding follows from the mixture, or from the values if these are patched, so a patch may not name both.

        Returns:
            A dict of the stages. ``embeddings`` z (M, n, L, d) determine ``scores``, which determine ``attention`` s, both
            (M, n, L); the embeddings also determine ``values`` Vz, the value vectors that attention mixes (M, n, L, d).
            Attention and embeddings give ``mixture`` zs, the mean embedding (M, n, d), and this gives ``sequence``
            ξ = V(zs) = (Vz)s (M, n, d). Then follow ``direction``, ξ normalized (M, n, d), ``activations`` (M, n, h) before
            the GELU, ``output`` ψ (M, n, d), computed from ξ and the activations, and ``logits`` ζ (M, n, p).
        """
        self.check_tokens(tokens)
        patch, held = {} if patch is None else patch, {}
        if not isinstance(patch, dict):
            raise TypeError(f"patch must be a dict of tensors by stage, got {type(patch).__name__}")
        if unknown := sorted(set(patch) - set(STAGES)):
            raise ValueError(f"patch must name stages before the logits, {', '.join(STAGES)}, got {', '.join(unknown)}")
        if {"mixture", "values"} <= patch.keys():
            raise ValueError("patch must name mixture or values, not both: the sequence embedding follows from one of them")

        def keep(name: str, value: Tensor) -> Tensor:
            held[name] = in_place_of(value, f"patch of {name}", patch[name]) if name in patch else value
            return held[name]

        self._flow(tokens, keep, set(patch))
        return held

    def _flow(self, tokens: Tensor, keep: Callable[[str, Tensor], Tensor], replaced: Collection[str]) -> None:
        """Compute all stages, pass each to a function, and continue with what it returns.

        Args:
            tokens: as for `stages`.
            keep: function of a stage's name and value that returns the value to continue with.
            replaced: stages whose values ``keep`` may change; the others may be looked up in a table.
        """
        table = self.table()
        tokens = (tokens.expand(len(self), -1, -1) if tokens.ndim == 2 else tokens).long()
        at = tokens * self.length + torch.arange(self.length, device=tokens.device)
        flat = at.flatten(1)

        def of_pairs(rows: Tensor) -> Tensor:
            """Entries of a table (M, p, L, d) for the pairs of token and position in the sequences."""
            places = flat.unsqueeze(-1).expand(-1, -1, self.dim)
            return rows.flatten(1, 2).gather(1, places).unflatten(1, at.shape[1:])

        embeddings = keep("embeddings", of_pairs(table))
        if "embeddings" in replaced:
            scores, values = self.scores(embeddings), self.values(embeddings)
        else:
            scores = self.scores(table).flatten(1).gather(1, flat).unflatten(1, at.shape[1:])
            values = of_pairs(self.values(table))
        attention = keep("attention", keep("scores", scores).softmax(-1))
        values = keep("values", values)
        mixture = keep("mixture", torch.einsum("mnt,mntd->mnd", attention, embeddings))
        mixed = torch.einsum("mnt,mntd->mnd", attention, values) if "values" in replaced else self.values(mixture)
        sequence = keep("sequence", mixed)
        direction = keep("direction", normalize(sequence, self.norm))
        activations = keep("activations", self.activations(direction))
        output = keep("output", self.output(sequence, activations))
        keep("logits", output @ self.weights["token"].mT)

    def module(self) -> "Module":
        """The model of an ensemble of one as a `torch.nn.Module` with copied weights: for hooks, optimizers, and so on."""
        return Module(self)

    def sequences(self, tokens: Tensor) -> Tensor:
        """The sequence embeddings ξ of `stages`, shape (M, n, d), from one matrix product for all models and sequences.

        A sequence is encoded as a row of pL entries, L of them 1 and the rest 0. Its product with the table of the rows
        (eˢVz, eˢ) gives the numerator and the denominator of ξ. The maximum score is not subtracted before exponentiating.

        Args:
            tokens: sequences, integers in 0 … p - 1, shape (n, L).

        Raises:
            ValueError: if exponentials of the scores may over- or underflow: scores must stay within about ±700 in float64,
                ±80 in float32.

        Source: the chapter "The task and the model".
        """
        self.check_tokens(tokens)
        if tokens.ndim != 2:
            raise ValueError(f"tokens must have shape (n, L), the same sequences for all models, got {tuple(tokens.shape)}")
        table = self.table().flatten(1, 2)
        scores, values = self.scores(table), table @ self.weights["value"].mT
        numbers, largest = torch.finfo(scores.dtype), max(values.abs().max().item(), 1.0)
        safe = min(math.log(numbers.max / self.length / largest), -math.log(numbers.tiny))
        if not scores.abs().max() < safe:
            raise ValueError(f"scores must lie within ±{safe:.0f}, got one of size {scores.abs().max().item():.4g}")
        marked = marks(tokens, self.vocabulary, table.dtype)
        sums = (
            (marked @ self.summands(table).permute(1, 0, 2).flatten(1)).unflatten(1, (len(self), self.dim + 1)).movedim(0, 1)
        )
        return sums[..., :-1] / sums[..., -1:]

    def count(self, task: Task) -> tuple[Tensor, Tensor]:
        """Integer weights m (M, L), as in `counting_form`, and the share (M,) of the variance of ξ that Σ m_t x_t explains.

        The weights are in units of the smallest effect of a token at one of the task's relevant positions; see
        `Task.relevant`. A share near 1 means counting only if they are small: with large weights, almost every sequence has
        a sum of its own.
        """
        self.check_task(task)
        return counting_form(self.sequences(task.all()[0]), task)

    def save(self, file: Path | str) -> None:
        """Write the models atomically to a file that ends in ``.npz``, ``.json`` (with all digits), or ``.safetensors``.

        The last format needs the package safetensors and stores the norm in its metadata.
        """
        file = _model_file(file)
        if file.suffix == ".safetensors":
            from safetensors.torch import save

            weights = {name: value.detach().cpu().contiguous() for name, value in self.weights.items()}
            write_bytes(file, save(weights, {"norm": self.norm}))
        elif file.suffix == ".npz":
            write_arrays(file, {name: value.numpy(force=True) for name, value in self.weights.items()}, self.norm)
        else:
            kind = str(self.weights["token"].dtype).removeprefix("torch.")
            weights = {name: value.tolist() for name, value in self.weights.items()}
            write_text(file, json.dumps({"norm": self.norm, "dtype": kind, "weights": weights}))

    @classmethod
    def load(cls, file: Path | str) -> "Models":
        """Load models that `save` wrote; they are identical to the last bit.

        Raises:
            ValueError: if the file cannot be read.
        """
        file = _model_file(file)
        if file.suffix == ".safetensors":
            return cls(*_read_safetensors(file))
        if file.suffix == ".npz":
            arrays, norm = read_arrays(file)
            if norm not in get_args(Norm):
                raise ValueError(f"{file} holds no models, but what another function wrote")
            return cls({name: torch.from_numpy(value) for name, value in arrays.items()}, cast(Norm, norm))
        return cls.from_json(file.read_text(encoding="utf-8"), str(file))

    @classmethod
    def from_json(cls, text: str, name: str = "text") -> "Models":
        """Load models from a JSON text that `save` or the laboratory wrote.

        The assemblers (output weights) of neurons that were switched off in the laboratory become zero.

        Args:
            text: the JSON text.
            name: name of the text in error messages.

        Raises:
            ValueError: if the text holds no models, or a model with a position switched off, which `Models` cannot hold.
        """
        if not isinstance(text, str):
            raise TypeError(f"{name} must be the text of a JSON file, got {type(text).__name__}")
        try:
            said = json.loads(text)
            dtype = {"float32": torch.float32, "float64": torch.float64}[said["dtype"]]
            models = cls({part: torch.tensor(value, dtype=dtype) for part, value in said["weights"].items()}, said["norm"])
            task = said.get("task") or {"p": models.vocabulary, "length": models.length}
            of_task = task["p"], task["length"]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{name} holds no models ({error!r})") from error
        if of_task != (models.vocabulary, models.length):
            raise ValueError(f"{name}: task must have p {models.vocabulary} and length {models.length}, got {of_task}")
        for part, count in (("neurons", models.width), ("positions", models.length)):
            on = said.get(part, [1] * count)
            if not isinstance(on, list) or len(on) != count or not all(type(one) is int and one in (0, 1) for one in on):
                raise ValueError(f"{name}: {part} must be {count} zeros and ones, got {on!r}")
        if "neurons" in said:
            models = models.replace(assemblers=models.weights["assemblers"] * torch.tensor(said["neurons"], dtype=dtype))
        off = [at + 1 for at, on in enumerate(said.get("positions", ())) if not on]
        if off:
            raise ValueError(
                f"{name} must have all positions on, got a model whose position {', '.join(map(str, off))} is switched off: "
                "switch it on in the laboratory and save again, or use stages(tokens, patch={'scores': …}) with -inf there"
            )
        return models

    def check_tokens(self, tokens: Tensor) -> None:
        """Require sequences of the models' length, made of tokens that have embeddings."""
        check_integers("tokens", tokens, self.vocabulary)
        if tokens.ndim in (2, 3) and 0 in tokens.shape:
            raise ValueError(f"tokens must not be empty, got shape {tuple(tokens.shape)}")
        if tokens.ndim not in (2, 3) or tokens.shape[-1] != self.length:
            shapes = f"(n, {self.length}) or ({len(self)}, n, {self.length})"
            raise ValueError(f"tokens must have shape {shapes}, got {tuple(tokens.shape)}")
        if tokens.ndim == 3 and len(tokens) != len(self):
            raise ValueError(f"tokens must have one set of sequences a model, {len(self)}, got {len(tokens)}")

    def check_vectors(self, name: str, vectors: Tensor) -> None:
        """Require vectors of d components for each model, (M, …, d), or the same for all, (1, …, d)."""
        check_tensors(**{"the models' weights": self.weights["token"], name: vectors})
        if vectors.ndim < 2 or vectors.shape[-1] != self.dim or len(vectors) not in (1, len(self)):
            raise ValueError(f"{name} must have shape ({len(self)}, …, {self.dim}), got {tuple(vectors.shape)}")

    def check_task(self, task: Task) -> None:
        """Require a task whose sequences the models can read."""
        check_task(task)
        if task.length != self.length or task.p > self.vocabulary:
            raise ValueError(
                f"task must have length {self.length} and at most {self.vocabulary} tokens, as the models have, got {task}"
            )


def in_place_of(value: Tensor, name: str, other: Tensor) -> Tensor:
    """A replacement for a stage's value, broadcast to its shape; it must have the value's dtype."""
    check_tensors(**{name: other})
    if other.dtype != value.dtype:
        raise ValueError(f"{name} must have the models' dtype, {value.dtype}, got {other.dtype}")
    try:
        return other.expand_as(value)
    except RuntimeError:
        raise ValueError(f"{name} must broadcast to shape {tuple(value.shape)}, got {tuple(other.shape)}") from None


def normalize(vectors: Tensor, norm: Norm) -> Tensor:
    """Normalize vectors to length 1 ("unit"), divide them by 1e-5 plus their root mean square ("rms"), or use "smooth".

    The paper's formula is "unit"; its released code uses "rms", which gives vectors of length about √d. "smooth" maps a
    vector x of length r to √d σ(r) x/r, as section 4.2 proposes (without √d), where σ is smooth, σ(0) = 0, and σ(r) = 1 for
    r ≥ 1. Our σ changes from r to 1 by `smooth_step` and has derivatives of every order. The zero vector stays zero. There,
    "unit" has no derivative, and 0 is used; the derivative of "rms" is 10⁵ times the identity, that of "smooth" √d times it.
    """
    check_word("norm", norm, get_args(Norm))
    check_tensors(vectors=vectors)
    if vectors.ndim < 1 or vectors.shape[-1] == 0:
        raise ValueError(f"vectors must have components, got shape {tuple(vectors.shape)}")
    lengths = vectors.norm(dim=-1, keepdim=True)
    if norm == "unit":
        return torch.where(lengths > 0, vectors / torch.where(lengths > 0, lengths, 1.0), 0.0)
    if norm == "rms":
        return vectors / (lengths / vectors.shape[-1] ** 0.5 + 1e-5)
    lengths = lengths.clamp_min(NEAR)
    step = smooth_step(lengths)
    return vectors.shape[-1] ** 0.5 * vectors * (1 - step + step / lengths)


def smooth_step(values: Tensor) -> Tensor:
    """The smooth step e(r)/(e(r) + e(1 - r)) with e(r) = exp(-1/r).

    It is 0 for r ≤ 0, 1/2 at 1/2, and 1 for r ≥ 1, and all its derivatives are 0 at 0 and at 1.
    """
    inner = values.clamp(NEAR, 1 - NEAR)
    return torch.sigmoid((2 * inner - 1) / (inner * (1 - inner)))


def marks(tokens: Tensor, p: int, dtype: torch.dtype) -> Tensor:
    """Sequences (…, L) as rows (…, pL) with 1 for each pair of token and position that occurs in them and 0 elsewhere."""
    length = tokens.shape[-1]
    at = tokens.long() * length + torch.arange(length, device=tokens.device)
    return torch.zeros(*tokens.shape[:-1], p * length, dtype=dtype, device=tokens.device).scatter_(-1, at, 1.0)


def check_weights(weights: Params) -> None:
    """Require the weights of an ensemble, each shaped to fit ``token`` (M, p, d), ``position`` (M, L, d), and width h."""
    if not isinstance(weights, dict):
        raise TypeError(f"weights must be a dict as those of Models.random, got {type(weights).__name__}")
    missing = [name for name in ("token", "position", *TRAINED) if name not in weights]
    known = ("token", "position", *TRAINED, *BIASES)
    unknown = [name for name in weights if name not in known]
    if missing or unknown:
        raise ValueError(f"weights must be {', '.join(known)}; missing {missing}, unknown {unknown}")
    check_tensors(**weights)
    for name in ("token", "position", "receptors"):
        if weights[name].ndim != 3 or 0 in weights[name].shape:
            raise ValueError(f"{name} must have three dimensions, none empty, got {tuple(weights[name].shape)}")
    models, _, dim = weights["token"].shape
    length, width = weights["position"].shape[1], weights["receptors"].shape[1]
    for name, shape in {
        "position": (models, length, dim),
        "query": (models, dim),
        "value": (models, dim, dim),
        "receptors": (models, width, dim),
        "assemblers": (models, dim, width),
        "receptor_biases": (models, width),
        "assembler_bias": (models, dim),
    }.items():
        if name in weights and weights[name].shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(weights[name].shape)}")


def check_models(models: Models, name: str = "models") -> None:
    """Require an ensemble."""
    if not isinstance(models, Models):
        raise TypeError(f"{name} must be Models, got {type(models).__name__}")


def _model_file(file: Path | str) -> Path:
    """The path, whose suffix must be one of `FILES`."""
    file = Path(file)
    if file.suffix not in FILES:
        raise ValueError(f"file must end in {', '.join(FILES)}, got {file.name!r}")
    return file


def _read_safetensors(file: Path) -> tuple[Params, Norm]:
    """Weights and norm of a file that `Models.save` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as kept:
            norm = (kept.metadata() or {}).get("norm")
            weights = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{file} cannot be read ({error})") from error
    if norm not in get_args(Norm):
        raise ValueError(f"{file} must say the models' norm in its metadata, got {norm!r}")
    return weights, cast(Norm, norm)


class Module(torch.nn.Module):
    """One model of an ensemble as a `torch.nn.Module`, from tokens (n, L) to logits (n, p).

    Its parameters are copies of the weights, with the names of `Models.weights` and the shapes there without the ensemble
    dimension M. Each stage of `Models.stages` except ``mixture`` has a submodule of that name. The stage's value, without M,
    passes through it, so a forward hook can read or replace the value; what a hook returns must have the models' dtype and
    broadcast to the stage's shape. No check depends on the values in a tensor, so `torch.func`, `torch.export`,
    and parametrizations work; PyTorch itself rejects tokens that have no embedding.

    Args:
        model: an ensemble of one.
    """

    def __init__(self, model: Models):
        super().__init__()
        check_models(model, "model")
        if len(model) != 1:
            raise ValueError(f"module() needs one model, as in models[0].module(), got {len(model)}")
        self.norm, self.names = model.norm, tuple(model.weights)
        for name, value in model.weights.items():
            self.register_parameter(name, torch.nn.Parameter(value[0].detach().clone()))
        for stage in (*STAGES, "logits"):
            if stage != "mixture":  # V(zs) = (Vz)s: ξ is computed from the values
                self.add_module(stage, torch.nn.Identity())

    def models(self) -> Models:
        """The model as an ensemble of one, whose weights are the module's parameters."""
        return Models({name: getattr(self, name).unsqueeze(0) for name in self.names}, self.norm)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (n, p) of sequences (n, L)."""
        held: Params = {}

        def keep(name: str, value: Tensor) -> Tensor:
            if name in self._modules:
                found = self.get_submodule(name)(value[0])
                value = in_place_of(value[0], f"what a hook of {name} returns", found).unsqueeze(0)
            held[name] = value
            return value

        model = self.models()
        check_integers("tokens", tokens)
        if tokens.ndim != 2 or tokens.shape[1] != model.length:
            raise ValueError(f"tokens must have shape (n, {model.length}), got {tuple(tokens.shape)}")
        model._flow(tokens, keep, STAGES)
        return held["logits"][0]
