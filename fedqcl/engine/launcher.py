"""Processes for the ranks of a machine, none of which outlives the one that started it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from lightning.fabric.strategies.ddp import DDPStrategy
from lightning.fabric.strategies.launchers.multiprocessing import _check_bad_cuda_fork, _MultiProcessingLauncher
from lightning.fabric.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from lightning.fabric.utilities.distributed import _set_num_threads_if_needed
from torch.multiprocessing.spawn import start_processes

from fedqcl.orphans import die_with

LAUNCHER = "FEDQCL_LAUNCHER"
POLL_SECONDS = 0.2
# So long ranks have to end by themselves when another has failed: what they have open they close in good order.
GRACE_SECONDS = 20.0

OnEnd = Callable[[int, int], None]


class ScriptLauncher(_SubprocessScriptLauncher):
    """Runs this command once more for every other rank, and watches the processes.

    Attributes:
        on_end: told, in a thread, the first rank whose process ended with a failure, and its return code.
    """

    on_end: OnEnd | None = None

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start the other ranks, then call the function as the first."""
        environment = self.cluster_environment
        environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not environment.creates_processes_externally:
            os.environ[LAUNCHER] = str(os.getpid())
            self._call_children_scripts()
            del os.environ[LAUNCHER]
            threading.Thread(target=self._watch, daemon=True).start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        return function(*args, **kwargs)

    def _watch(self) -> None:
        while any(process.poll() is None for process in self.procs):
            time.sleep(POLL_SECONDS)
            failed = [(rank, code) for rank, process in enumerate(self.procs, start=1) if (code := process.poll())]
            if failed and self.on_end:
                self.on_end(*failed[0])
                return

    def kill(self, grace: float) -> None:
        """End the other ranks' processes: they may sit in a collective, where no gentler signal is heard.

        Args:
            grace: seconds in which they may end by themselves.
        """
        end = time.monotonic() + grace
        while time.monotonic() < end and any(process.poll() is None for process in self.procs):
            time.sleep(POLL_SECONDS / 10)
        for process in self.procs:
            process.kill()
        for process in self.procs:
            process.wait()


class ForkLauncher(_MultiProcessingLauncher):
    """Forks the ranks; when one has failed, the others have some time to notice, and are then killed.

    PyTorch would send them a SIGTERM, and a rank takes that for somebody's wish to stop.
    """

    _strategy: DDPStrategy

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function on every rank; what it returns on the first."""
        _check_bad_cuda_fork()
        environment = self._strategy.cluster_environment
        assert environment is not None
        os.environ["MASTER_PORT"] = str(environment.main_port)
        results = multiprocessing.get_context("fork").SimpleQueue()
        ranks = start_processes(
            self._wrapping_function,
            args=(function, args, kwargs, results),
            nprocs=self._strategy.num_processes,
            start_method="fork",
            join=False,
        )
        for process in ranks.processes:
            process.terminate = process.kill
        while not ranks.join(grace_period=GRACE_SECONDS):
            pass
        return results.get()


def die_with_launcher(start_method: str) -> None:
    """Let this process be killed when the one of ours that launched it ends, where the system can do that."""
    if start_method == "popen":
        launcher = int(os.environ.pop(LAUNCHER, 0))
    else:
        parent = multiprocessing.parent_process()
        launcher = parent.pid or 0 if parent else 0
    if launcher:
        die_with(launcher)
