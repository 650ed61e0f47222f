import itertools

import pytest
import torch
from helpers import normal
from torch.nn.functional import scaled_dot_product_attention

from attnopt.regression import cross_attention, self_attention


@pytest.mark.evidence("actor-softmax-axis")
def test_class_axis_is_the_usual_attention(generator):
    for batch in ((), (3,), (2, 5)):
        features, weights = normal(generator, *batch, 4, 3), normal(generator, *batch, 6, 3)
        usual = scaled_dot_product_attention(features, weights, weights, scale=1.0)
        torch.testing.assert_close(cross_attention(features, weights, "class"), usual, rtol=1e-12, atol=1e-14)
        usual = scaled_dot_product_attention(features, features, features, scale=1.0)
        torch.testing.assert_close(self_attention(features, "class"), usual, rtol=1e-12, atol=1e-14)


@pytest.mark.evidence("actor-softmax-axis")
def test_sequence_axis_is_not_the_usual_attention(generator):
    features, weights = normal(generator, 4, 3), normal(generator, 6, 3)
    usual = scaled_dot_product_attention(features, weights, weights, scale=1.0)
    assert (cross_attention(features, weights, "sequence") - usual).norm() > 0.1 * usual.norm()
    # The queries compete for each key: their shares of it sum to one.
    exponentials = (features @ weights.mT).exp()
    shares = exponentials / exponentials.sum(0)
    torch.testing.assert_close(shares.sum(0), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(cross_attention(features, weights, "sequence"), shares @ weights)
    exponentials = (features @ features.mT).exp()
    torch.testing.assert_close(self_attention(features, "sequence"), exponentials / exponentials.sum(0) @ features)


@pytest.mark.evidence("actor-softmax-axis")
def test_labels_normalized_on_both_axes_need_equal_counts():
    for tokens, classes in itertools.product((1, 2, 3), repeat=2):
        found = 0
        for bits in itertools.product((0, 1), repeat=tokens * classes):
            labels = torch.tensor(bits).reshape(tokens, classes)
            found += bool((labels.sum(0) == 1).all() and (labels.sum(1) == 1).all())
        assert found == ({1: 1, 2: 2, 3: 6}[tokens] if tokens == classes else 0)  # the permutation matrices
