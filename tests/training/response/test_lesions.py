"""Where the lesion is looked for."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.response.lesions import LesionSource, box_of, find_lesion


def ball(shape, centre, radius):
    axes = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    return sum((a - c) ** 2 for a, c in zip(axes, centre, strict=True)) <= radius**2


def test_the_largest_enhancing_component_of_the_breast_is_found():
    shape = (40, 40, 20)
    small, large, heart = (
        ball(shape, (10, 10, 10), 2),
        ball(shape, (28, 12, 9), 5),
        ball(shape, (20, 34, 10), 6),
    )
    before = np.ones(shape, dtype=np.float32)
    after = before + 2.0 * (small | large) + 5.0 * heart
    found = find_lesion(before, after, spacing_mm=(1.0, 1.0, 1.0), breast=(0, 0, 0, 40, 24, 20))
    truth = box_of(large)
    assert all(abs(a - b) <= 2 for a, b in zip(found, truth, strict=True)), (found, truth)
    without = find_lesion(before, after, spacing_mm=(1.0, 1.0, 1.0))
    assert without[4] > 34
    assert find_lesion(before, before, spacing_mm=(1.0, 1.0, 1.0)) == (0, 0, 0, *shape)


def test_the_expert_is_believed_only_where_its_mask_may_be_seen():
    shape = (20, 20, 10)
    mask = ball(shape, (5, 5, 5), 2)
    image = [np.zeros(shape, np.float32), ball(shape, (14, 14, 5), 3).astype(np.float32)]
    seen = MemoryVolumes(images={"c": image}, masks={"c": mask})
    hidden = MemoryVolumes(images={"c": image})
    expert = LesionSource(kind="expert")
    assert expert.box(seen, "c", before=image[0], after=image[1]) == box_of(mask)
    assert expert.box(hidden, "c", before=image[0], after=image[1])[0] >= 10
    assert LesionSource().box(seen, "c", before=image[0], after=image[1])[0] >= 10
    with pytest.raises(UserError, match="unknown way"):
        LesionSource(kind="guess")


@pytest.mark.real_data
def test_the_enhancing_component_of_real_slices_lies_in_the_publishers_box(data_dir):
    """Slices of three cohorts, pre and early phase; the box is BreastDCEDL's."""
    import csv

    from PIL import Image

    root = data_dir / "mri" / "BreastDCEDL"
    if not root.is_dir():
        pytest.skip("no shared/data/mri/BreastDCEDL beside the checkout")
    with (root / "index.csv").open() as file:
        rows = {row["pid"]: row for row in csv.DictReader(file)}
    hits = []
    for row in list(rows.values())[::6]:
        image = np.asarray(Image.open(root / row["filename"]).convert("RGB"), dtype=np.float32)
        image = image.transpose(1, 0, 2)
        mm = float(row["mm_per_px"])
        box = find_lesion(image[:, :, 0:1], image[:, :, 1:2], spacing_mm=(mm, mm, 2.0))
        x, y, w, h = (float(row[f"bbox_{name}"]) for name in "xywh")
        across, down = (box[0] + box[3]) / 2, (box[1] + box[4]) / 2
        hits.append(x <= across <= x + w and y <= down <= y + h)
    assert len(hits) > 60
    assert np.mean(hits) > 0.85
