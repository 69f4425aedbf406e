"""to_wandb.py: a run of Weights & Biases. Curves have the step of training as their axis, since the library's own step cannot go back."""
import os
import sys

from failure import CANNOT_CREATE, NO_LIBRARY, Failure

try:
    import wandb
except ImportError as error:
    raise Failure(NO_LIBRARY, f"--wandb needs Python's package wandb (pip install wandb): {error}") from error


class Wandb:
    def __init__(self, project, name, offline):
        self.project, self.name, self.offline = project, name, offline
        self.run = None

    def open(self, plan):
        """The name of a run is known with its plan."""
        config = {field: value for field, value in (plan or {}).items() if field != "bytes"}
        try:
            self.run = wandb.init(project=self.project, name=self.name or config.get("name"), config=config,
                                  mode="offline" if self.offline else None, settings=wandb.Settings(console="off"))
        except Exception as error:  # of many kinds
            raise Failure(CANNOT_CREATE, f"--wandb {self.project}: {error}") from error
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")

    def again_from(self, step):
        print(f"penstock-log: steps from {step} on are made again: the run has both", file=sys.stderr)

    def put(self, record, _):
        if self.run is None:
            self.open(record.plan)
        values = dict(record.values)
        for name, text in record.texts.items():
            values[name.split("/")[0]] = wandb.Table(columns=["step", "name", "text"], data=[[record.step, os.path.basename(name), text]])
        if values:
            self.run.log(dict(values, step=record.step))

    def flush(self):
        pass

    def close(self):
        if self.run is not None:
            self.run.finish()
