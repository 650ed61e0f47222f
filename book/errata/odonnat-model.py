"""E and P cannot place the directions of E(x) + P(t) anywhere: sums are additive, so an exclusive or is out of reach."""

import numpy as np

rng = np.random.default_rng(0)

# z(0,0) = z(1,1) = u and z(0,1) = z(1,0) = -u would need lengths r > 0 with (r00 + r11) u = -(r01 + r10) u.
for d in (2, 3, 50):
    E, P = rng.normal(size=(2, 100, 2, d))
    sums = E[:, :, None] + P[:, None]  # model, token, position
    gap = abs(sums[:, 0, 0] + sums[:, 1, 1] - sums[:, 0, 1] - sums[:, 1, 0]).max()
    print(f"d = {d:2}: E(0) + P(0) + E(1) + P(1) is E(0) + P(1) + E(1) + P(0) up to {gap:.6f}")
    assert gap < 1e-12

# In the plane, p = L = 2: placements u are reached if and only if u00, u11, -u01, -u10 lie in no half-plane.
angles = rng.uniform(0, 2 * np.pi, (20_000, 4)) + np.array([0, 0, np.pi, np.pi])
angles = np.sort(angles % (2 * np.pi))
gaps = np.diff(angles, append=angles[:, :1] + 2 * np.pi)
share = (gaps.max(1) < np.pi).mean()
print(f"share of random placements of two tokens at two positions that E and P reach: {share:.3f} (exactly 1/2)")
assert abs(share - 0.5) < 0.02
