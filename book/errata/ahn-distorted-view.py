"""With x = W x̄ the weights are the inverse transpose of W times w̄, and the Hessian of R is XXᵀ/n, not half of it."""

import numpy as np

rng = np.random.default_rng(0)
d, n = 3, 8
W, latent, w_bar = rng.normal(size=(d, d)), rng.normal(size=(d, n)), rng.normal(size=d)
X, y = W @ latent, w_bar @ latent
values, vectors = np.linalg.eigh(W @ W.T)
printed = vectors @ np.diag(values**-0.5) @ vectors.T @ w_bar  # Sigma to the power -1/2
true = np.linalg.solve(W.T, w_bar)
print(f"error in the labels: as printed {abs(printed @ X - y).max():.2f}, corrected {abs(true @ X - y).max():.2f}")
assert np.allclose(true @ X, y)
assert abs(printed @ X - y).max() > 0.1

w, H = rng.normal(size=d), X @ X.T / n
gradient = H @ (w - true)  # of R(w) = |X'(w - true)|²/(2n), so its Hessian is H
for name, hessian in (("XXᵀ/n", H), ("XXᵀ/(2n)", H / 2)):
    landed = w - np.linalg.solve(hessian, gradient)
    print(f"Newton's step with {name:9} ends at a distance {np.linalg.norm(landed - true):.4f} from the solution")
    assert np.allclose(landed, true if hessian is H else 2 * true - w)
