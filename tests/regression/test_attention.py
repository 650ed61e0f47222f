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
