"""ACDC's folders, on small volumes made here."""

import gzip
import struct
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
from support.small_sets import write_patient

from jaxaudit.data.sets.acdc import GROUPS, load_acdc
from jaxaudit.errors import InputError

TABLE = "patient,field_strength\npatient001,1.5\n2,3.0\n003,3T\npatient004,1.5\n"


@pytest.fixture
def acdc(tmp_path):
    root = tmp_path / "acdc"
    write_patient(root, "patient001", "DCM")
    write_patient(root, "patient002", "RV", (6, 4, 1, 2))
    write_patient(root / "training", "patient003", "HCM")
    write_patient(root, "patient004", "MINF", (7, 7, 1, 1))
    (tmp_path / "table.csv").write_text(TABLE)
    return root, tmp_path / "table.csv"


def test_slices_of_one_field_strength(acdc: tuple[Path, Path]):
    examples, patients = load_acdc(*acdc, 3.0, size=8)
    assert examples.class_names == GROUPS
    assert examples.name == "acdc-3T"
    assert examples.inputs.shape == (1 * 2 + 2 * 3, 8, 8)
    assert examples.inputs.dtype == np.uint8
    assert patients.tolist() == ["patient002"] * 2 + ["patient003"] * 6
    assert [examples.class_names[label] for label in examples.labels] == ["RV"] * 2 + ["HCM"] * 6
    assert set(load_acdc(*acdc, 1.5).patients) == {"patient001", "patient004"}
    assert load_acdc(*acdc, 1.5).examples.inputs.shape[1:] == (256, 256)


def slow_slices(volume, size):
    """One pixel at a time."""
    low, high = np.percentile(volume.astype(np.float32), (1, 99))
    result = []
    for frame in range(volume.shape[3]):
        for depth in range(volume.shape[2]):
            canvas = np.zeros((size, size))
            for x in range(volume.shape[0]):
                for y in range(volume.shape[1]):
                    column = x - max(0, (volume.shape[0] - size) // 2) + max(0, (size - volume.shape[0]) // 2)
                    row = y - max(0, (volume.shape[1] - size) // 2) + max(0, (size - volume.shape[1]) // 2)
                    if 0 <= column < size and 0 <= row < size:
                        level = (volume[x, y, depth, frame] - low) / (high - low)
                        canvas[row, column] = min(max(level, 0), 1)
            result.append(canvas)
    return np.stack(result)


@pytest.mark.parametrize("size", [3, 4, 5, 6, 9])
def test_order_scale_and_centre(tmp_path, size):
    volume = write_patient(tmp_path, "patient001")
    (tmp_path / "table.csv").write_text(TABLE)
    examples, _ = load_acdc(tmp_path, tmp_path / "table.csv", 1.5, size=size)
    np.testing.assert_allclose(examples.inputs / 255, slow_slices(volume, size), atol=0.51 / 255)


def expect(acdc: tuple[Path, Path], message, strength=3.0, **options):
    with pytest.raises(InputError, match=message):
        load_acdc(*acdc, strength, **options)


def test_missing_or_unknown_metadata(acdc):
    root, table = acdc
    info = root / "patient002" / "Info.cfg"
    info.write_text("Group: XYZ\n")
    expect(acdc, r"Info\.cfg: names the unknown group 'XYZ'; it")
    info.write_text("Height: 3\n")
    expect(acdc, r"Info.cfg: names no Group")
    info.unlink()
    expect(acdc, r"Info.cfg: cannot be read \(No such file")
    info.write_text("Group: RV\n")
    write_patient(root, "patient005")
    expect(acdc, "patient005; add its field strength")
    table.write_text(TABLE + "patient005,1.5\n")
    expect(acdc, "no patient was scanned at 7 T; the table", 7.0)
    expect(acdc, "at least 1 pixel, got 0", size=0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("patient,tesla\n1,3\n", "has no column 'field_strength'"),
        ("name,field_strength\n1,3\n", "has no column 'patient'"),
        ("patient,field_strength\n1,3\nJohn,3\n", "no patient or no field strength; write a patient"),
        ("patient,field_strength\n1,strong\n", "no patient or no field"),
        ("patient,field_strength\n1,3\npatient001,1.5\n", "row 2 gives a patient a second field strength"),
    ],
)
def test_bad_tables(acdc, table, message):
    acdc[1].write_text(table)
    expect(acdc, message)


def test_missing_or_damaged_volumes(acdc):
    path = acdc[0] / "patient002" / "patient002_4d.nii.gz"
    whole = path.read_bytes()
    expect(acdc, r"\(6, 4, 1, 2\), more than the", max_bytes=100)
    unreadable = r"patient002_4d.nii.gz: is not a readable NIfTI file .*is the download complete"
    for content, message in (
        *((wrong, unreadable) for wrong in (b"rubbish", b"", gzip.compress(gzip.decompress(whole)[:400]))),
        (whole[:60], r"patient002_4d.nii.gz: cannot be read .*was the download interrupted"),
    ):
        path.write_bytes(content)
        expect(acdc, message)
    for volume, message in (
        (np.zeros((3, 3, 3), np.int16), r"has shape \(3, 3, 3\); ACDC's volumes are \[x, y, slice, frame\]"),
        (np.full((3, 3, 1, 1), np.nan, np.float32), "NaN or infinite values"),
        (np.full((3, 3, 1, 1), 1e300), "NaN or infinite values"),
    ):
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), path)
        expect(acdc, message)
    path.unlink()
    expect(acdc, r"no patient002_4d\.nii\.gz")


def test_a_header_of_a_volume_is_not_believed(acdc, capfd):
    """Too long a shape, numbers far behind the file's end, more than the shape needs: nothing of it is unpacked."""
    root, table = acdc
    path = root / "patient002" / "patient002_4d.nii.gz"
    whole = gzip.decompress(path.read_bytes())
    for place, code, value in ((42, "<h", 32767), (70, "<h", 1536), (108, "<f", 1e18), (108, "<f", 1e9), (40, "<h", 7)):
        length = struct.calcsize(code)
        path.write_bytes(gzip.compress(whole[:place] + struct.pack(code, value) + whole[place + length :]))
        expect(acdc, "patient002_4d.nii.gz: ")
    path.write_bytes(gzip.compress(whole + bytes(2**22)))
    expect(acdc, "more than the")
    path.write_bytes(gzip.compress(struct.pack("<i", 999) + whole[4:]))  # nibabel would say so on stderr
    load_acdc(root, table, 3.0)
    nibabel.save(nibabel.Nifti1Image(np.full((1, 1, 3, 2), 7, np.int16), np.eye(4)), path)
    expect(acdc, "its header", size=10**5)
    assert capfd.readouterr().err == ""


def test_without_nibabel_or_patients(acdc, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for name, message in (("empty", "no patient folders"), ("none", "there is no such folder")):
        expect((tmp_path / name, acdc[1]), message)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    expect(acdc, r"pip install 'jaxaudit\[medical\]'")
