"""N unit columns have a norm of at least √(N/d), not at most √d, and the Jacobian of x/|x| is no projection."""

import numpy as np

rng = np.random.default_rng(0)
d, N = 2, 12
z = rng.normal(size=(1000, d, N))
z /= np.linalg.norm(z, axis=1, keepdims=True)
norms = np.linalg.norm(z, 2, axis=(1, 2))
equal = np.repeat([[1.0], [0.0]], N, 1)
spread = np.array([np.cos(np.pi * np.arange(N) / N), np.sin(np.pi * np.arange(N) / N)])
print(
    f"norms from {norms.min():.2f} to {norms.max():.2f}; √(N/d) = {(N / d) ** 0.5:.2f}, √N = {N**0.5:.2f}, √d = {d**0.5:.2f}"
)
assert norms.min() > d**0.5
assert np.isclose(np.linalg.norm(equal, 2), N**0.5)
assert np.isclose(np.linalg.norm(spread, 2), (N / d) ** 0.5)

for length in (1.0, 0.1, 0.01):
    direction = np.array([0.6, 0.8])
    M = (np.eye(2) - np.outer(direction, direction)) / length
    print(f"|xi| = {length}: norm of M {np.linalg.norm(M, 2):.0f}, |M² - M| {np.linalg.norm(M @ M - M):.0f}")
    assert np.isclose(np.linalg.norm(M, 2), 1 / length)
    assert np.allclose(M @ M, M / length)
