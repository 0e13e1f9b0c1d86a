"""Writes src/fedfv/data/fashion-tops/ from Fashion-MNIST, reproducibly, and prints the checksums for `_fashion.py`.

    python scripts/make_fashion_tops.py

`images` contains 28 x 28 bytes for each image of three classes: 6000 training images of each class, then 1000 test
images of each class. `pixels` contains the mean and then the standard deviation of each of the 784 pixels over all
60,000 training images: `mean(axis=0)` and `std(axis=0)` of the float32 images, which NumPy sums row by row in float32.
"""

import hashlib
import lzma
from pathlib import Path

import numpy as np

from fedfv.data._fashion import FASHION_MNIST
from fedfv.data._files import read
from fedfv.data._idx import parse_all

FOLDER = Path(__file__).parents[1] / "src/fedfv/data/fashion-tops"
CLASSES = (0, 2, 6)  # T-shirt, pullover, shirt

# Differences to the pixel above compress best among the filters of xz.
FILTERS = [
    {"id": lzma.FILTER_DELTA, "dist": 28},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0},
]


def main() -> None:
    images, labels = parse_all(read(FASHION_MNIST))
    train, test = slice(60_000), slice(60_000, None)
    tops = np.concatenate([images[part][labels[part] == label] for part in (train, test) for label in CLASSES])
    numbers = images[train].reshape(-1, 784).astype(np.float32)
    pixels = np.stack([numbers.mean(axis=0), numbers.std(axis=0)]).astype("<f4")
    for name, contents in (("images", tops.tobytes()), ("pixels", pixels.tobytes())):
        compressed = lzma.compress(contents, filters=FILTERS)
        (FOLDER / f"{name}.xz").write_bytes(compressed)
        print(f'"{name}": "{hashlib.sha256(contents).hexdigest()}",  # {len(compressed):,} bytes')


if __name__ == "__main__":
    main()
