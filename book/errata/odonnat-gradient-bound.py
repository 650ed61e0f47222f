"""The weights' norms and the error do not bound the gradient: here they are fixed, and the gradient grows without limit."""

import math

import numpy as np

x, label = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0, 1, 1, 0])
E, P = np.array([[0.0, 1.0], [0.0, -1.0]]), np.array([[0.75, 0.0], [0.75, 0.0]])
W, U = np.array([[0.0, 1.0], [0.0, -1.0]]) / 2**0.5, np.array([[0.0, 0.0], [1.0, -1.0]]) / 2**0.5
erf = np.vectorize(math.erf)


def probabilities(q, V):
    z = E[x] + P
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    s = np.exp(z @ q / np.sqrt(2))
    xi = np.einsum("nt,nti->ni", s / s.sum(1, keepdims=True), z) @ V.T
    u = xi / np.linalg.norm(xi, axis=1, keepdims=True) @ W.T
    weights = np.exp((xi + u * (1 + erf(u / np.sqrt(2))) / 2 @ U.T) @ E.T)
    return weights / weights.sum(1, keepdims=True)


for epsilon in (1.0, 0.1, 0.01, 0.001):
    V, step = np.diag([epsilon, 1.0]), 1e-4 * epsilon * np.eye(2)
    norms = [np.linalg.norm(matrix, 2) for matrix in (V, W, U)]
    right = probabilities(np.zeros(2), V)[np.arange(4), label]
    losses = [[-np.log(probabilities(s * e, V)[np.arange(4), label]).mean() for s in (1, -1)] for e in step]
    gradient = np.linalg.norm([(up - down) / (2e-4 * epsilon) for up, down in losses])
    print(f"norms {np.round(norms, 6)}, error {1 - right.mean():.3f}, gradient in q {gradient:.3f}")
    assert np.allclose([*norms, right.mean()], [1, 1, 1, 0.5])
    assert abs(gradient / (4 * 2**0.5 / 25 * (1 + 5 / (6 * epsilon))) - 1) < 1e-3
# (29) as printed allows at most 2 N √d |V| (1 + √(2/π) |W|² |U|) E|C|² ^ 1/2, less than 21 here, for every epsilon.
assert gradient > 2 * 2 * 2**0.5 * (1 + (2 / np.pi) ** 0.5) * 2
