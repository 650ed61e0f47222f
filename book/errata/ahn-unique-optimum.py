"""The minimizer of one layer has a second family in one dimension, and those of the component losses are never unique."""

import numpy as np

rng = np.random.default_rng(0)


def second_moments(d, n, prompts=1000):
    x, w = rng.normal(size=(prompts, d, n)), rng.normal(size=(prompts, d))
    z = np.concatenate([x, np.einsum("pd,pdi->pi", w, x)[:, None]], 1)
    return z @ z.transpose(0, 2, 1) / n


# d = 1: label as value and covariate as key, or the other way round, are the same function of every prompt.
n = 6
moments = second_moments(1, n)
best = -n / (n + 2)
b, A = np.array([0.0, 1.0]), np.array([[best], [0.0]])  # Theorem 1
other_b, other_A = np.array([1.0, 0.0]), np.array([[0.0], [best]])
one, other = ((row @ moments @ column).ravel() for row, column in ((b, A), (other_b, other_A)))
print(f"d = 1: two families, greatest difference of their steps {abs(one - other).max():.6f}")
assert np.allclose(one, other)

# Lemmas 6 and 7: the second moment is symmetric, so an antisymmetric matrix adds nothing to <C, X>.
for d in (1, 2, 5):
    skew = rng.normal(size=(d + 1, d + 1))
    skew = skew - skew.T
    product = (second_moments(d, n) * skew).sum((1, 2))
    print(f"d = {d}: |<C, X>| for antisymmetric X of norm {np.linalg.norm(skew):.1f} is at most {abs(product).max():.6f}")
    assert abs(product).max() < 1e-11
