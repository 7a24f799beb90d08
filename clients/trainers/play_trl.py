"""One rollout as TRL's GRPOTrainer makes it with `trl_environment.py`: `play_trl.py right|nothing`.
Prints what came of it as JSON.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python/examples"))

from scripted_model import KERNEL, calls
from trl_environment import KernelEnvironment, rows

names = [row["task"] for row in rows()]
environment = KernelEnvironment()
told = environment.reset(**next(row for row in rows() if row["task"] == "right"))
# As the trainer finds tools.
tools = {
    name: getattr(environment, name)
    for name, _ in inspect.getmembers(KernelEnvironment, predicate=inspect.isfunction)
    if name not in ("reset", "get_reward") and not name.startswith("_")
}
script = calls(KERNEL) if sys.argv[1] == "right" else []
texts = [tools[name](**arguments) for name, arguments in script]
reward = environment.get_reward()
# It is made once and reset often.
environment.reset(task="wrong")
again = environment.get_reward()
print(
    json.dumps(
        {
            "names": names,
            "told": told,
            "tools": list(tools),
            "texts": texts,
            "reward": reward,
            "again": again,
        }
    )
)
