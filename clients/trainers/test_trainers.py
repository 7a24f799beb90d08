"""Others' trainers, as they lie on PyPI, play whole episodes with the real judge on the cpu device,
or have single answers judged, and get the reward that the verdict says: `make test-clients`.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRAINERS = ROOT / ".cache/trainers"
sys.path[:0] = [str(HERE)]

from records import events  # noqa: E402
from scripted_model import KERNEL, MODEL, MODEL_NEW  # noqa: E402

WRONG = MODEL.replace("class Model", "# the wrong one\nclass Model", 1)


class Trainers(unittest.TestCase):
    """One server for all of them."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        suite = cls.folder / "suite"
        suite.mkdir()
        (suite / "right.py").write_text(MODEL)
        (suite / "wrong.py").write_text(WRONG)
        server = [ROOT / "target/release/warpwright", "serve", "--device", "cpu", "--json"]
        server += ["--listen", "127.0.0.1:0", "--suite", suite]
        server += ["--keep-sessions", cls.folder / "kept"]
        cls.url = cls.started(server, "url")
        cls.model = cls.started([sys.executable, HERE / "scripted_model.py"])

    @classmethod
    def started(cls, command: list, key: str | None = None) -> str:
        """Starts what says on its first line where it is, and runs until the end."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cls.folder)
        cls.addClassCleanup(process.stdout.close)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)
        line = process.stdout.readline()
        return json.loads(line)[key] if key else line.strip()

    def final_verdict(self, session: str) -> dict | None:
        """What the judge said of a session at its end, by its record."""
        lines = events(self.folder / "kept" / session).splitlines()
        ended = [json.loads(line)["event"] for line in lines]
        (ended,) = [event for event in ended if event["type"] == "episode_finished"]
        return ended.get("final_verdict")

    def sessions(self) -> set[str]:
        """Those that were recorded."""
        return set(os.listdir(self.folder / "kept"))

    def says(self, trainer: str, script: str, *arguments: object, **environment: str) -> str:
        """What a script of this folder prints in the environment of a trainer."""
        ran = subprocess.run(
            [TRAINERS / trainer / "bin/python", HERE / script, *arguments],
            env=os.environ | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=900,
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def verdict(self, kernel: str, **task: str) -> dict:
        """What the judge said of an answer before; it is not judged again."""
        files = {"model_new.py": MODEL_NEW, "kernels/relu_add.cu": kernel}
        request = urllib.request.Request(
            f"{self.url}/judge",
            json.dumps(task | {"files": files}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            judged = json.load(answer)
        return judged["verdict"]

    def evaluated(self, taskset: str, player: str) -> list[dict]:
        """What verifiers' own evaluation wrote of a taskset."""
        config = self.folder / f"{player}.toml"
        config.write_text(
            f"""\
model = "scripted"
num_rollouts = 2
push = false
output_dir = "{self.folder}/{player}"
[client]
base_url = "{self.model}"
api_key_var = "SCRIPTED_API_KEY"
[env.taskset]
{taskset}
[env.{player}.runtime]
type = "subprocess"
[env.{player}.harness]
id = "null"
"""
        )
        program = TRAINERS / "verifiers/bin/vf-eval"
        environment = os.environ | {"SCRIPTED_API_KEY": "none"}
        ran = subprocess.run(
            [program, "@", config],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=900,
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        (traces,) = (self.folder / player).glob("*/traces.jsonl")
        lines = traces.read_text().splitlines()
        return [trace for line in lines for trace in json.loads(line)["traces"]]

    def test_verifiers_plays_nemo_gym(self) -> None:
        """verifiers 0.4.0: a tool call by a tool call."""
        rows = self.folder / "rows.jsonl"
        with urllib.request.urlopen(f"{self.url}/gym/rows.jsonl") as answer:
            rows.write_bytes(answer.read())
        task = f'[env.taskset.task]\nresources_url = "{self.url}"\nrequest_timeout = 900'
        traces = self.evaluated(f'id = "nemo_gym"\ndataset = "{rows}"\n{task}', "agent")
        self.assertEqual(len(traces), 4)
        for trace in traces:
            told = trace["info"]["nemo_gym"]
            with self.subTest(task=told["task"]):
                verdict = self.final_verdict(told["session_id"])
                self.assertEqual(
                    trace["rewards"]["nemo_gym"]["score"], verdict["reward"]["bounded"]
                )
                self.assertEqual(told["verified"], verdict["verified"])
                self.assertEqual(verdict["verified"], told["task"] == "right")

    def test_verifiers_plays_openenv(self) -> None:
        """verifiers 0.4.0 with openenv 0.4.1: actions as JSON."""
        resets = 'resets = [{ task = "right" }, { task = "wrong" }]'
        taskset = f'id = "openenv"\nbase_url = "{self.url}"\n{resets}'
        traces = self.evaluated(taskset, "player")
        rewards = sorted(trace["rewards"]["openenv_reward"]["score"] for trace in traces)
        self.assertEqual(len(rewards), 4)
        self.assertEqual(rewards[:2], [-1.0, -1.0])
        self.assertGreater(rewards[2], 0.0)

    def test_openenv_plays_by_itself(self) -> None:
        """openenv 0.10.0."""
        for how, right in [("right", True), ("wrong", False), ("nothing", False)]:
            with self.subTest(how=how):
                program = [TRAINERS / "openenv/bin/python", HERE / "play_openenv.py"]
                ran = subprocess.run(
                    [*program, self.url, "right", how],
                    capture_output=True,
                    text=True,
                    timeout=900,
                )
                self.assertEqual(ran.returncode, 0, ran.stderr)
                played = json.loads(ran.stdout)
                self.assertTrue(played["done"])
                self.assertIn("Bash", played["tools"])
                self.assertIn("torch.relu", played["prompt"])
                self.assertEqual(played["state"]["step_count"], len(played["texts"]))
                if how == "nothing":
                    self.assertEqual((played["reward"], played["verdict"]), (-1.0, None))
                    continue
                verdict = self.final_verdict(played["state"]["episode_id"])
                self.assertEqual(played["verdict"], verdict)
                self.assertEqual(played["reward"], verdict["reward"]["bounded"])
                self.assertEqual(verdict["verified"], right)
                self.assertEqual("VERIFICATION OK" in played["texts"][-1], right)

    def test_an_environment_for_trl(self) -> None:
        """clients/python/examples/trl_environment.py, as GRPOTrainer calls it."""
        for how in ["right", "nothing"]:
            with self.subTest(how=how):
                ran = subprocess.run(
                    [TRAINERS / "openenv/bin/python", HERE / "play_trl.py", how],
                    env=os.environ | {"WARPWRIGHT_URL": self.url},
                    capture_output=True,
                    text=True,
                    timeout=900,
                )
                self.assertEqual(ran.returncode, 0, ran.stderr)
                played = json.loads(ran.stdout)
                self.assertEqual(played["names"], ["right", "wrong"])
                self.assertEqual(played["tools"], ["Bash", "Edit", "Read", "Write"])
                self.assertIn("torch.relu", played["told"])
                self.assertEqual(played["again"], -1.0)
                if how == "right":
                    self.assertIn("VERIFICATION OK", played["texts"][-1])
                    self.assertGreater(played["reward"], 0.0)
                else:
                    self.assertEqual(played["reward"], -1.0)

    def test_trl_trains(self) -> None:
        """TRL 1.16.0: steps of its GRPOTrainer, with the tool calls of a model that it samples."""
        before = self.sessions()
        said = self.says("trl", "train_trl.py", self.folder / "trl", WARPWRIGHT_URL=self.url)
        trained = json.loads(said.splitlines()[-1])
        rollouts = trained["rollouts"]
        rewards = [rollout["reward"] for rollout in rollouts]
        self.assertEqual(len(rewards), 24)
        verdicts = [self.final_verdict(session) for session in self.sessions() - before]
        recorded = [verdict["reward"]["bounded"] if verdict else -1.0 for verdict in verdicts]
        # The trainer keeps them as 32-bit numbers.
        for said, judged in zip(
            sorted(rewards + trained["demonstrated"]), sorted(recorded), strict=True
        ):
            self.assertAlmostEqual(said, judged, places=5)
        # What the model saw at its end, if it came so far, is what it was rewarded for.
        ended = [rollout for rollout in rollouts if len(rollout["told"]) == 4]
        self.assertGreater(len(ended), 12)
        for rollout in ended:
            self.assertEqual("VERIFICATION OK" in rollout["told"][-1], rollout["reward"] > 0.0)
        *steps, summary = trained["log"]
        for number, step in enumerate(steps, 1):
            of_step = [rollout["reward"] for rollout in rollouts if rollout["step"] == number]
            mean = sum(of_step) / len(of_step)
            self.assertAlmostEqual(step["rewards/KernelEnvironment/mean"], mean, places=5)
            self.assertGreater(step["tools/call_frequency"], 2.0)
        self.assertEqual(len(steps), 3)
        self.assertTrue(math.isfinite(summary["train_loss"]))
        self.assertTrue(any(step["reward_std"] > 0.0 for step in steps))
        self.assertEqual(trained["changed"], trained["parameters"])
        # What was rewarded is likelier than it was.
        self.assertGreater(trained["preferences"][1], trained["preferences"][0])

    def test_verl_rewards(self) -> None:
        """verl 0.9.1: its reward loop, with clients/python/examples/verl_reward.py."""
        client = ROOT / "clients/python"
        said = self.says(
            "verl",
            "reward_verl.py",
            f"reward.custom_reward_function.path={client}/examples/verl_reward.py",
            "reward.num_workers=2",
            PYTHONPATH=str(client / "src"),
            RAY_AUTH_MODE="disabled",
            WARPWRIGHT_SERVER_URL=self.url,
        )
        scored = json.loads(said.splitlines()[-1])
        self.assertEqual(scored["acc"], self.rewards_of_answers())
        self.assertEqual(scored["at the end"], scored["in all"])
        for place, reward in zip(scored["in all"], scored["acc"], strict=True):
            self.assertAlmostEqual(place, reward, places=5)

    def test_openrlhf_rewards(self) -> None:
        """OpenRLHF 0.11.2: its rollout of one turn, with a remote reward model."""
        said = self.says("openrlhf", "reward_openrlhf.py", f"{self.url}/reward/openrlhf")
        played = json.loads(said.splitlines()[-1])
        expected = self.rewards_of_answers()
        self.assertEqual([one["reward"] for one in played], [[reward] for reward in expected])
        self.assertEqual([one["scores"] for one in played], [[reward] for reward in expected])
        verified = [one["extra_logs"]["verified"] for one in played]
        self.assertEqual(verified, [[1.0], [0.0], [0.0], [1.0]])

    def rewards_of_answers(self) -> list[float]:
        """Of a right answer, a wrong one, one without code, and a right one to another task."""
        right = self.verdict(KERNEL, task="right")
        wrong = self.verdict(KERNEL.replace("0.5f", "0.25f"), task="right")
        other = self.verdict(KERNEL, task="mine", reference=MODEL)
        self.assertTrue(right["verified"] and other["verified"] and not wrong["verified"])
        return [
            right["reward"]["bounded"],
            wrong["reward"]["bounded"],
            -1.0,
            other["reward"]["bounded"],
        ]

    def test_nemo_gym_plays(self) -> None:
        """NeMo-Gym 0.7.0: its agent, over clients/nemo_gym."""
        folder = self.folder / "gym"
        folder.mkdir()
        self.says(
            "nemo-gym",
            "play_nemo_gym.py",
            folder,
            self.url,
            self.model,
            RAY_AUTH_MODE="disabled",
        )
        rollouts = json.loads((folder / "rollouts.json").read_text())
        self.assertEqual(len(rollouts), 4)
        for rollout in rollouts:
            with self.subTest(task=rollout["task"]):
                verdict = self.final_verdict(rollout["session_id"])
                self.assertEqual(rollout["reward"], verdict["reward"]["bounded"])
                self.assertEqual(rollout["verified"], verdict["verified"])
                self.assertEqual(verdict["verified"], rollout["task"] == "right")
                self.assertFalse(rollout["mask_sample"])
                calls = [
                    item
                    for item in rollout["response"]["output"]
                    if item["type"] == "function_call"
                ]
                self.assertEqual(len(calls), 4)

    def test_five_hundred_at_once(self) -> None:
        """openenv 0.10.0: as many as are admitted."""
        program = [TRAINERS / "openenv/bin/python", ROOT / "benches/server/load-sessions"]
        ran = subprocess.run(
            [*program, self.url, "--sessions", "500", "--steps", "5"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertEqual(json.loads(ran.stdout)["as they should be"], 500)


if __name__ == "__main__":
    unittest.main()
