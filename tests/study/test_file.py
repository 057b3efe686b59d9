"""The study file: every key known, every mistake named, and the studies that ship."""

from __future__ import annotations

import dataclasses
import os

import pytest

from elsewhere.errors import UserError
from elsewhere.study.file import ModelSection, load_study, parse_study, shipped
from elsewhere.study.file.inheritance import resolve_likes
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

SMALL = {
    "study": {"name": "small"},
    "cohort": [{"source": "a.csv"}],
    "inputs": {"whole": {"kind": "whole"}},
    "models": {"cnn": {}},
}


def test_every_field_of_a_recipe_is_a_key_of_a_model_with_the_same_default():
    fields = {f.name: f.default for f in dataclasses.fields(ClassifierSettings) if f.name != "weights_digest"}
    keys = {name: field.default for name, field in ModelSection.model_fields.items()}
    assert {name: keys.get(name, "no such key") for name in fields} == fields
    assert set(keys) - set(fields) == {"size_px", "inputs", "kinds", "like"}


def test_the_published_study_is_the_published_table():
    """US-14, US-13, US-09, US-10."""
    study = load_study("ultrasound").study
    cnn, vit = study.models["cnn"], study.models["vit"]
    assert (cnn.network, cnn.weights, cnn.size_px) == ("efficientnet-b0", "imagenet", 224)
    assert (vit.network, vit.weights, vit.size_px) == ("vit-b-16", "imagenet", 384)
    assert (cnn.learning_rate, cnn.batch, cnn.epochs, cnn.shift_px) == (1e-4, 16, 10, 10)
    assert (vit.learning_rate, vit.batch, vit.epochs, vit.shift_px) == (1e-5, 12, 15, 0)
    for model in (cnn, vit):
        assert (model.weight_decay, model.gradient_norm, model.patience) == (1e-4, 5, 5)
        assert (model.mirror, model.rotate_degrees, model.scale) == (True, 10, (0.9, 1.1))
        assert (model.oversample, model.keep, model.method) == (True, "best", "plain")
    assert study.inputs["roi"].margin == 0.12
    assert len(study.scenarios.seeds) == 5
    assert [c.reader for c in study.cohort] == ["busi", "bus-bra", "breast", "bus-uclm"]
    assert study.study.publication and study.study.ids == "patient"
    assert study.scenarios.keep_duplicates_together


def test_the_margin_study():
    """US-22: four margins, four transfers, three seeds, both models; 12 % is the main study's training."""
    margins, main = load_study("ultrasound-margins").study, load_study("ultrasound").study
    assert sorted(seen.margin for seen in margins.inputs.values()) == [0.0, 0.10, 0.12, 0.20]
    assert set(margins.scenarios.only) == {
        "BUS-UCLM>BUSI",
        "BUSI>BUS-BRA",
        "BUS-BRA>BUSI",
        "BrEaST>BUS-UCLM",
    }
    assert len(margins.scenarios.seeds) == 3 and set(margins.scenarios.seeds) <= set(main.scenarios.seeds)
    for name in ("cnn", "vit"):
        assert margins.models[name].recipe() == main.models[name].recipe()
        size = main.models[name].size_px
        assert margins.inputs["roi-12"].spec(size) == main.inputs["roi"].spec(size)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_study_that_ships_can_be_read(name):
    assert load_study(name).study.pairs()
    assert load_study(name).path.stem == name


@pytest.mark.parametrize(
    ("change", "key", "near"),
    [
        ("models.cnn.epoch=2", "models.cnn.epoch", "epochs"),
        ("models.cnn.learningrate=2", "models.cnn.learningrate", "learning_rate"),
        ("scenarios.seed=[1]", "scenarios.seed", "seeds"),
        ("study.publications=true", "study.publications", "publication"),
        ("inputs.roi.margins=0.1", "inputs.roi.margins", "margin"),
        ("cohort.0.sorce=x", "cohort.0.sorce", "source"),
        ("analysis.without=[]", "analysis", "analyses"),
        ("finder.epoch=1", "finder.epoch", "epochs"),
    ],
)
def test_an_unknown_key_is_refused_with_its_neighbour(change, key, near):
    with pytest.raises(UserError) as caught:
        load_study("ultrasound", changes=[change])
    assert f"unknown key '{key}'" in caught.value.what
    assert near in (caught.value.fix or "")
    assert "ultrasound.toml" in (caught.value.where or "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("models.cnn.epochs=0", "greater than or equal to 1"),
        ("models.cnn.epochs=two", "valid integer"),
        ("models.cnn.epochs=2.5", "valid integer"),
        ("models.cnn.learning_rate=-1e-4", "greater than 0"),
        ("models.cnn.learning_rate=nan", "is not a finite number"),
        ("models.cnn.mirror=1", "valid boolean"),
        ("models.cnn.scale=[1.1, 0.9]", "smaller scale comes first"),
        ("models.cnn.method=dro", "'plain', 'group-dro'"),
        ("models.cnn.inputs=['box']", "there is no input 'box'"),
        ("inputs.whole.margin=0.2", "kind = 'roi' alone"),
        ("inputs.roi.kind=crop", "'whole' or 'roi'"),
        ("inputs.roi={kind='roi', outline=true, boxes='found'}", "takes the annotated mask"),
        ("scenarios.kinds=['inner']", "'internal'"),
        ("scenarios.seeds=[1, 1]", "stands twice"),
        ("scenarios.seeds=[]", "at least 1"),
        ("scenarios.folds=1", "greater than or equal to 2"),
        ("study.ids=picture", "'patient' or 'image'"),
        ("study.name=a/b", "match pattern"),
        ("cohort.0.phantom={name='x'}", "either source or phantom"),
        ("cohort=[]", "at least 1"),
        ("models={}", "'models' is missing or empty"),
        ("models.cnn.learning_rate=inf", "is inf, which is not a finite number"),
        ("models.cnn.weight_decay=nan", "is nan, which is not a finite number"),
        ("cohort.0.options.slope=-inf", "is -inf, which is not a finite number"),
        ("models.cnn.epochs=99999999999999999999999", "too many digits"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(change, said):
    with pytest.raises(UserError) as caught:
        load_study("ultrasound", changes=[change])
    assert said in caught.value.what
    assert change.partition("=")[0].split(".")[-1] in caught.value.what


@pytest.mark.parametrize("key", ["study", "cohort", "inputs", "models"])
def test_a_missing_section_is_named(key):
    with pytest.raises(UserError, match=f"the key '{key}' is missing"):
        parse_study({name: part for name, part in SMALL.items() if name != key}, where="small.toml")


def test_changes_go_through_the_same_checks_and_change_what_they_say():
    study = load_study(
        "ultrasound",
        changes=["models.cnn.epochs=2", "study.description=a word", "cohort.1.options.sheet=x"],
        seeds=[3, 4],
        ids="image",
        only_models=["cnn"],
        only_inputs=["roi"],
        only=["BUSI>BUS-BRA"],
    ).study
    assert study.models["cnn"].epochs == 2
    assert study.study.description == "a word"
    assert study.cohort[1].options == {"sheet": "x"}
    assert (study.scenarios.seeds, study.scenarios.only) == ((3, 4), ("BUSI>BUS-BRA",))
    assert study.study.ids == "image"
    assert [(model, name) for model, _, name, _ in study.pairs()] == [("cnn", "roi")]


@pytest.mark.parametrize("change", ["epochs", "models.cmn.epochs=1", "study.name.x=1", "cohort.9.reader=x"])
def test_a_change_that_leads_nowhere(change):
    with pytest.raises(UserError) as caught:
        load_study("ultrasound", changes=[change])
    assert "--set" in (caught.value.where or "") or "unknown" in caught.value.what


def test_an_unknown_model_or_study_offers_its_neighbours():
    with pytest.raises(UserError, match="there is no model 'cn'") as caught:
        load_study("ultrasound", only_models=["cn"])
    assert "cnn" in (caught.value.fix or "")
    with pytest.raises(UserError, match="no such study") as caught:
        load_study("ultrasund")
    assert "ultrasound" in (caught.value.fix or "")


def test_where_the_data_are(tmp_path, monkeypatch):
    monkeypatch.delenv("ELSEWHERE_DATA", raising=False)
    file = load_study("ultrasound")
    with pytest.raises(UserError, match="does not know where the data are") as caught:
        file.source_of(file.study.cohort[0])
    assert "--data" in (caught.value.fix or "") and "ELSEWHERE_DATA" in (caught.value.fix or "")
    monkeypatch.setenv("ELSEWHERE_DATA", str(tmp_path))
    file = load_study("ultrasound")
    assert file.source_of(file.study.cohort[0]) == tmp_path / "BUSI"
    other = tmp_path / "other"
    other.mkdir()
    file = load_study("ultrasound", data=other)
    assert file.source_of(file.study.cohort[0]) == other / "BUSI"
    monkeypatch.chdir(tmp_path)
    file = load_study("ultrasound", data="other")
    assert file.source_of(file.study.cohort[0]) == other / "BUSI", "relative to where one stands"
    with pytest.raises(UserError, match="no such folder"):
        load_study("ultrasound", data=tmp_path / "none")


def test_no_toml(tmp_path):
    (tmp_path / "x.toml").write_text("[study\n")
    with pytest.raises(UserError, match="not valid TOML"):
        load_study(tmp_path / "x.toml")
    (tmp_path / "y.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not text in UTF-8"):
        load_study(tmp_path / "y.toml")


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "x" * 101])
def test_a_name_that_cannot_be_a_folder_is_refused(name):
    """Names of models and recipes are folders of the output; '..' was one too."""
    with pytest.raises(UserError, match="cannot be a name"):
        parse_study(SMALL | {"models": {name: {}}}, where="")


def test_models_that_are_like_each_other_without_end_are_refused():
    """A chain of a thousand ended in a traceback."""
    models = {"m0": {}} | {f"m{n}": {"like": f"m{n - 1}"} for n in range(1, 1500)}
    with pytest.raises(UserError, match="like each other in turn"):
        resolve_likes({"models": models}, where="x.toml")


@pytest.mark.parametrize("put", ["fifo", "folder", "device"])
def test_a_study_file_is_a_plain_file(put, tmp_path):
    path = tmp_path / "x.toml"
    {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda p: os.symlink("/dev/zero", p)}[put](path)
    with pytest.raises(UserError, match="must be a plain file"):
        load_study(path)


def test_a_whole_picture_has_no_margin_in_its_key():
    study = parse_study(
        SMALL | {"inputs": {"a": {"kind": "whole"}, "b": {"kind": "roi", "margin": 0.3}}}, where=""
    )
    assert study.inputs["a"].spec(224) == InputSpec(kind="whole", size_px=224)
    assert study.inputs["b"].spec(224).margin == 0.3


def test_a_whole_number_passes_for_a_decimal_one_and_gives_the_same_recipe():
    one = parse_study(SMALL | {"models": {"cnn": {"gradient_norm": 5, "scale": [1, 1]}}}, where="").models[
        "cnn"
    ]
    two = parse_study(
        SMALL | {"models": {"cnn": {"gradient_norm": 5.0, "scale": [1.0, 1.0]}}}, where=""
    ).models
    assert one.recipe() == two["cnn"].recipe()
    assert repr(one.recipe()) == repr(two["cnn"].recipe())
