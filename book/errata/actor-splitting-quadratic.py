"""The quadratic block does not approach the gradient flow as its step shrinks; with both attentions it does."""

import numpy as np

Z = np.array([[1.0], [0.0]])
theta = np.array([[np.log(3)]])
C = np.array([[3 / 4, 3 / 8], [1 / 4, 5 / 8]])


def softmax(Z):
    weights = np.exp(Z @ theta @ Z.T)
    return weights / weights.sum(0)


def block(Z, h, both):
    sigma = softmax(Z)
    half = Z - h * ((sigma + sigma.T) if both else 2 * sigma) @ Z @ theta
    return half + h * (C + C.T) @ half @ theta


sigma = softmax(Z)
descent = -(sigma + sigma.T - C - C.T) @ Z @ theta
for both in (False, True):
    velocity = (block(Z, 1e-6, both) - Z) / 1e-6
    name = "both attentions" if both else "as printed"
    print(f"{name:16} velocity of the second token {velocity[1, 0]:+.4f}, minus the gradient {descent[1, 0]:+.4f}")
    assert np.allclose(velocity, descent, atol=1e-4) == both
