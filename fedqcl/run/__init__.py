"""What a run leaves behind and shows: its records, its folder, the console and W&B."""

from fedqcl.run.console import Console
from fedqcl.run.folder import RunFolder
from fedqcl.run.log import RunLog, SilentLog
from fedqcl.run.records import ClientRecord, RoundRecord, RunInfo
from fedqcl.run.wandb import WandbLogger

__all__ = ["ClientRecord", "Console", "RoundRecord", "RunFolder", "RunInfo", "RunLog", "SilentLog", "WandbLogger"]
