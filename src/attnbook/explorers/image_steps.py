"""An image of clothing, moved by gradient steps: does the picture move it, or the label that is supplied?"""

import base64
import binascii
import math

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval
from attnopt.datasets import CLASSES
from attnopt.regression import unroll_logits

PIXELS = 28 * 28
ITERATIONS = 5
RULES = ("true", "predicted", "soft")


class Packed(traitlets.Unicode):
    """An array as base64 of its little-endian bytes; arrays are accepted, too. In the shape, ``None`` means any size."""

    def __init__(self, dtype: str, shape: tuple[int | None, ...], **arguments):
        self.dtype, self.shape = np.dtype(dtype), shape
        super().__init__(**arguments)

    def validate(self, obj, value):
        """The base64 text, if the value has the right size or shape."""
        text = super().validate(obj, value if isinstance(value, str) else self._pack(value))
        try:
            contents = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise traitlets.TraitError(f"{self.name} must be an array or base64 ({error})") from None
        row = self.dtype.itemsize * math.prod(size for size in self.shape if size)
        if not contents or len(contents) % row or (None not in self.shape and len(contents) != row):
            raise traitlets.TraitError(
                f"{self.name} must hold {self.dtype.name} of shape {self._wanted()}, got {len(contents)} bytes"
            )
        if not np.isfinite(np.frombuffer(contents, self.dtype)).all():
            raise traitlets.TraitError(f"{self.name} must be finite")
        return text

    def _pack(self, value) -> str:
        """Base64 of an array; gray levels in [0, 1] become bytes."""
        array = torch.as_tensor(value)
        fits = array.ndim == len(self.shape) and all(
            want in (None, have) for want, have in zip(self.shape, array.shape, strict=True)
        )
        if not fits:
            raise traitlets.TraitError(f"{self.name} must have shape {self._wanted()}, got {tuple(array.shape)}")
        if self.dtype == np.uint8 and array.is_floating_point():
            if not ((array >= 0) & (array <= 1)).all():
                raise traitlets.TraitError(f"{self.name} must lie in [0, 1] when given as floats")
            array = (255 * array).round().to(torch.uint8)
        if (array.dtype == torch.uint8) != (self.dtype == np.uint8):
            raise traitlets.TraitError(f"{self.name} cannot be kept as {self.dtype.name}, got {array.dtype}")
        return base64.b64encode(array.detach().cpu().numpy().astype(self.dtype).tobytes()).decode()

    def _wanted(self) -> str:
        return f"({', '.join('n' if size is None else str(size) for size in self.shape)}{',' * (len(self.shape) == 1)})"


class ImageStepsExplorer(Explorer):
    """Euler steps z ← z + h (C - softmax(θz + b)) θ of an image z, classified by softmax(θz + b), toward a label C.

    Images and classifier may be given as arrays; they are stored as base64, which the page contains. A black image
    precedes the given ones; it has no true class, so "true" means the first class for it.

    Traits:
        images: n ≥ 1 images, shape (n, 28, 28), gray levels as uint8 or as floats in [0, 1].
        truth: the classes of the n images, indices into ``classes``.
        weights: θ, shape (10, 784).
        bias: b, shape (10,).
        pattern: 784 numbers that are multiplied by ``noise``; standard normal by default.
        classes: the names of the ten classes.
        image: 0 for the black image, k for the k-th of the given ones.
        label: C: "true"; "predicted" or "soft", the start's predicted class or softmax; or a name among ``classes``.
        noise: standard deviation of the noise added to the image.
        step: the step size h of each layer.
        iteration: number of steps taken.
    """

    module = "image_steps"
    alt = (
        "Left: a small gray image of clothing after some gradient steps. Middle: its change since the start, orange where "
        "it became brighter and blue where it became darker. Right: ten bars, the classifier's probabilities now, with "
        "outlines for those at the start and a star at the supplied label."
    )
    images = Packed("u1", (None, 28, 28)).tag(sync=True)
    truth = traitlets.List(traitlets.Int()).tag(sync=True)
    weights = Packed("<f4", (10, PIXELS)).tag(sync=True)
    bias = Packed("<f4", (10,)).tag(sync=True)
    pattern = Packed("<f4", (PIXELS,)).tag(sync=True)
    classes = traitlets.List(traitlets.Unicode(), default_value=list(CLASSES), minlen=10, maxlen=10).tag(sync=True)
    image = traitlets.Int(1, min=0).tag(sync=True)
    label = traitlets.Unicode("true").tag(sync=True)
    noise = Interval(0.0, 0, 1)
    step = Interval(1.0, 0.05, 3)
    iteration = traitlets.Int(3, min=0, max=ITERATIONS).tag(sync=True)

    def __init__(self, *, images, truth, weights, bias, **traits):
        truth = [int(index) for index in truth]
        super().__init__(images=images, truth=truth, weights=weights, bias=bias, **traits)

    @traitlets.default("pattern")
    def _draw_pattern(self):
        return torch.randn(PIXELS, generator=torch.Generator().manual_seed(0))

    @traitlets.validate("images", "truth", "image")
    def _check_together(self, proposal):
        together = {name: getattr(self, name) for name in ("images", "truth", "image")}
        together[proposal["trait"].name] = proposal["value"]
        count, truth = _count(together["images"]), together["truth"]
        if len(truth) != count:
            raise traitlets.TraitError(f"truth must have a class for each of the {count} images, got {len(truth)}")
        if not all(0 <= index <= 9 for index in truth):
            raise traitlets.TraitError(f"truth must lie in 0..9, got {truth}")
        if together["image"] > count:
            raise traitlets.TraitError(f"image must lie in 0..{count}, got {together['image']}")
        return proposal["value"]

    @traitlets.validate("classes")
    def _check_classes(self, proposal):
        if len({*proposal["value"], *RULES, ""}) != 14:
            raise traitlets.TraitError(f"classes must be ten different names, none of {RULES}, got {proposal['value']}")
        return proposal["value"]

    @traitlets.validate("label")
    def _check_label(self, proposal):
        if proposal["value"] not in (*RULES, *self.classes):
            raise traitlets.TraitError(f"label must be one of {(*RULES, *self.classes)}, got {proposal['value']!r}")
        return proposal["value"]

    def bounds(self, kernel: bool = True) -> dict:
        """The traits' bounds; the label is a rule or the name of a class."""
        image = {"low": 0, "high": _count(self.images), "whole": True}
        return super().bounds(kernel) | {"image": image, "label": {"values": [*RULES, *self.classes]}}

    @traitlets.observe("images", "classes")
    def _bound_anew(self, _) -> None:
        self._bounds = self.bounds()

    def _array(self, name: str) -> Tensor:
        """The array of a packed trait in float64, with its pixels in one dimension."""
        trait = self.traits()[name]
        flat = np.frombuffer(base64.b64decode(getattr(self, name)), trait.dtype).astype(np.float64)
        return torch.from_numpy(flat.reshape(-1, PIXELS) if len(trait.shape) > 1 else flat)

    def start(self) -> Tensor:
        """The chosen image with its noise, shape (784,)."""
        clean = torch.zeros(PIXELS, dtype=torch.float64)
        if self.image:
            clean = self._array("images")[self.image - 1] / 255
        return clean + self.noise * self._array("pattern")

    def compute(self) -> dict:
        """Probabilities, predicted class, and distance moved after 0 to 5 steps; the label; a in the change aθ."""
        z, weights = self.start(), self._array("weights")
        logits = (weights @ z + self._array("bias"))[None]
        first = torch.softmax(logits, -1)
        if self.label == "soft":
            imposed = first
        else:
            rules = {"true": self.truth[self.image - 1] if self.image else 0, "predicted": int(logits.argmax())}
            chosen = rules[self.label] if self.label in rules else self.classes.index(self.label)
            imposed = torch.eye(10, dtype=torch.float64)[chosen][None]
        probabilities = torch.softmax(unroll_logits(logits, weights, imposed, "class", ITERATIONS, self.step), -1)[:, 0]
        taken = (self.step * (imposed - probabilities)).cumsum(0)  # the coefficients after 1, 2, ... steps
        coefficients = torch.cat([torch.zeros_like(first), taken[:-1]])
        moved = (coefficients @ weights).norm(dim=-1)
        return {
            "probabilities": probabilities.tolist(),
            "predicted": probabilities.argmax(-1).tolist(),
            "imposed": imposed[0].tolist(),
            "moved": moved.tolist(),
            "start_norm": z.norm().item(),
            "difference": coefficients[self.iteration].tolist(),
            "shares": (moved / z.norm()).tolist() if z.norm() > 0 else None,
        }

    def __repr__(self):
        controls = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("image", "label", "noise", "step", "iteration"))
        return f"{type(self).__name__}({_count(self.images)} images, {controls})"


def _count(images: str) -> int:
    """The number of packed images."""
    return len(base64.b64decode(images)) // PIXELS
