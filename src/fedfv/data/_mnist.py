"""MNIST: handwritten digits."""

from pathlib import Path

import torch

from fedfv.data._dataset import Dataset
from fedfv.data._files import Files, read
from fedfv.data._idx import parse_all

MNIST = Files(
    folder="mnist",
    digests={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)


def mnist(folder: Path | str | None = None) -> Dataset:
    """MNIST, 60,000 training and 10,000 test images of shape (1, 28, 28), pixels from 0 to 1."""
    images, labels = parse_all(read(MNIST, folder))
    return Dataset(
        inputs=torch.from_numpy(images).unsqueeze(1).float().div_(255),
        targets=torch.from_numpy(labels).long(),
        num_classes=10,
        class_names=tuple("0123456789"),
        num_train=60_000,
    )
