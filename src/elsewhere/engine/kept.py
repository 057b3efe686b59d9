"""What a recipe learnt, as one file without code: a tree of plain values, arrays and tensors in a .npz.

Nothing in it can run: arrays are read without pickles, and the tree itself is JSON. So a model that came from
another hospital is as harmless to open as a table.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.arrays import read_arrays
from elsewhere.untrusted import parse_json

TREE = "tree"
_MOST_DEPTH = 256
"""Each level of a tree is two of its JSON."""
WEIGHTS_PT, WEIGHTS_NPZ = "weights.pt", "weights.npz"
WEIGHT_FILES = (WEIGHTS_PT, WEIGHTS_NPZ)
"""A network's state dict by torch; whatever a recipe keeps, as above."""


def wrong_with(value: Any, at: str = "weights") -> str:
    """What cannot be kept as plain data, with its place; empty where all can."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return ""
    if isinstance(value, Mapping):
        odd = next((name for name in value if not isinstance(name, str)), None)
        if odd is not None:
            return f"{at} has the key {odd!r}, which is no text"
        return next((told for name, part in value.items() if (told := wrong_with(part, f"{at}.{name}"))), "")
    if isinstance(value, list | tuple):
        return next((told for n, part in enumerate(value) if (told := wrong_with(part, f"{at}[{n}]"))), "")
    if _is_tensor(value):
        return "" if _stored(value) is not None else f"{at} is a tensor of {value.dtype}"
    if isinstance(value, np.ndarray | np.generic) and not np.asarray(value).dtype.hasobject:
        return ""
    return f"{at} is a {type(value).__module__}.{type(value).__name__}, which holds code or references"


def pack_kept(tree: Mapping[str, Any]) -> bytes:
    """The same tree gives the same bytes."""
    told = wrong_with(tree)
    if told:
        raise TypeError(told)
    arrays: dict[str, np.ndarray] = {}

    def held(array: np.ndarray) -> str:
        name = f"a{len(arrays)}"
        arrays[name] = np.ascontiguousarray(array)
        return name

    def node(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"map": {name: node(part) for name, part in value.items()}}
        if isinstance(value, list | tuple):
            return {"list": [node(part) for part in value]}
        if isinstance(value, bytes):
            return {"bytes": held(np.frombuffer(value, dtype=np.uint8))}
        if _is_tensor(value):
            array, kind = _stored(value) or (np.zeros(0), "")
            return {"tensor": held(array), "kind": kind, "shape": list(value.shape)}
        if isinstance(value, np.ndarray | np.generic):
            return {"array": held(np.asarray(value)), "shape": list(np.shape(value))}
        if isinstance(value, float) and not math.isfinite(value):
            return {"array": held(np.asarray(value)), "shape": []}
        return {"value": value}

    tree_json = json.dumps(node(tree), ensure_ascii=False, allow_nan=False)
    packed = io.BytesIO()
    np.savez(packed, **{TREE: np.array(tree_json)}, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def unpack_kept(path: Path) -> dict[str, Any]:
    """What `pack_kept` packed: tensors as tensors (torch is imported for them alone), the rest as numpy's and
    Python's own."""
    arrays = read_arrays(path)
    tree = parse_json(str(arrays[TREE][()]), where=str(path), what="tree of the kept weights", most_depth=200)

    def value(node: dict[str, Any]) -> Any:
        if "map" in node:
            return {name: value(part) for name, part in node["map"].items()}
        if "list" in node:
            return [value(part) for part in node["list"]]
        if "bytes" in node:
            return arrays[node["bytes"]].tobytes()
        if "tensor" in node:
            return _tensor(arrays[node["tensor"]], node["kind"], node["shape"])
        if "array" in node:
            return arrays[node["array"]].reshape(node["shape"])
        return node["value"]

    found = value(tree)
    if not isinstance(found, dict):
        raise ValueError("the kept weights are no mapping")
    return found


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _stored(tensor: Any) -> tuple[np.ndarray, str] | None:
    """A tensor's numbers and the name of its kind; numpy has no bfloat16, whose bytes are kept."""
    plain = tensor.detach().cpu().contiguous()
    kind = str(plain.dtype).removeprefix("torch.")
    if kind == "bfloat16":
        import torch

        return plain.reshape(-1).view(torch.int16).numpy(), kind
    try:
        return plain.numpy(), kind
    except TypeError:
        return None


def _tensor(array: np.ndarray, kind: str, shape: list[int]) -> Any:
    import torch

    found = torch.from_numpy(np.ascontiguousarray(array))
    return (found.view(torch.bfloat16) if kind == "bfloat16" else found).reshape(shape)
