"""The extra term of (8) does not respond to a large variance: scaling the covariates changes nothing but the unit."""

import numpy as np


def best(Sigma, n):  # minus the preconditioner of Theorem 1
    return n * np.linalg.inv((n + 1) * Sigma + np.trace(Sigma) * np.eye(len(Sigma)))


n, Sigma = 10, np.diag([1.0, 0.3, 0.05])
for scale in (1.0, 100.0):
    share = np.trace(Sigma) / ((n + 1) * np.diag(Sigma))
    step = best(scale * Sigma, n) @ (scale * Sigma)
    print(f"variance times {scale:5.0f}: step over Newton's, by direction {np.diag(step).round(3)}")
    assert np.allclose(np.diag(step), n / (n + 1) / (1 + share))  # only trace/(n lambda) enters

# And weights of law N(0, 1/Sigma) do not remove the shrinkage: E|I + aG|² is least at a = -n/(n+d+1), not at -1.
d = 3
X = np.random.default_rng(0).normal(size=(100_000, d, n))
G = X @ X.transpose(0, 2, 1) / n
least = -np.trace(G.mean(0)) / (G**2).sum((1, 2)).mean()
print(f"whitened covariates: best step {least:.3f}, -n/(n+d+1) = {-n / (n + d + 1):.3f}")
assert abs(least + n / (n + d + 1)) < 0.005
