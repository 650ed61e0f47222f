"""The plateau is not everywhere a saddle: where both tokens' embeddings coincide, no small step lowers the loss."""

import math

import numpy as np

rng = np.random.default_rng(1)
d, h, L, k = 2, 4, 5, 4
x = np.array(np.meshgrid(*[[0, 1]] * L)).reshape(L, -1).T
label = x[:, :k].sum(1) % 2
shapes = {"E": (2, d), "P": (L, d), "q": (d,), "V": (d, d), "W": (h, d), "U": (d, h)}
cuts = np.cumsum([math.prod(shape) for shape in shapes.values()])
erf = np.vectorize(math.erf)


def excess(flat):  # the loss less log 2
    E, P, q, V, W, U = (part.reshape(shape) for part, shape in zip(np.split(flat, cuts[:-1]), shapes.values(), strict=True))
    z = E[x] + P
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    s = np.exp(z @ q / np.sqrt(d))
    xi = np.einsum("nt,nti->ni", s / s.sum(1, keepdims=True), z) @ V.T
    u = xi / np.linalg.norm(xi, axis=1, keepdims=True) @ W.T
    psi = xi + u * (1 + erf(u / np.sqrt(2))) / 2 @ U.T
    margin = psi @ (E[1] - E[0]) * (2 * label - 1)
    return np.log1p((np.exp(-margin) - 1) / 2).mean()


point = rng.normal(size=cuts[-1])
point[d : 2 * d] = point[:d]  # E(1) = E(0)
step = 1e-5
slopes = [(excess(point + step * e) - excess(point - step * e)) / (2 * step) for e in np.eye(len(point))]
lowest = min(excess(point + 0.02 * rng.normal(size=len(point))) for _ in range(1000))
print(f"largest slope {max(map(abs, slopes)):.6f}; the loss rises in all of 1000 random steps: {lowest > 0}")
assert max(map(abs, slopes)) < 1e-9
assert lowest > 0
