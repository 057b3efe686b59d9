"""Features of the patches of a store, computed once and kept next to it.

    STORE.features/<key>/encoder.json        the encoder, in words, and how many numbers a patch has
    STORE.features/<key>/<shard>.npz         columns `rows` and `values` of the patches of one shard that are done
    STORE.features/<key>/.lock               held by the run that computes

`<key>` is the digest of the encoder's parameters and of how pictures are fed to it, `<shard>` that of the shard's name and of its
pixels: an encoder with other weights, or a slide that was packed anew, has other files. A run that was stopped resumes with
the patches that are not done; files are written whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elsewhere.curation.appearance import APPEARANCES, LEAST_DENSITY, describe_patches
from elsewhere.errors import UserError
from elsewhere.files import explained_refusals, write_bytes
from elsewhere.files.locks import FileLock, describe_holder, describe_this_process
from elsewhere.inputs.patches.shards import Shard
from elsewhere.inputs.patches.store import PatchSet, PatchStore

Report = Callable[[str, int, int], None]
Values = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
NETWORKS = (
    "resnet18", "mobilenet-v2", "mobilenet-v3-large", "mobilenet-v3-small", "efficientnet-lite0", "efficientnet-lite1",
    "efficientnet-lite2",
)  # fmt: skip
"""The encoders by name, for machines without PyTorch: those of `networks.encoders`."""
KEPT_EVERY = 1024
"""Patches after which what is done is written."""
BATCH = {"cpu": 16, "cuda": 256}
_PROCEDURE = "pixels as stored; mean over the last map; float32; version 1"


class PatchEncoder(Protocol):
    """What turns patches into numbers."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        ...

    @property
    def digest(self) -> str:
        """What names it; the same patches and the same digest give the same numbers."""
        ...

    @property
    def features(self) -> int:
        """Numbers per patch."""
        ...

    def encode(self, pixels: Pixels) -> Values:
        """Compute the features of patches.

        Args:
            pixels: [patches, size, size, 3] of 8 bits.

        Returns:
            [patches, features].
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """The sharpness and the stain of patches, as features.

    Attributes:
        name: What they are called.
        words: What they are, in a few words.
        digest: What names the way they are measured.
        features: Numbers per patch.
    """

    name: str = "appearance"
    words: str = "sharpness, stain and strength of stain"
    digest: str = hashlib.sha256(f"{APPEARANCES} {LEAST_DENSITY} version 1".encode()).hexdigest()
    features: int = len(APPEARANCES)

    def encode(self, pixels: Pixels) -> Values:
        """Measure patches.

        Args:
            pixels: [patches, size, size, 3] of 8 bits.

        Returns:
            [patches, 3]; see `describe_patches`.
        """
        return describe_patches(pixels)


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkEncoder:
    """A network on a device.

    Attributes:
        name: What the features are called.
        words: What the network and its weights are.
        digest: What names its parameters and how pictures are fed to it.
        features: Features per patch.
        module: The network on its device.
        device: The device.
        batch: Patches that are computed at once.
    """

    name: str
    words: str
    digest: str
    features: int
    module: Any = field(repr=False)
    device: str = "cpu"
    batch: int = BATCH["cpu"]

    def encode(self, pixels: Pixels) -> Values:
        """Compute the features of patches, in batches of one size: what lies beside a patch makes no difference.

        Args:
            pixels: [patches, size, size, 3] of 8 bits.

        Returns:
            [patches, features].

        Raises:
            UserError: A feature is not finite.
        """
        import torch

        made = np.empty((len(pixels), self.features), np.float32)
        with torch.inference_mode(), _exact(self.device):
            for begin in range(0, len(pixels), self.batch):
                part = pixels[begin : begin + self.batch]
                rows = np.resize(np.arange(len(part)), self.batch)
                fed = torch.from_numpy(part[rows]).to(self.device).permute(0, 3, 1, 2)
                made[begin : begin + len(part)] = self.module(fed)[: len(part)].float().cpu().numpy()
        if not np.isfinite(made).all():
            raise UserError(f"{self.words}: a feature is not finite", fix="Give other weights.")
        return made


@contextlib.contextmanager
def _exact(device: str) -> Iterator[None]:
    """Products of 32 bits on a GPU too, so that its features are those of a CPU but for the last digits."""
    import torch

    if not device.startswith("cuda"):
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = False, False, True, False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def make_network_encoder(
    name: str, network: str, weights: str = "imagenet", *, seed: int = 0, device: str = "auto"
) -> NetworkEncoder:
    """Build an encoder on a device.

    Args:
        name: What its features are called.
        network: One of `networks.encoders.ENCODERS`.
        weights: "imagenet", "none" for random weights, or a file.
        seed: Seed of random weights.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:N".

    Returns:
        The encoder.

    Raises:
        UserError: The network, its weights or the device cannot be had, or PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            "features of a network need PyTorch",
            fix="pip install 'elsewhere[train]', or give a file of features.",
        ) from error
    from elsewhere.networks.encoders import make_encoder

    place = _device(device, torch)
    made = make_encoder(network, weights, seed=seed)
    kind = "cuda" if place.startswith("cuda") else "cpu"
    return NetworkEncoder(
        name=name,
        words=made.words,
        digest=hashlib.sha256(f"{made.digest}\0{_PROCEDURE}".encode()).hexdigest(),
        features=made.features,
        module=made.module.to(place),
        device=place,
        batch=BATCH[kind],
    )


def _device(name: str, torch: Any) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device '{name}'", fix="auto, cpu, cuda or cuda:0.") from error
    if device.type not in BATCH:
        raise UserError(f"features are not computed on the device '{name}'", fix="auto, cpu, cuda or cuda:0.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here", fix="--device cpu, or auto.")
    return name


@dataclass(frozen=True, kw_only=True)
class FeatureFiles:
    """The files of one encoder next to a store.

    Attributes:
        folder: Their folder.
        encoder: The encoder.
    """

    folder: Path
    encoder: PatchEncoder

    def read(self, shard: Shard) -> tuple[npt.NDArray[np.int64], Values]:
        """Read what is done of a shard. A file that is damaged is as one that is missing.

        Args:
            shard: The shard.

        Returns:
            The patches of the shard that are done, rising, and their features.
        """
        nothing = np.empty(0, np.int64), np.empty((0, self.encoder.features), np.float32)
        path = self.path(shard)
        if not path.is_file():
            return nothing
        most = len(shard) * (4 * self.encoder.features + 8) + 4096
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(one.file_size for one in archive.infolist()) > most:
                    return nothing
            with np.load(path, allow_pickle=False) as file:
                rows, values = file["rows"], file["values"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return nothing
        whole = (
            rows.dtype == np.int64
            and rows.ndim == 1
            and values.dtype == np.float32
            and values.shape == (len(rows), self.encoder.features)
            and (not len(rows) or (rows[0] >= 0 and rows[-1] < len(shard) and (np.diff(rows) > 0).all()))
        )
        return (rows, values) if whole else nothing

    def write(self, shard: Shard, rows: npt.NDArray[np.int64], values: Values) -> None:
        """Write what is done of a shard.

        Args:
            shard: The shard.
            rows: The patches of the shard, rising.
            values: Their features.

        Raises:
            FileSystemError: The system refuses, such as for want of space.
        """
        held = io.BytesIO()
        np.savez(held, rows=rows, values=values)
        write_bytes(held.getvalue(), self.path(shard))

    def path(self, shard: Shard) -> Path:
        """Name the file of a shard.

        Args:
            shard: The shard.

        Returns:
            The file.
        """
        named = f"{shard.folder.name}\0{shard.token}\0{shard.pixels_sha256}"
        return self.folder / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.npz"


def features_folder(store: Path, encoder: PatchEncoder) -> Path:
    """Name the folder of an encoder's features next to a store.

    Args:
        store: The folder of the store.
        encoder: The encoder.

    Returns:
        The folder.

    Example:
        >>> features_folder(Path("data/store"), Appearance()).parent.name
        'store.features'
    """
    store = Path(store)
    beside = store.resolve() if store.name in ("", ".", "..") else store
    return beside.with_name(f"{beside.name}.features") / f"{encoder.digest[:32]}"


def count_missing(patches: PatchSet, encoder: PatchEncoder) -> int:
    """Count the patches whose features are not there yet; nothing is written.

    Args:
        patches: The patches.
        encoder: The encoder.

    Returns:
        How many would be computed.
    """
    files = FeatureFiles(folder=features_folder(patches.store.path, encoder), encoder=encoder)
    missing = 0
    for shard, rows, _ in _by_shard(patches):
        done, _values = files.read(shard)
        missing += int((~np.isin(np.unique(rows), done)).sum())
    return missing


def compute_features(patches: PatchSet, encoder: PatchEncoder, *, progress: Report | None = None) -> Values:
    """Compute the features of patches, or read those that were computed before.

    Args:
        patches: The patches.
        encoder: The encoder.
        progress: Called with a step, how many patches are done, and how many there are; None for no reports.

    Returns:
        [patches, features] in the order of the set.

    Raises:
        UserError: Another run computes the same features now, or a file of the store is damaged.
        FileSystemError: The disk is full or refuses.
    """
    folder = features_folder(patches.store.path, encoder)
    files = FeatureFiles(folder=folder, encoder=encoder)
    made = np.empty((len(patches), encoder.features), np.float32)
    step = f"features: {encoder.name}"
    done = 0
    with _locked(folder):
        _describe(folder, encoder)
        for shard, rows, where in _by_shard(patches):
            wanted = np.unique(rows)
            known, values = files.read(shard)
            missing = wanted[~np.isin(wanted, known)]
            for begin in range(0, len(missing), KEPT_EVERY):
                part = missing[begin : begin + KEPT_EVERY]
                positions = _positions(patches, shard, part)
                fresh = np.empty((len(part), encoder.features), np.float32)
                for first in range(0, len(part), 256):
                    fresh[first : first + 256] = encoder.encode(
                        patches.store.batch(positions[first : first + 256])
                    )
                    if progress is not None:
                        progress(step, done + min(begin + first + 256, len(missing)), len(patches))
                known, values = np.concatenate([known, part]), np.concatenate([values, fresh])
                order = np.argsort(known, kind="stable")
                known, values = known[order], values[order]
                files.write(shard, known, values)
            made[where] = values[np.searchsorted(known, rows)]
            done += len(rows)
            if progress is not None:
                progress(step, done, len(patches))
    return made


def _by_shard(
    patches: PatchSet,
) -> Iterator[tuple[Shard, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Each shard with the set's patches in it: their number in the shard, and their place in the set."""
    shards = patches.store.shards
    starts = np.concatenate([[0], np.cumsum([len(shard) for shard in shards])]).astype(np.int64)
    numbers = np.searchsorted(starts, patches.positions, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    for where in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        if len(where):
            number = int(numbers[where[0]])
            yield shards[number], patches.positions[where] - starts[number], where


def _positions(patches: PatchSet, shard: Shard, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    begin = 0
    for one in patches.store.shards:
        if one is shard:
            break
        begin += len(one)
    return rows + begin


def _describe(folder: Path, encoder: PatchEncoder) -> None:
    text = json.dumps(
        {"digest": encoder.digest, "encoder": encoder.words, "features": encoder.features}, sort_keys=True
    )
    write_bytes(text.encode(), folder / "encoder.json")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with explained_refusals(folder, "the folder of features cannot be used"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        held = lock.acquire()
    if not held:
        raise UserError(
            f"another run computes these features: {describe_holder(lock.path)}",
            where=str(folder),
            fix="Wait until it ends.",
        )
    try:
        with contextlib.suppress(OSError):
            lock.write(json.dumps(describe_this_process()).encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.write(b"")
        lock.release()


def select_patches(store: PatchStore, rows: Any, *, missing: str = "refuse") -> PatchSet:
    """Look up the rows of a patch table in a store.

    Args:
        store: The store.
        rows: Rows with the columns `dataset`, `case_id`, `i` and `j`.
        missing: "refuse", or "leave out".

    Returns:
        The patches in the order of the rows.

    Raises:
        UserError: The store does not hold them, and they may not be left out.
    """
    names: Sequence[tuple[str, str]] = list(
        zip(rows["dataset"].fillna("").astype(str), rows["case_id"].astype(str), strict=True)
    )
    return store.select(names, rows["i"].to_numpy(), rows["j"].to_numpy(), missing=missing)
