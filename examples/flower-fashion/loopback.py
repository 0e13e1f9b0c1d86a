"""Runs the example on this machine alone, with a SuperLink and three SuperNodes that it starts and stops.

    python loopback.py --rounds 5 --tls

The script runs the federation of Table 3 over the network, then in the simulator, and compares the two.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from fedfv.experiments import RunDirectory, run

sys.path.insert(0, str(Path(__file__).parent))

from flower_fashion.task import ROWS, experiment
from make_keys import make_keys

HOST = "127.0.0.1"
BIN = Path(sys.executable).parent


class Loopback:
    """A federation on free ports; the end of the `with` block stops every process that it has started.

    Args:
        folder: the folder for Flower's own files and the log of each process.
        keys: the folder that `make_keys` wrote, for TLS and registered nodes; None for neither.
    """

    def __init__(self, folder: Path, keys: Path | None = None) -> None:
        self.folder, self.keys = folder, keys
        self.port = _free_port()
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}  # the process of each client's node
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "home").mkdir(parents=True)
        security = "insecure = true" if keys is None else f'root-certificates = "{keys / "ca.crt"}"'
        (folder / "home/config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{HOST}:{self.port}"\n{security}\n'
        )
        self._environment = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "OMP_NUM_THREADS": "1",  # the processes share the cores
        }

    def __enter__(self) -> "Loopback":
        security = ["--insecure"]
        if self.keys is not None:
            security = ["--enable-supernode-auth", "--ssl-ca-certfile", str(self.keys / "ca.crt")]
            security += ["--ssl-certfile", str(self.keys / "server.crt")]
            security += ["--ssl-keyfile", str(self.keys / "server.key")]
        try:
            without_installing = "--disable-runtime-dependency-installation"
            link = self._start("flower-superlink", *security, without_installing, port=self.port)
            end = time.monotonic() + 60
            while not self._listens():
                if time.monotonic() > end or link.poll() is not None:
                    raise RuntimeError(f"the SuperLink did not start; see {self.folder}/flower-superlink.log")
                time.sleep(0.2)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also ends the apps that the process has started
            process.wait()

    def start_node(self, client: int, key: str | None = None) -> subprocess.Popen[bytes]:
        """Starts a SuperNode for a client; `key` is the name of its private key, if there are keys."""
        security = ["--insecure"]
        if self.keys is not None and key is not None:
            security = ["--root-certificates", str(self.keys / "ca.crt")]
            security += ["--auth-supernode-private-key", str(self.keys / key)]
        config = ["--node-config", f"partition-id={client}"]
        port = _free_port()
        link = ["--superlink", f"{HOST}:{self.port}"]
        self.nodes[client] = self._start("flower-supernode", *link, *security, *config, port=port)
        return self.nodes[client]

    def register(self, key: str) -> None:
        """Registers the node with this key, so that it may take part."""
        assert self.keys is not None
        self.flwr("supernode", "register", str(self.keys / f"{key}.pub"), "here")

    def submit(self, app: Path, config: dict[str, Any]) -> int:
        """Starts a run of an app and returns the number of the run."""
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        answer = self.flwr("run", str(app), "here", "--run-config", settings, "--format", "json")
        return int(json.loads(answer)["run-id"])

    def status(self, number: int) -> str:
        """The status of a run in Flower; only `finished:completed` is a success."""
        (entry,) = json.loads(self.flwr("list", "here", "--run-id", str(number), "--format", "json"))["runs"]
        return str(entry["status"])

    def wait(self, number: int, seconds: float) -> str:
        """Waits for the end of a run and returns its status."""
        end = time.monotonic() + seconds
        while not (status := self.status(number)).startswith("finished"):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"run {number} is still {status} after {seconds:.0f} s; see the logs in {self.folder}"
                )
            time.sleep(1)
        return status

    def flwr(self, *arguments: str) -> str:
        """The output of the command `flwr` with these arguments."""
        done = subprocess.run(
            [BIN / "flwr", *arguments], env=self._environment, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def _start(self, name: str, *arguments: str, port: int) -> subprocess.Popen[bytes]:
        number = sum(name in str(process.args) for process in self._started)
        with open(self.folder / f"{name}{number or ''}.log", "wb") as log:
            process = subprocess.Popen(
                [str(BIN / name), "--host", HOST, "--port", str(port), *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Runs both and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default: 5)")
    parser.add_argument("--rule", choices=ROWS, default="fedfv", help="aggregation rule (default: fedfv)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: 0)")
    parser.add_argument("--tls", action="store_true", help="use TLS, and admit only nodes with a registered key")
    parser.add_argument("--out", type=Path, help="folder for the records (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedfv-") as scratch:
        over_network(Path(scratch), arguments, (arguments.out or Path(scratch) / "runs").absolute())
    if arguments.out is None:
        print("The records and the report page are deleted now; use --out DIR to keep them.")


def over_network(scratch: Path, arguments: argparse.Namespace, out: Path) -> None:
    keys = scratch / "keys" if arguments.tls else None
    if keys is not None:
        make_keys(keys, HOST, 3)
    networked, simulated = RunDirectory(out / "network"), RunDirectory(out / "simulator")
    with Loopback(scratch / "flower", keys) as federation:
        for client in range(3):
            if keys is not None:
                federation.register(f"node-{client}")
            federation.start_node(client, key=f"node-{client}")
        config = {"rule": arguments.rule, "rounds": arguments.rounds, "seed": arguments.seed}
        number = federation.submit(Path(__file__).parent, config | {"directory": str(networked.path)})
        print(f"A SuperLink (port {federation.port}) and three SuperNodes are up; run {number} has begun.", flush=True)
        done = 0
        while not (status := federation.status(number)).startswith("finished"):
            while done < networked.rounds_done():
                done += 1
                print(f"round {done} of {arguments.rounds}", flush=True)
            time.sleep(1)
    if status != "finished:completed":
        sys.exit(f"the run is {status}:\n{(scratch / 'flower/flower-superlink.log').read_text()}")
    table3 = experiment(ROWS[arguments.rule], arguments.seed)
    run(dataclasses.replace(table3, rounds=arguments.rounds), simulated.path)
    paths = [networked.path, simulated.path, "--out", out / "report.html"]
    subprocess.run([BIN / "fedfv", "report", *map(str, paths)], check=True)
    ours, theirs = (_params(directory) for directory in (networked, simulated))
    if torch.equal(ours, theirs):
        print("The models over the network and in the simulator are the same, bit for bit.")
    else:
        print(f"The models over the network and in the simulator differ by up to {(ours - theirs).abs().max():.1e}.")


def _params(directory: RunDirectory) -> torch.Tensor:
    tensors = directory.load()
    assert tensors is not None, "a run that has ended has a checkpoint"
    return tensors["params"]


if __name__ == "__main__":
    main()
