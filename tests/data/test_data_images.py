"""Preprocessing equals Pillow's within its rounding, and depends on the image alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from jaxaudit.data.examples import Examples
from jaxaudit.data.images import is_image, prepare_images
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
    gray = noise(2, 8, 8)
    with_axis, alpha = gray[..., None], np.concatenate([noise(2, 8, 8, 3), noise(2, 8, 8, 1, seed=1)], axis=3)
    first = prepare_images(make(gray)).inputs
    assert first.shape == (2, 28, 28, 1)
    np.testing.assert_array_equal(prepare_images(make(with_axis)).inputs, first)
    np.testing.assert_array_equal(prepare_images(make(with_axis), gray=False).inputs, first)
    np.testing.assert_array_equal(
        prepare_images(make(alpha), gray=False).inputs, prepare_images(make(alpha[..., :3]), gray=False).inputs
    )


def test_levels_stay_levels_without_resizing_and_white_stays_white():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    ours = prepare_images(make(levels), (16, 16)).inputs.ravel()
    np.testing.assert_array_equal(ours, np.arange(256, dtype=np.float32) / 255)
    for shape in ((3, 5), (50, 50)):
        white = np.full((1, *shape, 3), 255, np.uint8)
        np.testing.assert_array_equal(prepare_images(make(white)).inputs, 1)


def test_the_result_depends_on_the_image_alone(monkeypatch):
    images = noise(64, 32, 32, 3)
    together = prepare_images(make(images)).record_hashes
    alone = [prepare_images(make(images[i : i + 1])).record_hashes[0] for i in range(64)]
    assert together.tolist() == [one.tobytes() for one in alone]
    monkeypatch.setattr("jaxaudit.data.images.CHUNK_BYTES", 8 * images[0].size * 7)
    assert prepare_images(make(images)).record_hashes.tolist() == together.tolist()


def test_sums_are_exact():
    # The same weights in Python's whole numbers.
    from jaxaudit.data.images import LUMA, WEIGHT_ONE, _weights

    (image,) = images = noise(1, 5, 6, 3)
    rows, columns = _weights(5, 3), _weights(6, 4)
    ours = prepare_images(make(images), (3, 4)).inputs[0, :, :, 0]
    assert rows is not None and columns is not None  # noqa: PT018
    weights = [[[int(each) for each in row] for row in matrix] for matrix in (rows, columns)]
    for i, j in np.ndindex(3, 4):
        places = np.ndindex(5, 6, 3)
        total = sum(weights[0][i][y] * weights[1][j][x] * int(LUMA[c]) * int(image[y, x, c]) for y, x, c in places)
        assert ours[i, j] == np.float32(total / (WEIGHT_ONE**2 * 255 * 1000))


def test_float_images_in_the_unit_interval_are_taken_as_they_are():
    floats = np.random.default_rng(0).random((2, 8, 8), np.float32)
    np.testing.assert_array_equal(prepare_images(make(floats), (8, 8)).inputs[..., 0], floats)
    bytes_ = noise(2, 8, 8)
    np.testing.assert_allclose(
        prepare_images(make(bytes_ / np.float32(255))).inputs, prepare_images(make(bytes_)).inputs, atol=1e-6
    )


@pytest.mark.parametrize(
    ("inputs", "size", "message"),
    [
        (np.zeros((2, 30), np.float32), (28, 28), r"set: records of shape \(30,\) are not images"),
        (np.full((2, 4, 4), 255.0), (28, 28), "from 255 to 255; divide by 255"),
        (np.full((2, 4, 4), -0.5), (28, 28), r"from -0\.5 to -0\.5; rescale those of all sets alike"),
        (np.zeros((2, 4, 4), np.int32), (28, 28), "images of type int32"),
        (np.ones((2, 4, 4), np.uint8), (28, 28), "largest value"),
        (noise(2, 4, 4), (0, 28), "at least 1x1, got 0x28"),
    ],
)
def test_what_is_refused(inputs, size, message):
    with pytest.raises(InputError, match=message):
        prepare_images(make(inputs), size)
