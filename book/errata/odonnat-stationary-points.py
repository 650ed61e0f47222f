"""A model that classifies every sequence correctly is never a stationary point: scaling V and U up lowers its loss."""

import numpy as np

rng = np.random.default_rng(0)
d, h, L, p = 2, 8, 6, 2
x = np.array(np.meshgrid(*[range(p)] * L)).reshape(L, -1).T
E, P, q, V, W, U = (rng.normal(size=shape) for shape in ((p, d), (L, d), (d,), (d, d), (h, d), (d, h)))


def logits(V, U):  # a rectifier stands for the GELU, and does not matter here
    z = E[x] + P
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    s = np.exp(z @ q / np.sqrt(d))
    xi = np.einsum("nt,nti->ni", s / s.sum(1, keepdims=True), z) @ V.T
    return (xi + np.maximum(xi / np.linalg.norm(xi, axis=1, keepdims=True) @ W.T, 0) @ U.T) @ E.T


zeta = logits(V, U)
label = zeta.argmax(1)  # the labels that this model gets right, every one


def loss(scale):
    scaled = logits(scale * V, scale * U)
    assert np.allclose(scaled, scale * zeta)  # the normalization does not see the scale
    return (np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(x)), label]).mean()


share = np.exp(zeta) / np.exp(zeta).sum(1, keepdims=True)
foretold = ((share - np.eye(p)[label]) * zeta).sum(1).mean()  # the mean of C·psi
slope = (loss(1 + 1e-5) - loss(1 - 1e-5)) / 2e-5
print(f"all {len(x)} right; derivative of the loss along (V, U) {slope:.6f}, as predicted {foretold:.6f}")
assert np.isclose(slope, foretold)
assert slope < 0
