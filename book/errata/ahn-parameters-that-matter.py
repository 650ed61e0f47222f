"""One layer's loss sees the last row of P and the first d (not n) columns of Q; without a square, (6) would be 0."""

import numpy as np

rng = np.random.default_rng(0)
d, n, prompts = 3, 5, 1000
x, w = rng.normal(size=(prompts, d, n + 1)), rng.normal(size=(prompts, d))
y = np.einsum("pd,pdi->pi", w, x)
shown = y.copy()
shown[:, -1] = 0  # the query's label is hidden
Z = np.concatenate([x, shown[:, None]], 1)
context = Z[:, :, :-1]
moments = context @ context.transpose(0, 2, 1) / n


def errors(P, Q):
    return (P @ moments @ Q @ Z[:, :, -1:])[:, -1, 0] + y[:, -1]


P, Q = rng.normal(size=(2, d + 1, d + 1))
start = errors(P, Q)
for part, name, rows, columns, matters in (
    ("changing P outside its last row", "P", slice(d), slice(None), False),
    ("changing the last row of P", "P", d, slice(None), True),
    ("changing the last column of Q", "Q", slice(None), d, False),
    ("changing Q outside its last column", "Q", slice(None), slice(d), True),
):
    changed = {"P": P.copy(), "Q": Q.copy()}
    changed[name][rows, columns] += 1
    moved = abs(errors(**changed) - start).max()
    print(f"{part} moves the errors by {moved:.2f}")
    assert (moved > 0) == matters

# The error is odd in the query: its mean over x and -x vanishes for all weights.
Z[:, :d, -1] *= -1
y[:, -1] *= -1
print(f"mean of the error over mirrored queries {abs(errors(P, Q) + start).max():.6f}, mean square {(start**2).mean():.1f}")
assert np.allclose(errors(P, Q), -start)
