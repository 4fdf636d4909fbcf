"""Settings that determine a run's result. They are stored in its folder, and resuming requires the same ones."""

import dataclasses
import json
import os
import pathlib


@dataclasses.dataclass(frozen=True)
class Settings:
    """The flags of main.py that determine the result. Resuming a run with other values raises an error."""

    steps: int = 1500
    batch_size: int = 64
    learning_rate: float = 2e-3
    label_smoothing: float = 0.05
    dropout: float = 0.3
    dtype: str = "float32"
    parallel: str = "one"
    devices: int = 0
    every: int = 100
    patience: int = 5
    seed: int = 0


def read(run: pathlib.Path) -> Settings:
    """Returns the settings of an existing run."""
    path = run / "settings.json"
    if not path.exists():
        raise SystemExit(f"{run} holds no run: there is no settings.json. Train first, or name its folder with --run.")
    return Settings(**json.loads(path.read_text()))


def keep(run: pathlib.Path, settings: Settings) -> None:
    """Writes the settings of a new run, or checks that an existing run has the same ones."""
    path = run / "settings.json"
    if not path.exists():
        run.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(dataclasses.asdict(settings), indent=2) + "\n")
        os.replace(draft, path)  # atomic: never leaves a partial file
        return
    then = dataclasses.asdict(read(run))
    changed = [
        f"--{name} was {then[name]} and is {now}"
        for name, now in dataclasses.asdict(settings).items()
        if then[name] != now
    ]
    if changed:
        raise SystemExit(
            f"{run} was started with other settings: {'; '.join(changed)}. "
            "Give the same to resume it, or another --run to start anew."
        )
