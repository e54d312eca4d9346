"""Folders of images, digits to try with, and preprocessing: as Pillow does, by the image alone."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from jaxaudit.data import Examples, digits, is_image, load, prepare_images
from jaxaudit.data.images import LUMA, WEIGHT_ONE, _weights
from jaxaudit.errors import InputError


def make(inputs, name="set"):
    return Examples(inputs, np.zeros(len(inputs), int), ("a",), name)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def resize_by_pillow(image, size):
    return np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(1, 40)] * 4), st.sampled_from([1, 3]), st.integers(0, 99))
def test_resize_equals_pillow(sizes, channels, seed):
    images = noise(2, sizes[0], sizes[1], channels, seed=seed)
    images[1] = np.where(images[1] > 127, 255, 0)  # pure black and white: the largest differences
    size = sizes[2:]
    ours = prepare_images(make(images), size, gray=False).inputs
    assert ours.shape == (2, *size, channels)
    assert ours.dtype == np.float32
    squeezed = images[..., 0] if channels == 1 else images
    theirs = np.stack([resize_by_pillow(image, size) for image in squeezed]).reshape(ours.shape)
    # Pillow rounds to whole levels after each of its two passes: half a level each, the first one averaged again.
    np.testing.assert_allclose(ours * 255, theirs, atol=1.01)


def test_shapes_of_images():
    shapes = {(8, 8): True, (8, 8, 3): True, (64,): False, (8, 8, 5): False}
    assert {shape: is_image(make(noise(1, *shape))) for shape in shapes} == shapes
    gray, alpha = noise(2, 8, 8), np.concatenate([noise(2, 8, 8, 3), noise(2, 8, 8, 1, seed=1)], axis=3)
    first = prepare_images(make(gray)).inputs
    assert first.shape == (2, 28, 28, 1)
    for images, same in ((gray[..., None], gray), (alpha, alpha[..., :3])):
        one, other = (prepare_images(make(each), gray=False).inputs for each in (images, same))
        np.testing.assert_array_equal(one, other)


def test_the_result_depends_on_the_image_alone(monkeypatch):
    images = noise(64, 32, 32, 3)
    together = prepare_images(make(images)).record_hashes
    alone = [prepare_images(make(images[i : i + 1])).record_hashes[0] for i in range(64)]
    assert together.tolist() == [one.tobytes() for one in alone]
    monkeypatch.setattr("jaxaudit.data.images.CHUNK_BYTES", 8 * images[0].size * 7)
    assert prepare_images(make(images)).record_hashes.tolist() == together.tolist()


@pytest.mark.parametrize(
    ("inputs", "size", "message"),
    [
        (np.zeros((2, 30), np.float32), (28, 28), r"set: has records of shape \(30,\).*no image preprocessing"),
        (np.full((2, 4, 4), 255.0), (28, 28), r"from 255 to 255\. Images are .*floats in \[0, 1\]"),
        (np.zeros((2, 4, 4), np.int32), (28, 28), "numbers of type int32"),
        (np.ones((2, 4, 4), np.uint8), (28, 28), "largest value"),
        (noise(2, 4, 4), (0, 28), "at least 1x1, got 0x28"),
    ],
)
def test_what_is_refused(inputs, size, message):
    with pytest.raises(InputError, match=message):
        prepare_images(make(inputs), size)


def test_digits_keep_every_gray_level():
    examples = digits()
    levels, labels = load_digits(return_X_y=True)
    assert examples.inputs.dtype == np.uint8
    assert examples.class_names == tuple("0123456789")
    np.testing.assert_array_equal(np.rint(examples.inputs.astype(float) * 16 / 255).reshape(-1, 64), levels)
    np.testing.assert_array_equal(examples.labels, labels)
    assert examples.inputs.max() == 255


def write(root, name, array, mode=None):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(array))
    (image if mode is None else image.quantize(4) if mode == "P" else image.convert(mode)).save(path)
    return path


def gray(level, shape=(3, 4)):
    return np.full(shape, level, np.uint8)


def colour(level, shape=(3, 4)):
    return np.stack([gray(level, shape), gray(0, shape), gray(255, shape)], axis=2)


def test_gray_folders_in_sorted_order(tmp_path):
    for name, level in (("dog/b.png", 4), ("dog/a.bmp", 3), ("cat/2.png", 2), ("cat/10.PNG", 1)):
        write(tmp_path, name, gray(level))
    (tmp_path / ".cache").mkdir()
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"")
    examples = load(str(tmp_path))
    assert examples.class_names == ("cat", "dog")
    assert examples.labels.tolist() == [0, 0, 1, 1]
    assert examples.inputs.shape == (4, 3, 4)
    assert examples.inputs[:, 0, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("array", "mode", "expected"),
    [
        (gray(200), "1", 255),
        (gray(200), "LA", 200),
        (colour(200), "RGBA", [200, 0, 255]),
        (colour(200), "P", [200, 0, 255]),
        (gray(9).astype(np.uint16) + 40_000, None, 40_009),
    ],
)
def test_modes(tmp_path, array, mode, expected):
    write(tmp_path, "a/1.png", array, mode)
    inputs = load(str(tmp_path)).inputs
    assert inputs[0, 0, 0].tolist() == expected
    assert inputs.dtype == array.dtype


def png_of_16_bits(kind, channels, width=4, height=3):
    """Of the kind of colours that PNG has under this number; of 4x3 pixels, whatever its header says."""
    rows = b"".join(b"\0" + np.arange(4 * channels, dtype=">u2").tobytes() for _ in range(3))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    parts = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks.items()]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_nothing_is_lost_without_a_word(tmp_path):
    """What Pillow would give with fewer bits, frames or kinds of colour; gray of the same bits is read."""
    path = tmp_path / "a" / "1.png"
    path.parent.mkdir()
    path.write_bytes(png_of_16_bits(0, 1))
    assert load(str(tmp_path)).inputs[0, 0].tolist() == [0, 1, 2, 3]
    many = Image.fromarray(colour(1))
    for content in (
        *(png_of_16_bits(kind, channels) for kind, channels in ((2, 3), (4, 2), (6, 4))),
        saved(Image.new("CMYK", (4, 3)), "JPEG"),
        *(saved(many, form, save_all=True, append_images=[Image.fromarray(colour(9))]) for form in ("PNG", "WEBP")),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"1\.png: has "):
            load(str(tmp_path))


def saved(image, form, **how):
    file = io.BytesIO()
    image.save(file, form, **how)
    return file.getvalue()


@pytest.mark.parametrize("form", ["png", "jpg"])
def test_photographs_are_turned_as_their_tag_says(tmp_path, form):
    """The eight orientations of EXIF, as viewers show them; a tag of any other number turns nothing."""
    corner = np.zeros((16, 32, 3), np.uint8)
    corner[:8, :8] = 255  # the upper left
    stored = {2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: lambda a: a.transpose(1, 0, 2)}
    stored |= {6: np.rot90, 7: lambda a: np.rot90(a.transpose(1, 0, 2), 2), 8: lambda a: np.rot90(a, -1)}
    for tag in range(10):
        exif = Image.Exif()
        exif[0x0112] = tag
        turned = np.ascontiguousarray(stored.get(tag, np.asarray)(corner))
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(turned).save(tmp_path / "a" / f"{tag}.{form}", exif=exif, quality=100)
    found = load(str(tmp_path)).inputs.astype(int)
    assert found.shape == (10, 16, 32, 3)
    assert abs(found - corner).max() < 60  # JPEG and WebP round


def test_sixteen_bits_keep_their_levels():
    """Of 65,536 levels no two become one, and the sums of a resize are exact: compared with Python's whole numbers."""
    levels = np.arange(2**16, dtype=np.uint16).reshape(1, 256, 256)
    prepared = prepare_images(make(levels), (256, 256)).inputs
    np.testing.assert_array_equal(prepared.ravel(), (np.arange(2**16) / 65535).astype(np.float32))


def test_images_of_8_and_of_16_bits_are_not_mixed(tmp_path):
    write(tmp_path, "a/1.png", gray(100))
    write(tmp_path, "a/2.png", gray(100).astype(np.uint16))
    for size in (None, (2, 2)):
        with pytest.raises(InputError, match=r"2\.png: is 3x4 pixels of uint16 but"):
            load(str(tmp_path), image_size=size)
    for largest, kind in ((1, np.uint8), (255, np.uint16)):
        with pytest.raises(InputError, match=f"largest value of {largest}"):
            prepare_images(make(np.full((1, 2, 2), largest, kind)))


def test_an_image_through_which_something_shows_is_refused(tmp_path):
    """Nobody knows what a model saw there."""
    write(tmp_path, "a/1.png", np.dstack([colour(7), gray(255)]))
    assert load(str(tmp_path)).inputs[:, 0, 0].tolist() == [[7, 0, 255]]
    write(tmp_path, "a/2.png", np.dstack([colour(7), gray(3)]))
    with pytest.raises(InputError, match="shows through"):
        load(str(tmp_path))


@pytest.mark.parametrize("keep_gray", [True, False])
@pytest.mark.parametrize("coloured", [(), (0,), (2,), (0, 1, 2, 3, 4)])
def test_an_image_is_prepared_alike_among_images_of_its_size_and_of_others(tmp_path, coloured, keep_gray):
    shapes = [(9, 7), (9, 7), (12, 30), (28, 28), (5, 4)]
    images = [noise(*shape, *((3,) if k in coloured else ()), seed=k) for k, shape in enumerate(shapes)]
    for k, image in enumerate(images):
        write(tmp_path / "mixed", f"a/{k}.png", image)
    found = prepare_images(load(f"{tmp_path / 'mixed'}", image_size=(8, 6), gray=keep_gray), (8, 6), keep_gray)
    channels = 3 if coloured and not keep_gray else 1
    assert found.inputs.shape == (5, 8, 6, channels)
    for k, image in enumerate(images):
        alone = Examples(image[None], np.zeros(1, np.int32), ("a",), "alone")
        expected = prepare_images(alone, (8, 6), keep_gray).inputs[0]
        np.testing.assert_array_equal(found.inputs[k], np.broadcast_to(expected, (8, 6, channels)))


def test_splits_of_differing_sizes_are_not_joined(tmp_path):
    write(tmp_path, "train/a/1.png", gray(100))
    other = write(tmp_path, "test/a/2.png", gray(200, (5, 4)))
    with pytest.raises(InputError, match="differ in the shape of records"):
        load(f"{tmp_path}@all", image_size=(4, 4))
    # Those of one size are not brought to another, yet.
    assert load(f"{tmp_path}@test", image_size=(4, 4)).inputs.dtype == np.uint8
    other.rename(tmp_path / "train" / "a" / "2.png")
    with pytest.raises(InputError, match=r"2.png: is 5x4 pixels of uint8 but .*1.png is 3x4 of .*`image_size`"):
        load(f"{tmp_path / 'train'}")


def test_refused_folders(tmp_path, monkeypatch):
    def refused(message):
        with pytest.raises(InputError, match=message):
            load(str(tmp_path))

    refused("is no data set")
    write(tmp_path, "a/1.png", gray(1))
    (tmp_path / "b").mkdir()
    refused("no images")
    write(tmp_path, "b/1.png", gray(1))
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.data.images.MAX_BYTES", 50)
        refused(r"2 images of 3x4: takes")
    for name, add in (("more", Path.mkdir), ("1.tif", Path.touch), ("notes.txt", Path.touch), ("pipe.png", os.mkfifo)):
        other = tmp_path / "b" / name
        add(other)
        refused("b: contains no images .*, or something else")
        other.rename(tmp_path / f".{name}")


def test_refused_images(tmp_path, monkeypatch):
    path = write(tmp_path, "a/1.png", np.random.default_rng(0).integers(0, 256, (30, 30), dtype=np.uint8))
    whole = path.read_bytes()
    # Pillow would hand PostScript to Ghostscript.
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started"))
    for content in (whole[: len(whole) // 2], b"rubbish", b"", saved(Image.new("L", (3, 4)), "EPS")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"1.png: cannot be read as an image .*is it damaged"):
            load(str(tmp_path))
    path.write_bytes(whole)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match=r"1\.png: cannot be read as an image \(Image size \(900 pixels\) exceeds"):
        load(str(tmp_path))
    monkeypatch.undo()
    # Refused by its header, before there is room for it.
    path.write_bytes(png_of_16_bits(0, 1, 9000, 8000))
    with pytest.raises(InputError, match=r"1\.png: has 9000x8000 pixels"):
        load(str(tmp_path))


def test_sums_are_exact():
    # The same weights in Python's whole numbers.
    (image,) = images = noise(1, 5, 6, 3)
    rows, columns = _weights(5, 3), _weights(6, 4)
    ours = prepare_images(make(images), (3, 4)).inputs[0, :, :, 0]
    assert rows is not None and columns is not None  # noqa: PT018
    weights = [[[int(each) for each in row] for row in matrix] for matrix in (rows, columns)]
    for i, j in np.ndindex(3, 4):
        places = np.ndindex(5, 6, 3)
        total = sum(weights[0][i][y] * weights[1][j][x] * int(LUMA[c]) * int(image[y, x, c]) for y, x, c in places)
        assert ours[i, j] == np.float32(total / (WEIGHT_ONE**2 * 255 * 1000))
