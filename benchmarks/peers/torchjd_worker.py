"""TorchJD 0.18.0 in the same harness as fedfv."""

import torch
from torchjd.aggregation import PCGrad, UPGrad
from workloads import Stopwatch, main


def aggregation(m: int, d: int, tau: int, repetitions: int, rule: str = "PCGrad") -> list[float]:
    """The way from the clients' models to the new model: the updates, PCGrad or UPGrad, and the step."""
    if tau:
        raise ValueError(f"`tau` must be 0, since {rule} has no memory, got {tau}.")
    aggregate, watch = {"PCGrad": PCGrad, "UPGrad": UPGrad}[rule](), Stopwatch()
    generator = torch.Generator().manual_seed(0)
    params = torch.zeros(d)
    models = params - torch.randn(m, d, generator=generator)
    for _ in range(1 + repetitions):
        with watch.lap():
            params - aggregate(params - models)
    return watch.seconds[1:]


if __name__ == "__main__":
    main({"aggregation": aggregation})
