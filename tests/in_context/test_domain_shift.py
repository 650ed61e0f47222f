"""Layers away from the prompts they were made for: what the shifts do, and what the stored losses must satisfy."""

import math

import covariances
import domain_shift
import numpy as np
import torch
from helpers import normal

from attnbook.folder import results


def test_shifted_layers_do_the_same(generator):
    """The layers themselves do not change: whitened by either covariance they give the same error matrix, up to a basis."""
    old, turn = covariances.random_covariance(generator), torch.linalg.qr(normal(generator, 5, 5))[0]
    new = 1.7 * turn @ old @ turn.mT
    A, B = normal(generator, 2, 5, 5), normal(generator, 2, 5, 5)
    (root, inverse), (new_root, new_inverse) = covariances.square_roots(old), covariances.square_roots(new)
    A_new, B_new = domain_shift.shifted(root @ A @ root, inverse @ B @ root, old, new)
    torch.testing.assert_close(A_new, new_root @ A @ new_root)
    torch.testing.assert_close(B_new, new_inverse @ B @ new_root)


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
