"""Softmax over the tokens (queries) is not the usual attention, which normalizes over the keys."""

import numpy as np


def attention(queries, keys, axis):
    weights = np.exp(queries @ keys.T)
    return weights / weights.sum(axis, keepdims=True) @ keys


rng = np.random.default_rng(0)
queries, keys = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
more = np.vstack([queries, rng.normal(size=(1, 3))])

# In the usual attention a query's output is an average of the keys, whatever other queries there are.
for name, axis in (("over the keys (usual)", 1), ("over the queries (as printed)", 0)):
    change = abs(attention(more, keys, axis)[:4] - attention(queries, keys, axis)).max()
    print(f"softmax {name}: one more query changes the others' outputs by {change:.3f}")
    assert (change < 1e-12) == (axis == 1)
