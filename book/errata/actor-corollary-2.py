"""The gradient of the quadratic model is not twice a self-attention; here the printed one points exactly uphill."""

import numpy as np

Z = np.array([[1.0], [0.0]])  # two tokens, one feature
theta = np.array([[np.log(3)]])
C = np.array([[3 / 4, 3 / 8], [1 / 4, 5 / 8]])  # columns sum to one


def loss(Z):
    N = Z @ theta @ Z.T
    return np.log(np.exp(N).sum(0)).sum() - (C * N).sum()


sigma = np.exp(Z @ theta @ Z.T)
sigma /= sigma.sum(0)  # softmax down each column
printed = (2 * sigma - C - C.T) @ Z @ theta
true = (sigma + sigma.T - C - C.T) @ Z @ theta

h = 1e-5
measured = np.array([[(loss(Z + h * e) - loss(Z - h * e)) / (2 * h)] for e in np.eye(2)[:, :, None]])
print("measured", measured.ravel().round(6))
print("true    ", true.ravel().round(6), " (log 3)/8 =", round(np.log(3) / 8, 6))
print("printed ", printed.ravel().round(6))
assert np.allclose(measured, true, atol=1e-8)
assert np.allclose(printed, -true)
assert loss(Z - 0.1 * printed) > loss(Z) > loss(Z - 0.1 * true)
