import pytest
import torch
from helpers import AXES, normal

from attnopt.regression import pointwise_cross_entropy
from attnopt.softmax import logsumexp, softmax


@pytest.mark.evidence("actor-eq-1-2")
@pytest.mark.parametrize("axis", AXES)
def test_any_labels_weight_each_slice(axis, generator):
    logits, labels = normal(generator, 3, 4), torch.rand(3, 4, generator=generator, dtype=torch.float64)
    totals = labels.sum(0 if axis == "sequence" else 1)
    weighted = (totals * logsumexp(logits, axis)).sum() - (labels * logits).sum()
    by_definition = -(labels * softmax(logits, axis).log()).sum()
    torch.testing.assert_close(weighted, by_definition, rtol=1e-13, atol=0)
    assert not torch.isclose(logsumexp(logits, axis).sum() - (labels * logits).sum(), by_definition)


@pytest.mark.evidence("actor-eq-1-2")
@pytest.mark.parametrize("axis", AXES)
def test_convex_in_logits_not_in_quadratic_features(axis, generator):
    labels = softmax(normal(generator, 3, 3), axis)
    logits = normal(generator, 3, 3)
    hessian = torch.func.hessian(lambda x: pointwise_cross_entropy(x.reshape(3, 3), labels, axis))(logits.reshape(-1))
    assert torch.linalg.eigvalsh(hessian).min() > -1e-14
    quadratic = lambda z: pointwise_cross_entropy(z[:, None] @ z[None], torch.eye(3, dtype=torch.float64), axis)  # noqa: E731
    assert torch.linalg.eigvalsh(torch.func.hessian(quadratic)(torch.zeros(3, dtype=torch.float64))).min() < -1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_are_held_to_their_sums_in_every_slice(dtype):
    tolerance = torch.finfo(dtype).eps ** 0.5
    logits = torch.zeros(2, 3, 4, dtype=dtype)
    for sign in (1, -1):
        labels = torch.full((2, 3, 4), 0.25, dtype=dtype)
        labels[1, 2, 3] += sign * 0.5 * tolerance
        assert pointwise_cross_entropy(logits, labels, "class").isfinite().all()
        labels[1, 2, 3] += sign * 2 * tolerance
        with pytest.raises(ValueError, match="labels must sum to 1 along the class axis"):
            pointwise_cross_entropy(logits, labels, "class")
