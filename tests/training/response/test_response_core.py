"""Crops, views, losses and the score that members are chosen by: known answers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.response.augment import Augmentation, draw_views, flips, make_views
from elsewhere.training.response.choice import combined_score, fairness_groups
from elsewhere.training.response.contrast import Contrast, nt_xent
from elsewhere.training.response.crops import CropSpec, case_crop, load_crops
from elsewhere.training.response.lesions import LesionSource, box_of, find_lesion
from elsewhere.training.response.networks import build_response_network


def test_nt_xent_by_hand():
    """Two cases, views at right angles: each view has its partner at cosine 1 and two negatives at 0."""
    z = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    for temperature in (0.5, 1.0):
        own = math.exp(1 / temperature)
        assert float(nt_xent(z, z, temperature=temperature)) == pytest.approx(-math.log(own / (own + 2)))


def test_nt_xent_by_hand_where_views_differ():
    """Anchor (1,0): partner at 60 degrees, negatives at 90 and 180; and so on for the other three."""
    half, root = 0.5, math.sqrt(3) / 2
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    second = torch.tensor([[half, root], [-1.0, 0.0]])
    names = [(1.0, 0.0), (0.0, 1.0), (half, root), (-1.0, 0.0)]
    partner = [2, 3, 0, 1]
    losses = []
    for i, a in enumerate(names):
        cosines = [a[0] * b[0] + a[1] * b[1] for b in names]
        below = sum(math.exp(c / 0.2) for j, c in enumerate(cosines) if j != i)
        losses.append(-math.log(math.exp(cosines[partner[i]] / 0.2) / below))
    assert float(nt_xent(first, second, temperature=0.2)) == pytest.approx(sum(losses) / 4, rel=1e-5)


def test_the_contrastive_weight_gives_way():
    weights = [Contrast(hold=0.2, gone=0.6).weight(epoch, 10) for epoch in range(1, 11)]
    assert weights == pytest.approx([1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0])


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


def test_a_crop_is_centred_at_the_asked_spacing_and_keeps_the_rise():
    """Voxels of 2 x 2 x 4 mm resampled to 1 mm: a linear ramp stays a ramp of half the slope."""
    shape = (30, 30, 12)
    ramp = np.broadcast_to(np.arange(30, dtype=np.float32)[:, None, None], shape)
    mask = np.zeros(shape, dtype=bool)
    mask[14:16, 14:16, 5:6] = True
    volumes = MemoryVolumes(
        images={"c": [ramp, ramp + 10, ramp + 30]}, masks={"c": mask}, spacing_mm={"c": (2.0, 2.0, 4.0)}
    )
    spec = CropSpec(size=(8, 8, 8), spacing_mm=(1.0, 1.0, 1.0))
    cut, own = case_crop(volumes, "c", spec, LesionSource(kind="expert"))
    assert cut.shape == (3, 8, 8, 8) and own == 3
    raw = np.stack([14.5 + (np.arange(8) - 3.5) / 2 + add for add in (0, 10, 30)])
    whole = np.broadcast_to(raw[:, :, None, None], (3, 8, 8, 8))
    expected = (whole - whole.mean()) / whole.std()
    assert np.allclose(cut.numpy(), expected, atol=1e-4)


def test_a_lesion_larger_than_its_window_is_shrunk_into_it():
    shape = (64, 64, 1)
    lesion = np.zeros(shape, dtype=np.float32)
    lesion[8:56, 20:44] = 1.0
    volumes = MemoryVolumes(images={"c": [0 * lesion, lesion]}, masks={"c": lesion > 0})
    spec = CropSpec(size=(16, 16, 1), phases=("p1",))
    cut, _ = case_crop(volumes, "c", spec, LesionSource(kind="expert"))
    inside = (cut[0, :, :, 0] > 0).numpy()
    assert inside[1:-1, 8].all() and not inside[0].any() and not inside[-1].any()


def test_phases_that_are_missing_are_told_and_sizes_that_differ_refused():
    shape = (12, 12, 4)
    volume = np.random.default_rng(0).random(shape, dtype=np.float32)
    volumes = MemoryVolumes(images={"two": [volume, volume * 2], "four": [volume] * 4})
    spec = CropSpec(size=(8, 8, 4))
    crops = load_crops(volumes, ["two", "four"], spec, LesionSource())
    assert crops.counts.tolist() == [2, 3]
    assert crops.notes == ("1 cases lack a phase; their last one stands in.",)
    assert torch.equal(crops.images[0, 1], crops.images[0, 2])
    post = load_crops(
        volumes, ["two", "four"], CropSpec(size=(8, 8, 4), phases=("p1..px",), each=True), LesionSource()
    )
    assert post.images.shape[1] == 3 and post.counts.tolist() == [1, 3]
    bad = MemoryVolumes(images={"c": [volume, volume[:6], volume]})
    with pytest.raises(UserError, match="different sizes"):
        case_crop(bad, "c", spec, LesionSource())
    with pytest.raises(UserError, match="unknown phase"):
        case_crop(volumes, "two", CropSpec(phases=("early",)), LesionSource())


def test_views_without_augmentation_are_the_crop_and_a_mirror_is_a_mirror():
    still = Augmentation(
        mirror=False, rotate_degrees=0, scale=(1.0, 1.0), shift=0.0, gain=0.0, offset=0.0, noise=0.0
    )
    x = torch.rand(4, 2, 6, 8, 5)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    rows = torch.arange(4)
    views = draw_views(rng, 4, still, size=(6, 8, 5), spacing_mm=(1.0, 0.7, 2.0), device="cpu")
    assert torch.allclose(make_views(x, views, rows, generator), x, atol=1e-5)
    mirrored = Augmentation(
        mirror=True, rotate_degrees=0, scale=(1.0, 1.0), shift=0.0, gain=0.0, offset=0.0, noise=0.0
    )
    views = draw_views(rng, 4, mirrored, size=(6, 8, 5), spacing_mm=(1.0, 0.7, 2.0), device="cpu")
    made = make_views(x, views, rows, generator)
    for i in range(4):
        assert any(
            torch.allclose(made[i : i + 1], torch.flip(x[i : i + 1], f), atol=1e-5) for f in flips(True)
        )


def test_a_turn_keeps_lengths_in_mm_where_voxels_are_not_square():
    """A bar of 8 mm along x, turned by up to 90 degrees in windows of 1 x 0.5 mm voxels, stays about 8 mm."""
    turned = Augmentation(
        mirror=False, rotate_degrees=90, scale=(1.0, 1.0), shift=0.0, gain=0.0, offset=0.0, noise=0.0
    )
    x = torch.zeros(16, 1, 24, 48, 1)
    x[:, :, 8:16, 22:26] = 1.0
    views = draw_views(
        np.random.default_rng(1), 16, turned, size=(24, 48, 1), spacing_mm=(1.0, 0.5, 1.0), device="cpu"
    )
    made = make_views(x, views, torch.arange(16), torch.Generator().manual_seed(0))
    area = made.sum(dim=(1, 2, 3, 4)) * 0.5
    assert torch.allclose(area, torch.full((16,), 16.0), rtol=0.06)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.0, 1.0))
def test_the_combined_score_is_the_one_of_scoring(seed, weight):
    from elsewhere.protocols import FairnessRules
    from elsewhere.scoring.groups import fairness_codes
    from elsewhere.statistics.fairness.group_scores import EqualisedOdds, fairness_score
    from elsewhere.statistics.fairness.group_scores import combined_score as combine

    rng = np.random.default_rng(seed)
    n = 40
    rules = FairnessRules()
    table = pd.DataFrame(
        {
            "age": rng.choice([35.0, 40.0, 45.0, 71.0, np.nan], n),
            "menopausal_status": rng.choice(["pre", "post", ""], n),
            "breast_density": rng.choice(["A", "B", "C", "D"], n),
        }
    )
    label, probability = rng.integers(0, 2, n), rng.random(n)
    if label.min() == label.max():
        return
    mine = combined_score(
        label, probability, fairness_groups(table.to_dict("records")), fairness_weight=weight
    )
    codes, *_ = fairness_codes(table, rules)
    yes = probability >= 0.5
    odds = EqualisedOdds(np.arange(n, dtype=np.int32), label, yes, codes, n_clusters=n, rules=rules)
    fairness = fairness_score(odds(np.ones((1, n), dtype=np.uint16)), rules)
    performance = 0.5 * (yes[label == 1].mean() + (~yes[label == 0]).mean())
    assert mine == pytest.approx(float(combine(np.array([performance]), fairness, weight)[0]))


def test_a_constant_decision_has_no_combined_score():
    assert math.isnan(combined_score([0, 1, 1], [0.9, 0.8, 0.7], {}))
    assert math.isnan(combined_score([1, 1], [0.9, 0.2], {}))
    assert combined_score([0, 1], [0.2, 0.9], {}) == 1.0


def test_published_weights_fit_and_a_stem_of_one_channel_answers_a_grey_picture_alike(tmp_path):
    from torchvision.models.video import mc3_18

    whole = mc3_18(weights=None)
    torch.save(whole.state_dict(), tmp_path / "mc3_18.pth")
    three = build_response_network("mc3_18", phases=3, weights=str(tmp_path), seed=1).eval()
    one = build_response_network("mc3_18", phases=1, weights=str(tmp_path / "mc3_18.pth"), seed=1).eval()
    x = torch.rand(1, 1, 16, 16, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(three.features(x.expand(-1, 3, -1, -1, -1)), one.features(x), atol=1e-4)
    with pytest.raises(UserError, match="do not fit r2plus1d_18"):
        build_response_network("r2plus1d_18", phases=3, weights=str(tmp_path / "mc3_18.pth"))
    with pytest.raises(UserError, match="unknown network 'r3d_17'"):
        build_response_network("r3d_17", phases=3)


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
