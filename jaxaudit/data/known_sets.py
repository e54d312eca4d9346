"""Sets known by name, which come with a dependency and need no network: digits, tumours and wines of scikit-learn, and
printed digits."""

from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.table import Column, Table

SEED, RECORDS, SIZE = 20201004, 2000, 28
"""Of the printed digits."""
# The fonts of matplotlib that have digits; the others show symbols, boxes or nothing, and the 1 of cmmi10 is a small
# capital I.
FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)


def digits() -> Examples:
    """The 1,797 handwritten digits that scikit-learn carries, as `uint8[1797, 8, 8]`, white ink on black.

    scikit-learn stores 17 gray levels v = 0..16 (counts of set pixels in 4x4 blocks). They become round(v * 255 / 16),
    which is one-to-one: the level is `round(pixel * 16 / 255)`.

    Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI, CC BY 4.0 (its test part).

    >>> digits()
    Examples(digits: 1797 records of shape (8, 8), 10 classes)
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Examples(images, np.asarray(labels, np.int32), tuple("0123456789"), "digits")


def breast_cancer() -> Table:
    """569 tumours, 30 numbers each: W. Wolberg et al. (1995), Breast Cancer Wisconsin (Diagnostic), UCI, CC BY 4.0."""
    from sklearn.datasets import load_breast_cancer

    return _table(load_breast_cancer(), "breast-cancer")


def wine() -> Table:
    """178 wines of three growers, 13 numbers each: S. Aeberhard, M. Forina (1992), Wine, UCI, CC BY 4.0."""
    from sklearn.datasets import load_wine

    return _table(load_wine(), "wine")


def printed_digits() -> Examples:
    """2,000 printed digits, light on dark: `uint8[2000, 28, 28]`, to handwritten ones as SVHN is to MNIST.

    Rendered from the 21 TrueType fonts that matplotlib ships and that have digits (DejaVu, STIX, Computer Modern) with
    jitter of font, height, width, rotation, shear, shift, stroke thickness, blur and contrast.

    Guarantees: classes are balanced and shuffled; every call gives the same bytes (for one version of Pillow, whose
    FreeType draws the outlines); no two records are identical.

    >>> printed_digits()
    Examples(printed-digits: 2000 records of shape (28, 28), 10 classes)
    """
    generator = np.random.default_rng(SEED)
    labels = generator.permutation(np.arange(RECORDS, dtype=np.int32) % 10)
    jitter = _draw_jitter(generator)
    shapes = _draw_shapes(labels, jitter)
    sharp = _thicken(shapes, jitter.weight)
    soft = sharp + jitter.blur[:, None, None] * (_blurred(sharp) - sharp)
    paper, ink = jitter.paper[:, None, None], jitter.ink[:, None, None]
    images = np.rint(paper + (ink - paper) * soft).astype(np.uint8)
    return Examples(images, labels, tuple("0123456789"), "printed-digits")


def _table(bunch: Any, name: str) -> Table:
    columns = tuple(Column(str(feature)) for feature in bunch.feature_names)
    return Table(bunch.data, columns, bunch.target.astype(np.int32), tuple(map(str, bunch.target_names)), name)


class _Jitter(NamedTuple):
    """How each record is drawn; every field has one entry per record."""

    font: np.ndarray
    height: np.ndarray  # of a full-height digit, as a part of the image's
    width: np.ndarray  # factor
    rotation: np.ndarray  # radians, counter-clockwise
    shear: np.ndarray  # sideways per height
    shift: np.ndarray  # [n, 2], parts of the image
    weight: np.ndarray  # stroke thickness: below 0 thins, above 0 thickens
    blur: np.ndarray  # 0 sharp, 1 the full small blur
    paper: np.ndarray  # gray level of the background
    ink: np.ndarray  # gray level of the digit


def _draw_jitter(generator: np.random.Generator) -> _Jitter:
    def uniform(low: float, high: float, *shape: int) -> np.ndarray:
        return generator.uniform(low, high, (RECORDS, *shape)).astype(np.float32)

    return _Jitter(
        font=generator.integers(len(FONTS), size=RECORDS),
        height=uniform(0.62, 0.92),
        width=uniform(0.85, 1.25),
        rotation=uniform(-0.2, 0.2),
        shear=uniform(-0.2, 0.25),
        shift=uniform(-0.05, 0.05, 2),
        weight=uniform(-0.2, 0.3),
        blur=uniform(0.0, 1.0),
        paper=uniform(0.0, 50.0),
        ink=uniform(150.0, 255.0),
    )


def _draw_shapes(labels: np.ndarray, jitter: _Jitter) -> np.ndarray:
    """`float32[n, SIZE, SIZE]` ink coverage in [0, 1]."""
    # Imported here: a run on the user's own arrays needs neither Pillow nor matplotlib.
    from PIL import Image

    # Drawn at twice the size and then halved, which smooths the edges.
    canvas = 2 * SIZE
    glyph_height = round(1.15 * canvas)
    glyphs = _glyphs(glyph_height)
    shapes = np.empty((len(labels), SIZE, SIZE), np.float32)
    # Image coordinates -> glyph coordinates: unshift, unrotate, unshear, unscale (y runs down).
    vertical = glyph_height / (jitter.height * canvas)
    horizontal = vertical / jitter.width
    cosine, sine = np.cos(jitter.rotation), np.sin(jitter.rotation)
    a = horizontal * (cosine + jitter.shear * sine)
    b = horizontal * (jitter.shear * cosine - sine)
    d, e = vertical * sine, vertical * cosine
    centre = canvas * (0.5 + jitter.shift)
    middle = glyphs[0][0].width / 2
    c = middle - a * centre[:, 0] - b * centre[:, 1]
    f = middle - d * centre[:, 0] - e * centre[:, 1]
    coefficients = np.stack([a, b, c, d, e, f], axis=1).astype(np.float64).tolist()
    for i, (font, digit) in enumerate(zip(jitter.font.tolist(), labels.tolist(), strict=True)):
        drawn = glyphs[font][digit].transform(
            (canvas, canvas), Image.Transform.AFFINE, coefficients[i], Image.Resampling.BILINEAR
        )
        shapes[i] = np.asarray(drawn.reduce(2))
    return shapes / 255


def _glyphs(height: int) -> list[list]:
    """The ten digits of every font, centred on square images and scaled so that an 8 is `height` pixels high."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = f"{matplotlib.get_data_path()}/fonts/ttf"
    side = 2 * height
    glyphs = []
    for name in FONTS:
        path = f"{folder}/{name}.ttf"
        _, top, _, bottom = ImageFont.truetype(path, 200, layout_engine=ImageFont.Layout.BASIC).getbbox("8")
        font = ImageFont.truetype(path, 200 * height / (bottom - top), layout_engine=ImageFont.Layout.BASIC)
        row = []
        for digit in "0123456789":
            left, top, right, bottom = font.getbbox(digit)
            image = Image.new("L", (side, side))
            corner = ((side - left - right) / 2, (side - top - bottom) / 2)
            ImageDraw.Draw(image).text(corner, digit, fill=255, font=font)
            row.append(image)
        glyphs.append(row)
    return glyphs


def _thicken(shapes: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Ink coverage with the outline moved outwards (weight above 0) or inwards: a threshold of the blurred shape."""
    weight = weight[:, None, None]
    moved = _blurred(shapes) * 1.6 - 0.3 + weight
    return np.where(weight > 0, np.maximum(shapes, moved), np.minimum(shapes, moved + 0.35)).clip(0, 1)


def _blurred(images: np.ndarray) -> np.ndarray:
    """Each image under the 3x3 binomial filter, its border repeated."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 4
