from __future__ import annotations

import pytest

from tests.helpers.process import run_python

PUT_OFF = """
import sys
from fedqcl.cli.uncompiled import Unloaded, put_off_compiler
put_off_compiler()
put_off_compiler()
import torch
net, x = torch.nn.Linear(1, 1), torch.ones(1, 1)
"""

OPTIMIZERS_AND_FABRIC = """
import sys
from fedqcl.cli.lean import lean_imports
from fedqcl.cli.uncompiled import Unloaded
with lean_imports():
    from lightning.fabric.wrappers import OptimizedModule, _unwrap_compiled
import torch
net, x = torch.nn.Linear(1, 1), torch.ones(1, 1)
for optimizer in (torch.optim.SGD, torch.optim.Adam):
    optimizer = optimizer(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(_unwrap_compiled(net)[0] is net, isinstance(torch._dynamo, Unloaded), "sympy" in sys.modules)
compiled = torch.compile(net, backend="eager")
print(torch.equal(compiled(x), net(x)), isinstance(torch._dynamo, Unloaded))
print(_unwrap_compiled(compiled)[0] is net, _unwrap_compiled(net)[0] is net)
print(issubclass(type(compiled), OptimizedModule))
"""

# What is the same, or works, if there is one compiler and no second copy of a part of it.
WAYS_IN = {
    "config": """
import torch._dynamo.config as config
print(config is torch._dynamo.config is torch._dynamo.eval_frame.config)
""",
    "a name": """
from torch._dynamo.eval_frame import OptimizedModule
print(isinstance(torch.compile(net, backend="eager"), OptimizedModule))
""",
    "counters": """
from torch._dynamo.utils import counters
torch.compile(net, backend="eager")(x)
print(counters["frames"]["ok"] > 0)
""",
    "a part that does not come along": """
from torch._dynamo.testing import CompileCounter
counter = CompileCounter()
torch.compile(net, backend=counter)(x)
print(counter.frame_count == 1)
""",
    "decorators": """
@torch.compiler.disable(recursive=False)
def inside(x):
    return x + torch.compiler.is_compiling()

@torch.compiler.disable
def also(x):
    return x + torch.compiler.is_compiling()

print(torch.compile(lambda x: inside(x) + also(x), backend="eager")(x).item() == 2)
""",
    "an old reference": """
stand_in = sys.modules["torch._dynamo"]
torch.compile(net, backend="eager")(x)
print(stand_in.eval_frame is torch._dynamo.eval_frame)
""",
    "while parts are put off": """
from fedqcl.cli.lean import _StandIn
sys.modules["torch._dynamo.utils"] = _StandIn("torch._dynamo.utils")
print(torch.equal(torch.compile(net, backend="eager")(x), net(x)))
""",
    "after it failed": """
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "torch._dynamo.eval_frame":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
try:
    torch._dynamo.eval_frame
except KeyboardInterrupt:
    torch.optim.SGD(net.parameters()).step()
    print(isinstance(torch._dynamo, Unloaded) and torch.equal(torch.compile(net, backend="eager")(x), net(x)))
""",
    "another thread": """
import threading
def steps():
    for _ in range(200):
        torch.optim.SGD(net.parameters()).step()

thread = threading.Thread(target=steps)
thread.start()
torch.compile(net, backend="eager")(x)
thread.join()
print(not isinstance(torch._dynamo, Unloaded))
""",
}


def test_optimizers_and_fabric_leave_the_compiler_unloaded_and_it_compiles_when_asked_to() -> None:
    result = run_python("-c", OPTIMIZERS_AND_FABRIC)
    assert result.stdout.splitlines() == ["True True False", "True False", "True True", "True"], result.stderr


@pytest.mark.parametrize("way", WAYS_IN)
def test_there_is_one_compiler_whichever_way_it_is_asked_for(way: str) -> None:
    result = run_python("-c", PUT_OFF + WAYS_IN[way])
    assert (result.stdout, "Traceback" in result.stderr) == ("True\n", False), result.stderr


def test_whatever_else_is_imported_if_it_is_taken_out() -> None:
    result = run_python("-c", f"{PUT_OFF}\ndel sys.modules['torch._dynamo']\nimport wave\nprint('imported')")
    assert result.stdout == "imported\n", result.stderr
