"""Encoders: published names of parameters are found, weights of another network are named, nothing is executed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from elsewhere.curation.features import NETWORKS  # noqa: E402
from elsewhere.errors import UserError  # noqa: E402
from elsewhere.networks.encoders import ENCODERS, fit_state, make_encoder, read_state  # noqa: E402


@pytest.fixture(scope="module")
def resnet():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return torchvision.models.resnet18(weights=None).eval()


@pytest.fixture(scope="module")
def state(resnet):
    return resnet.state_dict()


def saved(content, tmp_path):
    torch.save(content, tmp_path / "weights.pth")
    return str(tmp_path / "weights.pth")


def test_the_names_for_machines_without_torch_are_the_encoders():
    assert tuple(ENCODERS) == NETWORKS


def test_the_features_are_those_of_torchvision(resnet, state, tmp_path):
    made = make_encoder("resnet18", saved(state, tmp_path))
    x = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    resnet_features = torch.nn.Sequential(*list(resnet.children())[:-1])
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    scaled = (x / 255.0 - mean.view(1, 3, 1, 1)) / deviation.view(1, 3, 1, 1)
    with torch.inference_mode():
        assert torch.allclose(made.module(x), resnet_features(scaled).flatten(1), atol=1e-4)
    assert made.words == "resnet18, weights of a file" and made.features == 512


@pytest.mark.parametrize(
    "name",
    [
        "model.resnet.{}",  # self-supervised on histology, PyTorch Lightning
        "module.encoder_q.{}",  # MoCo
        "backbone.{}",
        "teacher.module.backbone.{}",
    ],
)
def test_published_names_of_parameters(state, name):
    found = fit_state("resnet18", {name.format(key): value for key, value in state.items()}, where="x")
    assert found.prefix == name.removesuffix("{}")
    assert torch.equal(found.state["layer3.0.conv1.weight"], state["layer3.0.conv1.weight"])


def test_nested_dictionaries_are_searched(state, tmp_path):
    nested = {"state_dict": {f"model.resnet.{key}": value for key, value in state.items()}, "epoch": 12}
    made = make_encoder("resnet18", saved(nested, tmp_path))
    assert made.digest == make_encoder("resnet18", saved(state, tmp_path)).digest
    assert "state_dict.model.resnet.*" in made.words


def test_the_children_of_a_sequence_and_files_without_counters(resnet, state):
    children = torch.nn.Sequential(*list(resnet.children())[:-1]).state_dict()
    older = {key: value for key, value in children.items() if not key.endswith("num_batches_tracked")}
    found = fit_state("resnet18", older, where="x").state
    assert all(torch.equal(value, state[name]) for name, value in found.items()) and len(found) == 100


def test_the_query_encoder_is_taken_before_the_momentum_encoder(state):
    other = {key: value + 1 if value.is_floating_point() else value for key, value in state.items()}
    both = {f"module.encoder_k.{k}": v for k, v in other.items()} | {
        f"module.encoder_q.{k}": v for k, v in state.items()
    }
    found = fit_state("resnet18", both, where="x")
    assert found.prefix == "module.encoder_q." and torch.equal(
        found.state["conv1.weight"], state["conv1.weight"]
    )


def test_weights_inside_a_segmenter(tmp_path):
    whole = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
    made = make_encoder("mobilenet-v3-large", saved(whole.state_dict(), tmp_path))
    assert torch.equal(made.module.body.features[0][0].weight, whole.state_dict()["backbone.0.0.weight"])


def test_weights_of_another_network_are_named(state, tmp_path):
    with pytest.raises(UserError, match="those of resnet18, and the encoder is mobilenet-v2"):
        fit_state("mobilenet-v2", state, where="x")
    with torch.device("meta"):
        deep = torchvision.models.resnet34(weights=None).state_dict()
    with pytest.raises(UserError, match=r"larger network, with layer1\.2\.conv1\.weight"):
        fit_state("resnet18", deep, where="x")
    half = {key: value for key, value in state.items() if not key.startswith("layer4")}
    with pytest.raises(UserError, match="parameters are missing"):
        fit_state("resnet18", half, where="x")
    with pytest.raises(UserError, match="no tensors"):
        make_encoder("resnet18", saved({"epoch": 1}, tmp_path))
    bad = {**state, "conv1.weight": state["conv1.weight"] * float("nan")}
    with pytest.raises(UserError, match=r"not finite: conv1\.weight"):
        fit_state("resnet18", bad, where="x")


class Hostile:
    def __reduce__(self):
        return open, ("/tmp/should-not-exist-elsewhere", "w")


def test_a_file_is_never_executed(tmp_path):
    path = tmp_path / "hostile.pth"
    with path.open("wb") as file:
        pickle.dump({"state_dict": Hostile()}, file)
    with pytest.raises(UserError, match="cannot be read as tensors alone"):
        read_state(path)
    torch.save({"a": torch.zeros(1), "b": Hostile()}, path)
    with pytest.raises(UserError, match="cannot be read as tensors alone"):
        read_state(path)
    path.write_bytes(b"not a file of weights")
    with pytest.raises(UserError, match="cannot be read"):
        read_state(path)


def test_a_program_is_refused(tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(tmp_path / "program.pt"))
    with pytest.raises(UserError, match="TorchScript program, which is not run"):
        read_state(tmp_path / "program.pt")


def test_random_weights_depend_on_the_seed_alone():
    before = torch.random.get_rng_state()
    one, two, other = (make_encoder("mobilenet-v3-small", "none", seed=seed) for seed in (1, 1, 2))
    assert one.digest == two.digest != other.digest
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.inference_mode():
        x = torch.full((1, 3, 96, 96), 128.0)
        assert np.array_equal(one.module(x).numpy(), two.module(x).numpy())


def test_unknown_networks_and_files():
    with pytest.raises(UserError, match="unknown encoder 'resnet8'"):
        make_encoder("resnet8")
    with pytest.raises(UserError, match="no such file of weights"):
        make_encoder("resnet18", "/no/such/file.pth")
