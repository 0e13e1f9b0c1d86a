"""CIFAR-10: small colour photographs of ten classes."""

from pathlib import Path

import numpy as np
import torch

from fedfv.data._dataset import Dataset
from fedfv.data._files import Files, read

CIFAR10 = Files(
    folder="cifar-10-batches-bin",
    digests={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
    ),
    archive="cifar-10-binary.tar",
)

# Statistics of the channels red, green and blue, as in the paper's experiments.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)


def cifar10(folder: Path | str | None = None) -> Dataset:
    """CIFAR-10, 50,000 training and 10,000 test images of shape (3, 32, 32), each channel normalised."""
    batches = read(CIFAR10, folder)
    # A row has one byte for the class and 1024 for each channel; the test batch is the last by name.
    rows = np.frombuffer(b"".join(batches[name] for name in sorted(batches)), np.uint8).reshape(-1, 3073)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    images = torch.from_numpy(rows[:, 1:].astype(np.float32)).view(-1, 3, 32, 32)
    return Dataset(
        inputs=images.div_(255).sub_(mean).div_(std),
        targets=torch.from_numpy(rows[:, 0].astype(np.int64)),
        num_classes=10,
        class_names=(
            "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
        ),
        num_train=50_000,
    )  # fmt: skip
