"""The proofs of Theorems 4 and 5 go along r times the inverse of Sigma; along r I, the loss changes at another rate."""

import numpy as np

rng = np.random.default_rng(0)
d, n = 3, 7
root = rng.normal(size=(d, d))
Sigma = root @ root.T + np.eye(d)
inverse = np.linalg.inv(Sigma)


def f(A):  # one layer: E|I + G Ā|² with Ā similar to A Sigma and E G² = (n+d+1)/n
    M = Sigma @ A
    return d + 2 * np.trace(M) + (n + d + 1) / n * np.trace(A.T @ Sigma @ A @ Sigma)


A, R, h = -0.3 * inverse, rng.normal(size=(d, d)), 1e-5
r = np.trace(Sigma @ R) / d  # as printed, tr of the whitened R over d
for name, direction in (("R", R), ("r/Sigma", r * inverse), ("r I (as printed)", r * np.eye(d))):
    slope = (f(A + h * direction) - f(A - h * direction)) / (2 * h)
    in_S = np.allclose(direction @ Sigma, np.trace(direction @ Sigma) / d * np.eye(d))
    print(f"along {name:16} slope {slope:+.4f}, {'stays in' if in_S else 'leaves'} S")
    if name == "R":
        along_R = slope
    assert np.isclose(slope, along_R) == (name != "r I (as printed)")
    assert in_S == (name == "r/Sigma")

# The flow of B must run along I: from B = bI along the inverse of Sigma it leaves the multiples of I at once.
B = -0.5 * np.eye(d) + 0.1 * inverse
assert not np.allclose(B, np.trace(B) / d * np.eye(d))
