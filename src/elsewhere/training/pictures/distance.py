"""How far a picture's features lie from what the network was trained on (US-32)."""

from __future__ import annotations

import torch

SHRINKAGE = 0.1


def class_distance(
    seen: torch.Tensor, label: torch.Tensor, features: torch.Tensor, *, shrinkage: float = SHRINKAGE
) -> torch.Tensor:
    """Return the Mahalanobis distance to the nearer class mean, with one covariance for both classes.

    The covariance is shrunk towards a multiple of the identity, as there are more features than pictures.

    Args:
        seen: Features of training pictures, [pictures, features].
        label: Their class, 0 or 1.
        features: Features of the pictures in question, [others, features].
        shrinkage: The weight of the identity.

    Returns:
        One distance for each of the others.
    """
    seen, features = seen.double(), features.double()
    classes = [c for c in (0, 1) if bool((label == c).any())]
    means = torch.stack([seen[label == c].mean(dim=0) for c in classes])
    centred = torch.cat([seen[label == c] - means[index] for index, c in enumerate(classes)])
    covariance = centred.T @ centred / max(len(centred) - len(classes), 1)
    width = covariance.shape[0]
    scale = covariance.diagonal().mean().clamp_min(1e-12)
    covariance = (1 - shrinkage) * covariance + shrinkage * scale * torch.eye(
        width, dtype=covariance.dtype, device=covariance.device
    )
    factor = torch.linalg.cholesky(covariance)
    distances = [
        torch.linalg.solve_triangular(factor, (features - mean).T, upper=False).square().sum(dim=0)
        for mean in means
    ]
    return torch.stack(distances).amin(dim=0).sqrt().float()
