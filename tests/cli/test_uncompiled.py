from __future__ import annotations

from tests.helpers.process import run_python

LEFT = """
import sys
from fedqcl.cli.lean import lean_imports
from fedqcl.cli.uncompiled import Unloaded, put_off_compiler
with lean_imports():
    from lightning.fabric.wrappers import _unwrap_compiled
put_off_compiler()
import torch
net = torch.nn.Linear(1, 1)
for optimizer in (torch.optim.SGD, torch.optim.Adam):
    optimizer = optimizer(net.parameters())
    net(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(_unwrap_compiled(net)[0] is net, isinstance(torch._dynamo, Unloaded), "sympy" in sys.modules)
"""

COMPILES = """
compiled = torch.compile(net, backend="eager")
print(torch.equal(compiled(torch.ones(1, 1)), net(torch.ones(1, 1))), isinstance(torch._dynamo, Unloaded))
print(_unwrap_compiled(compiled)[0] is net, _unwrap_compiled(net)[0] is net)
from torch._dynamo.utils import counters
print(counters is torch._dynamo.utils.counters)
"""

A_PART_IS_IMPORTED = """
import torch._dynamo.config as config
print(config is torch._dynamo.config, config.__spec__.origin == config.__file__, isinstance(torch._dynamo, Unloaded))
"""

WHILE_PARTS_ARE_PUT_OFF = """
import sys
from fedqcl.cli.lean import _StandIn
from fedqcl.cli.uncompiled import put_off_compiler
put_off_compiler()
sys.modules["torch._dynamo.utils"] = _StandIn("torch._dynamo.utils")
import torch
print(torch.compile(torch.square, backend="eager")(torch.tensor(3.0)).item())
"""


def test_optimizers_and_fabric_leave_the_compiler_unloaded_and_it_compiles_when_asked_to() -> None:
    result = run_python("-c", LEFT + COMPILES)
    assert result.stdout.splitlines() == ["True True False", "True False", "True True", "True"], result.stderr


def test_the_compiler_is_there_for_who_imports_a_part_of_it() -> None:
    result = run_python("-c", LEFT + A_PART_IS_IMPORTED)
    assert result.stdout.splitlines() == ["True True False", "True True False"], result.stderr


def test_the_compiler_loads_while_parts_of_it_are_put_off() -> None:
    result = run_python("-c", WHILE_PARTS_ARE_PUT_OFF)
    assert result.stdout == "9.0\n", result.stderr
