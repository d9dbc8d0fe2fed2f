"""Testing the global model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fedqcl.data.pool import Pool
from fedqcl.engine.averaging import all_reduce
from fedqcl.engine.server import copy_entries, federated_entries
from fedqcl.methods import ClientState
from fedqcl.parts import Spec

# Fixed, so that a sample meets the same neighbours in a batch, and the same rounding, on any number of ranks.
BATCH = 500


class Evaluator:
    """Counts right answers per task, the test images dealt out over the ranks.

    Args:
        fabric: launched already.
        pool: the images.
        spec: the problem.
    """

    def __init__(self, fabric: Fabric, pool: Pool, spec: Spec) -> None:
        self.fabric = fabric
        self.pool = pool
        self.num_tasks = spec.num_tasks
        self.task_of_column = spec.task_of_column().to(pool.device)
        tasks = spec.task_of_column()[pool.y.cpu()].numpy()
        self.index = [torch.from_numpy(np.flatnonzero(tasks == t)).to(pool.device) for t in range(spec.num_tasks)]

    @torch.no_grad()
    def count(self, net: nn.Module, num_tasks: int, newest: int | None = None) -> tuple[Tensor, Tensor]:
        """Test a net on the images of the first tasks.

        Args:
            net: the global model, in eval mode.
            num_tasks: how many tasks, from the first.
            newest: the last task learned, whose classes and those before compete in the class-incremental scenario;
                the last of those tested by default.

        Returns:
            Right answers and images of each task, ``[T]`` float64 on the CPU, summed over ranks; 0 for later tasks.
        """
        counts = self._my_counts(net, num_tasks, num_tasks - 1 if newest is None else newest)
        all_reduce(counts)
        correct, total = counts.cpu()
        return correct, total

    def _my_counts(self, net: nn.Module, num_tasks: int, newest: int) -> Tensor:
        """This rank's share of the counts, ``[2, T]``."""
        batches = torch.cat(self.index[:num_tasks]).split(BATCH)
        return self._counts(net, batches[self.fabric.global_rank :: self.fabric.world_size], newest)

    def _counts(self, net: nn.Module, batches: Iterable[Tensor], newest: int) -> Tensor:
        """Right answers and images of each task in some batches, ``[2, T]``."""
        counts = torch.zeros(2, self.num_tasks, dtype=torch.float64, device=self.pool.device)
        for index in batches:
            x, y, columns = self.pool.gather(index, newest)
            with self.fabric.autocast():
                logits = net(x)
            right = logits.masked_fill(~columns, float("-inf")).argmax(1) == y
            task = torch.nn.functional.one_hot(self.task_of_column[y], self.num_tasks).double()
            counts += torch.stack([right.double() @ task, task.sum(0)])
        return counts


class ClientEvaluator(Evaluator):
    """Tests the model of every client, the global one but for what the client keeps to itself, on images of its own.

    Args:
        fabric: launched already.
        pool: the images.
        spec: the problem.
        shards: ``[task][client]``, each client's images.
        clients: the states of this rank's clients.
    """

    def __init__(
        self,
        fabric: Fabric,
        pool: Pool,
        spec: Spec,
        shards: Sequence[Sequence[np.ndarray]],
        clients: Mapping[int, ClientState],
    ) -> None:
        super().__init__(fabric, pool, spec)
        self.shards = [[torch.from_numpy(shard).to(pool.device) for shard in task] for task in shards]
        self.clients = clients

    def _my_counts(self, net: nn.Module, num_tasks: int, newest: int) -> Tensor:
        """Those of this rank's clients."""
        counts = torch.zeros(2, self.num_tasks, dtype=torch.float64, device=self.pool.device)
        own = copy.deepcopy(net)
        for client, state in self.clients.items():
            copy_entries(federated_entries(own), {**federated_entries(net), **state.personal.by_name()})
            batches = torch.cat([task[client] for task in self.shards[:num_tasks]]).split(BATCH)
            counts += self._counts(own, batches, newest)
        return counts
