"""Linear probes, fitted on some samples and evaluated on others."""

import torch
from torch import Tensor

from attnopt.checks import as_column, check_broadcast, check_count, check_matrices, check_number


def fitted_reading(features: Tensor, target: Tensor, fit: int, penalty: float = 1e-9) -> Tensor:
    """Predictions of the affine function of the features that best fits the target on the first samples.

    Args:
        features: feature vectors, shape (..., n_samples, F).
        target: target values, shape (..., n_samples).
        fit: number of samples, from the first, on which the function is fitted.
        penalty: ridge penalty; the function scales each feature to variance 1.

    Returns:
        Predictions on the other samples, shape (..., n_samples - fit).
    """
    check_matrices(features=features, target=as_column(target))
    if target.shape[-1] != features.shape[-2]:
        raise ValueError(f"target must have one number per sample, {features.shape[-2]}, got shape {tuple(target.shape)}")
    check_broadcast({"features": 2, "target": 1}, features=features, target=target)
    check_number("penalty", penalty)
    if not 1 < check_count("fit", fit) < features.shape[-2]:
        raise ValueError(f"fit must be at least 2 and below the number of samples, {features.shape[-2]}, got {fit}")
    mean, level = features[..., :fit, :].mean(-2, keepdim=True), target[..., :fit].mean(-1, keepdim=True)
    centered = features - mean
    known, sought = centered[..., :fit, :], (target[..., :fit] - level)[..., None]
    gram = known.mT @ known
    scale = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    scale = torch.where(scale > 0, scale, 1)[..., None]  # a constant feature predicts nothing
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    weights = torch.linalg.solve(gram / scale / scale.mT + penalty * eye, known.mT @ sought / scale) / scale
    return level + (centered[..., fit:, :] @ weights)[..., 0]


def explained(prediction: Tensor, target: Tensor) -> Tensor:
    """The share of the target's variance that a prediction explains, R² = 1 - E(target - prediction)² / Var(target).

    Args:
        prediction: predicted values, shape (..., n_samples).
        target: target values, shape (..., n_samples).

    Returns:
        R², shape (...); negative where the target's mean would predict better.
    """
    check_matrices(prediction=as_column(prediction), target=as_column(target))
    check_broadcast(0, prediction=prediction, target=target)
    if (target == target[..., :1]).all(-1).any():
        raise ValueError("target must vary over the samples")
    return 1 - (target - prediction).square().mean(-1) / target.var(-1, correction=0)
