"""What type checkers know of every shift as a function; written by `python tests/written_code.py`."""

from collections.abc import Sequence
from typing import Required, TypeAlias, TypedDict, Unpack, overload

from numpy.typing import ArrayLike

from roadworthy.core.types import Images
from roadworthy.shifts.arrays import Moved as Moved

Number: TypeAlias = float | None
Triple: TypeAlias = float | tuple[float, float, float] | None
Numbers: TypeAlias = Sequence[float] | None
Word: TypeAlias = str | None

class Alone(TypedDict, total=False):
    seed: int
    id: str | int | Sequence[str | int] | None
    depth: ArrayLike | None

class Boxed(Alone, total=False):
    boxes: Required[ArrayLike]
    masks: ArrayLike | None

class Masked(Alone, total=False):
    masks: Required[ArrayLike]

__all__ = [
    "blur",
    "c_brightness",
    "c_contrast",
    "c_defocus_blur",
    "c_elastic_transform",
    "c_fog",
    "c_frost",
    "c_gaussian_blur",
    "c_gaussian_noise",
    "c_glass_blur",
    "c_impulse_noise",
    "c_jpeg_compression",
    "c_motion_blur",
    "c_pixelate",
    "c_saturate",
    "c_shot_noise",
    "c_snow",
    "c_spatter",
    "c_speckle_noise",
    "c_zoom_blur",
    "crop",
    "dark",
    "fog",
    "fog_veil",
    "grey",
    "noise",
    "perspective",
    "rain",
    "rainfall",
    "reflection",
    "rotation",
    "sensor_black_frame",
    "sensor_frozen_frame",
    "sensor_half_frame",
    "sensor_missing_channel",
    "sensor_pixel_faults",
    "sensor_shifted_rows",
    "sensor_smeared_rows",
    "sensor_stuck_columns",
    "sensor_torn_frame",
    "sensor_white_frame",
    "size",
    "snow",
]

@overload
def noise(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Alone]) -> Images:
    """Sensor noise: (1 - f) img + f n, n uniform on 0..255 for every pixel and channel, f = `factor`."""

@overload
def noise(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def noise(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def grey(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Alone]) -> Images:
    """Loss of colour: (1 - f) img + f grey, grey = 0.299 R + 0.587 G + 0.114 B, f = `factor`."""

@overload
def grey(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def grey(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def snow(image: ArrayLike, level: Number = None, *, intensities: Numbers = None, **more: Unpack[Alone]) -> Images:
    """Falling snow: soft white flakes, `textures.snow` turned by any angle."""

@overload
def snow(image: ArrayLike, level: Number = None, *, intensities: Numbers = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def snow(image: ArrayLike, level: Number = None, *, intensities: Numbers = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def rain(image: ArrayLike, level: Number = None, *, intensities: Numbers = None, **more: Unpack[Alone]) -> Images:
    """Falling rain: bright streaks, `textures.rain` turned by up to 20 degrees from upright."""

@overload
def rain(image: ArrayLike, level: Number = None, *, intensities: Numbers = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def rain(image: ArrayLike, level: Number = None, *, intensities: Numbers = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def fog(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Alone]) -> Images:
    """Fog: (1 - f) img + f fog, f = `factor`."""

@overload
def fog(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def fog(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def perspective(
    image: ArrayLike, level: Number = None, *, strength: Number = None, scale: Number = None, **more: Unpack[Alone]
) -> Images:
    """Seen at an angle: the corners move inwards at random, then the image is rescaled to fill the frame again."""

@overload
def perspective(
    image: ArrayLike, level: Number = None, *, strength: Number = None, scale: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def perspective(
    image: ArrayLike, level: Number = None, *, strength: Number = None, scale: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def blur(image: ArrayLike, level: Number = None, *, sigma: Number = None, **more: Unpack[Alone]) -> Images:
    """Out of focus: Gaussian blur, standard deviation `sigma` pixels at 64x64, cut off at 3 sigma, edges mirrored."""

@overload
def blur(image: ArrayLike, level: Number = None, *, sigma: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def blur(image: ArrayLike, level: Number = None, *, sigma: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def rotation(image: ArrayLike, level: Number = None, *, degrees: Number = None, **more: Unpack[Alone]) -> Images:
    """A turned sign or camera: rotation about the centre by an angle uniform in [-degrees, degrees]."""

@overload
def rotation(image: ArrayLike, level: Number = None, *, degrees: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def rotation(image: ArrayLike, level: Number = None, *, degrees: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def crop(image: ArrayLike, level: Number = None, *, size: Number = None, **more: Unpack[Alone]) -> Images:
    """A badly placed cut-out: a random window of `size` / 64 of each side (whole pixels, rounded down), scaled back."""

@overload
def crop(image: ArrayLike, level: Number = None, *, size: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def crop(image: ArrayLike, level: Number = None, *, size: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def reflection(image: ArrayLike, level: Number = None, *, size: Number = None, **more: Unpack[Alone]) -> Images:
    """Glare: min(255, img + blob), the blob a white square of side `size` (pixels at 64x64), Gaussian-blurred."""

@overload
def reflection(image: ArrayLike, level: Number = None, *, size: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def reflection(image: ArrayLike, level: Number = None, *, size: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def c_defocus_blur(
    image: ArrayLike, level: Number = None, *, radius: Triple = None, softness: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Out of focus: the mean over a disc of `radius` pixels, its rim softened by a Gaussian of `softness` pixels."""

@overload
def c_defocus_blur(
    image: ArrayLike, level: Number = None, *, radius: Triple = None, softness: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_defocus_blur(
    image: ArrayLike, level: Number = None, *, radius: Triple = None, softness: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_glass_blur(
    image: ArrayLike,
    level: Number = None,
    *,
    sigma: Triple = None,
    reach: Triple = None,
    iterations: Triple = None,
    **more: Unpack[Alone],
) -> Images:
    """Frosted glass: Gaussian blur of `sigma`, pixels replaced by near ones, the same blur again."""

@overload
def c_glass_blur(
    image: ArrayLike,
    level: Number = None,
    *,
    sigma: Triple = None,
    reach: Triple = None,
    iterations: Triple = None,
    **more: Unpack[Boxed],
) -> Moved: ...
@overload
def c_glass_blur(
    image: ArrayLike,
    level: Number = None,
    *,
    sigma: Triple = None,
    reach: Triple = None,
    iterations: Triple = None,
    **more: Unpack[Masked],
) -> Moved: ...
@overload
def c_motion_blur(
    image: ArrayLike, level: Number = None, *, radius: Triple = None, sigma: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Camera in motion: a trail of half a Gaussian, `sigma` pixels, cut off at 2 `radius`, at up to 45 degrees."""

@overload
def c_motion_blur(
    image: ArrayLike, level: Number = None, *, radius: Triple = None, sigma: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_motion_blur(
    image: ArrayLike, level: Number = None, *, radius: Triple = None, sigma: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_zoom_blur(
    image: ArrayLike, level: Number = None, *, largest: Triple = None, layers: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Driving forwards: the mean of the image and `layers` copies, enlarged about the centre by 1 to `largest`."""

@overload
def c_zoom_blur(
    image: ArrayLike, level: Number = None, *, largest: Triple = None, layers: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_zoom_blur(
    image: ArrayLike, level: Number = None, *, largest: Triple = None, layers: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_gaussian_blur(image: ArrayLike, level: Number = None, *, sigma: Triple = None, **more: Unpack[Alone]) -> Images:
    """Gaussian blur of standard deviation `sigma` pixels, cut off at 3 sigma, edges repeated."""

@overload
def c_gaussian_blur(
    image: ArrayLike, level: Number = None, *, sigma: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_gaussian_blur(
    image: ArrayLike, level: Number = None, *, sigma: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_contrast(image: ArrayLike, level: Number = None, *, keep: Triple = None, **more: Unpack[Alone]) -> Images:
    """Flat light: m + k (img - m), m the mean of each channel, k = `keep`."""

@overload
def c_contrast(image: ArrayLike, level: Number = None, *, keep: Triple = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def c_contrast(image: ArrayLike, level: Number = None, *, keep: Triple = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def c_elastic_transform(
    image: ArrayLike,
    level: Number = None,
    *,
    push: Triple = None,
    sigma: Triple = None,
    skew: Triple = None,
    **more: Unpack[Alone],
) -> Images:
    """A wavy pane: the image is skewed, then img(p + u(p)), u a smooth random field; edges mirrored."""

@overload
def c_elastic_transform(
    image: ArrayLike,
    level: Number = None,
    *,
    push: Triple = None,
    sigma: Triple = None,
    skew: Triple = None,
    **more: Unpack[Boxed],
) -> Moved: ...
@overload
def c_elastic_transform(
    image: ArrayLike,
    level: Number = None,
    *,
    push: Triple = None,
    sigma: Triple = None,
    skew: Triple = None,
    **more: Unpack[Masked],
) -> Moved: ...
@overload
def c_pixelate(image: ArrayLike, level: Number = None, *, share: Triple = None, **more: Unpack[Alone]) -> Images:
    """Low resolution: shrunk to `share` of each side (whole pixels, rounded down) by means over cells, enlarged
    again."""

@overload
def c_pixelate(image: ArrayLike, level: Number = None, *, share: Triple = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def c_pixelate(image: ArrayLike, level: Number = None, *, share: Triple = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def c_jpeg_compression(
    image: ArrayLike, level: Number = None, *, quality: Triple = None, **more: Unpack[Alone]
) -> Images:
    """A poor recording: stored as JPEG of that `quality` (whole number, 1 to 100) and read again."""

@overload
def c_jpeg_compression(
    image: ArrayLike, level: Number = None, *, quality: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_jpeg_compression(
    image: ArrayLike, level: Number = None, *, quality: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_saturate(
    image: ArrayLike, level: Number = None, *, factor: Triple = None, offset: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Colours too pale or too strong: saturation s becomes min(1, `factor` s + `offset`), hue and brightness stay."""

@overload
def c_saturate(
    image: ArrayLike, level: Number = None, *, factor: Triple = None, offset: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_saturate(
    image: ArrayLike, level: Number = None, *, factor: Triple = None, offset: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_gaussian_noise(
    image: ArrayLike, level: Number = None, *, deviation: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Low light: img + 255 s n, n standard normal, s = `deviation`."""

@overload
def c_gaussian_noise(
    image: ArrayLike, level: Number = None, *, deviation: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_gaussian_noise(
    image: ArrayLike, level: Number = None, *, deviation: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_shot_noise(image: ArrayLike, level: Number = None, *, photons: Triple = None, **more: Unpack[Alone]) -> Images:
    """Few photons: 255 Poisson(p img / 255) / p, p = `photons` at white."""

@overload
def c_shot_noise(image: ArrayLike, level: Number = None, *, photons: Triple = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def c_shot_noise(
    image: ArrayLike, level: Number = None, *, photons: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_impulse_noise(image: ArrayLike, level: Number = None, *, amount: Triple = None, **more: Unpack[Alone]) -> Images:
    """Bit errors: a share `amount` of all values becomes black or white, each as likely."""

@overload
def c_impulse_noise(
    image: ArrayLike, level: Number = None, *, amount: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_impulse_noise(
    image: ArrayLike, level: Number = None, *, amount: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_speckle_noise(
    image: ArrayLike, level: Number = None, *, deviation: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Noise that grows with brightness: img (1 + s n), n standard normal, s = `deviation`."""

@overload
def c_speckle_noise(
    image: ArrayLike, level: Number = None, *, deviation: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_speckle_noise(
    image: ArrayLike, level: Number = None, *, deviation: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_snow(
    image: ArrayLike,
    level: Number = None,
    *,
    mean: Triple = None,
    spread: Triple = None,
    zoom: Triple = None,
    threshold: Triple = None,
    radius: Triple = None,
    sigma: Triple = None,
    keep: Triple = None,
    **more: Unpack[Alone],
) -> Images:
    """Driving snow: k img + (1 - k) max(img, 1.5 grey + 127.5) + s + s turned by 180 degrees, k = `keep`."""

@overload
def c_snow(
    image: ArrayLike,
    level: Number = None,
    *,
    mean: Triple = None,
    spread: Triple = None,
    zoom: Triple = None,
    threshold: Triple = None,
    radius: Triple = None,
    sigma: Triple = None,
    keep: Triple = None,
    **more: Unpack[Boxed],
) -> Moved: ...
@overload
def c_snow(
    image: ArrayLike,
    level: Number = None,
    *,
    mean: Triple = None,
    spread: Triple = None,
    zoom: Triple = None,
    threshold: Triple = None,
    radius: Triple = None,
    sigma: Triple = None,
    keep: Triple = None,
    **more: Unpack[Masked],
) -> Moved: ...
@overload
def c_frost(
    image: ArrayLike, level: Number = None, *, keep: Triple = None, ice: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Ice on the lens: `keep` img + `ice` frost, frost a random window of one of five drawn panes, maybe mirrored."""

@overload
def c_frost(
    image: ArrayLike, level: Number = None, *, keep: Triple = None, ice: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_frost(
    image: ArrayLike, level: Number = None, *, keep: Triple = None, ice: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_fog(
    image: ArrayLike, level: Number = None, *, density: Triple = None, decay: Triple = None, **more: Unpack[Alone]
) -> Images:
    """Banks of fog: (img + d clouds) m / (m + d 255), d = `density`, m the largest value of the image."""

@overload
def c_fog(
    image: ArrayLike, level: Number = None, *, density: Triple = None, decay: Triple = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def c_fog(
    image: ArrayLike, level: Number = None, *, density: Triple = None, decay: Triple = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def c_brightness(image: ArrayLike, level: Number = None, *, amount: Triple = None, **more: Unpack[Alone]) -> Images:
    """Overexposure: the largest channel v of a pixel becomes min(255, v + 255 b), b = `amount`; its hue stays."""

@overload
def c_brightness(image: ArrayLike, level: Number = None, *, amount: Triple = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def c_brightness(image: ArrayLike, level: Number = None, *, amount: Triple = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def c_spatter(
    image: ArrayLike,
    level: Number = None,
    *,
    mean: Triple = None,
    spread: Triple = None,
    sigma: Triple = None,
    threshold: Triple = None,
    strength: Triple = None,
    liquid: Word = None,
    **more: Unpack[Alone],
) -> Images:
    """Drops on the lens, where smooth normal noise exceeds `threshold`: `liquid` is water or mud."""

@overload
def c_spatter(
    image: ArrayLike,
    level: Number = None,
    *,
    mean: Triple = None,
    spread: Triple = None,
    sigma: Triple = None,
    threshold: Triple = None,
    strength: Triple = None,
    liquid: Word = None,
    **more: Unpack[Boxed],
) -> Moved: ...
@overload
def c_spatter(
    image: ArrayLike,
    level: Number = None,
    *,
    mean: Triple = None,
    spread: Triple = None,
    sigma: Triple = None,
    threshold: Triple = None,
    strength: Triple = None,
    liquid: Word = None,
    **more: Unpack[Masked],
) -> Moved: ...
@overload
def size(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Alone]) -> Images:
    """Another distance: the image is scaled about its centre by `factor` or by 1 / `factor`, as likely."""

@overload
def size(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def size(image: ArrayLike, level: Number = None, *, factor: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def dark(image: ArrayLike, level: Number = None, *, gain: Number = None, **more: Unpack[Alone]) -> Images:
    """Too little light: g img, rounded, g = `gain`."""

@overload
def dark(image: ArrayLike, level: Number = None, *, gain: Number = None, **more: Unpack[Boxed]) -> Moved: ...
@overload
def dark(image: ArrayLike, level: Number = None, *, gain: Number = None, **more: Unpack[Masked]) -> Moved: ...
@overload
def sensor_pixel_faults(
    image: ArrayLike, level: Number = None, *, share: Number = None, **more: Unpack[Alone]
) -> Images:
    """Dead and hot pixels: each pixel is faulty with chance `share`, and then black or white, as likely."""

@overload
def sensor_pixel_faults(
    image: ArrayLike, level: Number = None, *, share: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_pixel_faults(
    image: ArrayLike, level: Number = None, *, share: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_black_frame(image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Alone]) -> Images:
    """A black frame: (1 - f) img, f = `loss`; at f = 1 the shutter is closed, below a faint picture is left."""

@overload
def sensor_black_frame(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_black_frame(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_white_frame(image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Alone]) -> Images:
    """A white frame: 255 - (1 - f) (255 - img), f = `loss`; at f = 1 every pixel is saturated."""

@overload
def sensor_white_frame(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_white_frame(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_shifted_rows(
    image: ArrayLike, level: Number = None, *, rows: Number = None, reach: Number = None, **more: Unpack[Alone]
) -> Images:
    """Rows out of step: blocks of `rows` rows (pixels at 64x64) move sideways and wrap around."""

@overload
def sensor_shifted_rows(
    image: ArrayLike, level: Number = None, *, rows: Number = None, reach: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_shifted_rows(
    image: ArrayLike, level: Number = None, *, rows: Number = None, reach: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_smeared_rows(
    image: ArrayLike, level: Number = None, *, share: Number = None, start: Number = None, **more: Unpack[Alone]
) -> Images:
    """Smeared rows: in a `share` of the rows, drawn at random, the pixel at `start` of the width fills the rest."""

@overload
def sensor_smeared_rows(
    image: ArrayLike, level: Number = None, *, share: Number = None, start: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_smeared_rows(
    image: ArrayLike, level: Number = None, *, share: Number = None, start: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_stuck_columns(
    image: ArrayLike, level: Number = None, *, share: Number = None, **more: Unpack[Alone]
) -> Images:
    """Stuck columns: a `share` of the columns, drawn at random, show one grey value each, uniform on 0..255."""

@overload
def sensor_stuck_columns(
    image: ArrayLike, level: Number = None, *, share: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_stuck_columns(
    image: ArrayLike, level: Number = None, *, share: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_missing_channel(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Alone]
) -> Images:
    """A channel fails: red, green or blue, drawn at random, becomes (1 - f) of itself, f = `loss`."""

@overload
def sensor_missing_channel(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_missing_channel(
    image: ArrayLike, level: Number = None, *, loss: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_half_frame(
    image: ArrayLike, level: Number = None, *, missing: Number = None, **more: Unpack[Alone]
) -> Images:
    """A frame that ends early: the lower `missing` share of its rows was never read and is black."""

@overload
def sensor_half_frame(
    image: ArrayLike, level: Number = None, *, missing: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_half_frame(
    image: ArrayLike, level: Number = None, *, missing: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_frozen_frame(
    image: ArrayLike, level: Number = None, *, lag: int | None = None, **more: Unpack[Alone]
) -> Images:
    """A frozen frame: the image `lag` rows before in the data set is shown again, under the label of this one."""

@overload
def sensor_frozen_frame(
    image: ArrayLike, level: Number = None, *, lag: int | None = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_frozen_frame(
    image: ArrayLike, level: Number = None, *, lag: int | None = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def sensor_torn_frame(
    image: ArrayLike, level: Number = None, *, lag: int | None = None, share: Number = None, **more: Unpack[Alone]
) -> Images:
    """A torn frame: the lower `share` of its rows is still that of the image `lag` rows before in the data set."""

@overload
def sensor_torn_frame(
    image: ArrayLike, level: Number = None, *, lag: int | None = None, share: Number = None, **more: Unpack[Boxed]
) -> Moved: ...
@overload
def sensor_torn_frame(
    image: ArrayLike, level: Number = None, *, lag: int | None = None, share: Number = None, **more: Unpack[Masked]
) -> Moved: ...
@overload
def fog_veil(
    image: ArrayLike,
    level: Number = None,
    *,
    distance: Number = None,
    sky_distance: Number = None,
    background_distance: Number = None,
    camera_height: Number = None,
    focal: Number = None,
    horizon: Number = None,
    visual_range: Number = None,
    mor: Number = None,
    airlight: Number = None,
    **more: Unpack[Alone],
) -> Images:
    """Fog that thickens with distance, in linear light: L = L0 t + A (1 - t)."""

@overload
def fog_veil(
    image: ArrayLike,
    level: Number = None,
    *,
    distance: Number = None,
    sky_distance: Number = None,
    background_distance: Number = None,
    camera_height: Number = None,
    focal: Number = None,
    horizon: Number = None,
    visual_range: Number = None,
    mor: Number = None,
    airlight: Number = None,
    **more: Unpack[Boxed],
) -> Moved: ...
@overload
def fog_veil(
    image: ArrayLike,
    level: Number = None,
    *,
    distance: Number = None,
    sky_distance: Number = None,
    background_distance: Number = None,
    camera_height: Number = None,
    focal: Number = None,
    horizon: Number = None,
    visual_range: Number = None,
    mor: Number = None,
    airlight: Number = None,
    **more: Unpack[Masked],
) -> Moved: ...
@overload
def rainfall(
    image: ArrayLike,
    level: Number = None,
    *,
    distance: Number = None,
    sky_distance: Number = None,
    background_distance: Number = None,
    camera_height: Number = None,
    focal: Number = None,
    horizon: Number = None,
    mm_per_h: Number = None,
    exposure: Number = None,
    opacity: Number = None,
    angle: Number = None,
    jitter: Number = None,
    view: Number = None,
    airlight: Number = None,
    **more: Unpack[Alone],
) -> Images:
    """Rain of `mm_per_h`: streaks of the drops near the camera, over a veil of those far away, in linear light."""

@overload
def rainfall(
    image: ArrayLike,
    level: Number = None,
    *,
    distance: Number = None,
    sky_distance: Number = None,
    background_distance: Number = None,
    camera_height: Number = None,
    focal: Number = None,
    horizon: Number = None,
    mm_per_h: Number = None,
    exposure: Number = None,
    opacity: Number = None,
    angle: Number = None,
    jitter: Number = None,
    view: Number = None,
    airlight: Number = None,
    **more: Unpack[Boxed],
) -> Moved: ...
@overload
def rainfall(
    image: ArrayLike,
    level: Number = None,
    *,
    distance: Number = None,
    sky_distance: Number = None,
    background_distance: Number = None,
    camera_height: Number = None,
    focal: Number = None,
    horizon: Number = None,
    mm_per_h: Number = None,
    exposure: Number = None,
    opacity: Number = None,
    angle: Number = None,
    jitter: Number = None,
    view: Number = None,
    airlight: Number = None,
    **more: Unpack[Masked],
) -> Moved: ...
