"""ACDC: cardiac MR volumes (NIfTI) as labelled 2-D slices, by the scanner's field strength."""

import math
import re
from pathlib import Path

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.formats.text_table import read_csv
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import expanded, open_data
from jaxaudit.errors import InputError

SIZE = 256
GROUPS = ("DCM", "HCM", "MINF", "NOR", "RV")
# Without clipping, a few very bright pixels (vessels, artefacts) would leave the heart only the darkest levels.
PERCENTILES = (1, 99)
COLUMNS = ["patient", "field_strength"]
_ROW = re.compile(r"patient\d{3} \d+(\.\d+)?")
_WORKING_COPIES = 3  # of the pixels as float32


def load_acdc(root: str | Path, field_strength_table: str | Path, strength: float) -> Examples:
    """All slices of all frames of the patients scanned at `strength` tesla, as `uint8[n, 256, 256]`.

    Looks for `patientNNN/Info.cfg` (its `Group` is the class: DCM, HCM, MINF, NOR or RV) and
    `patientNNN/patientNNN_4d.nii.gz` (`[x, y, slice, frame]`) in `root` and in its folders (training, testing). Order:
    by patient, then frame, then slice. `field_strength_table` is a CSV file with columns `patient` (patient001) and
    `field_strength` (1.5 or 3.0), which the public Info.cfg does not say.

    Each volume is clipped to its 1st and 99th percentile and scaled to 0..255 over all its frames; a constant volume
    becomes 0. Slices are cropped or padded with 0 around their centre, which keeps the scale of pixels; rows are y and
    columns x. 256 pixels cover all but the margins of ACDC's slices (154x224 to 428x512).

    Reference: Bernard et al. (2018), Deep Learning Techniques for Automatic MRI Cardiac Multi-structures Segmentation
    and Diagnosis; split by field strength: Liu & Tsaftaris (2020), section 3.2.
    """
    root = expanded(root)
    strengths = _read_strengths(expanded(field_strength_table))
    folders = sorted(p for p in [*root.glob("patient*"), *root.glob("*/patient*")] if p.is_dir())
    unknown = [folder.name for folder in folders if folder.name not in strengths]
    if unknown:
        raise InputError(f"{field_strength_table}: has no entry for {unknown[0]}; add its field strength.")
    chosen = [folder for folder in folders if strengths[folder.name] == strength]
    if not chosen:
        raise InputError(
            f"{root}: has no patient folders (patient001, ...) of patients scanned at {strength:g} T; is this ACDC's "
            f"folder? The table has {', '.join(f'{value:g} T' for value in sorted(set(strengths.values())))}."
        )
    slices = [_read_volume(folder) for folder in chosen]
    labels = np.repeat([GROUPS.index(_read_group(folder)) for folder in chosen], list(map(len, slices)))
    return Examples(np.concatenate(slices), labels.astype(np.int32), GROUPS, f"acdc-{strength:g}T")


def _read_strengths(path: Path) -> dict[str, float]:
    table = read_csv(path)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True) if table.header == COLUMNS else ()
    strengths = {patient: float(value) for patient, value in rows if _ROW.fullmatch(f"{patient} {value}")}
    if not strengths or len(strengths) < table.rows:
        raise InputError(
            f"{path}: is no table of the columns patient and field_strength with one row a patient, such as "
            "patient001,1.5 or patient002,3.0."
        )
    return strengths


def _read_group(folder: Path) -> str:
    path = folder / "Info.cfg"
    with open_data(path) as file:
        text = file.read(2**16).decode("utf-8", "replace")
    match = re.search(r"^\s*Group\s*:\s*(\S+)", text, re.MULTILINE)
    if match is None or match[1] not in GROUPS:
        raise InputError(f"{path}: names no Group of {', '.join(GROUPS)}; is the download complete?")
    return match[1]


def _read_volume(folder: Path) -> np.ndarray:
    """`uint8[frames * slices, SIZE, SIZE]`."""
    try:
        import nibabel
    except ImportError as error:
        raise InputError("reading ACDC needs nibabel: pip install 'jaxaudit[medical]'.") from error
    path = folder / f"{folder.name}_4d.nii.gz"
    with parsing(f"{path}: is not a readable NIfTI file", "is the download complete?"):
        image = nibabel.Nifti1Image.from_filename(path)
        shape = tuple(map(int, image.shape))
        if len(shape) != 4 or 0 in shape:
            raise InputError(f"{path}: has shape {shape}; ACDC's volumes are [x, y, slice, frame].")
        refuse_larger(
            f"{path}, {shape}", max(_WORKING_COPIES * 4 * math.prod(shape), math.prod(shape[2:]) * SIZE**2), MAX_BYTES
        )
        volume = image.get_fdata(caching="unchanged", dtype=np.float32)
    # Beyond that the arithmetic below could overflow; no scanner comes near.
    if not (np.isfinite(volume).all() and np.abs(volume).max() < 1e30):
        raise InputError(f"{path}: has NaN or infinite values; is the download complete?")
    low, high = np.percentile(volume, PERCENTILES)
    scaled = ((volume - low) * (255 / (high - low) if high > low else 0)).clip(0, 255)
    pixels = np.rint(scaled).astype(np.uint8).transpose(3, 2, 1, 0)
    return _centred(pixels.reshape(-1, *pixels.shape[2:]), SIZE)


def _centred(slices: np.ndarray, size: int) -> np.ndarray:
    """`[n, size, size]`: the middle of each slice, padded with black; an odd margin goes to the start."""
    result = np.zeros((len(slices), size, size), slices.dtype)
    source, target = [], []
    for extent in slices.shape[1:]:
        kept = min(extent, size)
        source.append(slice((extent - kept) // 2, (extent - kept) // 2 + kept))
        target.append(slice((size - kept) // 2, (size - kept) // 2 + kept))
    result[:, target[0], target[1]] = slices[:, source[0], source[1]]
    return result
