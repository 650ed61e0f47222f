"""Layers away from the prompts they were made for: what the shifts do, and what the stored losses must satisfy."""

import math

import covariances
import domain_shift
import numpy as np
import torch
from helpers import normal

from attnbook.folder import results
from attnopt.in_context import (
    gdpp_optimum,
    prompt_losses,
    sample_grams,
    step_loss,
)


def test_shifted_layers_do_the_same(generator):
    """The layers themselves do not change: whitened by either covariance they give the same error matrix, up to a basis."""
    old, turn = covariances.random_covariance(generator), torch.linalg.qr(normal(generator, 5, 5))[0]
    new = 1.7 * turn @ old @ turn.mT
    A, B = normal(generator, 2, 5, 5), normal(generator, 2, 5, 5)
    (root, inverse), (new_root, new_inverse) = covariances.square_roots(old), covariances.square_roots(new)
    A_new, B_new = domain_shift.shifted(root @ A @ root, inverse @ B @ root, old, new)
    torch.testing.assert_close(A_new, new_root @ A @ new_root)
    torch.testing.assert_close(B_new, new_inverse @ B @ new_root)


def test_scaled_covariances_scale_steps_and_curvatures(generator):
    steps, curvatures, _ = gdpp_optimum(5, 20, 2)
    identity = torch.eye(5, dtype=torch.float64)
    b = torch.cat([curvatures / steps[:1], curvatures.new_zeros(1)])
    A, B = steps[:, None, None] * identity, b[:, None, None] * identity
    covariance = covariances.random_covariance(generator)
    grams = sample_grams(50_000, 5, 20, generator)
    losses = prompt_losses(grams, *domain_shift.shifted(A, B, covariance, 0.6 * covariance))
    exact = domain_shift.exact_loss(steps, curvatures, 0.6, 20)
    assert abs(losses.mean() - exact) < 5 * losses.std() / len(losses) ** 0.5
    assert math.isclose(domain_shift.exact_loss(steps, None, 0.6, 20), step_loss(0.6 * steps, 5, 20))


def test_parts_of_a_rotation(generator):
    for _ in range(5):
        rotation = domain_shift.random_rotation(generator)
        torch.testing.assert_close(torch.linalg.det(rotation).item(), 1.0)
        half = domain_shift.part_of(rotation, 0.5)
        torch.testing.assert_close(half @ half, rotation)
        torch.testing.assert_close(half @ half.mT, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(domain_shift.part_of(rotation, 0.0), torch.eye(5, dtype=torch.float64))


def test_stored_domain_shift():
    found = results("domain_shift")["shifts"]
    assert set(found["models"]) == {"constant", "plain", "gdpp", "plain trained", "gdpp trained"}
    for name in ("constant", "plain", "gdpp"):
        home = next(row for row in found["scaled"][name] if row["scale"] == 1)
        at_20 = next(row for row in found["context"][name] if row["n_context"] == 20)
        assert home["exact"] == at_20["exact"]
        assert math.isclose(home["mean"], home["exact"], rel_tol=0.2)
        limit = found["harmless_below"][name]
        for row in found["scaled"][name]:
            assert (row["exact"] > 5) == (row["scale"] > limit)
    assert found["harmless_below"]["gdpp"] < found["harmless_below"]["plain"] < found["harmless_below"]["constant"]
    assert np.isfinite([row["median"] for rows in found["scaled"].values() for row in rows]).all()
    for name, rows in found["turned"].items():
        assert [row["fraction"] for row in rows] == domain_shift.FRACTIONS
        assert rows[0]["median"] == found["rotated"][name]["median_unrotated"]
        assert rows[-1]["median"] == found["rotated"][name]["median"]
