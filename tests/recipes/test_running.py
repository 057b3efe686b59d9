"""A recipe as a unit of the engine: what it is given, what it must hand over, and what its key depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_recipes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recipe_world import make_recipe_work, recipe_unit

from elsewhere.engine.outcomes import check_outcome, merged
from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
from elsewhere.engine.training import RecipeSpec, Work
from elsewhere.errors import UserError
from elsewhere.inputs.mri.source import MriSource
from elsewhere.inputs.source import BREAST_BOX, CLINICAL, LESION_BOX
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.predictions.answers import Masks, answer_kinds, pack_mask
from elsewhere.recipes import Job, Prediction, Recipe, Trained, recipes
from elsewhere.recipes.base import RecipeCase
from elsewhere.recipes.running import run_training, train_all
from elsewhere.recipes.splits import fold_of, grouped_folds

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "results" / "ultrasound" / "units"

MASKS = answer_kinds.get("masks")


def volumes_of(work):
    return work.sources["mri"].volumes


def masks_of(outcome):
    return outcome.answers["segmentation"].masks


def probability_of(outcome):
    return outcome.answers["response"].probability


@pytest.fixture
def work() -> Work:
    return make_recipe_work()


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def recipe(monkeypatch):
    """Registers a recipe of one function for the length of a test."""

    def make(run: Callable[[Job], Trained | None], **attributes) -> str:
        made = type(
            "Made",
            (Recipe,),
            {
                "run": lambda self, job: run(job),
                "answers": {"segmentation": "masks", "response": "probability"},
            }
            | attributes,
        )
        monkeypatch.setitem(recipes._things, "made", made)
        monkeypatch.setitem(recipes._owners, "made", "a test")
        recipes.names()
        return "made"

    return make


def answer(job: Job) -> None:
    for case in job.predict:
        shape = job.volumes.grid(case.case).shape
        job.emit(Prediction(case=case.case, mask=np.zeros(shape, bool), probability=0.5))


# What a recipe is given


def test_masks_labels_and_clinical_values_of_what_is_predicted_are_withheld(work, recipe):
    seen = {}

    def look(job):
        seen["job"] = job
        seen["masks"] = {
            c.case: job.volumes.mask(c.case) for c in (*job.train, *job.validation, *job.predict)
        }
        with pytest.raises(KeyError):
            job.volumes.phase("A/nobody", 0)
        answer(job)

    unit = recipe_unit(work, recipe(look))
    run_training(unit, work, threads=2)
    job = seen["job"]
    assert all(seen["masks"][name] is not None for name in (*unit.train, *unit.validation))
    assert all(seen["masks"][name] is None for name in unit.predict)
    assert [c.label for c in job.train] == [0, -1, 0]
    assert job.train[0].clinical == {"age": 40.0, "menopausal_status": "pre"}
    assert {c.label for c in job.predict} == {-1}
    assert all(c.clinical == {} for c in job.predict)
    assert job.threads == 2 and job.tasks == ("segmentation", "response")
    run_training(recipe_unit(work, recipe(look, sees=frozenset({CLINICAL})), clinical=True), work)
    assert seen["job"].predict[0].clinical == {"age": 44.0, "menopausal_status": "pre"}


def test_where_the_lesion_is_is_told_only_to_a_recipe_that_says_it_needs_it(work, recipe):
    """A publisher's box is truth as the mask is (MRI-14: lesion-box crop)."""

    class Boxed(MemoryVolumes):
        def lesion_box(self, case):
            return (1, 1, 1, 2, 2, 2)

    held = volumes_of(work)
    boxed = replace(work, sources={"mri": MriSource(Boxed(images=held.images, masks=held.masks))})
    seen = []

    def look(job):
        cases = (job.train[0], job.predict[0])
        seen.append([job.volumes.lesion_box(case.case) is not None for case in cases])
        assert job.volumes.part(job.predict[0].case, 0, (1, 1, 1, 3, 4, 5)).shape == (2, 3, 4)
        answer(job)

    run_training(recipe_unit(work, recipe(look)), boxed)
    run_training(recipe_unit(work, recipe(look, sees=frozenset({LESION_BOX}))), boxed)
    assert seen == [[True, False], [True, True]]


def test_the_affected_breast_is_told_only_to_a_recipe_that_asks_for_it(work, recipe):
    """The challenge gives the expert's box of the affected breast for training alone (MRI-14)."""
    seen = []

    def look(job):
        parts = (job.train[0], job.validation[0], job.predict[0])
        seen.append([job.volumes.breast_box(case.case) is not None for case in parts])
        answer(job)

    run_training(recipe_unit(work, recipe(look)), work)
    run_training(recipe_unit(work, recipe(look, sees=frozenset({BREAST_BOX}))), work)
    assert seen == [[True, True, False], [True, True, True]]


def test_no_shipped_recipe_asks_for_the_affected_breast_unless_a_setting_does():
    asked = {name for name, one in recipes if BREAST_BOX in one.shown(one.Settings())}
    assert not asked & set(recipes.names()) - {"threshold"}
    for name, settings in (
        ("breast-crop", {"test_box": "given"}),
        ("masked-autoencoder", {"test_box": "given"}),
        ("simclr", {"lesion": "breast-box"}),
        ("video", {"lesion": "breast-box"}),
    ):
        found = recipes.get(name)
        assert BREAST_BOX in found.shown(found.settings(settings)), name
    plain = recipes.get("residual-unet")
    assert BREAST_BOX not in plain.shown(plain.settings({"test_box": "given"}))


def reached(thing, depth=6):
    """Everything that attributes, fields and items lead to: no closures, no frames."""
    seen, todo = {}, [(thing, 0)]
    while todo:
        one, far = todo.pop()
        if id(one) in seen or far > depth or isinstance(one, str | int | float | type | np.ndarray):
            continue
        seen[id(one)] = one
        names = [
            *getattr(one, "__dict__", {}),
            *getattr(type(one), "__slots__", ()),
            "__self__",
            "__wrapped__",
        ]
        todo += [(getattr(one, name, None), far + 1) for name in names]
        if isinstance(one, tuple | list):
            todo += [(part, far + 1) for part in one]
        elif isinstance(one, dict):
            todo += [(part, far + 1) for part in one.values()]
    return seen.values()


def test_no_attribute_leads_from_a_job_to_what_is_hidden(work, recipe):
    def look(job):
        things = list(reached(job))
        assert not any(thing is volumes_of(work) or thing is work.cases for thing in things)
        assert not any(isinstance(thing, MemoryVolumes) for thing in things)
        hidden = {id(volumes_of(work).masks[case.case]) for case in job.predict}
        assert not any(id(thing) in hidden for thing in things)
        with pytest.raises(AttributeError):
            job.volumes._ask("masks", job.predict[0].case)
        answer(job)

    run_training(recipe_unit(work, recipe(look)), work)
    assert any(thing is volumes_of(work) for thing in reached(work))  # the walk finds what is to be found


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_patient_on_both_sides_is_refused_before_anything_runs(work, recipe, part):
    def never(job):
        raise AssertionError("it began")

    unit = recipe_unit(work, recipe(never))
    at = work.cases.row[getattr(unit, part)[0]]
    group = list(work.cases.group)
    group[work.cases.row[unit.predict[0]]] = group[at]
    with pytest.raises(UserError, match="is tested"):
        run_training(unit, replace(work, cases=replace(work.cases, group=tuple(group))))


# What a recipe must hand over


def mistakes():
    def twice(job):
        answer(job)
        job.emit(Prediction(case=job.predict[0].case, probability=0.1))

    def half(job):
        job.emit(Prediction(case=job.predict[0].case, probability=0.1))

    def stranger(job):
        job.emit(Prediction(case=job.train[0].case, probability=0.1))

    def odd(job):
        job.emit(Prediction(case=job.predict[0].case, probability=float("nan")))

    def large(job):
        job.emit(Prediction(case=job.predict[0].case, probability=1.1))

    def small(job):
        job.emit(Prediction(case=job.predict[0].case, mask=np.zeros((2, 2, 2), bool)))

    def grey(job):
        job.emit(Prediction(case=job.predict[0].case, mask=np.zeros((12, 10, 6), np.float32)))

    def nothing(job):
        job.emit(Prediction(case=job.predict[0].case))

    return [
        (twice, "twice"),
        (half, "left out 4 of 4"),
        (stranger, "not asked for"),
        (odd, "nan"),
        (large, "1.1"),
        (small, "(2, 2, 2)"),
        (grey, "float32"),
        (nothing, "neither"),
    ]


@pytest.mark.parametrize(("run", "said"), mistakes(), ids=lambda value: getattr(value, "__name__", None))
def test_what_a_recipe_gets_wrong_is_its_failure_and_not_the_run(work, store, recipe, run, said):
    units = [recipe_unit(work, recipe(run)), recipe_unit(work, "threshold")]
    report = run_units(units, work, store, device="cpu")
    assert report.done == (units[1].key,)
    assert said in report.failed[units[0].key]
    assert said in store.failures()[units[0].key]


def test_a_recipe_that_raises_fails_and_a_user_error_ends_the_run(work, store):
    bad = recipe_unit(work, "threshold", settings={"fault": "raise"})
    good = recipe_unit(work, "threshold")
    report = run_units([bad, good], work, store, device="cpu")
    assert "a fault of the recipe" in report.failed[bad.key] and report.done == (good.key,)
    with pytest.raises(UserError, match="no memory"):
        run_units(
            [recipe_unit(work, "threshold", settings={"fault": "user-error"})], work, store, device="cpu"
        )


def test_what_one_training_lacks_fails_it_and_what_the_machine_lacks_ends_the_run(work, store):
    bad = recipe_unit(work, "threshold", settings={"fault": "unfit"})
    good = recipe_unit(work, "threshold")
    report = run_units([bad, good], work, store, device="cpu")
    assert report.failed[bad.key] == "one outcome alone" and report.done == (good.key,)
    for fault, said in (("no-package", "'monai', which is not installed"), ("gpu-memory", "more memory")):
        with pytest.raises(UserError, match=said) as found:
            run_units([recipe_unit(work, "threshold", settings={"fault": fault})], work, store, device="cpu")
        assert found.value.fix


def test_a_training_part_of_one_outcome_fails_that_training_alone(work, store):
    nobody = replace(work, cases=replace(work.cases, label=np.zeros(len(work.cases), np.int8)))
    units = [
        recipe_unit(
            nobody,
            name,
            recipe=RecipeSpec(name=name, version=recipes.get(name).version, tasks=("response",)),
        )
        for name in ("clinical", "random")
    ]
    report = run_units(units, nobody, store, device="cpu")
    assert "responded" in report.failed[units[0].key] and report.done == (units[1].key,)


def test_an_unknown_recipe_or_setting_or_another_version_is_refused(work, store):
    later = RecipeSpec(name="threshold", version=9, tasks=("response",))
    for name, changes, said in (
        ("thresold", {}, "thresold"),
        ("threshold", {"settings": {"wash_im": 3.0}}, "wash_im"),
        ("threshold", {"settings": {"wash_in": "much"}}, "much"),
        ("threshold", {"recipe": later}, "version 1"),
    ):
        with pytest.raises(UserError, match=said):
            run_units([recipe_unit(work, name, **changes)], work, store, device="cpu")


def test_time_that_is_up_leaves_the_rest_undone(work):
    ended = []
    train_all(
        [recipe_unit(work, "threshold", seed=seed) for seed in (1, 2, 3)],
        work,
        finished=lambda unit, outcome: ended.append(unit.seed),
        failed=lambda unit, reason: pytest.fail(reason),
        stop=lambda: len(ended) == 2,
    )
    assert ended == [1, 2]


# The store


def test_the_store_gives_back_what_was_handed_over(work, store, tmp_path):
    unit = recipe_unit(work, "threshold")
    assert run_units([unit], work, store, device="cpu").done == (unit.key,)
    held = store.load(unit.key)
    for name, mask in zip(held.case, masks_of(held), strict=True):
        assert np.array_equal(mask.unpack(), volumes_of(work).masks[name])
    assert probability_of(held).dtype == np.float64 and len(set(probability_of(held))) == 4
    assert held.cost[0].tolist()[0][:2] == [0.5, 100.0] and np.isnan(held.cost[0, 0, 2])
    assert (held.notes, held.details) == (("as simple as can be",), {"n": 3})
    assert store.unit(unit.key) == unit
    assert run_units([unit], work, store, device="cpu").reused == (unit.key,)
    elsewhere = Store(tmp_path / "other")
    assert elsewhere.add(store.export([unit.key], tmp_path / "done.zip")) == [unit.key]
    assert masks_of(elsewhere.load(unit.key)) == masks_of(held)
    assert elsewhere.has(unit, work.cases)


def test_one_recipe_of_one_task_has_no_answer_to_the_other(work, store):
    for task in ("segmentation", "response"):
        unit = recipe_unit(work, "threshold", tasks=(task,))
        run_units([unit], work, store, device="cpu")
        held = store.load(unit.key)
        assert list(held.answers) == [task]
        assert held.cost.shape == (4, 1, 3)
        assert check_outcome(recipe_unit(work, "threshold"), held)


def test_more_predictions_join_those_that_are_there(work, store):
    first = recipe_unit(work, "threshold")
    some = replace(first, predict=first.predict[:2])
    run_units([some], work, store, device="cpu")
    old = store.load(first.key)
    report = run_units([replace(first, predict=first.predict[2:])], work, store, device="cpu")
    assert report.done == (first.key,)
    new = store.load(first.key)
    assert set(new.case) == set(first.predict)
    both = merged(
        old,
        replace(
            new,
            case=("X/1",),
            fingerprint=new.fingerprint[:1],
            answers={
                task: answer_kinds.get(one.kind).take(one, np.array([0])) for task, one in new.answers.items()
            },
            cost=new.cost[:1],
        ),
    )
    assert (
        both.case == ("X/1", *old.case)
        and len(masks_of(both)) == len(probability_of(both)) == len(both.cost) == 3
    )


def test_scratch_is_kept_while_a_unit_is_not_done_and_gone_when_it_is(work, store, recipe):
    def begun(job):
        found = (job.scratch / "checkpoint").exists()
        (job.scratch / "checkpoint").write_text("half")
        if not found:
            raise RuntimeError("killed, as it were")
        answer(job)

    unit = recipe_unit(work, recipe(begun))
    assert "as it were" in run_units([unit], work, store, device="cpu").failed[unit.key]
    assert (store.scratch / unit.key / "checkpoint").exists()
    assert run_units([unit], work, store, device="cpu").done == (unit.key,)
    assert not (store.scratch / unit.key).exists()
    (store.scratch / unit.key).mkdir()
    with store.lock():
        assert not (store.scratch / unit.key).exists()


# Masks and splits


@given(
    st.tuples(*[st.integers(1, 9)] * 3).flatmap(
        lambda shape: st.tuples(
            st.just(shape), st.lists(st.tuples(*[st.integers(0, n - 1) for n in shape]), max_size=5)
        )
    )
)
def test_a_packed_mask_is_the_mask(drawn):
    shape, marked = drawn
    mask = np.zeros(shape, dtype=bool)
    for place in marked:
        mask[place] = True
    packed = pack_mask(mask)
    assert packed.wrong() == ""
    assert np.array_equal(packed.unpack(), mask)
    empty = pack_mask(np.zeros((3, 4, 5), dtype=bool))
    assert MASKS.unpack(MASKS.pack(Masks(masks=(packed, empty, packed)))).masks == (packed, empty, packed)


def test_damaged_masks_are_noticed():
    arrays = MASKS.pack(Masks(masks=(pack_mask(np.ones((3, 3, 3), dtype=bool)),)))
    for name, value in (
        ("mask_box", np.array([[0, 0, 0, 3, 3, 4]])),
        ("mask_bits", np.zeros(3, np.uint8)),
        ("mask_bits", np.zeros(9, np.uint8)),
        ("mask_shape", np.array([[3, 3, 2]])),
    ):
        with pytest.raises(ValueError, match="mask"):
            MASKS.unpack(arrays | {name: value})


def cases_of(groups: list[int]) -> list[RecipeCase]:
    return [
        RecipeCase(case=f"{at}", dataset="AB"[at % 2], group=f"g{group}", label=group % 2, clinical={})
        for at, group in enumerate(groups)
    ]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(1, 6), st.integers(0, 5))
def test_folds_part_no_group_and_forget_names(groups, folds, seed):
    cases = cases_of(groups)
    found = fold_of(cases, folds, seed=seed)
    assert len({(c.group, at) for c, at in zip(cases, found, strict=True)}) == len(set(groups))
    other = [
        dataclasses.replace(c, case=f"z{c.case}", group=f"q{c.group}", dataset=f"p{c.dataset}") for c in cases
    ]
    assert fold_of(other, folds, seed=seed) == found
    sizes = [
        len({c.group for c, at in zip(cases, found, strict=True) if at == fold}) for fold in range(folds)
    ]
    assert max(sizes) - min(sizes) <= 1
    for learn, out in grouped_folds(cases, folds, seed=seed):
        assert not {c.group for c in learn} & {c.group for c in out}


def test_fake_recipes_are_registered():
    assert fake_recipes.Threshold is recipes.get("threshold")
