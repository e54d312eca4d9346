"""What charts show is what the data are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.audits.pdtp.result import Risk
from jaxaudit.plots import ks, pdtp, style
from jaxaudit.plots.style import as_inline_svg, as_png, as_svg, with_default_style

SAMPLES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0]), min_size=1, max_size=30)


@given(SAMPLES, SAMPLES)
@settings(max_examples=30)
def test_the_gap_is_the_kolmogorov_smirnov_distance_where_it_is_attained(first: list[float], second: list[float]):
    a, b = np.array(first), np.array(second)
    gap = ks.widest_gap_at(a, b)
    assert gap.distance == pytest.approx(max(abs(np.mean(a <= x) - np.mean(b <= x)) for x in first + second), abs=1e-12)
    shares = sorted([np.mean(a <= gap.confidence), np.mean(b <= gap.confidence)])
    assert (gap.low, gap.high) == pytest.approx(tuple(shares), abs=1e-12)
    assert gap.high - gap.low == pytest.approx(gap.distance, abs=1e-12)


def test_a_drawn_curve_is_near_the_empirical_cdf_however_many_records():
    sample = np.sort(np.random.default_rng(0).beta(20, 0.5, 50_000))
    places, shares = ks._steps(sample, 0.0, 1.0)
    assert len(places) <= ks.VERTICES + 2
    drawn = shares[np.searchsorted(places, sample, side="right") - 1]
    far = np.abs(drawn - ks.share_at_most(sample, sample))
    across = np.abs(places[np.searchsorted(places, sample, side="right") - 1] - sample)
    # A pixel of a chart is larger than either.
    assert (np.minimum(far, across) <= 2 / ks.VERTICES).all()
    few = np.array([0.25, 0.25, 0.5])
    places, shares = ks._steps(few, 0.0, 1.0)
    assert places.tolist() == [0.0, 0.25, 0.5, 1.0]
    assert shares.tolist() == pytest.approx([0.0, 2 / 3, 1.0, 1.0])


def test_log_odds():
    values = ks.plotted_log_odds(np.array([0.0, 0.25, 0.5, 0.75, 1.0], np.float32))
    assert values.tolist() == pytest.approx([-14, -np.log(3), 0, np.log(3), 14])


def rows_without_numbers(axes: Any) -> None:
    ks.draw_rho(axes, [ks.RhoRow("a $x$ name", np.array([np.nan, 1.0]), np.nan, np.nan, np.nan)])


def risk(value: float, floor: float) -> Risk:
    return Risk(0, value, value, None, 0.0, floor, "yes", 1, 1, False)


def infinite_risk(axes: Any) -> None:
    pdtp.draw_risks(axes, [risk(np.inf, np.inf)], limit=1.0, seeded=True)


def infinite_reduction(axes: Any) -> None:
    pdtp.draw_reduction(axes, np.array([np.inf, 1.4, 0.6]), limit=1.0)
    assert all(not line.get_clip_on() for line in axes.lines if line.get_marker() == "D")


def largest_risk(axes: Any) -> None:
    """Ticks beyond it are larger than any number."""
    pdtp.draw_risks(axes, [risk(1.5, 1e308)], limit=1.0, seeded=True)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        *((rows_without_numbers, b"a $x$ name"), (infinite_risk, b"infinite"), (infinite_reduction, b"infinite")),
        (largest_risk, b"<?xml"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_numbers_that_are_none_infinite_or_as_large_as_they_come_are_drawn_in_silence(draw: Any, words: bytes):
    def figure():
        drawn, axes = style.canvas()
        draw(axes)
        return drawn

    assert words in as_svg(with_default_style(figure))


def test_exports():
    def draw():
        figure, axes = style.canvas()
        ks.draw_distances(axes, [("<b> & \u65e5", np.array([0.1, 0.2])), ("x", np.zeros(0))])
        return figure

    assert as_png(with_default_style(draw)).startswith(b"\x89PNG")
    assert as_svg(with_default_style(draw)) == as_svg(with_default_style(draw))
    inline = as_inline_svg(with_default_style(draw), "key", "a < title", "what is seen")
    assert inline == as_inline_svg(with_default_style(draw), "key", "a < title", "what is seen")
    assert '<title id="key-title">a &lt; title</title>' in inline
    assert "&lt;b&gt; &amp; \u65e5" in inline
    assert "var(--blue)" in inline
    assert "ns0:" not in inline
    assert "xlink" not in inline


def test_used_shares_are_drawn_where_they_are():
    _, axes = style.canvas()
    ks.draw_shares(
        axes,
        [ks.ShareMark("t", 0.4, 0.3, 0.5, 0.48, 0.1), ks.ShareMark("nothing known", np.nan, 0.0, 1.0, np.nan, np.nan)],
    )
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert drawn[:4] == [[0.3, 0.5], [0.4], [0.48], [0.1]]
    assert drawn[4] == [0.0, 1.0]
    assert np.isnan(drawn[5:]).all()
