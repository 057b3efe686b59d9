"""The networks of a segmentation recipe, kept and taken up again: their plan as JSON, their state dicts as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError
from elsewhere.recipes.base import Job

if TYPE_CHECKING:
    import torch

    from elsewhere.training.volumes import Plan


def state_of(network: torch.nn.Module) -> dict[str, Any]:
    return {name: value.detach().cpu() for name, value in network.state_dict().items()}


def load_state_of(network: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """In place, every tensor of it or none: half a network is another network."""
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        raise UserError(
            f"the kept weights do not fit the network of this version ({str(error).splitlines()[0]})",
            fix="Use the version of Elsewhere that trained them, or train again.",
        ) from error


def keep_networks(job: Job, plan: Plan, networks: Sequence[torch.nn.Module]) -> dict[str, Any] | None:
    """What `kept_networks` needs, where the study keeps weights."""
    if not job.keep:
        return None
    return {"plan": plan.as_json(), "networks": [state_of(network) for network in networks]}


def kept_networks(
    weights: Mapping[str, Any], build: Callable[[Plan], torch.nn.Module]
) -> tuple[Plan, list[torch.nn.Module]]:
    """The plan and the ensemble; `build` makes a network of a plan on the job's device."""
    from elsewhere.training.volumes import Plan

    plan = Plan.from_json(weights["plan"])
    networks = []
    for state in weights["networks"]:
        network = build(plan)
        load_state_of(network, state)
        networks.append(network.eval())
    return plan, networks
