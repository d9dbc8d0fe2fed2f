"""Testing the global model."""

from __future__ import annotations

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fedqcl.data.pool import Pool
from fedqcl.engine.averaging import all_reduce
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
        counts = torch.zeros(2, self.num_tasks, dtype=torch.float64, device=self.pool.device)
        batches = torch.cat(self.index[:num_tasks]).split(BATCH)
        for index in batches[self.fabric.global_rank :: self.fabric.world_size]:
            x, y, columns = self.pool.gather(index, num_tasks - 1 if newest is None else newest)
            with self.fabric.autocast():
                logits = net(x)
            right = logits.masked_fill(~columns, float("-inf")).argmax(1) == y
            task = torch.nn.functional.one_hot(self.task_of_column[y], self.num_tasks).double()
            counts += torch.stack([right.double() @ task, task.sum(0)])
        all_reduce(counts)
        correct, total = counts.cpu()
        return correct, total
