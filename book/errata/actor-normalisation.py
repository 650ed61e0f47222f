"""Normalizing tokens does not whiten them, and the field of a layer that normalizes its input is not a gradient."""

import numpy as np

rng = np.random.default_rng(0)
features = rng.normal(size=(100_000, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.3]])
on_sphere = features / np.linalg.norm(features, axis=1, keepdims=True)
covariance = on_sphere.T @ on_sphere / len(on_sphere)
print("second moments of normalized tokens (trace 1, but not I/3, as of white ones in that scale):")
print(covariance.round(2))
assert abs(np.trace(covariance) - 1) < 1e-12
assert abs(covariance[0, 1]) > 0.1

theta, label = np.array([[1.0, 0.2], [-0.5, 1.0], [0.0, -1.0]]), np.array([1.0, 0.0, 0.0])


def field(z):  # pre-norm: the layer sees z/|z|
    weights = np.exp(theta @ z / np.linalg.norm(z))
    return (label - weights / weights.sum()) @ theta


z, h = np.array([0.7, 0.4]), 1e-5
jacobian = np.array([(field(z + h * e) - field(z - h * e)) / (2 * h) for e in np.eye(2)]).T
print(f"Jacobian of a pre-norm field: {jacobian[0, 1]:.4f} above the diagonal, {jacobian[1, 0]:.4f} below")
assert abs(jacobian[0, 1] - jacobian[1, 0]) > 0.05  # that of a gradient is symmetric
