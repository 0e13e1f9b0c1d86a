"""Fashion-MNIST: photographs of clothes, all ten classes or the three of the paper's Table 3."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from fedfv.data._dataset import Dataset
from fedfv.data._files import Files, read
from fedfv.data._idx import parse_all

FASHION_MNIST = Files(
    folder="fashion-mnist",
    digests={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # the mirror of the authors, without https
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
)

# These two come with fedfv and are written by scripts/make_fashion_tops.py, which describes their contents.
PIXELS = Files(
    folder="fashion-tops", digests={"pixels": "c732e94b7bcf8028dad48737f1879183a570f0d29b8e816343d237443066f84f"}
)
FASHION_TOPS = Files(
    folder="fashion-tops",
    digests={"images": "9efbea6bb736483b77602902d92930d77c987c2d07b027c14724cefcb80c3759", **PIXELS.digests},
)


def fashion_mnist(folder: Path | str | None = None) -> Dataset:
    """Fashion-MNIST, 60,000 training and 10,000 test images of 784 pixels, each pixel normalised.

    A pixel x becomes (x - mu) / (sigma + 0.001), with its mean mu and deviation sigma over the training images.
    """
    images, labels = parse_all(read(FASHION_MNIST, folder))
    return Dataset(
        inputs=_normalise(images, read(PIXELS)["pixels"]),
        targets=torch.from_numpy(labels).long(),
        num_classes=10,
        class_names=(
            "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
        ),
        num_train=60_000,
    )  # fmt: skip


def fashion_tops(folder: Path | str | None = None) -> Dataset:
    """The T-shirts, pullovers and shirts of Fashion-MNIST, which come with fedfv, normalised as in `fashion_mnist`.

    The rows are 6000 training images of each class, one class after the other, then 1000 test images of each class,
    both in the order of the files of Fashion-MNIST. So `OneClassEach` puts the training images of a class before its
    test images.

    >>> fashion_tops().inputs.shape
    torch.Size([21000, 784])
    """
    files = read(FASHION_TOPS, folder)
    classes = torch.arange(3)
    return Dataset(
        inputs=_normalise(np.frombuffer(files["images"], np.uint8), files["pixels"]),
        targets=torch.cat([classes.repeat_interleave(6000), classes.repeat_interleave(1000)]),
        num_classes=3,
        class_names=("T-shirt", "pullover", "shirt"),
        num_train=18_000,
    )


def _normalise(images: UInt8[np.ndarray, "..."], pixels: bytes) -> Float[Tensor, "n 784"]:
    # Mean and deviation are stored, not computed, so that inputs are the same to the last bit everywhere.
    mean, std = np.frombuffer(pixels, "<f4").reshape(2, 784)
    inputs = images.reshape(-1, 784).astype(np.float32)
    inputs -= mean
    inputs /= std + np.float32(0.001)
    return torch.from_numpy(inputs)
