"""Views of images: each pixel of a copy is that of the image one step away, and the edge is repeated."""

from typing import Any

import numpy as np
import pytest

from jaxaudit.data import views as module
from jaxaudit.data.views import SHIFTS, shifted_views
from jaxaudit.errors import InputError


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1), (3, 6, 3), (1, 1)])
@pytest.mark.parametrize("views", [1, 3, 5, 9])
def test_every_view_is_the_image_moved_by_a_pixel(shape: tuple[int, ...], views: int) -> None:
    images = np.random.default_rng(1).integers(256, size=(3, *shape)).astype(np.uint8)
    shifted = shifted_views(images, views)
    assert (shifted.shape, shifted.dtype) == ((3, views, *shape), images.dtype)
    np.testing.assert_array_equal(shifted[:, 0], images)
    for view, (down, right) in enumerate(SHIFTS[:views]):
        for row in range(shape[0]):
            for column in range(shape[1]):
                before = min(max(row - down, 0), shape[0] - 1), min(max(column - right, 0), shape[1] - 1)
                np.testing.assert_array_equal(shifted[:, view, row, column], images[:, before[0], before[1]])


def test_shifts_are_different_ones() -> None:
    assert len(set(SHIFTS)) == len(SHIFTS)
    assert {abs(step) for shift in SHIFTS for step in shift} == {0, 1}


@pytest.mark.parametrize("shape", [(64,), (), (4, 4, 2), (2, 4, 4, 3)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        shifted_views(np.zeros((3, *shape), np.float32), 5)


def test_views_that_take_too_much_memory_are_refused(monkeypatch: Any) -> None:
    images = np.zeros((3, 4, 4), np.uint8)
    monkeypatch.setattr(module, "MAX_BYTES", 5 * images.nbytes)
    assert shifted_views(images, 5).shape == (3, 5, 4, 4)
    with pytest.raises(InputError):
        shifted_views(images, 9)
