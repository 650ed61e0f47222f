"""What several test modules share: random problems, and derivatives at 50 digits that share no code with the package."""

import mpmath
import torch
from hypothesis import strategies as st

from attnbook.explorers import ImageStepsExplorer
from attnopt.regression import pointwise_cross_entropy
from attnopt.softmax import softmax

AXES = ("sequence", "class")


def normal(generator, *shape, dtype=torch.float64):
    """Standard normal numbers."""
    return torch.randn(*shape, generator=generator, dtype=dtype)


@st.composite
def matrices(draw, rows=st.integers(1, 5), columns=st.integers(1, 5), batch=st.sampled_from([(), (2,), (3, 1)]), scale=5):
    """Random float64 matrices, some in batches, some not contiguous."""
    shape = (*draw(batch), draw(rows), draw(columns))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    value = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return value.mT.contiguous().mT if draw(st.booleans()) else value


def precise_gradient(function, point):
    """Central differences at 50 digits of a scalar function of a nested list of mpmath numbers, as a float64 tensor."""
    with mpmath.workdps(50):
        step = mpmath.mpf(10) ** -18
        base = [[mpmath.mpf(x) for x in row] for row in point.tolist()]
        rows = []
        for i, row in enumerate(base):
            slopes = []
            for j, x in enumerate(row):
                values = []
                for sign in (1, -1):
                    moved = [list(r) for r in base]
                    moved[i][j] = x + sign * step
                    values.append(function(moved))
                slopes.append(float((values[0] - values[1]) / (2 * step)))
            rows.append(slopes)
        return torch.tensor(rows, dtype=torch.float64)


def precise_cross_entropy(logits, labels, axis):
    """-⟨C, log σ(N)⟩ of nested lists, from its definition."""
    columns = list(zip(*logits, strict=True))
    total = mpmath.mpf(0)
    for i, row in enumerate(logits):
        for j, x in enumerate(row):
            normalizer = mpmath.fsum(mpmath.exp(y) for y in (columns[j] if axis == "sequence" else row))
            total -= labels[i][j] * mpmath.log(mpmath.exp(x) / normalizer)
    return total


def product(a, b):
    """Matrix product of nested lists."""
    return [[mpmath.fsum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def transpose(a):
    """Transpose of a nested list."""
    return [list(row) for row in zip(*a, strict=True)]


def image_steps(seed=0, **traits):
    """An explorer of three random images and a random classifier."""
    generator = torch.Generator().manual_seed(seed)
    arrays = {
        "images": torch.rand(3, 28, 28, generator=generator),
        "truth": [7, 0, 9],
        "weights": 0.1 * torch.randn(10, 784, generator=generator),
        "bias": torch.randn(10, generator=generator),
    }
    return ImageStepsExplorer(**arrays | traits)


def loss(features, weights, labels, axis, model="linear"):
    """Cross-entropy of the linear or the quadratic model's logits."""
    logits = features @ weights.mT if model == "linear" else features @ weights @ features.mT
    return pointwise_cross_entropy(logits, labels, axis)


def model_problem(generator, model, axis, tokens, width, classes=4, divisor=3):
    """Random features, weights (of a quadratic model: symmetric and indefinite) and soft labels."""
    if model == "linear":
        weights, labels = normal(generator, classes, width), normal(generator, tokens, classes)
    else:
        weights, labels = normal(generator, width, width), normal(generator, tokens, tokens)
        weights = (weights + weights.mT) / divisor
    return normal(generator, tokens, width), weights, softmax(labels, axis)
