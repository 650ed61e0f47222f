"""The block finds the label that is put into it, whatever the image: black ones, and wrong labels."""

import numpy as np

rng = np.random.default_rng(0)
theta, bias = 0.1 * rng.normal(size=(10, 784)), 0.5 * rng.normal(size=10)  # a linear classifier


def block(images, labels):  # softmax over classes
    logits = images @ theta.T + bias
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return images - (weights / weights.sum(1, keepdims=True) - np.eye(10)[labels]) @ theta


def classify(images):
    return (images @ theta.T + bias).argmax(1)


black = np.zeros((10, 784))
print("black images, labels 0 to 9, are classified as", classify(block(black, np.arange(10))))
assert (classify(block(black, np.arange(10))) == np.arange(10)).all()

images = rng.random((2000, 784))
truth, supplied = classify(images), rng.integers(10, size=2000)  # as if the classifier were always right
after = own = images
for _ in range(5):
    after, own = block(after, supplied), block(own, classify(own))
agreement = [(classify(x) == supplied).mean() for x in (images, after)]
accuracy = (classify(after) == truth).mean()
print(f"agreement with the label supplied {agreement[0]:.2f}, then {agreement[1]:.2f};", end=" ")
print(f"with the true one 1.00, then {accuracy:.2f}")
assert agreement[0] < 0.2
assert agreement[1] > 0.99
assert accuracy < 0.2
assert (classify(own) == truth).all()  # with its own predictions nothing changes
