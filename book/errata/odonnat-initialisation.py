"""No preference for ones can be learned: exchanging the tokens gives a model as accurate that prefers zeros."""

import numpy as np

rng = np.random.default_rng(0)
d, h, L, k = 2, 8, 6, 3
x = np.array(np.meshgrid(*[[0, 1]] * L)).reshape(L, -1).T
label = x[:, :k].sum(1) % 2


def run(E, P, q, V, W, U):  # any model; a rectifier stands for the GELU
    z = E[x] + P
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    s = np.exp(z @ q / np.sqrt(d))
    s /= s.sum(1, keepdims=True)
    xi = np.einsum("nt,nti->ni", s, z) @ V.T
    psi = xi + np.maximum(xi / np.linalg.norm(xi, axis=1, keepdims=True) @ W.T, 0) @ U.T
    right = (psi @ E.T).argmax(1) == label
    return right.mean(), (s * (x == 1))[:, :k].sum(1).mean() / s[:, :k].sum(1).mean()


shapes = ((2, d), (L, d), (d,), (d, d), (h, d), (d, h))
E, *others = max(([rng.normal(size=shape) for shape in shapes] for _ in range(200)), key=lambda model: run(*model)[0])
(accuracy, ones), (other, swapped) = run(E, *others), run(E[::-1], *others)
print(
    f"best of 200 random models: accuracy {accuracy:.4f}, exchanged {other:.4f}; attention on ones {ones:.3f}, {swapped:.3f}"
)
assert accuracy == other  # k is odd, so that exchanging the tokens exchanges the labels
assert np.isclose(ones + swapped, 1)
