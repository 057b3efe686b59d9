"""MRI phantoms as arrays: what is planted is there, in the voxels and in the table, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from elsewhere.errors import UserError
from elsewhere.phantom import mri
from elsewhere.phantom.mri import case_rng, make_case, make_world, memory_volumes
from elsewhere.phantom.mri_fields import Frame, Lattice
from elsewhere.phantom.mri_patient import draw_patient, phase_times, uptake
from elsewhere.phantom.mri_sites import (
    SUBTYPES,
    CaseSpec,
    Gap,
    HospitalSpec,
    age_group,
    case_specs,
    hospital_from,
    hospitals,
)

SMALL = HospitalSpec(name="NORTH", size=64, patients=4)
PLAIN = {"clip": False, "implant": False, "lesion": "mass", "foci": 1}
"""No artefacts, so that a mean in the mask is the tumour's."""


def case(seed=1, hospital=SMALL, **fixed):
    spec = CaseSpec(hospital=hospital, number=seed, fixed=fixed)
    return make_case(spec, case_rng(spec, 11), tissue=True)


def inside(made):
    """The tumour without its edge, where that leaves anything."""
    mask = made.mask > 0
    less = ndimage.binary_erosion(mask)
    return less if less.sum() >= 4 else mask


def rise(made, where):
    before = made.phases[0][where].astype(float).mean()
    return [float(phase[where].astype(float).mean() / before - 1) for phase in made.phases[1:]]


def same(one, other):
    return (
        len(one.phases) == len(other.phases)
        and all(np.array_equal(a, b) for a, b in zip(one.phases, other.phases, strict=True))
        and np.array_equal(one.mask, other.mask)
        and one.breast_box == other.breast_box
        and one.clinical == other.clinical
    )


def test_a_case_is_the_same_whatever_stands_beside_it():
    world = hospitals(2, patients=4, size=32)
    specs = case_specs(world)
    forward = make_world(world, seed=5)
    backward = make_world(specs[::-1], seed=5)[::-1]
    assert [c.name for c in forward] == [s.hospital.name + "/" + s.patient_id for s in specs]
    assert all(same(a, b) for a, b in zip(forward, backward, strict=True))
    assert all(same(a, b) for a, b in zip(forward, make_world(world, seed=5, threads=3), strict=True))
    alone = make_world([specs[2]], seed=5)[0]
    assert same(alone, forward[2])
    assert not same(make_world([specs[2]], seed=6)[0], alone)
    assert not same(forward[0], forward[1])


@settings(max_examples=12, deadline=None)
@given(
    site=st.sampled_from(["NORTH", "SOUTH", "WEST", "EAST", "LAKE"]),
    number=st.integers(0, 500),
    size=st.sampled_from([32, 48, 64]),
    lesion=st.sampled_from(["mass", "non-mass"]),
    implant=st.booleans(),
    side=st.sampled_from(["left", "right"]),
)
def test_every_case_holds_together(site, number, size, lesion, implant, side):
    spec = CaseSpec(
        hospital=HospitalSpec(name=site, size=size),
        number=number,
        fixed={"lesion": lesion, "implant": implant, "side": side},
    )
    made = make_case(spec, case_rng(spec, 3))
    shape = made.phases[0].shape
    assert 3 <= len(made.phases) <= 6 and len(made.phases) == made.clinical["num_phases"]
    assert all(p.shape == shape and p.dtype == np.int16 and p.min() >= 0 for p in made.phases)
    assert made.mask.shape == shape and made.mask.dtype == np.uint8
    assert set(np.unique(made.mask)) == {0, 1}
    x0, y0, z0, x1, y1, z1 = made.breast_box
    assert 0 <= x0 < x1 <= shape[0] and 0 <= y0 < y1 <= shape[1] and 0 <= z0 < z1 <= shape[2]
    assert made.mask[x0:x1, y0:y1, z0:z1].sum() == made.mask.sum() > 0
    across = made.spacing_mm[2] if site == "WEST" else made.spacing_mm[0]
    world = made.affine @ np.append(np.argwhere(made.mask).mean(0), 1)
    assert abs(world[0]) > across and (world[0] < 0) == (side == "left")
    assert np.allclose(np.linalg.norm(made.affine[:3, :3], axis=0), made.spacing_mm)


def test_orientation_is_las_for_axial_and_psr_for_sagittal_volumes():
    nibabel = pytest.importorskip("nibabel")
    axial, sagittal = case(), case(hospital=replace(SMALL, name="WEST"))
    assert "".join(nibabel.aff2axcodes(axial.affine)) == "LAS"
    assert "".join(nibabel.aff2axcodes(sagittal.affine)) == "PSR"
    assert axial.clinical["view"] == "axial" and sagittal.clinical["view"] == "sagittal"
    assert axial.clinical["bilateral_mri"] == 1 and sagittal.clinical["bilateral_mri"] == 0
    # Air is in front of the body: forward is the end of axis 1 in LAS and the start of axis 0 in PSR.
    assert (axial.tissue[:, -1] == mri.AIR).all() and (axial.tissue == mri.CHEST)[:, :32].any()
    assert (sagittal.tissue[0] == mri.AIR).all() and (sagittal.tissue == mri.CHEST)[20:].any()
    # Both breasts in the axial volume, one in the sagittal: gland left and right of the midline.
    gland = np.argwhere(axial.tissue == mri.GLAND) @ axial.affine[:3, :3].T + axial.affine[:3, 3]
    assert (gland[:, 0] > 20).any() and (gland[:, 0] < -20).any()
    gland = np.argwhere(sagittal.tissue == mri.GLAND) @ sagittal.affine[:3, :3].T + sagittal.affine[:3, 3]
    assert len(set(np.sign(gland[np.abs(gland[:, 0]) > 20, 0]))) == 1


def test_anatomy_keeps_its_size_in_millimetres():
    bodies = []
    for size in (64, 96):
        made = [case(n, replace(SMALL, size=size), **PLAIN) for n in (1, 2, 3)]
        bodies.append([float((c.tissue > mri.AIR).sum() * np.prod(c.spacing_mm)) / 1e6 for c in made])
    assert np.allclose(bodies[0], bodies[1], rtol=0.05) and min(bodies[0]) > 1


def test_the_tumour_enhances_more_than_what_is_around_it():
    for site in ("NORTH", "SOUTH", "WEST", "EAST"):
        for lesion in ("mass", "non-mass"):
            made = case(2, replace(SMALL, name=site), clip=False, lesion=lesion, subtype="luminal_b")
            change = made.phases[1].astype(float) - made.phases[0]
            x0, y0, z0, x1, y1, z1 = made.breast_box
            box = np.zeros(made.mask.shape, dtype=bool)
            box[x0:x1, y0:y1, z0:z1] = True
            beside = box & (ndimage.binary_dilation(made.mask, iterations=2) == 0)
            assert change[inside(made)].mean() > 4 * max(change[beside].mean(), 0.0)
            assert change[inside(made)].mean() > np.quantile(change[beside], 0.95)


def test_density_sets_how_much_of_the_breast_is_gland():
    parts = {}
    for density in "ABCD":
        made = [case(n, breast_density=density) for n in range(3)]
        parts[density] = np.mean([c.notes["gland_fraction"] for c in made])
        seen = [(c.tissue == mri.GLAND).sum() for c in made]
        assert min(seen) > 0
    assert parts["A"] < 0.09 < parts["B"] < 0.20 < parts["C"] < 0.36 < parts["D"]


def test_wash_out_goes_by_subtype():
    late = {}
    for subtype in ("triple_negative", "luminal_a"):
        change = []
        for n in range(3):
            made = case(n, subtype=subtype, z=0.0, phases=6, **PLAIN)
            curve = rise(made, inside(made))
            change.append(curve[-1] / curve[0])
        late[subtype] = np.mean(change)
    assert late["triple_negative"] < 0.9 < 1.05 < late["luminal_a"]


def test_the_tumours_own_kinetics_show_in_its_curve():
    fast = case(3, subtype="luminal", z=2.0, phases=5, **PLAIN)
    slow = case(3, subtype="luminal", z=-2.0, phases=5, **PLAIN)
    assert np.array_equal(fast.mask, slow.mask)
    one, other = rise(fast, inside(fast)), rise(slow, inside(slow))
    assert one[0] > 1.3 * other[0]
    assert one[-1] / one[0] < other[-1] / other[0] - 0.2


def test_background_enhancement_goes_by_menopausal_status():
    means = {}
    for status in ("pre", "post"):
        values = []
        for n in range(4):
            made = case(n, menopausal_status=status, breast_density="D", phases=5, **PLAIN)
            gland = (made.tissue == mri.GLAND) & (ndimage.binary_dilation(made.mask, iterations=2) == 0)
            values.append(rise(made, gland)[-1])
        means[status] = np.mean(values)
    assert means["pre"] > 1.8 * means["post"] > 0


def test_fat_is_dark_where_it_is_suppressed_and_bright_where_not():
    for site, darker in (("NORTH", True), ("EAST", False)):
        made = case(1, replace(SMALL, name=site), breast_density="D", **PLAIN)
        x0, y0, z0, x1, y1, z1 = made.breast_box
        here, image = made.tissue[x0:x1, y0:y1, z0:z1], made.phases[0][x0:x1, y0:y1, z0:z1]
        fat = image[ndimage.binary_erosion(here == mri.FAT)].mean()
        gland = image[ndimage.binary_erosion(here == mri.GLAND)].mean()
        assert (fat < 0.7 * gland) if darker else (fat > 1.3 * gland)
        assert made.clinical["fat_suppressed"] == int(darker)


def test_clips_and_implants_are_dark():
    made, without = case(4, **{**PLAIN, "clip": True}), case(4, **PLAIN)
    assert np.array_equal(made.mask, without.mask)
    lost = without.phases[1].astype(float) - made.phases[1]
    assert lost[made.mask > 0].max() > 0.5 * without.phases[1][made.mask > 0].max()
    filled = case(4, **{**PLAIN, "implant": True})
    assert filled.clinical["has_implant"] == 1
    implant = filled.tissue == mri.IMPLANT
    assert implant.any() and not (implant & (filled.mask > 0)).any()
    assert abs(rise(filled, ndimage.binary_erosion(implant))[-1]) < 0.1


def test_sites_differ_with_the_shift_and_are_alike_without():
    names = ("NORTH", "SOUTH", "WEST", "EAST")
    far = [HospitalSpec(name=name).machine() for name in names]
    assert {m.plane for m in far} == {"axial", "sagittal"}
    assert {m.vendor for m in far[:3]} == {"GE", "SIEMENS", "Philips"}
    assert {m.fat_suppressed for m in far} == {True, False}
    assert len({HospitalSpec(name=name, shift=0).machine() for name in names}) == 1
    assert HospitalSpec(name="NORTH").machine(1) != far[0]
    grids = {
        (c.phases[0].shape, c.spacing_mm)
        for c in make_world([HospitalSpec(name=n, patients=1, size=32, shift=0) for n in names], 1)
    }
    assert len(grids) == 1


def test_the_gap_hides_tumours_of_its_group_alone():
    gap = Gap(variable="breast_density", group="D", strength=1.0)
    hard = replace(SMALL, gap=gap)

    def contrast(made):
        gland = (made.tissue == mri.GLAND) & (ndimage.binary_dilation(made.mask, iterations=2) == 0)
        change = made.phases[1].astype(float) - made.phases[0]
        return change[inside(made)].mean() / (change[gland].mean() + change[gland].std())

    for density in "BD":
        fair = [case(n, SMALL, breast_density=density, **PLAIN) for n in range(3)]
        hidden = [case(n, hard, breast_density=density, **PLAIN) for n in range(3)]
        ratio = np.mean([contrast(b) for b in hidden]) / np.mean([contrast(a) for a in fair])
        assert ratio < 0.65 if density == "D" else ratio == 1.0
        assert {c.notes["gap"] for c in hidden} == ({1.0} if density == "D" else {0.0})


def patients(n=1500, **changes):
    hospital = HospitalSpec(name="NORTH", patients=n, **changes)
    return [draw_patient(spec, case_rng(spec, 2)) for spec in case_specs(hospital)]


def responses(drawn, subtypes):
    return np.array([p.pcr for p in drawn if p.subtype in subtypes], dtype=float)


def test_response_depends_on_subtype_and_kinetics_with_the_set_strength():
    her2, luminal = ("her2_pure", "her2_enriched"), ("luminal", "luminal_a")
    for signal in (0.0, 1.0, 3.0):
        drawn = patients(signal=signal)
        assert abs(np.mean([p.pcr for p in drawn]) - 0.3) < 0.04
        apart = responses(drawn, her2).mean() - responses(drawn, luminal).mean()
        z = np.array([p.z for p in drawn])
        pcr = np.array([p.pcr for p in drawn])
        lean = z[pcr == 1].mean() - z[pcr == 0].mean()
        if signal == 0:
            assert abs(apart) < 0.1 and abs(lean) < 0.15
        else:
            assert apart > 0.25 and lean > 0.5


def test_kinetics_say_nothing_in_a_blind_group():
    blind = Gap(variable="menopausal_status", group="post")
    drawn = patients(signal=2.0, blind=blind)

    def lean(status):
        z = [(p.z, p.pcr) for p in drawn if p.menopausal_status == status]
        return np.mean([a for a, pcr in z if pcr]) - np.mean([a for a, pcr in z if not pcr])

    assert lean("pre") > 0.6 and abs(lean("post")) < 0.2


def test_the_table_is_plausible_and_has_holes_at_the_rate():
    drawn = patients(missing=0.2)
    age = np.array([p.age for p in drawn])
    post = np.array([p.menopausal_status == "post" for p in drawn])
    assert 45 < age.mean() < 54 and age[post].mean() > age[~post].mean() + 10
    dense = np.array([p.breast_density in "CD" for p in drawn])
    assert dense[age < 45].mean() > dense[age > 55].mean() + 0.15
    assert {p.subtype for p in drawn} == set(SUBTYPES) and {p.breast_density for p in drawn} == set("ABCD")
    gone = np.mean([not p.known["menopausal_status"] for p in drawn])
    assert abs(gone - 0.2) < 0.04
    assert all(all(p.known.values()) for p in patients(n=50, missing=0.0))


def test_a_table_needs_no_volumes():
    spec = CaseSpec(hospital=SMALL, number=2)
    assert make_case(spec, case_rng(spec, 9)).patient == draw_patient(spec, case_rng(spec, 9))


def test_uptake_is_nothing_before_the_injection_and_goes_the_way_it_is_told():
    times = phase_times(CaseSpec(hospital=SMALL), 6)
    assert times[0] == 0 and all(np.diff(times) > 0)
    leaves, comes = uptake(times, 60.0, -0.3), uptake(times, 60.0, 0.2)
    assert leaves[0] == comes[0] == 0
    assert leaves[1] > leaves[-1] > 0 and comes[-1] > comes[1] > 0


def test_cases_as_recipes_see_them():
    world = make_world([HospitalSpec(name="WEST", patients=2, size=32)], 1)
    volumes = memory_volumes(world)
    first = world[0]
    assert first.name == "WEST/WEST_001" and first.name in volumes and "WEST/WEST_009" not in volumes
    assert volumes.phases(first.name) == len(first.phases)
    assert volumes.phase(first.name, -1).dtype == np.float32
    assert np.array_equal(volumes.phase(first.name, 1), first.phases[1])
    assert volumes.mask(first.name).sum() == first.mask.sum()
    assert volumes.breast_box(first.name) == first.breast_box
    assert volumes.grid(first.name).spacing_mm == first.spacing_mm
    assert set(first.attributes) >= {
        "age",
        "menopausal_status",
        "breast_density",
        "subtype",
        "pcr",
        "dataset",
    }


def test_age_groups_leave_no_age_out():
    assert [age_group(a) for a in (40, 41, 50, 51, 60, 61, 70, 71)] == [
        "<=40", "41-50", "41-50", "51-60", "51-60", "61-70", "61-70", ">=71",
    ]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(*[st.integers(2, 12)] * 3),
    step=st.floats(0.5, 30),
    plane=st.sampled_from(["axial", "sagittal"]),
    seed=st.integers(0, 99),
)
def test_a_linear_field_survives_the_lattice_and_slabs_agree_with_the_whole(shape, step, plane, seed):
    frame = Frame(plane=plane, shape=shape, spacing_mm=(1.5, 2.0, 3.0), centre_mm=(4.0, -3.0, 2.0))
    lattice = Lattice(frame, frame.whole, step)
    u, a, s = frame.coordinates(frame.whole)
    up = lattice.up(lattice.u + 2 * lattice.a - 3 * lattice.s)
    assert np.allclose(up.full(), u + 2 * a - 3 * s, atol=1e-3)
    noise = lattice.up(lattice.noise(4.0, np.random.default_rng(seed)))
    parts = np.concatenate([noise.block(at, at + 1) for at in range(shape[0])])
    assert parts.shape == shape and np.allclose(parts, noise.full(), atol=1e-6)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"size": 20}, "size"),
        ({"patients": 0}, "patients"),
        ({"name": "a/b"}, "name"),
        ({"pacients": 4}, "patients"),
        ({"layout": "busi"}, "mama-mia"),
        ({"gap": "density=D"}, "breast_density"),
        ({"gap": "breast_density=E"}, "A, B, C, D"),
        ({"gap": "breast_density"}, "VARIABLE=GROUP"),
        ({"gap": "breast_density=D:9"}, "0 to 3"),
        ({"signal": "much"}, "signal"),
    ],
)
def test_mistakes_are_named(words, told):
    with pytest.raises(UserError) as error:
        hospital_from(words)
    assert told in str(error.value)


def test_worlds_need_sites_with_names_of_their_own():
    assert [h.name for h in hospitals(4, patients=10)] == ["NORTH", "SOUTH", "WEST", "EAST"]
    assert [h.patients for h in hospitals(4, patients=10)] == [3, 3, 2, 2]
    for wrong in (0, 9, ["A", "a"], []):
        with pytest.raises(UserError):
            hospitals(wrong, patients=20)
    with pytest.raises(UserError):
        hospitals(3, patients=2)


def test_the_arrays_need_numpy_and_scipy_alone():
    code = """
import sys
from elsewhere.phantom.mri import make_world, memory_volumes
from elsewhere.phantom.mri_sites import HospitalSpec
memory_volumes(make_world([HospitalSpec(patients=1, size=32)], 1))
heavy = {"pandas", "nibabel", "torch", "pydantic", "pyarrow", "numba", "openpyxl", "typer"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
