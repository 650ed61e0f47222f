"""Along the gradient flow the cross-entropy falls at the rate of the squared gradient, not of half of it."""

import numpy as np

rng = np.random.default_rng(0)
Z, theta = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
C = rng.dirichlet(np.ones(4), 5).T  # columns sum to one


def loss(Z):
    N = Z @ theta.T
    return np.log(np.exp(N).sum(0)).sum() - (C * N).sum()


weights = np.exp(Z @ theta.T)
gradient = (weights / weights.sum(0) - C) @ theta

h = 1e-5  # central differences along the flow, dZ/dt = -gradient
rate = (loss(Z - h * gradient) - loss(Z + h * gradient)) / (2 * h)
print(f"rate {rate:.6f}, -|gradient|² {-(gradient**2).sum():.6f}, as printed {-(gradient**2).sum() / 2:.6f}")
assert abs(rate / (gradient**2).sum() + 1) < 1e-6
