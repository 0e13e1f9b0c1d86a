"""Trains the base on the standard language, which takes seconds, and writes it to a file.

python -m flower_lora.pretrain /tmp/flower-lora/base.safetensors
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from fedfv.seeding import rng
from flower_lora.model import Transformer
from flower_lora.task import losses
from flower_lora.text import LENGTH, STANDARD, WORDS, text


def pretrain(file: Path, steps: int = 300) -> None:
    """Writes the base, the same with each call."""
    torch.manual_seed(0)
    model = Transformer(len(WORDS), LENGTH)
    random = rng(0, "standard")
    rows = text(STANDARD, 4000, random)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = losses(model, rows[random.integers(len(rows), size=64)]).mean()
        loss.backward()
        optimizer.step()
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), file)
    print(f"{file}: {sum(each.numel() for each in model.parameters())} parameters, loss {loss.item():.2f}")


if __name__ == "__main__":
    pretrain(Path(sys.argv[1]))
