"""The two half-steps of the linear block are one step of gradient descent: of order 1, and safe up to norm 2 only."""

import numpy as np


def attention(Z, theta):  # softmax over classes
    weights = np.exp(Z @ theta.T)
    return weights / weights.sum(1, keepdims=True) @ theta


rng = np.random.default_rng(0)
Z, theta, C = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.dirichlet(np.ones(4), 3)

# The second line adds what does not depend on Z, so both together are Z minus the gradient.
half = Z - attention(Z, theta)
block = half + C @ theta
assert np.allclose(block, Z - (attention(Z, theta) - C @ theta))


def flow(steps):  # to time 1
    now = Z
    for _ in range(steps):
        now = now - (attention(now, theta) - C @ theta) / steps
    return now


exact = 2 * flow(4000) - flow(2000)
errors = [np.linalg.norm(flow(steps) - exact) for steps in (50, 100, 200)]
print("halving the step divides the error by", np.round(np.divide(errors[:-1], errors[1:]), 2), "(Strang: 4)")
assert np.allclose(np.divide(errors[:-1], errors[1:]), 2, atol=0.1)

# One feature, classes at ±r, the label (1/2, 1/2): the loss is log(2 cosh rz), and theta has norm r√2.
for norm in (1.9, 2.1):
    r, z = norm / np.sqrt(2), 0.01
    after = z - r * np.tanh(r * z)
    print(f"norm {norm}: a unit step changes the loss by {np.log(np.cosh(r * after) / np.cosh(r * z)):+.1e}")
    assert (abs(after) > abs(z)) == (norm > 2)
