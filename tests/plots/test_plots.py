"""What charts show is what the data are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jaxaudit.metrics import Usage
from jaxaudit.plots import charts, style

KNOWN = Usage("shadow", "inconclusive", 0.2, 0.2, 0.4, 0.3, 0.5, 0.1, (), 0.48, None, "used")

SAMPLES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0]), min_size=1, max_size=30)


@given(SAMPLES, SAMPLES)
@settings(max_examples=30)
def test_the_gap_is_the_kolmogorov_smirnov_distance_where_it_is_attained(first: list[float], second: list[float]):
    a, b = np.array(first), np.array(second)
    gap = charts.widest_gap_at(a, b)
    assert gap.high - gap.low == pytest.approx(
        max(abs(np.mean(a <= x) - np.mean(b <= x)) for x in first + second), abs=1e-12
    )
    shares = sorted([np.mean(a <= gap.confidence), np.mean(b <= gap.confidence)])
    assert (gap.low, gap.high) == pytest.approx(tuple(shares), abs=1e-12)


def test_exports():
    def draw():
        figure, axes = style.canvas()
        charts.draw_shares(axes, [("<b> & \u65e5 $x$", KNOWN)])
        return figure

    inline = style.as_inline_svg(style.with_default_style(draw), "key", "a < title", "what is seen")
    assert inline == style.as_inline_svg(style.with_default_style(draw), "key", "a < title", "what is seen")
    assert '<title id="key-title">a &lt; title</title>' in inline
    assert "&lt;b&gt; &amp; \u65e5 $x$" in inline
    assert "var(--blue)" in inline
    assert "ns0:" not in inline
    assert "xlink" not in inline


def test_used_shares_are_drawn_where_they_are():
    _, axes = style.canvas()
    unknown = replace(KNOWN, fraction=np.nan, detectable=None)
    charts.draw_shares(axes, [("t", KNOWN), ("nothing known", unknown)])
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert drawn[:4] == [[0.3, 0.5], [0.4], [0.48], [0.1]]
    assert np.isnan(drawn[4:]).all()


def test_a_drawn_curve_is_near_the_empirical_cdf_however_many_records():
    sample = np.random.default_rng(0).beta(20, 0.5, 50_000)
    _, axes = style.canvas()
    charts.draw_confidences(axes, [sample] * 3, charts.widest_gap_at(sample, sample), 0.0)
    places, shares = np.asarray(axes.lines[0].get_data())
    assert len(places) == charts.VERTICES
    odds = charts.plotted_log_odds(sample)
    assert shares.tolist() == [np.mean(odds <= place) for place in places]
    assert (shares[0], shares[-1]) == (np.mean(odds == -charts.LOG_ODDS), 1.0)
    assert np.diff(places).max() <= 2.01 * charts.LOG_ODDS / charts.VERTICES


def test_log_odds():
    values = charts.plotted_log_odds(np.array([0.0, 0.25, 0.5, 0.75, 1.0], np.float32))
    assert values.tolist() == pytest.approx([-14, -np.log(3), 0, np.log(3), 14])
