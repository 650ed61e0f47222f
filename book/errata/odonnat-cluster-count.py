"""A head with both invariances can do with k(p-1) + 1 clusters, 11 for p = 3 and k = 5, where 21 are announced."""

from itertools import combinations_with_replacement as prefixes
from math import comb

import numpy as np

for p, k in ((2, 5), (3, 5), (5, 4)):
    tokens = np.array(list(prefixes(range(p), k)))  # up to order
    labels = tokens.sum(1) % p
    generic = np.random.default_rng(0).normal(size=p)
    for name, heights in (("generic heights", generic), ("equally spaced", np.arange(p))):
        where = (heights[tokens].sum(1) / k).round(9)  # uniform attention over the prefix, one coordinate
        clusters = np.unique(where)
        pure = all(len(set(labels[where == cluster])) == 1 for cluster in clusters)
        print(f"p = {p}, k = {k}, {name}: {len(clusters)} clusters, each with one label: {pure}")
        assert pure
        assert len(clusters) == (comb(k + p - 1, k) if heights is generic else k * (p - 1) + 1)
