"""Segmentation of volumes in nnU-Net's manner: the core that recipes build on (MRI-13).

    from elsewhere.training.volumes import (
        FitSettings, build_network, fingerprint, fit, make_plan, predict, prepare)

    known = fingerprint(volumes, cases, "three")          # case names; headers of all, intensities of a few
    plan = make_plan(known, "three", memory_gb=24)        # spacing, patch, pooling, widths, batch
    data = prepare(volumes, cases, plan, "three", device="cuda")        # in memory, cases without mask left out
    network = build_network(plan, seed=0, device="cuda")  # .encoder (features a stage), .decoder
    done = fit(network, data, plan, FitSettings(epochs=100), seed=0,
               validation=None,            # another `Prepared`; `data.subset(cases)` shares its memory
               sample_weights=None,        # case -> weight of its patches' loss
               on_epoch=None,              # (entry of the history, network) -> new sample weights or None
               objective=None,             # (network, image, target, weight [batch]) -> loss; the default is
                                           # losses.baseline_objective. On a GPU it is captured: no host work
               checkpoint=job.scratch / "network.pt")      # a killed training resumes from here
    found = predict(network, volumes, case, plan, "three", device="cuda")   # or a list of networks: ensemble
    mask = keep_parts(found.mask(), keep="largest")        # on the case's own grid

`channels` is 'three', 'subtraction', 'pre-first-last' or places of phases such as (0, 1, -1). `image` is
[batch, channel, x, y, z], `target` [batch, 1, x, y, z] of 0 and 1; a network gives one logit per voxel, in
training a list of them, finest first. `network.encoder(image)` gives the features of every stage.
For pretraining without masks: `prepare(..., need_mask=False)` and an `objective` of your own; then
`build_network(...)` and `network.encoder.load_state_dict(pretrained.encoder.state_dict())`.
Another network than ours will do, if it maps `image` to such logits.
"""

from __future__ import annotations

from elsewhere.training.volumes.channels import CHANNELS, Channels, channel_count, read_channels
from elsewhere.training.volumes.fitting import Fitted, fit
from elsewhere.training.volumes.losses import baseline_objective, supervised
from elsewhere.training.volumes.networks import ResidualUNet, build_network
from elsewhere.training.volumes.planning import Fingerprint, Plan, fingerprint, make_plan
from elsewhere.training.volumes.postprocessing import keep_parts
from elsewhere.training.volumes.preparing import Prepared, prepare, standardise
from elsewhere.training.volumes.settings import FitSettings
from elsewhere.training.volumes.windows import Predicted, predict

__all__ = [
    "CHANNELS",
    "Channels",
    "Fingerprint",
    "FitSettings",
    "Fitted",
    "Plan",
    "Predicted",
    "Prepared",
    "ResidualUNet",
    "baseline_objective",
    "build_network",
    "channel_count",
    "fingerprint",
    "fit",
    "keep_parts",
    "make_plan",
    "predict",
    "prepare",
    "read_channels",
    "standardise",
    "supervised",
]
