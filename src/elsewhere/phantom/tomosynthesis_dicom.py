"""Writes Breast Tomosynthesis Image files: multi-frame DICOM with functional groups, in eight encodings.

The header has what the published files have and what they lack: 16 bits allocated with fewer stored, the
window in the shared functional groups, a laterality per series, and no pixel spacing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.phantom.tomosynthesis import Phantom
from elsewhere.phantom.tomosynthesis_tables import Drawn, uid

BTO = "1.2.840.10008.5.1.4.1.1.13.1.3"
"""SOP class of a Breast Tomosynthesis Image."""
SYNTAXES: Mapping[str, str] = {
    "jpeg-ls": "1.2.840.10008.1.2.4.80",
    "jpeg-2000": "1.2.840.10008.1.2.4.90",
    "jpeg-lossless": "1.2.840.10008.1.2.4.70",
    "htj2k": "1.2.840.10008.1.2.4.201",
    "rle": "1.2.840.10008.1.2.5",
    "raw": "1.2.840.10008.1.2.1",
    "raw-implicit": "1.2.840.10008.1.2",
    "deflated": "1.2.840.10008.1.2.1.99",
}
"""Transfer syntaxes by name; all of them give back the same pixels."""
_NATIVE = ("raw", "raw-implicit", "deflated")
_VIEWS = {"cc": ("399162004", "cranio-caudal"), "mlo": ("399368009", "medio-lateral oblique")}
Plane = npt.NDArray[np.uint16]


def check_libraries(syntax: str) -> None:
    """Refuse a transfer syntax that is not known, or that this machine cannot write, before any work is done.

    Args:
        syntax: A name out of `SYNTAXES`.

    Raises:
        UserError: The name is unknown, or a library is missing.
    """
    if syntax not in SYNTAXES:
        raise unknown_name("transfer syntax", syntax, list(SYNTAXES))
    _library("pydicom")
    if syntax not in _NATIVE:
        _library("imagecodecs")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"writing tomosynthesis files needs {name}", fix="pip install 'elsewhere[volumes]'"
        ) from error


def write_dicom(phantom: Phantom, drawn: Drawn, path: Path, syntax: str = "jpeg-ls") -> None:
    """Write a volume as one Breast Tomosynthesis Image file.

    The bytes depend on the volume and the libraries alone. One slice is in memory at a time; the encoded ones
    are collected.

    Args:
        phantom: The drawn volume.
        drawn: What its header states; whether it is stored turned by 180 degrees.
        path: The file to write; missing folders are made.
        syntax: A name out of `SYNTAXES`.

    Raises:
        UserError: The syntax is unknown, or a library is missing.
    """
    check_libraries(syntax)
    pydicom = _library("pydicom")
    planes = (plane[::-1, ::-1] if drawn.turned else plane for plane in phantom.slices())
    data = _header(pydicom, phantom, drawn)
    data.file_meta = _meta(pydicom, str(data.SOPInstanceUID), syntax)
    if syntax in _NATIVE:
        pixels = b"".join(np.ascontiguousarray(plane).astype("<u2").tobytes() for plane in planes)
        data.PixelData = pixels + b"\0" * (len(pixels) % 2)
        data["PixelData"].VR = "OW"
    else:
        encode = _encoder(syntax)
        frames: Iterable[bytes] = [encode(np.ascontiguousarray(plane)) for plane in planes]
        data.PixelData = _library("pydicom.encaps").encapsulate(frames, has_bot=True)
        data["PixelData"].VR = "OB"
        data["PixelData"].is_undefined_length = True
    path.parent.mkdir(parents=True, exist_ok=True)
    pydicom.dcmwrite(path, data, enforce_file_format=True)


def _meta(pydicom: Any, instance: str, syntax: str) -> Any:
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = BTO
    meta.MediaStorageSOPInstanceUID = instance
    meta.TransferSyntaxUID = SYNTAXES[syntax]
    meta.ImplementationClassUID = uid("elsewhere")
    meta.ImplementationVersionName = "ELSEWHERE"
    return meta


def _encoder(syntax: str) -> Callable[[Plane], bytes]:
    codecs = _library("imagecodecs")
    if syntax == "jpeg-ls":
        return lambda plane: bytes(codecs.jpegls_encode(plane))
    if syntax == "jpeg-2000":
        return lambda plane: bytes(codecs.jpeg2k_encode(plane, level=0, codecformat="j2k", reversible=True))
    if syntax == "jpeg-lossless":
        return lambda plane: bytes(codecs.jpeg8_encode(plane, lossless=True, predictor=1, bitspersample=16))
    if syntax == "htj2k":
        return lambda plane: bytes(codecs.htj2k_encode(plane, reversible=True))
    return _run_lengths


def _run_lengths(plane: Plane) -> bytes:
    """One frame as DICOM RLE: the high bytes, then the low bytes, each line packed by itself."""
    pack = _library("imagecodecs").packbits_encode
    segments = []
    for shift in (8, 0):
        part = ((plane >> shift) & 255).astype(np.uint8)
        segment = b"".join(bytes(pack(np.ascontiguousarray(row).tobytes())) for row in part)
        segments.append(segment + b"\0" * (len(segment) % 2))
    offsets = [2, 64, 64 + len(segments[0])] + [0] * 13
    return np.asarray(offsets, dtype="<u4").tobytes() + b"".join(segments)


def _header(pydicom: Any, phantom: Phantom, drawn: Drawn) -> Any:
    case, (slices, rows, columns) = phantom.case, phantom.shape
    patient, seed = case.patient, case.patient.world.seed
    data = pydicom.dataset.Dataset()
    data.SpecificCharacterSet = "ISO_IR 100"
    data.ImageType = ["DERIVED", "PRIMARY", "TOMOSYNTHESIS", "NONE"]
    data.SOPClassUID = BTO
    data.SOPInstanceUID = uid(seed, case.case_name, "instance")
    data.StudyDate = data.SeriesDate = data.ContentDate = data.AcquisitionDate = "20000101"
    data.StudyTime = data.SeriesTime = data.ContentTime = "000000"
    data.AccessionNumber = ""
    data.Modality = "MG"
    data.PresentationIntentType = "FOR PRESENTATION"
    data.Manufacturer = case.vendor.manufacturer
    data.ManufacturerModelName = case.vendor.model
    data.StudyDescription = "MAMMO screening digital bilateral"
    data.PatientName = data.PatientID = patient.patient_id
    data.PatientBirthDate = data.PatientSex = data.ReferringPhysicianName = ""
    data.BodyPartExamined = "BREAST"
    data.BodyPartThickness = round(float(slices) * 73 / case.size.slices)
    data.StudyInstanceUID = uid(seed, patient.vendor, patient.study_id)
    data.SeriesInstanceUID = uid(seed, case.case_name)
    data.StudyID = patient.study_id
    data.SeriesNumber = data.InstanceNumber = 1
    data.SamplesPerPixel = 1
    data.PhotometricInterpretation = "MONOCHROME2"
    data.NumberOfFrames = slices
    data.Rows, data.Columns = rows, columns
    data.BitsAllocated, data.BitsStored = 16, case.vendor.bits
    data.HighBit, data.PixelRepresentation = case.vendor.bits - 1, 0
    data.LossyImageCompression = "00"
    data.PresentationLUTShape = "IDENTITY"
    data.BurnedInAnnotation = "NO"
    data.SharedFunctionalGroupsSequence = [_shared(pydicom, phantom, drawn)]
    data.PerFrameFunctionalGroupsSequence = [_frame(pydicom, phantom, z) for z in range(slices)]
    return data


def _shared(pydicom: Any, phantom: Phantom, drawn: Drawn) -> Any:
    item, window = pydicom.dataset.Dataset, pydicom.dataset.Dataset()
    window.WindowCenter, window.WindowWidth = (format(value, "g") for value in phantom.window)
    anatomy = item()
    anatomy.FrameLaterality = drawn.tag
    anatomy.AnatomicRegionSequence = [_code(pydicom, "76752008", "Breast")]
    values = item()
    values.RescaleIntercept, values.RescaleSlope, values.RescaleType = "0", "1", "US"
    made = item()
    made.FrameVOILUTSequence = [window]
    made.FrameAnatomySequence = [anatomy]
    made.PixelValueTransformationSequence = [values]
    made.ViewCodeSequence = [_code(pydicom, *_VIEWS[phantom.case.view[1:]])]
    return made


def _frame(pydicom: Any, phantom: Phantom, z: int) -> Any:
    content, place, made = (pydicom.dataset.Dataset() for _ in range(3))
    content.StackID = "1"
    content.InStackPositionNumber = z + 1
    content.FrameAcquisitionNumber = 1
    place.ImagePositionPatient = ["0", "0", format(z * phantom.frame.slice_mm, ".4f")]
    made.FrameContentSequence = [content]
    made.PlanePositionSequence = [place]
    return made


def _code(pydicom: Any, value: str, meaning: str) -> Any:
    made = pydicom.dataset.Dataset()
    made.CodeValue, made.CodingSchemeDesignator, made.CodeMeaning = value, "SCT", meaning
    return made
