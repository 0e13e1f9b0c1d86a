"""Models by name or by import path, and their conversion to a vector and back."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from fedfv.core import NO_BUFFERS, Buffers
from fedfv.importing import lookup, told

__all__ = [
    "MODELS",
    "build_model",
    "call",
    "flatten",
    "flatten_buffers",
    "layers_of",
    "load",
    "unflatten",
    "unflatten_buffers",
]


def linear(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    """One linear layer whose bias starts at zero."""
    layer = nn.Linear(math.prod(input_shape), num_classes)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def softmax_regression(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    """The same as `linear`, for classes (the paper's model for Fashion-MNIST)."""
    return linear(input_shape, num_classes)


def mlp(input_shape: Sequence[int], num_classes: int, hidden: Sequence[int] = (200, 200)) -> nn.Module:
    """Linear layers with ReLU between them (with two hidden layers of 200, the paper's model for CIFAR-10).

    Args:
        input_shape: the shape of an input.
        num_classes: the number of outputs.
        hidden: the number of units of each hidden layer.
    """
    widths = [math.prod(input_shape), *hidden, num_classes]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def paper_cnn(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    """The paper's model for MNIST, as its experiments ran it: ReLU after the 62 outputs, none after a convolution."""
    channels, height, width = input_shape
    side = ((height - 4) // 2 - 4) // 2 * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * side, 512), nn.ReLU()),
        *(nn.Linear(512, max(62, num_classes)), nn.ReLU()),
    )


def cnn(
    input_shape: Sequence[int], num_classes: int, norm: Literal["group", "batch"] = "group", width: int = 32
) -> nn.Module:
    """A small modern default for images: three stages of two normalised 3x3 convolutions, then average pooling.

    The default is group normalisation, since the statistics of "batch" differ between clients with different data.

    Args:
        input_shape: the shape of an image: channels, height and width.
        num_classes: the number of outputs.
        norm: the normalisation after each convolution.
        width: the channels of the first stage; a multiple of 8. The second has twice as many, the third four times.
    """
    if norm not in ("group", "batch"):
        raise ValueError(f"`norm` of the model 'cnn' must be 'group' or 'batch', got {norm!r}.")
    layers: list[nn.Module] = []
    before = input_shape[0]
    for after in (width, 2 * width, 4 * width):
        for _ in range(2):
            normalised = nn.GroupNorm(8, after) if norm == "group" else nn.BatchNorm2d(after)
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), normalised, nn.ReLU()]
            before = after
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))


MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "softmax-regression": softmax_regression,
    "mlp": mlp,
    "paper-cnn": paper_cnn,
    "cnn": cnn,
}


def build_model(name: str, input_shape: Sequence[int], num_classes: int, seed: int, **options: Any) -> nn.Module:
    """A new model, by a name in `MODELS` or by the import path `package.module:object` of a class or function.

    The class or function gets the options, and `input_shape` and `num_classes` if it has arguments of these names. The
    folder of a module may stand before its import path: `folder/package.module:object`. The initial parameters depend
    on the seed only; the state of torch's global generator does not change.

    >>> build_model("mlp", (3, 32, 32), 10, seed=0, hidden=[200, 200])[1]
    Linear(in_features=3072, out_features=200, bias=True)
    """
    make = lookup(name, MODELS, "model")
    requirement = f"model {name!r} must be built for inputs of shape {tuple(input_shape)} and {num_classes} outputs"
    about = _accepted(make, {"input_shape": tuple(input_shape), "num_classes": num_classes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = make(**about, **options)
        except Exception as error:
            raise ValueError(f"{requirement}, but building it failed: {told(error)}.") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{requirement} as a torch.nn.Module, got {type(model).__name__}.")
    return model


def _accepted(make: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that the function has by name."""
    try:
        names = inspect.signature(make).parameters
    except ValueError:  # some built-in types have none
        return arguments
    return {name: value for name, value in arguments.items() if name in names}


def flatten(model: nn.Module) -> Float[Tensor, " d"]:
    """The trainable parameters as one vector, in the order of `named_parameters`."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters() if parameter.requires_grad])


def layers_of(model: nn.Module) -> Int[Tensor, " L+1"]:
    """The columns at which the trainable parameters begin in the vector of `flatten`, and its length at the end.

    >>> layers_of(nn.Linear(2, 3))
    tensor([0, 6, 9])
    """
    sizes = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    return torch.tensor([0, *sizes]).cumsum(dim=0)


def unflatten(vectors: Float[Tensor, "*m d"], model: nn.Module) -> dict[str, Tensor]:
    """The named parameters of the model as views of a vector, or of each row of a matrix of them.

    >>> model = nn.Linear(2, 1)
    >>> {name: view.shape for name, view in unflatten(torch.zeros(5, 3), model).items()}
    {'weight': torch.Size([5, 1, 2]), 'bias': torch.Size([5, 1])}
    """
    views, start = {}, 0
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = vectors[..., start : start + parameter.numel()]
            views[name] = part.view(*vectors.shape[:-1], *parameter.shape)
            start += parameter.numel()
    return views


def call(model: nn.Module, tensors: Mapping[str, Tensor], inputs: Tensor) -> Any:
    """The outputs of the model with these named parameters and buffers, in place of its own.

    A parameter that several layers share has one name in `tensors` and is replaced in all of them.

    >>> model = nn.Linear(2, 1)
    >>> call(model, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.ones(1, 2))
    tensor([[2.]])
    """
    # `functional_call` would find shared parameters itself, but damages a model with a layer under two names.
    names: dict[int, str] = {}
    shared = {}
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            first = names.setdefault(id(parameter), name)
            if first != name and first in tensors:
                shared[name] = tensors[first]
    return functional_call(model, {**tensors, **shared}, (inputs,), tie_weights=False)


def flatten_buffers(model: nn.Module) -> Buffers:
    """The buffers of the model: floating-point ones in one vector, integer ones in another."""
    floating = [buffer.flatten() for buffer in model.buffers() if buffer.is_floating_point()]
    integers = [buffer.flatten() for buffer in model.buffers() if not buffer.is_floating_point()]
    values = torch.cat(floating) if floating else torch.zeros(0)
    return Buffers(values.clone(), torch.cat(integers).long() if integers else torch.zeros(0, dtype=torch.long))


def unflatten_buffers(buffers: Buffers, model: nn.Module) -> dict[str, Tensor]:
    """The named buffers of the model: the inverse of `flatten_buffers`."""
    named, starts = {}, [0, 0]
    for name, buffer in model.named_buffers():
        kind = 0 if buffer.is_floating_point() else 1
        part = buffers[kind][starts[kind] : starts[kind] + buffer.numel()]
        named[name] = part.view(buffer.shape).to(buffer.dtype)
        starts[kind] += buffer.numel()
    return named


def load(params: Float[Tensor, " d"], model: nn.Module, buffers: Buffers = NO_BUFFERS) -> None:
    """Writes parameters, and buffers if there are any, into the model: the inverse of `flatten`.

    >>> model = nn.Linear(2, 1)
    >>> load(torch.tensor([1.0, 2.0, 3.0]), model)
    >>> flatten(model)
    tensor([1., 2., 3.])
    """
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    views = unflatten(params, model) | (unflatten_buffers(buffers, model) if any(map(len, buffers)) else {})
    with torch.no_grad():
        for name, view in views.items():
            named[name].copy_(view)
