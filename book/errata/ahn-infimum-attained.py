"""The infima of Theorems 4 and 5 are attained: optimal steps in exact arithmetic, and layers that do nothing."""

from fractions import Fraction
from functools import cache

import numpy as np

d, n, k = 5, 20, 3


@cache
def moment(
    *powers,
):  # E of the product of tr S^r, S a Wishart matrix with n degrees of freedom (Gaussian integration by parts)
    if not powers:
        return 1
    m, rest = powers[0] - 1, powers[1:]
    if m < 0:
        return d * moment(*rest)
    total = (n + m) * moment(m, *rest) + sum(moment(i, m - i, *rest) for i in range(m))
    return total + sum(2 * r * moment(m + r, *rest[:j], *rest[j + 1 :]) for j, r in enumerate(rest) if r)


mu = [Fraction(moment(j), n**j) for j in range(2 * k + 1)]  # E tr G^j, so f = sum over i, j of r_i r_j mu_(i+j)

# Theorem 4: with R(0) = 1, f is least where its derivative in every other coefficient vanishes; a linear system.
rows = [[mu[i + j] for j in range(1, k + 1)] + [-mu[i]] for i in range(1, k + 1)]
for i in range(k):  # Gauss and Jordan
    rows[i] = [value / rows[i][i] for value in rows[i]]
    rows = [row if j == i else [a - row[i] * b for a, b in zip(row, rows[i], strict=True)] for j, row in enumerate(rows)]
r = [Fraction(1)] + [row[-1] for row in rows]
least = sum(a * b * mu[i + j] for i, a in enumerate(r) for j, b in enumerate(r))
steps = -1 / np.roots([float(a) for a in r[::-1]])
print(f"least loss {least} = {float(least):.4f} at the steps {np.sort(steps).round(3)}")
assert least == Fraction(12138645, 90852389)
assert np.isreal(steps).all()

# Theorem 5: A = 0, B = -1/2 before one optimal step is critical in all of a_0, b_0, a_1.
lam = np.polynomial.Polynomial([0, 1])


def f(a0, b0, a1):
    R = (1 + a0 * lam) * (1 + a1 * lam * (1 + a0 * b0 * lam) ** 2)
    return sum(c * float(Fraction(moment(j), n**j)) for j, c in enumerate((R**2).coef))


point, h = np.array([0, -1 / 2, -float(mu[1] / mu[2])]), 1e-5
slopes = [(f(*(point + h * e)) - f(*(point - h * e))) / (2 * h) for e in np.eye(3)]
print("slopes at the silent layer:", [f"{abs(slope):.6f}" for slope in slopes])
assert np.allclose(slopes, 0, atol=1e-6)
