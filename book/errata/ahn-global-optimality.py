"""Off S there are local minima: two axes that take their steps in different order (here d = 2, n = 3)."""

import numpy as np

# Exact means over G = LLᵀ/3 (Bartlett): L₁₁² is chi-squared with 3 degrees of freedom, L₂₂² with 2, L₂₁ standard normal.
x, wx = np.polynomial.hermite_e.hermegauss(8)  # enough for polynomials of degree 6 in G
t, wt = np.polynomial.laguerre.laggauss(4)
wx = wx / wx.sum()
L = np.zeros((8 * 4 * 8, 2, 2))
L[:, 0, 0], L[:, 1, 1], L[:, 1, 0] = (v.ravel() for v in np.meshgrid(x, np.sqrt(2 * t), x))
mass = np.prod(np.meshgrid(wx * x**2, wt, wx), axis=0).ravel()
G = L @ L.transpose(0, 2, 1) / 3


def loss(A):  # three layers, each with four entries
    product = np.eye(2)
    for matrix in A.reshape(3, 2, 2):
        product = product @ (np.eye(2) + G @ matrix)
    return mass @ (product**2).sum((1, 2))


def derivatives(f, at, h=1e-3):
    basis = np.eye(len(at)) * h
    gradient = np.array([f(at + e) - f(at - e) for e in basis]) / (2 * h)
    mixed = [[f(at + e + g) - f(at + e - g) - f(at - e + g) + f(at - e - g) for g in basis] for e in basis]
    return gradient, np.array(mixed) / (4 * h**2)


def settle(f, at):  # Newton's method downhill
    for _ in range(40):
        gradient, hessian = derivatives(f, at)
        if np.linalg.norm(gradient) < 1e-9:
            break
        values, vectors = np.linalg.eigh(hessian)
        step = vectors @ (vectors.T @ gradient / np.maximum(abs(values), 1e-3))
        while f(at - step) > f(at) and abs(step).max() > 1e-12:
            step = step / 2
        at = at - step
    return at


def on_diagonal(a):  # first axis, then second axis
    return loss(np.array([np.diag(pair) for pair in a.reshape(2, 3).T]).ravel())


ordered = settle(lambda a: on_diagonal(np.tile(a, 2)), np.array([-0.3, -0.6, -1.5]))
best = on_diagonal(np.tile(ordered, 2))
swapped = settle(on_diagonal, np.concatenate([ordered, ordered[[1, 0, 2]]]))
there = np.array([np.diag(pair) for pair in swapped.reshape(2, 3).T]).ravel()
gradient, hessian = derivatives(loss, there)
values = np.linalg.eigvalsh(hessian)
print(f"on S {best:.4f}, swapped {loss(there):.4f}; steps {swapped[:3].round(2)} and {swapped[3:].round(2)}")
print(f"gradient {np.linalg.norm(gradient):.6f}; curvatures {abs(values[0]):.4f} (turning both axes), {values[1]:.4f}, ...")
assert loss(there) > best + 0.005
assert np.linalg.norm(gradient) < 1e-4
assert abs(values[0]) < 1e-3 < 0.01 < values[1]
