"""The folder that `slides train` writes: saved models, each with a note that counts only when its weights are complete.

OUT/run.json               what the folder is
OUT/models/NAME.pt, .json  a state dict, and what the model is; the note is written last
OUT/checkpoints/KEY.pt     a training that is under way
OUT/patches/NAME.parquet   its answers to the test patches, one row per patch
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elsewhere import __version__
from elsewhere.errors import UserError
from elsewhere.files import replacing
from elsewhere.files.locks import FileLock, describe_holder, describe_this_process
from elsewhere.tables import write_json
from elsewhere.untrusted import printable, read_json

FORMAT = "elsewhere patch models"
RUN_FILE = "run.json"
_MOST_NOTE = 64 << 20


class ModelFolder:
    """The models of a folder.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def weights_file(self, name: str) -> Path:
        """Name the file of a model's weights.

        Args:
            name: The model.

        Returns:
            The file.
        """
        return self.path / "models" / f"{name}.pt"

    def note_file(self, name: str) -> Path:
        """Name the file that says what a model is.

        Args:
            name: The model.

        Returns:
            The file.
        """
        return self.path / "models" / f"{name}.json"

    def checkpoint(self, key: str) -> Path:
        """Name the file of a training that is under way.

        Args:
            key: The key of its model.

        Returns:
            The file.
        """
        return self.path / "checkpoints" / f"{key[:32]}.pt"

    def answers_file(self, name: str) -> Path:
        """Name the file of a model's answers to the test patches.

        Args:
            name: The model.

        Returns:
            The file.
        """
        return self.path / "patches" / f"{name}.parquet"

    def check(self) -> None:
        """Refuse a folder that holds something else.

        Raises:
            UserError: It does.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError("there is a file of this name", where=str(self.path), fix="Name another folder.")
        run = self.path / RUN_FILE
        if run.is_file():
            if read_json(run, most=1 << 20, what="description of the models").get("format") != FORMAT:
                raise UserError("the folder holds no models of patches", where=str(self.path))
            return
        if self.path.is_dir() and any(entry.name != ".lock" for entry in self.path.iterdir()):
            raise UserError(
                "the folder holds something else than models of patches",
                where=str(self.path),
                fix="Name a folder that is empty or does not exist.",
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that no second run writes to it.

        Yields:
            Nothing.

        Raises:
            UserError: Another run holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        if not lock.acquire():
            raise UserError(
                f"another run is writing to this folder: {describe_holder(lock.path)}",
                where=str(self.path),
                fix="Wait until it ends, or write to another folder.",
            )
        try:
            lock.write(json.dumps(describe_this_process()).encode())
            write_json({"format": FORMAT, "version": 1, "elsewhere": __version__}, self.path / RUN_FILE)
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.write(b"")
            lock.release()

    def note(self, name: str) -> Mapping[str, Any] | None:
        """Read what a model is.

        Args:
            name: The model.

        Returns:
            Its note; None where it is not complete.

        Raises:
            UserError: The note cannot be read.
        """
        path = self.note_file(name)
        if not path.is_file():
            return None
        note = read_json(path, most=_MOST_NOTE, what="note of a model")
        weights = self.weights_file(name)
        size = note.get("weights_bytes")
        if not isinstance(note.get("key"), str) or not weights.is_file() or weights.stat().st_size != size:
            return None
        return note

    def save(self, name: str, note: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
        """Write a model: its weights, and then its note.

        Args:
            name: The model.
            note: What it is.
            weights: Its state dict.

        Raises:
            FileSystemError: The disk is full, or refuses.
        """
        import torch

        self.note_file(name).unlink(missing_ok=True)
        path = self.weights_file(name)
        with replacing(path) as temporary:
            torch.save(dict(weights), temporary)
            with temporary.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = temporary.stat().st_size
        write_json(
            {**note, "elsewhere": __version__, "weights_sha256": digest, "weights_bytes": size},
            self.note_file(name),
        )

    def load(self, name: str) -> Mapping[str, Any]:
        """Read a model's weights.

        Args:
            name: The model.

        Returns:
            Its state dict.

        Raises:
            UserError: The file is damaged, or is not what was written.
        """
        import torch

        path, note = self.weights_file(name), self.note(name)
        if note is None:
            raise UserError("this model is not complete", where=printable(str(path)), fix="Train it again.")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != note.get("weights_sha256"):
            raise UserError(
                "the weights of this model are not what was written",
                where=printable(str(path)),
                fix="Remove the model's two files, and train it again.",
            )
        content: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return content
