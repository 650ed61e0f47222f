"""The chapter on Fashion-MNIST, on the real images: stored weights are asked again, and the results file with them."""

import functools

import numpy as np
import pytest
import torch
from fashion_mnist_training import NEAREST, VARIANTS, held, parts, pixels
from torch.nn.functional import cross_entropy, one_hot

from attnbook.folder import find, results
from attnopt.datasets import CLASSES, fashion_mnist_sample
from attnopt.regression import unroll, unroll_logits

AS_STATED, NEAREST_ROW = "as stated: class axis, step 1", f"{NEAREST}, 100 epochs"
SEEDS = (0, 3)  # the others take as long again and follow the same lines


@functools.cache
def found():
    return results("fashion_mnist")


@functools.cache
def model(seed, nearest=False):
    """Weights and bias of a stored classifier, float64."""
    prefix = "nearest_" if nearest else ""
    with np.load(find("results/fashion_mnist_weights.npz")) as stored:
        return tuple(torch.from_numpy(stored[prefix + name][seed]).double() for name in ("weights", "bias"))


@functools.cache
def validation(seed, nearest=False):
    """The seed's validation images, clean and noisy, with their labels."""
    return held("validation", seed, **(VARIANTS[NEAREST] if nearest else {}))


def blocks(images, labels, theta, bias, layers=5):
    """Logits before and after blocks written as the papers do, on the images themselves, a block at a time."""
    z, seen = images.double(), []
    for layer in range(layers + 1):
        logits = z @ theta.T + bias
        seen.append(logits)
        if layer < layers:
            z = z - torch.softmax(logits, 1) @ theta + labels.double() @ theta
    return torch.stack(seen)


def accuracies(logits, labels):
    return (logits.argmax(-1) == labels).double().mean(-1).numpy()


def sample():
    images, labels = fashion_mnist_sample()
    return images.reshape(len(images), 784).double() / 255, labels


@pytest.mark.evidence("actor-table-1", "actor-appendix-b")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["clean", "noisy"])
def test_table_1_as_stated(seed, kind):
    images, truth = validation(seed)
    theta, bias = model(seed)
    logits = unroll_logits(images[kind].double() @ theta.T + bias, theta, one_hot(truth, 10).double(), "class", 5)
    ours, printed = accuracies(logits, truth), np.array(found()["settings"]["printed"][kind])
    np.testing.assert_allclose(ours, found()["readings"][AS_STATED][kind][seed], atol=2e-4)
    by_image = blocks(images[kind][:300], one_hot(truth[:300], 10), theta, bias)
    torch.testing.assert_close(logits[:, :300], by_image, rtol=1e-8, atol=1e-8)
    assert abs(ours[0] - printed[0]) < 6e-3
    assert ours[1] > 0.998 > printed[1] + 0.01  # higher than printed from the first block on
    assert (ours[1:] >= printed[1:] - 1e-4).all()


@pytest.mark.evidence("actor-table-1")
@pytest.mark.parametrize("seed", SEEDS)
def test_table_1_by_the_nearest_reading(seed):
    images, truth = validation(seed, nearest=True)
    theta, bias = model(seed, nearest=True)
    assert images["noisy"].abs().max() == 1  # clipped, then scaled
    rows = {}
    for kind, z in images.items():
        logits = unroll_logits(z.double() @ theta.T + bias, theta, one_hot(truth, 10).double(), "class", 5)
        rows[kind] = accuracies(logits, truth)
        np.testing.assert_allclose(rows[kind], found()["readings"][NEAREST_ROW][kind][seed], atol=2e-4)
        printed = np.array(found()["settings"]["printed"][kind])
        mean = np.mean(found()["readings"][NEAREST_ROW][kind], 0)
        assert abs(mean - printed)[1:].max() < 1e-3
        assert abs(mean - printed)[0] < 4e-3
    assert rows["noisy"][0] < rows["clean"][0]
    assert rows["noisy"][1] > rows["clean"][1]
    assert min(found()["readings"], key=lambda name: found()["readings"][name]["rms 1-5"]) == NEAREST_ROW


@pytest.mark.evidence("actor-forward-pass-improves")
@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_black_images_become_any_label(seed, nearest):
    theta, bias = model(seed, nearest)
    black = torch.zeros(10, 784) if not nearest else torch.full((10, 784), -1.0)
    after = blocks(black, torch.eye(10), theta, bias)
    assert (after[0].argmax(1) == after[0, 0].argmax()).all()
    assert (after[5].argmax(1) == torch.arange(10)).all()
    if not nearest:
        assert (after[1].argmax(1) == torch.arange(10)).all()


@pytest.mark.evidence("actor-forward-pass-improves")
def test_wrong_labels_are_followed():
    images, truth = validation(0)
    theta, bias = model(0)
    start = images["clean"].double() @ theta.T + bias
    wrong = torch.randint(10, truth.shape, generator=torch.Generator().manual_seed(7))
    after = unroll_logits(start, theta, one_hot(wrong, 10).double(), "class", 5)
    assert accuracies(after, wrong)[0] < 0.12
    assert accuracies(after, wrong)[1] > 0.9
    assert accuracies(after, wrong)[2] > 0.999
    assert accuracies(after, truth)[5] < 0.12
    stored = np.array(found()["controls"]["clean images, random labels"]["imposed label"])
    np.testing.assert_allclose(accuracies(after, wrong), stored.mean(0), atol=0.02)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_step_widens_every_margin_of_the_stored_classifiers(seed, nearest):
    theta, bias = model(seed, nearest)
    generator = torch.Generator().manual_seed(seed)
    for y in range(10):
        apart = (theta[y] - theta)[torch.arange(10) != y]  # θ_y - θ_k
        assert (apart @ apart.T).min() > 0.3
        # so for any image, however far from the data, and any step
        start = torch.randn(200, 784, generator=generator).double() @ theta.T + bias
        open_still = torch.softmax(start, 1)[:, y] < 1 - 1e-6  # else a step is smaller than rounding
        assert open_still.sum() > 100
        label = torch.eye(10).double()[y].expand(200, 10)
        for step in (0.1, 1.0, 20.0):
            before, after = (
                (n[:, y, None] - n)[:, torch.arange(10) != y] for n in unroll_logits(start, theta, label, "class", 1, step)
            )
            assert (after > before)[open_still].all()
            assert (after > before - 1e-9).all()


@pytest.mark.evidence("actor-oracle")
def test_oracles_are_copied():
    images, truth = validation(0)
    theta, bias = model(0)
    members = parts(0)[0]
    x, y = (of_all[members] for of_all in pixels("train"))
    z = images["noisy"][:1500]
    nearest = (z @ x.T - x.square().sum(1) / 2).topk(5).indices
    oracle = one_hot(y[nearest], 10).sum(1).argmax(1)
    start = z.double() @ theta.T + bias
    after = unroll_logits(start, theta, one_hot(oracle, 10).double(), "class", 5)
    assert (after[5].argmax(1) == oracle).double().mean() > 0.999
    own = (oracle == truth[:1500]).double().mean()
    assert accuracies(after, truth[:1500])[0] + 0.01 < accuracies(after, truth[:1500])[5]
    assert abs(accuracies(after, truth[:1500])[5] - own) < 2e-3
    for stored in found()["oracles"].values():
        for kind in ("clean", "noisy"):
            last = np.array(stored["blocks, hard labels"][kind])[:, 5]
            np.testing.assert_allclose(last, stored["oracle alone"][kind], atol=2e-3)


@pytest.mark.evidence("actor-appendix-b")
def test_baseline_of_85_per_cent():
    members, outside = parts(0)
    x, y = pixels("train")
    some, labels = x[members[:20_000]], y[members[:20_000]]
    theta, bias = torch.zeros(10, 784, requires_grad=True), torch.zeros(10, requires_grad=True)
    optimiser = torch.optim.LBFGS([theta, bias], max_iter=25, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = cross_entropy(some @ theta.T + bias, labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        quick = ((x[outside] @ theta.T + bias).argmax(1) == y[outside]).double().mean()
    assert 0.82 < quick < 0.87  # a few steps on part of the data; converged values are in the results
    stored = np.array(found()["baseline"]["validation"])
    assert 0.845 < stored.mean() < 0.86


@pytest.mark.evidence("actor-figure-1")
def test_figure_1_shirt_taken_for_a_bag():
    chosen = found()["figure_1"]
    images, labels = pixels("test")
    theta, bias = model(0)
    generator = torch.Generator().manual_seed(chosen["noise seed"])
    z = images[chosen["test index"]].double() + torch.randn(784, generator=generator, dtype=torch.float64) / 3
    assert labels[chosen["test index"]] == CLASSES.index("T-shirt/top")
    after = blocks(z[None], torch.eye(10)[[0]], theta, bias)[:, 0]
    assert [CLASSES[index] for index in after.argmax(1)] == ["Bag", *["T-shirt/top"] * 5]
    assert after.argmax(1).tolist() == chosen["classes"]
    np.testing.assert_allclose(torch.softmax(after, 1)[:, 8], chosen["probability of bag"], rtol=1e-3)


@pytest.mark.evidence("actor-figure-1")
def test_images_move_in_nine_directions():
    theta, _ = model(0)
    images, truth = sample()
    moved = unroll(images, theta, one_hot(truth, 10).double(), "class", 5)[-1] - images
    assert torch.linalg.matrix_rank(moved, rtol=1e-10) == 9
    differences = theta - theta.mean(0)
    assert (moved - moved @ torch.linalg.pinv(differences) @ differences).abs().max() < 1e-9
