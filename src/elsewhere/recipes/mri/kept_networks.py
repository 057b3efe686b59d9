"""Saving and loading the networks of a segmentation recipe: plans as JSON, state dicts as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError
from elsewhere.recipes.base import Job

if TYPE_CHECKING:
    import torch

    from elsewhere.training.volumes import Plan


def state_of(network: torch.nn.Module) -> dict[str, Any]:
    """Return a network's state dict on the CPU.

    Args:
        network: The network.

    Returns:
        Tensor by name.
    """
    return {name: value.detach().cpu() for name, value in network.state_dict().items()}


def load_state_of(network: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Load a state dict into a network, all tensors of it or none: half a network is another network.

    Args:
        network: The network; changed in place.
        state: Tensor by name, as `state_of` returned it.

    Raises:
        UserError: The state does not fit the network.
    """
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        raise UserError(
            f"the saved weights do not fit the network of this version ({str(error).splitlines()[0]})",
            fix="Use the version of Elsewhere that trained them, or train again.",
        ) from error


def keep_networks(job: Job, plan: Plan, networks: Sequence[torch.nn.Module]) -> dict[str, Any] | None:
    """Return the weights of a segmentation recipe where the study saves them.

    Args:
        job: The job; its `keep` decides.
        plan: Patch, spacing and shape of the networks.
        networks: The trained networks.

    Returns:
        What `kept_networks` needs; None where weights are not saved.
    """
    if not job.keep:
        return None
    return {"plan": plan.as_json(), "networks": [state_of(network) for network in networks]}


def kept_networks(
    weights: Mapping[str, Any], build: Callable[[Plan], torch.nn.Module]
) -> tuple[Plan, list[torch.nn.Module]]:
    """Build the networks of a segmentation recipe from saved weights.

    Args:
        weights: What `keep_networks` returned.
        build: Makes a network of a plan on the job's device.

    Returns:
        The plan, and the networks in evaluation mode.

    Raises:
        UserError: The weights do not fit the networks of this version.
    """
    from elsewhere.training.volumes import Plan

    plan = Plan.from_json(weights["plan"])
    networks = []
    for state in weights["networks"]:
        network = build(plan)
        load_state_of(network, state)
        networks.append(network.eval())
    return plan, networks
