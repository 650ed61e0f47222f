"""A query along the prefix never removes the suffix: its attention has a lower bound, which is attained."""

import numpy as np

rng = np.random.default_rng(0)
L, k, d = 12, 5, 2


def leakage(z, q):
    weights = np.exp(z @ q / np.sqrt(d))
    return weights[..., k:].sum(-1) / weights.sum(-1)


for norm in (1.0, 3.0, 10.0):
    q = norm * np.array([1.0, 0.0])
    bound = (L - k) / (L - k + k * np.exp(2 * norm / np.sqrt(d)))
    z = rng.normal(size=(1000, L, d))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    best = np.array([[1.0, 0.0]] * k + [[-1.0, 0.0]] * (L - k))
    print(f"|q| = {norm:4}: leakage at least {bound:.1e}, attained {leakage(best, q):.1e}, found {leakage(z, q).min():.1e}")
    assert leakage(z, q).min() >= bound
    assert np.isclose(leakage(best, q), bound)

# Exact suffix invariance needs no query: for t > k neither the score nor VZ(x, t) may depend on the token.
V, suffix = np.diag([1.0, 0.0]), np.array([[0.6, 0.8], [0.6, -0.8]])  # the two tokens at a spurious position
assert np.allclose(V @ suffix[0], V @ suffix[1])
print("two spurious tokens that differ, and agree behind V:", (suffix @ V.T).tolist())
