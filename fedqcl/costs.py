"""What a method costs a client: traffic, storage and computation, counted on the run's own tensors."""

from __future__ import annotations

from typing import Any

from fedqcl.engine import Engine
from fedqcl.engine.averaging import gather
from fedqcl.engine.server import num_bytes


class Costs:
    """Counts bytes and images; what is sent counts four bytes a number.

    Attributes:
        sent: by one client in a round: what is averaged, and what it reports beside.
        received: by one client in a round: the global model, and what else the server sends every time.
        sent_at_end: by one client when a task ends.
        received_at_end: by one client when a task ends, beside the model that the next round starts from.

    Args:
        engine: hosts the run.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        held = engine.learner.method.clients_hold(engine.server.state)
        self.held = {when: num_bytes(module.state_dict().values()) for when, module in held.items()}
        self.model = 4 * engine.num_shared
        self.sent = self.model
        self.received = self.model + self.held.get("round", 0)
        self.sent_at_end = 0
        self.received_at_end = self.held.get("task", 0)

    def end_round(self, active: int) -> tuple[int, int]:
        """Note what the clients reported of a round.

        Args:
            active: how many clients took part.

        Returns:
            Bytes sent and bytes received by all of them.
        """
        if active:
            self.sent = self.model + 4 * self.engine.num_reported
        return active * self.sent, active * self.received

    def end_task(self) -> tuple[int, int]:
        """Note what the clients, all of them, reported of a task.

        Returns:
            Bytes sent and bytes received by all of them.
        """
        self.sent_at_end = 4 * self.engine.num_reported
        clients = self.engine.data.num_clients
        return clients * self.sent_at_end, clients * self.received_at_end

    def state(self) -> dict[str, int]:
        """What has been counted so far."""
        return {"sent": self.sent, "sent_at_end": self.sent_at_end}

    def load(self, state: dict[str, int]) -> None:
        """Go on from what :meth:`state` has returned."""
        self.sent, self.sent_at_end = state["sent"], state["sent_at_end"]

    def summary(self) -> dict[str, Any]:
        """What one client sends, receives and stores, in bytes, and the images of a step of each task."""
        sampler, state, server = self.engine.sampler, self.engine.replicas[0].state, self.engine.server.state
        return {
            "bytes_sent_per_round": self.sent,
            "bytes_received_per_round": self.received,
            "bytes_sent_per_task": self.sent_at_end,
            "bytes_received_per_task": self.received_at_end,
            "client_storage_bytes": max(gather([self._stored(i) for i in self.engine.clients])),
            "server_storage_bytes": num_bytes(server.state_dict().values()),
            "gradient_images_per_step": [
                sampler.batch_size + sampler.replay_batch * len(state.replay(task)) for task in range(self._num_tasks)
            ],
        }

    @property
    def _num_tasks(self) -> int:
        return len(self.engine.data.shards)

    def _stored(self, client: int) -> int:
        """Bytes of a client's state, of the images it has stored, and of what it holds of the server's state."""
        state, image = self.engine.clients[client], self.engine.pool.image_bytes
        stored = {int(index) for group in state.replay(self._num_tasks) for index in group}
        return num_bytes(state.state_dict().values()) + len(stored) * image + sum(self.held.values())
