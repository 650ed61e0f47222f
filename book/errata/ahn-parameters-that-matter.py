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
for name, rows, columns in (
    ("P", slice(d), slice(None)),
    ("P", d, slice(None)),
    ("Q", slice(None), d),
    ("Q", slice(None), slice(d)),
):
    changed = {"P": P.copy(), "Q": Q.copy()}
    changed[name][rows, columns] += 1
    moved = abs(errors(**changed) - start).max()
    print(f"{name}[{rows}, {columns}]: the errors move by {moved:.2f}")
    assert (moved > 0) == ((name, rows, columns) in (("P", d, slice(None)), ("Q", slice(None), slice(d))))

# The error is odd in the query: its mean over x and -x vanishes for all weights.
Z[:, :d, -1] *= -1
y[:, -1] *= -1
print(f"mean of the error over mirrored queries {abs(errors(P, Q) + start).max():.6f}, mean square {(start**2).mean():.1f}")
assert np.allclose(errors(P, Q), -start)
