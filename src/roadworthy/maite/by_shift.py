"""Every shift as an augmentation of MAITE under its own name; written by `python tests/written_code.py`."""

from roadworthy.maite.augmentation import ShiftAugmentation


class Noise(ShiftAugmentation):
    """Sensor noise: (1 - f) img + f n, n uniform on 0..255 for every pixel and channel, f = `factor`."""

    shift = "noise"


class Grey(ShiftAugmentation):
    """Loss of colour: (1 - f) img + f grey, grey = 0.299 R + 0.587 G + 0.114 B, f = `factor`."""

    shift = "grey"


class Snow(ShiftAugmentation):
    """Falling snow: soft white flakes, `textures.snow` turned by any angle."""

    shift = "snow"


class Rain(ShiftAugmentation):
    """Falling rain: bright streaks, `textures.rain` turned by up to 20 degrees from upright."""

    shift = "rain"


class Fog(ShiftAugmentation):
    """Fog: (1 - f) img + f fog, f = `factor`."""

    shift = "fog"


class Perspective(ShiftAugmentation):
    """Seen at an angle: the corners move inwards at random, then the image is rescaled to fill the frame again."""

    shift = "perspective"


class Blur(ShiftAugmentation):
    """Out of focus: Gaussian blur, standard deviation `sigma` pixels at 64x64, cut off at 3 sigma, edges mirrored."""

    shift = "blur"


class Rotation(ShiftAugmentation):
    """A turned sign or camera: rotation about the centre by an angle uniform in [-degrees, degrees]."""

    shift = "rotation"


class Crop(ShiftAugmentation):
    """A badly placed cut-out: a random window of `size` / 64 of each side (whole pixels, rounded down), scaled back."""

    shift = "crop"


class Reflection(ShiftAugmentation):
    """Glare: min(255, img + blob), the blob a white square of side `size` (pixels at 64x64), Gaussian-blurred."""

    shift = "reflection"


class CDefocusBlur(ShiftAugmentation):
    """Out of focus: the mean over a disc of `radius` pixels, its rim softened by a Gaussian of `softness` pixels."""

    shift = "c_defocus_blur"


class CGlassBlur(ShiftAugmentation):
    """Frosted glass: Gaussian blur of `sigma`, pixels replaced by near ones, the same blur again."""

    shift = "c_glass_blur"


class CMotionBlur(ShiftAugmentation):
    """Camera in motion: a trail of half a Gaussian, `sigma` pixels, cut off at 2 `radius`, at up to 45 degrees."""

    shift = "c_motion_blur"


class CZoomBlur(ShiftAugmentation):
    """Driving forwards: the mean of the image and `layers` copies, enlarged about the centre by 1 to `largest`."""

    shift = "c_zoom_blur"


class CGaussianBlur(ShiftAugmentation):
    """Gaussian blur of standard deviation `sigma` pixels, cut off at 3 sigma, edges repeated."""

    shift = "c_gaussian_blur"


class CContrast(ShiftAugmentation):
    """Flat light: m + k (img - m), m the mean of each channel, k = `keep`."""

    shift = "c_contrast"


class CElasticTransform(ShiftAugmentation):
    """A wavy pane: the image is skewed, then img(p + u(p)), u a smooth random field; edges mirrored."""

    shift = "c_elastic_transform"


class CPixelate(ShiftAugmentation):
    """Low resolution: shrunk to `share` of each side (whole pixels, rounded down) by means over cells, enlarged
    again."""

    shift = "c_pixelate"


class CJpegCompression(ShiftAugmentation):
    """A poor recording: stored as JPEG of that `quality` (whole number, 1 to 100) and read again."""

    shift = "c_jpeg_compression"


class CSaturate(ShiftAugmentation):
    """Colours too pale or too strong: saturation s becomes min(1, `factor` s + `offset`), hue and brightness stay."""

    shift = "c_saturate"


class CGaussianNoise(ShiftAugmentation):
    """Low light: img + 255 s n, n standard normal, s = `deviation`."""

    shift = "c_gaussian_noise"


class CShotNoise(ShiftAugmentation):
    """Few photons: 255 Poisson(p img / 255) / p, p = `photons` at white."""

    shift = "c_shot_noise"


class CImpulseNoise(ShiftAugmentation):
    """Bit errors: a share `amount` of all values becomes black or white, each as likely."""

    shift = "c_impulse_noise"


class CSpeckleNoise(ShiftAugmentation):
    """Noise that grows with brightness: img (1 + s n), n standard normal, s = `deviation`."""

    shift = "c_speckle_noise"


class CSnow(ShiftAugmentation):
    """Driving snow: k img + (1 - k) max(img, 1.5 grey + 127.5) + s + s turned by 180 degrees, k = `keep`."""

    shift = "c_snow"


class CFrost(ShiftAugmentation):
    """Ice on the lens: `keep` img + `ice` frost, frost a random window of one of five drawn panes, maybe mirrored."""

    shift = "c_frost"


class CFog(ShiftAugmentation):
    """Banks of fog: (img + d clouds) m / (m + d 255), d = `density`, m the largest value of the image."""

    shift = "c_fog"


class CBrightness(ShiftAugmentation):
    """Overexposure: the largest channel v of a pixel becomes min(255, v + 255 b), b = `amount`; its hue stays."""

    shift = "c_brightness"


class CSpatter(ShiftAugmentation):
    """Drops on the lens, where smooth normal noise exceeds `threshold`: `liquid` is water or mud."""

    shift = "c_spatter"


class Size(ShiftAugmentation):
    """Another distance: the image is scaled about its centre by `factor` or by 1 / `factor`, as likely."""

    shift = "size"


class Dark(ShiftAugmentation):
    """Too little light: g img, rounded, g = `gain`."""

    shift = "dark"


class SensorPixelFaults(ShiftAugmentation):
    """Dead and hot pixels: each pixel is faulty with chance `share`, and then black or white, as likely."""

    shift = "sensor_pixel_faults"


class SensorBlackFrame(ShiftAugmentation):
    """A black frame: (1 - f) img, f = `loss`; at f = 1 the shutter is closed, below a faint picture is left."""

    shift = "sensor_black_frame"


class SensorWhiteFrame(ShiftAugmentation):
    """A white frame: 255 - (1 - f) (255 - img), f = `loss`; at f = 1 every pixel is saturated."""

    shift = "sensor_white_frame"


class SensorShiftedRows(ShiftAugmentation):
    """Rows out of step: blocks of `rows` rows (pixels at 64x64) move sideways and wrap around."""

    shift = "sensor_shifted_rows"


class SensorSmearedRows(ShiftAugmentation):
    """Smeared rows: in a `share` of the rows, drawn at random, the pixel at `start` of the width fills the rest."""

    shift = "sensor_smeared_rows"


class SensorStuckColumns(ShiftAugmentation):
    """Stuck columns: a `share` of the columns, drawn at random, show one grey value each, uniform on 0..255."""

    shift = "sensor_stuck_columns"


class SensorMissingChannel(ShiftAugmentation):
    """A channel fails: red, green or blue, drawn at random, becomes (1 - f) of itself, f = `loss`."""

    shift = "sensor_missing_channel"


class SensorHalfFrame(ShiftAugmentation):
    """A frame that ends early: the lower `missing` share of its rows was never read and is black."""

    shift = "sensor_half_frame"


class FogVeil(ShiftAugmentation):
    """Fog that thickens with distance, in linear light: L = L0 t + A (1 - t)."""

    shift = "fog_veil"


class Rainfall(ShiftAugmentation):
    """Rain of `mm_per_h`: streaks of the drops near the camera, over a veil of those far away, in linear light."""

    shift = "rainfall"
