"""Near the origin normalization has a large slope, not only a curvature, and its gradients never point to the origin."""

import numpy as np

rng = np.random.default_rng(0)


def unit(x):
    return x / np.linalg.norm(x)


x, g, h = rng.normal(size=3), rng.normal(size=3), 1e-5
slope = np.array([(g @ unit(x + h * e) - g @ unit(x - h * e)) / (2 * h) for e in np.eye(3)])
print(f"a gradient through x/|x| along x: {abs(slope @ unit(x)):.6f}; its length {np.linalg.norm(slope):.2f}")
assert abs(slope @ x) < 1e-9

# Straight toward the origin nothing changes if and only if the step is shorter than x. No gradient goes there.
for share in (0.5, 0.99, 1.01):
    same = np.allclose(unit(x - share * x), unit(x))
    print(f"a step of {share} |x| toward the origin keeps the direction: {same}")
    assert same == (share < 1)

# The slope is 1/|x|; the second derivative along a unit vector at an angle a to x is at most 2/(√3 |x|²).
h, angles, worst = 1e-3, np.linspace(0, np.pi, 2001), 0
for a in angles:
    v = np.array([np.cos(a), np.sin(a)])
    bend = (unit(np.array([1, 0]) + h * v) + unit(np.array([1, 0]) - h * v) - 2 * np.array([1, 0])) / h**2
    worst = max(worst, np.linalg.norm(bend))
print(f"greatest curvature at |x| = 1: {worst:.4f}, 2/√3 = {2 / np.sqrt(3):.4f}")
assert abs(worst - 2 / np.sqrt(3)) < 1e-3
