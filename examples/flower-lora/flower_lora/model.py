"""A small transformer, and low-rank adapters for it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class Transformer(nn.Module):
    """Predicts the next token at each position of a sequence."""

    def __init__(self, words: int, length: int, width: int = 64, blocks: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logit of each word at each position."""
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(hidden)))
        return logits


class Block(nn.Module):
    """Causal self-attention and two dense layers."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """The hidden states after this block."""
        normed = self.norm_1(hidden)
        projected = (self.q_proj(normed), self.k_proj(normed), self.v_proj(normed))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in projected)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.o_proj(seen.transpose(1, 2).flatten(-2))
        dense: Tensor = self.down_proj(functional.gelu(self.up_proj(self.norm_2(hidden))))
        return hidden + dense


class LoraLinear(nn.Module):
    """A frozen linear layer plus the product of two thin matrices (LoRA; Hu et al., ICLR 2022).

    `lora_B` starts at zero, so that the adapted model starts as the base. The names are those of the library PEFT.
    """

    def __init__(self, base_layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base_layer, self.scaling = base_layer, alpha / rank
        down, up = (
            nn.Linear(base_layer.in_features, rank, bias=False),
            nn.Linear(rank, base_layer.out_features, bias=False),
        )
        nn.init.zeros_(up.weight)
        self.lora_A, self.lora_B = nn.ModuleDict({"default": down}), nn.ModuleDict({"default": up})

    def forward(self, inputs: Tensor) -> Tensor:
        """The output of the base, changed by the adapter."""
        outputs: Tensor = self.base_layer(inputs)
        change: Tensor = self.lora_B["default"](self.lora_A["default"](inputs))
        return outputs + self.scaling * change


def add_adapters(model: Transformer, rank: int = 4, alpha: float = 8) -> None:
    """Freezes the model, and gives an adapter to each linear layer of its blocks."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name, layer in list(block.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(block, name, LoraLinear(layer, rank, alpha))


def adapters(model: Transformer) -> dict[str, nn.Parameter]:
    """The parameters of the adapters, which share memory with the model, under the names that PEFT gives them."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {f"base_model.model.{name}": parameter for name, parameter in trained.items()}


@torch.no_grad()
def load_adapters(model: Transformer, values: Mapping[str, Tensor]) -> None:
    """Replaces the parameters of the adapters, by values of any floating-point type."""
    for name, parameter in adapters(model).items():
        parameter.copy_(values[name])
