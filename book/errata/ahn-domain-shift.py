"""An optimal layer is worse than predicting 0 once covariates grow by a factor of more than √2, in every dimension."""

import numpy as np

rng = np.random.default_rng(0)
for d, n in ((1, 5), (5, 20), (10, 50)):
    a = -n / (n + d + 1)  # the best step
    m1, m2 = d, d * (n + d + 1) / n  # E tr G and E tr G²

    def loss(s, a=a, d=d, m1=m1, m2=m2):  # covariates multiplied by s, weights as before
        return d + 2 * a * s**2 * m1 + a**2 * s**4 * m2

    X = rng.normal(size=(4000, d, n))
    G = X @ X.transpose(0, 2, 1) / n
    sampled = ((np.eye(d) + 1.2**2 * a * G) ** 2).sum((1, 2)).mean()
    values = ", ".join(f"{loss(s) / d:.3f}" for s in (1, 1.2, 2**0.5, 1.6))
    print(f"d = {d:2}, n = {n:3}: loss / loss of predicting 0 at s = 1, 1.2, √2, 1.6: {values}")
    assert abs(sampled / loss(1.2) - 1) < 0.1
    assert np.isclose(loss(2**0.5), d)
    assert loss(1.4) < d < loss(1.43)
