"""Measures the memory that a Flower server with `FairStrategy` needs for large models.

    python benchmarks/server_memory.py [--parameters 50_000_000] [--clients 16] [--rule fedfv]

A process of its own runs two rounds over a grid in which each reply comes into being when it is received, as on a
network. The result is the peak of the memory that belongs to the process alone, in sizes of the model.
"""

import argparse
import itertools
import logging
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # must be set before torch is imported
sys.path.insert(0, str(Path(__file__).parents[1]))  # so that benchmarks can be imported

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedfv import AGGREGATORS
from fedfv.flower import FairStrategy

_ARRAYS = 10  # arrays of a model


class Nodes:
    """What a strategy uses of a grid: nodes whose replies are made when they are received.

    The model that they were sent is in files, as if it were elsewhere.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self._count, self._folder, self._ids = count, folder, itertools.count()
        self._waiting: dict[str, tuple[Message, bool]] = {}
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a process of Flower's own has

    def get_node_ids(self) -> list[int]:
        return list(range(self._count))

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        for message in messages:
            name = message.metadata.__dict__["_message_id"] = f"message-{next(self._ids)}"
            train = message.metadata.message_type == "train"
            if train and message.metadata.dst_node_id == 0:
                arrays: Any = message.content["arrays"]
                self._sent = {key: (array.dtype, array.shape, array.stype) for key, array in arrays.items()}
                for key, array in arrays.items():
                    (self._folder / key).write_bytes(array.data)
            self._waiting[name] = Message(RecordDict(), reply_to=message), train
        return list(self._waiting)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._reply(*self._waiting.pop(each)) for each in message_ids if each in self._waiting]

    def _reply(self, reply: Message, train: bool) -> Message:
        node = reply.metadata.src_node_id
        reply.content["metrics"] = MetricRecord({"num-examples": 10, "loss": 1.0 + node, "client-id": node})
        if train:
            record = reply.content["arrays"] = ArrayRecord()
            for name, about in self._sent.items():
                data = bytearray((self._folder / name).read_bytes())
                np.frombuffer(data, dtype=np.float32, offset=128)[:: node + 2] += 0.001 * (node - 7)
                record[name] = Array(*about, bytes(data))
        return reply


def model_of(parameters: int) -> ArrayRecord:
    return ArrayRecord({str(i): Array(np.zeros(parameters // _ARRAYS, dtype=np.float32)) for i in range(_ARRAYS)})


def own_memory() -> int:
    """Bytes of this process that are in no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this system does not tell what a process uses")


def measured(rule: str, parameters: int, clients: int, memory_share: float, answer: Any) -> None:
    """Runs two rounds and sends the peak of the memory, in models, above what the process needs without a model."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    kind: Any = AGGREGATORS[rule]
    made = kind(tau=0) if rule == "fedfv" else kind()

    def run(size: int, share: float) -> None:
        with tempfile.TemporaryDirectory(dir=os.environ.get("FEDFV_BENCH")) as folder:
            options: dict[str, Any] = {"fraction_evaluate": 0, "wait": 0, "memory_share": share}
            strategy = FairStrategy(made, clients, directory=f"{folder}/run", **options)
            nodes: Any = Nodes(clients, Path(folder))
            strategy.start(nodes, model_of(size), 2)

    run(1000, memory_share)  # compiles
    before, peak, ended = own_memory(), [0], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            peak[0] = max(peak[0], own_memory())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    run(parameters, memory_share)
    ended.set()
    watcher.join()
    answer.send(((peak[0] - before) / (4 * parameters), time.perf_counter() - begin))


def peak_of(rule: str, parameters: int, clients: int, memory_share: float) -> tuple[float, float]:
    """The peak in models, and the seconds, of two rounds in a process of their own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=measured, args=(rule, parameters, clients, memory_share, sender)
    )
    process.start()
    sender.close()
    try:
        found: tuple[float, float] = receiver.recv()
    finally:
        process.join()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=50_000_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rule", default="fedfv")
    asked = parser.parse_args()
    size = 4 * asked.parameters / 1e9
    print(f"{asked.rule}, {asked.clients} clients, models of {size:.2f} GB")
    for place, share in (("in memory", 1.0), ("in a file", 0.0)):
        models, seconds = peak_of(asked.rule, asked.parameters, asked.clients, share)
        print(f"updates {place}: at most {models:.1f} models in memory, {seconds / 2:.1f} s a round")
