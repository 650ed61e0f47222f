"""The loss of a model that is always right has no minimum: it is positive at every scale and falls to 0, its infimum."""

import numpy as np

rng = np.random.default_rng(0)
zeta = rng.normal(size=(64, 3))  # logits of 64 sequences; scaling V and U scales them
label = zeta.argmax(1)  # certain labels, all of them found


def share(scale):
    weights = np.exp(scale * (zeta - zeta.max(1, keepdims=True)))
    return weights / weights.sum(1, keepdims=True)


def loss(scale):
    return -np.log(share(scale)[np.arange(64), label]).mean()


losses = [loss(scale) for scale in (1, 10, 100, 1000)]
print("loss at the scales 1, 10, 100, 1000:", [f"{value:.1e}" for value in losses])
assert losses == sorted(losses, reverse=True)
assert losses[-1] > 0

# The loss is the mean entropy of the predictions plus the slope along the ray. Where the slope vanishes, as at every
# stationary point, it is their entropy: 0 for certain predictions only.
for scale in (0.3, 1.0, 3.0):
    entropy = -(share(scale) * np.log(share(scale))).sum(1).mean()
    slope = scale * (loss(scale + 1e-5) - loss(scale - 1e-5)) / 2e-5
    print(f"scale {scale}: loss {loss(scale):.4f}, entropy {entropy:.4f}, slope {slope:+.4f}")
    assert np.isclose(loss(scale), entropy + slope)
    assert slope < 0
