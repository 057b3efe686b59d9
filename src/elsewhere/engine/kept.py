"""Saves what a recipe learnt as one file without code: plain values, arrays and tensors in a .npz file.

Nothing in the file can run: arrays are read without pickles, and the tree itself is JSON. So a model that
came from another hospital is as harmless to open as a table.
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
WEIGHTS_PT, WEIGHTS_NPZ = "weights.pt", "weights.npz"
WEIGHT_FILES = (WEIGHTS_PT, WEIGHTS_NPZ)
"""A network's state dict, written by torch; and whatever else a recipe saves, as described above."""


def wrong_with(value: Any, at: str = "weights") -> str:
    """Find a value that cannot be saved as plain data.

    Args:
        value: Mappings with names as keys, lists, tuples, arrays, tensors, text, bytes, numbers and None,
            nested in any way.
        at: What the value is called in the answer.

    Returns:
        A phrase that names the first such value and its place; empty where everything can be saved.

    Example:
        >>> wrong_with({"bias": [1.0, None]}), wrong_with({"hook": print})
        ('', 'weights.hook is a builtins.builtin_function_or_method, which holds code or references')
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return ""
    if isinstance(value, Mapping):
        odd = next((name for name in value if not isinstance(name, str)), None)
        if odd is not None:
            return f"{at} has the key {odd!r}, which is not text"
        return next((told for name, part in value.items() if (told := wrong_with(part, f"{at}.{name}"))), "")
    if isinstance(value, list | tuple):
        return next((told for n, part in enumerate(value) if (told := wrong_with(part, f"{at}[{n}]"))), "")
    if _is_tensor(value):
        return "" if _stored(value) is not None else f"{at} is a tensor of {value.dtype}"
    if isinstance(value, np.ndarray | np.generic) and not np.asarray(value).dtype.hasobject:
        return ""
    return f"{at} is a {type(value).__module__}.{type(value).__name__}, which holds code or references"


def pack_kept(tree: Mapping[str, Any]) -> bytes:
    """Pack what a recipe learnt into a .npz file without pickles; the same tree gives the same bytes.

    Args:
        tree: What the recipe hands over: nested mappings and lists of plain values, arrays and tensors.
            Tensors are moved to the CPU.

    Returns:
        The bytes of the file.

    Raises:
        TypeError: A value cannot be saved as plain data (see `wrong_with`).

    Example:
        >>> pack_kept({"mean": 0.5}) == pack_kept({"mean": 0.5})
        True
    """
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
    """Read the tree of a file that `pack_kept` made.

    Tensors come back as tensors (torch is imported only where there are some), tuples come back as lists, and
    everything else as values of numpy and Python.

    Args:
        path: The .npz file; it may come from a stranger.

    Returns:
        The tree.

    Raises:
        ValueError: The file holds no mapping, or something other than arrays.
        KeyError: The file has no tree, or the tree refers to an array that is missing.
        SizeLimitError: It unpacks to more than the limit.
        UserError: Its tree is no JSON within the limits for files of strangers.
    """
    arrays = read_arrays(path)
    tree = parse_json(
        str(arrays[TREE][()]), where=str(path), what="tree of the saved weights", most_depth=200
    )

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
        raise ValueError("the saved weights are not a mapping")
    return found


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _stored(tensor: Any) -> tuple[np.ndarray, str] | None:
    """Return a tensor's numbers and the name of its type; bfloat16, which numpy lacks, as int16."""
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
