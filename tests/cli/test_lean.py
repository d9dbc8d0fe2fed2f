from __future__ import annotations

from pathlib import Path

from tests.helpers.process import REPOSITORY, run_python

START = """
import contextlib, gc, sys
from fedqcl.cli import main
with contextlib.suppress(SystemExit):
    main(["fit", "--config=cifar10.yaml", "--print_config"])
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
print([name for name in ("wandb", "sklearn", "transformers", "scipy.signal", "sympy") if name in sys.modules])
from torchmetrics.functional.text.bert import AutoModel
print(AutoModel.from_pretrained)
import scipy.signal
print(scipy.signal.windows.hamming(1))
from torchvision.ops import roi_align
import torch
print(roi_align(torch.ones(1, 1, 4, 4), torch.tensor([[0.0, 0, 0, 2, 2]]), 1).tolist())
"""


def test_a_run_starts_without_what_it_may_need_later_or_never(tmp_path: Path) -> None:
    """A transformers that is installed is left alone until torchmetrics, which wants it for a metric, uses it."""
    metadata = tmp_path / "transformers-5.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 5.0\n", encoding="utf-8")
    code = "class AutoModel:\n    from_pretrained = 'used'\n\nclass AutoTokenizer: ...\n"
    (tmp_path / "transformers.py").write_text(code, encoding="utf-8")
    assert run_python("-c", START, PYTHONPATH=f"{REPOSITORY}:{tmp_path}").stdout.splitlines()[-5:] == [
        "True True",
        "[]",
        "used",
        "[1.]",
        "[[[[1.0]]]]",
    ]
