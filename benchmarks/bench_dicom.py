"""Reading a tomosynthesis volume of real size slice by slice, compared with pydicom's `ds.pixel_array`.

A volume of 70 slices of 2457 x 1996 pixels, 10 bits, is written in each encoding and read in fresh processes that take
turns: by `DicomVolume`, by `ds.pixel_array`, and by the codec alone on frames that are in memory already. Seconds are
processor time, which others on the machine do not change; a cached slice is in wall time. Importing is not timed. Peak memory is the process's, above the bare interpreter, libraries included.

pydicom takes its decoding plugins in alphabetical order. With python-gdcm that is gdcm; without it, the plugins of the
extra 'volumes'. Both are measured where python-gdcm is installed, or lies in the folder that ELSEWHERE_GDCM names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SHAPE, SLICES = (2457, 1996), 70
SYNTAXES = {
    "JPEG-LS": "1.2.840.10008.1.2.4.80",
    "JPEG 2000": "1.2.840.10008.1.2.4.90",
    "JPEG lossless": "1.2.840.10008.1.2.4.70",
    "RLE": "1.2.840.10008.1.2.5",
    "HTJ2K": "1.2.840.10008.1.2.4.201",
    "raw": "1.2.840.10008.1.2.1",
}
BARS = {"JPEG-LS": 3.5, "JPEG 2000": 1.5}
NEAR_CODEC = 0.9
MEMORY_MB = 150
SLICE_SECONDS = 0.002

CHILD = """
import sys, time
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
alone = peak()
how, path = sys.argv[1:]
if how == "ours":
    import imagecodecs, pydicom
    from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
    DicomVolume(path).read(0)
    begin = time.process_time()
    volume = DicomVolume(path)
    total = sum(int(volume.read(z)[::50, ::50].sum()) for z in range(volume.shape[2]))
elif how == "peer":
    import pydicom
    from pydicom.pixels import get_decoder
    begin = time.process_time()
    ds = pydicom.dcmread(path)
    total = int(ds.pixel_array[:, ::50, ::50].sum())
else:
    import numpy as np, pydicom
    from pydicom.encaps import generate_frames
    from elsewhere.inputs.tomosynthesis.codecs import FrameSize, codec_of, decoder
    ds = pydicom.dcmread(path)
    codec = codec_of(str(ds.file_meta.TransferSyntaxUID))
    if codec.family == "raw":
        each = ds.Rows * ds.Columns * 2
        frames = [ds.PixelData[at : at + each] for at in range(0, len(ds.PixelData), each)]
        decode = lambda content: np.frombuffer(content, dtype="<u2").reshape(ds.Rows, ds.Columns)
    else:
        frames = list(generate_frames(ds.PixelData, number_of_frames=int(ds.NumberOfFrames)))
        import importlib
        module, name = codec.libraries[0]
        function = getattr(importlib.import_module(module), name)
        plain = lambda content: np.frombuffer(function(content, dtype="<u2"), dtype="<u2").reshape(ds.Rows, ds.Columns)
        decode = plain if codec.family == "rle" else function
    begin = time.process_time()
    total = sum(int(decode(frame)[::50, ::50].sum()) for frame in frames)
print(time.process_time() - begin, peak() - alone, total)
"""


def texture(rng: np.random.Generator, slices: int) -> np.ndarray:
    """[slices, rows, columns]: half an ellipse of smooth tissue with the noise of a detector, black around it."""
    from scipy.ndimage import zoom

    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    inside = ((y - SHAPE[0] / 2) / (0.4 * SHAPE[0])) ** 2 + (x / (0.55 * SHAPE[1])) ** 2 < 1
    made = []
    for _ in range(slices):
        coarse = rng.normal(0.0, 60.0, (39, 32))
        smooth = zoom(coarse, (SHAPE[0] / 39, SHAPE[1] / 32), order=1)[: SHAPE[0], : SHAPE[1]]
        made.append(np.where(inside, np.clip(450 + smooth + rng.normal(0, 9, SHAPE), 1, 1023), 0))
    return np.array(made, dtype=np.uint16)


def write(path: Path, name: str, distinct: np.ndarray, slices: int) -> Path:
    """A Breast Tomosynthesis Image of `slices` slices, of which a few differ."""
    import imagecodecs
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID, generate_uid
    from rle.utils import encode_frame

    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = UID(SYNTAXES[name])
    ds.SOPClassUID = UID("1.2.840.10008.5.1.4.1.1.13.1.3")
    ds.SOPInstanceUID = generate_uid()
    ds.Rows, ds.Columns, ds.NumberOfFrames = *SHAPE, slices
    ds.SamplesPerPixel, ds.PhotometricInterpretation, ds.PixelRepresentation = 1, "MONOCHROME2", 0
    ds.BitsAllocated, ds.BitsStored, ds.HighBit = 16, 10, 9
    encode = {
        "JPEG-LS": imagecodecs.jpegls_encode,
        "JPEG 2000": lambda a: imagecodecs.jpeg2k_encode(a, codecformat="j2k", reversible=True),
        "JPEG lossless": lambda a: imagecodecs.jpeg8_encode(a, lossless=True, predictor=1, bitspersample=16),
        "RLE": lambda a: encode_frame(a.tobytes(), *SHAPE, 1, 16, "<"),
        "HTJ2K": lambda a: imagecodecs.htj2k_encode(a, reversible=True),
        "raw": lambda a: a.tobytes(),
    }[name]
    frames = [bytes(encode(one)) for one in distinct]
    frames = [frames[at % len(frames)] for at in range(slices)]
    ds.PixelData = b"".join(frames) if name == "raw" else encapsulate(frames)
    ds["PixelData"].VR = "OW" if name == "raw" else "OB"
    if name != "raw":
        ds["PixelData"].is_undefined_length = True
    ds.save_as(path, enforce_file_format=True, implicit_vr=False, little_endian=True)
    return path


def timed(how: str, path: Path, extra: str = "") -> tuple[float, float, int] | None:
    """Seconds, MB above the interpreter, and a sum of pixels, in a fresh process; None where a peer has no decoder."""
    search = [part for part in (extra, os.environ.get("PYTHONPATH", "")) if part]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, how, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(search)},
    )
    if done.returncode:
        if how == "peer" and "missing dependencies" in done.stderr:
            return None
        raise RuntimeError(done.stderr[-2000:])
    seconds, memory, total = done.stdout.split()
    return float(seconds), float(memory), int(total)


def cached_slice(path: Path, folder: Path, rounds: int) -> float:
    """Seconds to map a cached volume's slice and copy it into memory, the middle of many."""
    from elsewhere.inputs.tomosynthesis.cache import VolumeCache
    from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
    from elsewhere.inputs.tomosynthesis.stored import DicomStored

    cache = VolumeCache(folder)
    volume = DicomStored(path, side_by_name="left", cache=cache)
    TomosynthesisSource({"A/1": volume}).slice("A/1", 0)
    source = TomosynthesisSource({"A/1": DicomStored(path, side_by_name="left", cache=cache)})
    depth = source.facts("A/1").shape[2]
    rng = np.random.default_rng(0)
    seconds = []
    for _ in range(rounds):
        z = int(rng.integers(depth))
        begin = time.perf_counter()
        np.array(source.slice("A/1", z))
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def run(quick: bool = False) -> list[dict[str, Any]]:
    """A row per encoding and peer, one against the codec alone, and one of a cached slice."""
    slices, rounds = (10, 1) if quick else (SLICES, 3)
    folder = os.environ.get("ELSEWHERE_GDCM", "")
    has_gdcm = bool(folder) or importlib.util.find_spec("gdcm") is not None
    peers = {"pydicom ds.pixel_array (gdcm installed)": folder} if has_gdcm else {}
    if folder or not has_gdcm:
        peers["pydicom ds.pixel_array (plugins of the extra)"] = ""
    rows: list[dict[str, Any]] = []
    distinct = texture(np.random.default_rng(3), 4)
    with tempfile.TemporaryDirectory() as at:
        for name in SYNTAXES:
            path = write(Path(at) / "volume.dcm", name, distinct, slices)
            megabytes = path.stat().st_size / slices / 2**20
            runs: dict[str, list[tuple[float, float, int]]] = {}
            for _ in range(rounds):
                for how, extra in (
                    ("ours", ""),
                    ("codec", ""),
                    *(("peer:" + peer, e) for peer, e in peers.items()),
                ):
                    found = timed(how.split(":")[0], path, extra)
                    if found is not None:
                        runs.setdefault(how, []).append(found)
            best = {how: min(found) for how, found in runs.items()}
            if len({found[2] for found in best.values()}) != 1:
                raise RuntimeError(f"{name}: the pixels differ")
            seconds, memory, _ = best["ours"]
            job = f"read {slices} slices of 2457 x 1996, {name}"
            notes = f"processor time; {megabytes:.2f} MB per slice; peak above the interpreter: ours {memory:.0f} MB"
            for number, peer in enumerate(peers):
                theirs = best.get("peer:" + peer)
                if theirs is None:
                    continue
                rows.append(
                    {
                        "job": job,
                        "peer": peer,
                        "peer_seconds": theirs[0],
                        "ours_seconds": seconds,
                        "ratio": theirs[0] / seconds,
                        "bar": BARS.get(name) if number == 0 and has_gdcm else None,
                        "peak_mb": memory,
                        "peer_peak_mb": theirs[1],
                        "notes": f"{notes}, peer {theirs[1]:.0f} MB; same pixels",
                    }
                )
            alone = best["codec"][0]
            rows.append(
                {
                    "job": job,
                    "peer": "the codec alone, frames in memory",
                    "peer_seconds": alone,
                    "ours_seconds": seconds,
                    "ratio": alone / seconds,
                    "bar": f"{NEAR_CODEC:g}x and {MEMORY_MB} MB" if name in BARS else f"{MEMORY_MB} MB",
                    "bar_met": (name not in BARS or alone / seconds >= NEAR_CODEC) and memory <= MEMORY_MB,
                    "notes": notes,
                }
            )
            if name == "JPEG-LS":
                cached = cached_slice(path, Path(at) / "cache", 100 if quick else 500)
                rows.append(
                    {
                        "job": "one cached slice, mapped and copied (box of the breast)",
                        "peer": "decoding it, JPEG-LS",
                        "peer_seconds": alone / slices,
                        "ours_seconds": cached,
                        "ratio": alone / slices / cached,
                        "bar": SLICE_SECONDS,
                        "bar_kind": "seconds",
                        "notes": "median of random slices of a volume that was cached before",
                    }
                )
    return rows


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
