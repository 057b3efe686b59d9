"""Features of a segmentation network into boosted trees (MRI-15), as a whole recipe on small phantoms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.recipes.deep_worlds import auc, world

from elsewhere.errors import UserError
from elsewhere.recipes import recipes
from elsewhere.recipes.base import RESPONSE
from elsewhere.recipes.mri.network_xgboost import network_features

pytest.importorskip("xgboost")
pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {
    "spacing_mm": [],
    "patch": [16, 16, 8],
    "widths": [8, 16],
    "blocks": [1, 1],
    "batch": 4,
    "augment": False,
    "compiled": False,
    "skip_air": False,
    "epochs": 4,
    "steps_per_epoch": 15,
    "learning_rate": 0.02,
    "validation_steps": 2,
    "checkpoint_every": 1,
    "trees": 40,
    "depths": [1, 2],
}
PARTS = {"train": slice(0, 28), "validation": slice(28, 32), "predict": slice(32, 48)}


def trained(tmp_path, sign, **more):
    recipe = recipes.get("network-xgboost")()
    held = world(48, sign=sign)
    job, out = held.job(recipe.settings(SMALL), tmp_path, tasks=(RESPONSE,), **PARTS, **more)
    told = recipe.run(job)
    truth = {case.case: case.label for case in held.cases}
    return told, [truth[p.case] for p in out], [p.probability for p in out]


def test_what_the_network_saw_of_the_tumour_tells_the_response(tmp_path):
    (tmp_path / "again").mkdir()
    told, label, probability = trained(tmp_path, "washout")
    assert auc(label, probability) > 0.8
    # 3 sizes, and two means of 8 and 16 channels.
    assert told.details["features"] == 3 + 2 * (8 + 16)
    assert told.details["cases"] == 32 and told.details["responders"] == 16
    assert set(told.details["attempts"]) == {"depth 1", "depth 2"}
    assert trained(tmp_path / "again", "washout")[2] == probability


class Blind(torch.nn.Module):
    """A network that is sure of one voxel at the most, or of none."""

    def __init__(self, logit: float) -> None:
        super().__init__()
        self.logit = torch.nn.Parameter(torch.tensor(logit))

    def encoder(self, x):
        return [x, torch.nn.functional.avg_pool3d(x, 2)]

    def forward(self, x):
        return self.logit.expand(len(x), 1, *x.shape[2:]).clone()


@pytest.mark.parametrize(("logit", "found"), [(-5.0, False), (5.0, True)])
def test_a_case_in_which_nothing_is_found_has_no_means_inside(tmp_path, logit, found):
    from elsewhere.recipes.mri.residual_unet import plan_for

    recipe = recipes.get("network-xgboost")()
    held = world(4)
    settings = recipe.settings(SMALL)
    parts = {"train": slice(0, 2), "validation": slice(2, 3), "predict": slice(3, 4)}
    job, _ = held.job(settings, tmp_path, tasks=(RESPONSE,), **parts)
    plan, _ = plan_for(job.volumes, [c.case for c in job.train], settings)
    values, _ = network_features(job, settings, [Blind(logit)], plan, job.predict[0].case)
    channels = 3
    sizes, stages = values[:3], values[3:].reshape(2, 2, channels)
    assert (sizes[0] > 0) == found and sizes[0] == sizes[1]
    assert sizes[2] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
    assert np.isfinite(stages[:, 0]).all()
    assert np.isnan(stages[:, 1]).all() != found


def test_one_network_alone_can_be_read():
    with pytest.raises(UserError, match="folds must be 1"):
        recipes.get("network-xgboost")().settings(SMALL | {"folds": 2})
