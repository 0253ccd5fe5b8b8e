"""CURE-TSD: videos of drives past traffic signs, with and without challenges, and text files with the signs' corners.

Videos, anywhere below the root, are named by the type and number of the sequence, then the source, type and level of
the challenge, such as `01_04_01_09_03.mp4`: real data, sequence 4, rain at level 3. The signs of a sequence are the
same under every challenge and stand in one file, such as `01_04.txt`, with a line per sign and frame:

    frameNumber_signType_llx_lly_lrx_lry_ulx_uly_urx_ury

Frames are counted from 001. Corners are in pixels from the upper left corner of the picture, and a box is their hull:
which of them a file calls upper or lower does not matter. Neither occlusion nor truncation is annotated: every sign
counts as not occluded, and as truncated where its box reaches the edge of the picture.

Tracks are not annotated either. A sign is taken for the one of an earlier frame where both are of one type, at most
`LONGEST_GAP` frames apart, and their boxes overlap once each is made twice as wide and high about its centre; of
several candidates the nearest centre counts, and no two signs of a frame continue one track. The rule would rather
join two signs that look alike than count one sign twice, since bounds must not be too narrow.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.data.curation.cutouts import touches_edge
from roadworthy.data.curation.frames import AnnotatedObject, Box, Frame, annotation_format, object_id
from roadworthy.data.curation.reading import finite, malformed, read_text, require_folder, sorted_files
from roadworthy.data.cure_tsr import CHALLENGES, SEQUENCES, SIGNS, STRONGEST, Choice, parse_choice

HEADER = "frameNumber_signType_llx_lly_lrx_lry_ulx_uly_urx_ury"
VIDEO_SUFFIXES = (".mp4", ".avi")
TEST_SEQUENCES = {
    "real": frozenset((4, 5, 6, 7, 8, 18, 19, 21, 24, 26, 31, 38, 39, 41, 47)),
    "unreal": frozenset((2, 4, 6, 9, 12, 13, 16, 17, 18, 20, 22, 28, 31, 32, 36)),
}
"""The sequences that the authors of the data set keep for tests; all others are for training."""
LONGEST_GAP = 10
_VIDEO_NAME = re.compile(r"(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)", re.ASCII)
_ANNOTATIONS_NAME = re.compile(r"\d\d_\d\d", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?\d+", re.ASCII)


@dataclass(frozen=True)
class Video:
    """What the name of a video says.

    >>> Video.of(Path("01_04_01_09_03.mp4"))
    Video(path=PosixPath('01_04_01_09_03.mp4'), sequence='real', number=4, challenge='rain', level=3)
    """

    path: Path
    sequence: str
    number: int
    challenge: str
    level: int

    @classmethod
    def of(cls, path: Path) -> Video:
        """The video of that file; a name of another form is an `InputError`."""
        match = _VIDEO_NAME.fullmatch(path.stem)
        if match is not None:
            sequence, number, _, challenge, level = map(int, match.groups())
            if 1 <= sequence <= len(SEQUENCES) and challenge < len(CHALLENGES) and level <= STRONGEST:
                return cls(path, SEQUENCES[sequence - 1], number, CHALLENGES[challenge], level)
        raise InputError(
            f"the video {path} is not named as in CURE-TSD, sequenceType_sequenceNumber_challengeSourceType_"
            "challengeType_challengeLevel such as 01_04_01_09_03.mp4"
        )

    @property
    def drive(self) -> str:
        """The name of the annotations, which all videos of a sequence share: `01_04`."""
        return self.path.stem[:5]

    @property
    def split(self) -> str:
        """`test` or `train`, as the authors of the data set divide it."""
        return "test" if self.number in TEST_SEQUENCES[self.sequence] else "train"

    def is_chosen(self, choice: Choice) -> bool:
        """Whether sequence, challenge and level are those of a choice, where None stands for all."""
        values = (self.sequence, self.challenge, self.level)
        return all(chosen in (None, value) for chosen, value in zip(choice, values, strict=True))


@dataclass(frozen=True)
class Sign:
    """A line of the annotations: a sign in a frame, with the track that it was put on."""

    line: int
    frame: int
    kind: str
    box: Box
    track: str = ""


@annotation_format(
    "cure_tsd",
    classes={sign: (sign,) for sign in SIGNS},
    keep_hidden=(),
    splits={"train": {"train": 0.8, "validation": 0.2}, "test": "test"},
)
def read_cure_tsd(
    root: Path, *, sequence: str = SEQUENCES[0], challenge: int | str = 0, level: int | None = None
) -> Iterator[Frame]:
    """The frames with signs of the chosen videos below `root`, by name and number; pictures are decoded when asked for.

    sequence   "real" (default), "unreal" or "both"
    challenge  a number or name of `CHALLENGES` (default 0, none), or "all"
    level      1 to 5, or None for all

    All videos of a sequence, whatever the challenge, are one sequence of frames and share their tracks. Annotations of
    sequences without a chosen video are not read. Only the signs of one sequence are in memory.
    """
    choice = parse_choice(sequence, challenge, level)
    require_folder(root, "give the folder of CURE-TSD that holds its videos and annotations")
    paths = sorted(
        (path for ending in VIDEO_SUFFIXES for path in sorted_files(root, ending)), key=lambda path: path.name
    )
    videos = [video for video in map(Video.of, paths) if video.is_chosen(choice)]
    if not videos:
        raise InputError(f"{root} holds none of the videos asked for among {len(paths)} with the ending .mp4 or .avi")
    repeated = [first for first, second in pairwise(videos) if first.path.stem == second.path.stem]
    if repeated:
        raise InputError(f"two videos below {root} are named {repeated[0].path.stem}: keep one of them")
    annotation_files = _annotation_files(root)
    drive, signs = "", dict[int, list[Sign]]()
    for video in videos:
        if video.drive not in annotation_files:
            raise InputError(f"there is no {video.drive}.txt below {root} with the annotations of {video.path}")
        if video.drive != drive:
            drive, signs = video.drive, read_signs(annotation_files[video.drive])
        yield from _read_video(video, annotation_files[video.drive], signs)


def _annotation_files(root: Path) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted_files(root, ".txt"):
        if not _ANNOTATIONS_NAME.fullmatch(path.stem):
            continue
        if path.stem in files:
            raise InputError(f"the annotations {files[path.stem]} and {path} have one name: keep one of them")
        files[path.stem] = path
    return files


def read_signs(path: Path) -> dict[int, list[Sign]]:
    """The signs of an annotation file by frame, each with its track."""
    signs: dict[int, list[Sign]] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if not text or text == HEADER:
            continue
        try:
            sign = _sign(text, number)
        except ValueError as error:
            raise malformed(path, number, error) from None
        signs.setdefault(sign.frame, []).append(sign)
    return _with_tracks(path.stem, signs)


def _sign(text: str, line: int) -> Sign:
    words = text.split("_")
    expected = HEADER.count("_") + 1
    if len(words) != expected:
        raise ValueError(f"there are {len(words)} values where {expected} are expected, {HEADER}")
    for word in words[:2]:
        if not _WHOLE_NUMBER.fullmatch(word):
            raise ValueError(f"frameNumber and signType must be whole numbers, not {word!r}")
    frame, sign_type = int(words[0]), int(words[1])
    if frame < 1:
        raise ValueError(f"frames are counted from 1, there is no frame {frame}")
    if not 1 <= sign_type <= len(SIGNS):
        raise ValueError(f"signType must be a number from 01 to {len(SIGNS)}, not {words[1]}")
    corners = [finite(word, name) for word, name in zip(words[2:], HEADER.split("_")[2:], strict=True)]
    x, y = corners[::2], corners[1::2]
    return Sign(line, frame, SIGNS[sign_type - 1], (min(x), min(y), max(x), max(y)))


def _with_tracks(drive: str, signs: Mapping[int, list[Sign]]) -> dict[int, list[Sign]]:
    """The same signs, each with a track by the rule of this module, in the order of the frames."""
    tracked: dict[int, list[Sign]] = {}
    latest: dict[str, Sign] = {}
    for frame in sorted(signs):
        latest = {track: sign for track, sign in latest.items() if frame - sign.frame <= LONGEST_GAP}
        pairs = sorted(
            (_centre_distance(sign.box, earlier.box), position, track)
            for position, sign in enumerate(signs[frame])
            for track, earlier in latest.items()
            if sign.kind == earlier.kind and _overlap_doubled(sign.box, earlier.box)
        )
        tracks: dict[int, str] = {}
        for _, position, track in pairs:
            if position not in tracks and track not in tracks.values():
                tracks[position] = track
        tracked[frame] = []
        for position, sign in enumerate(signs[frame]):
            track = tracks.get(position, f"{drive}_line{sign.line}")
            on_track = Sign(sign.line, frame, sign.kind, sign.box, track)
            tracked[frame].append(on_track)
            latest[track] = on_track
    return tracked


def _centre_distance(first: Box, second: Box) -> float:
    return float(np.hypot(first[0] + first[2] - second[0] - second[2], first[1] + first[3] - second[1] - second[3])) / 2


def _overlap_doubled(first: Box, second: Box) -> bool:
    """Whether two boxes overlap, or touch, once each is twice as wide and high about its centre."""
    return all(
        abs(first[axis] + first[axis + 2] - second[axis] - second[axis + 2]) / 2
        <= (first[axis + 2] - first[axis]) + (second[axis + 2] - second[axis])
        for axis in (0, 1)
    )


def _read_video(video: Video, annotations: Path, signs: Mapping[int, list[Sign]]) -> Iterator[Frame]:
    width, height, count = _measure(video.path)
    for number, in_frame in signs.items():
        if 0 < count < number:
            line = in_frame[0].line
            raise malformed(annotations, line, f"frame {number} is not in {video.path}, which has {count} frames")
        frame_id = f"{video.path.stem}_{number:03d}"
        yield Frame(
            id=frame_id,
            image=VideoPicture(video.path, number - 1),
            width=width,
            height=height,
            objects=tuple(
                AnnotatedObject(
                    id=object_id(frame_id, position),
                    kind=sign.kind,
                    box=sign.box,
                    truncated=touches_edge(sign.box, width, height),
                    track=sign.track,
                )
                for position, sign in enumerate(in_frame)
            ),
            conditions={"sequence": video.sequence, "challenge": video.challenge, "level": str(video.level)},
            split=video.split,
            sequence=video.drive,
        )


def _measure(path: Path) -> tuple[int, int, int]:
    """Width, height and number of frames of a video, as its header says: 0 frames where it says nothing of them."""
    capture = _open(path)
    properties = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_COUNT)
    width, height, count = (int(capture.get(name)) for name in properties)
    capture.release()
    return width, height, count


def _open(path: Path) -> cv2.VideoCapture:
    if not path.is_file():
        raise InputError(f"there is no video {path}")
    capture = cv2.VideoCapture(str(path))
    if not capture.isOpened():
        raise InputError(f"the video {path} cannot be decoded: it is damaged or of a kind that OpenCV does not know")
    return capture


@dataclass(frozen=True)
class VideoPicture:
    """A picture of a video by its position, counted from 0: called, it decodes it as uint8 (H, W, 3) RGB.

    Positions are counted by decoding, never by jumping, which is inexact in some files. Pictures in rising order cost
    one pass over the video, and each thread has one video open at a time.
    """

    path: Path
    position: int

    def __call__(self) -> NDArray[np.uint8]:
        """Decode the picture; a video that ends before it is an `InputError`."""
        video: _OpenVideo | None = getattr(_OF_THREAD, "video", None)
        if video is None or video.path != self.path or self.position < video.decoded - 1:
            if video is not None:
                video.capture.release()
            video = _OF_THREAD.video = _OpenVideo(self.path, _open(self.path))
        while video.decoded <= self.position:
            video.decode_next()
        return video.latest.copy()


_OF_THREAD = threading.local()


class _OpenVideo:
    """A video that is being read, how many of its pictures are decoded, and the latest of them."""

    def __init__(self, path: Path, capture: cv2.VideoCapture) -> None:
        self.path, self.capture, self.decoded = path, capture, 0
        self.latest: NDArray[np.uint8] = np.zeros((0, 0, 3), dtype=np.uint8)

    def decode_next(self) -> None:
        is_read, picture = self.capture.read()
        if not is_read:
            raise InputError(f"the video {self.path} ends after {self.decoded} frames, before one that is annotated")
        self.latest = np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)
        self.decoded += 1
