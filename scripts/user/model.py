"""A user who takes the model of a run into a program of their own: model.safetensors and model.json in this folder."""

import json
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

module = nn.Sequential(nn.Flatten(), nn.Linear(784, 3))
module.load_state_dict(load_file("model.safetensors"))
about = json.loads(Path("model.json").read_text())
print(f"{sum(parameter.numel() for parameter in module.parameters())} parameters; {', '.join(sorted(about))}")
