"""Write the sample that comes with the package: the first 40 images of each class of Fashion-MNIST's test file.

    python experiments/fashion_mnist_sample.py [FILE]

Running it again gives the same bytes.
"""

import sys

import numpy as np

from attnopt.datasets import CLASSES, SAMPLE, fashion_mnist

EACH = 40

images, labels = (tensor.numpy() for tensor in fashion_mnist("test"))
index = np.sort(np.concatenate([np.flatnonzero(labels == k)[:EACH] for k in range(len(CLASSES))]))
np.savez_compressed(
    sys.argv[1] if len(sys.argv) > 1 else SAMPLE,
    images=images[index],
    labels=labels[index].astype(np.uint8),
    index=index.astype(np.uint16),
)
