"""The client against a real server: WARPWRIGHT_SERVER_URL names one on the cpu device, whose suite
has the task `model` of the folder that this runs in, with a candidate in `good`.

    WARPWRIGHT_SERVER_URL=http://127.0.0.1:8000 python -m unittest discover clients/python/tests
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import socket
import threading
import unittest
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from warpwright_client import Client, Judged, Question, Refused, Unreachable

URL = os.environ.get("WARPWRIGHT_SERVER_URL", "")


def files(folder: str = "good") -> dict[str, str]:
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def figure(name: str) -> float:
    with urllib.request.urlopen(f"{URL}/metrics") as response:
        text = response.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M))


class Cut:
    """Passes connections on to the server, but lets the answer of the first one get lost."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.count = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            server = urlsplit(URL)
            there = socket.create_connection((server.hostname, server.port))
            lost = self.count == 1
            threading.Thread(target=self.copy, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(there, here, lost), daemon=True).start()

    @staticmethod
    def copy(source: socket.socket, target: socket.socket, lost: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if lost:
                    break
                target.sendall(data)
        except OSError:
            pass
        # Whoever waits at the other end hears of it.
        for end in (source, target) if lost else (target,):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR if lost else socket.SHUT_WR)


@unittest.skipUnless(URL, "WARPWRIGHT_SERVER_URL names no server")
class TestClient(unittest.TestCase):
    def test_a_verdict_has_its_reward(self) -> None:
        client = Client(URL)
        self.assertIn("model", client.tasks())
        judged = client.judge("model", files=files(), stage="verified", reward="paper")
        self.assertTrue(judged.verified)
        self.assertIsNone(judged.infra_error)
        assert judged.verdict is not None
        self.assertEqual(judged.reward, judged.verdict["reward"]["paper"])
        wrong = files() | {"model_new.py": "raise ValueError('no')"}
        judged = client.judge("model", files=wrong, stage="verified")
        self.assertFalse(judged.verified)
        self.assertEqual(judged.reward, -1.0)

    def test_what_the_caller_does_wrong_is_refused(self) -> None:
        client = Client(URL)
        cases = [
            ("nothing", files(), None, "unknown-task"),
            ("model", {"x": ""}, None, "invalid-request"),
            ("none", files(), "x = 1", "task-refused"),
        ]
        for task, given, reference, kind in cases:
            with self.assertRaises(Refused) as refused:
                client.judge(task, files=given, reference=reference, stage="built")
            self.assertEqual(refused.exception.kind, kind)

    def test_an_answer_that_is_lost_on_the_way_is_not_judged_again(self) -> None:
        cut, before = Cut(), figure("warpwright_jobs_total")
        client = Client(cut.url, sleep=lambda seconds: None)
        given = files() | {"kernels/lost.cu": "// a file of its own"}
        judged = client.judge("model", files=given, stage="verified")
        self.assertTrue(judged.verified, judged)
        self.assertEqual(cut.count, 2)
        self.assertEqual(figure("warpwright_jobs_total"), before + 1)
        cut.listener.close()

    def test_what_a_model_said_has_a_reward(self) -> None:
        client = Client(URL)
        blocks = [f"**{name}**\n```\n{text}```\n" for name, text in files().items()]
        said = "I would write:\n" + "".join(blocks)
        right = client.score(said, "model", stage="verified", reward="paper")
        judged = client.judge("model", files=files(), stage="verified", reward="paper")
        self.assertEqual(right, judged.reward)
        self.assertEqual(client.score("I do not know.", "model"), -1.0)
        # As verl calls it.
        path = Path(__file__).parent.parent / "examples" / "verl_reward.py"
        example = runpy.run_path(str(path))
        given = {"stage": "verified", "reward": "paper"}
        self.assertEqual(example["compute_score"]("any", said, "model", given), right)
        with self.assertRaises(Refused):
            client.score(said, "nothing")

    def test_many_have_their_answers_in_order(self) -> None:
        given = [files() | {"kernels/n.cu": f"// {number}"} for number in range(6)]
        questions = [Question("model", one, stage="built") for one in given]
        questions.insert(3, Question("nothing", {}, stage="built"))
        answers = Client(URL).judge_many(questions)
        self.assertIsInstance(answers.pop(3), Refused)
        hashes = set()
        for answer in answers:
            assert isinstance(answer, Judged) and answer.verdict is not None
            hashes.add(answer.verdict["candidate"])
        self.assertEqual(len(hashes), 6)

    def test_nobody_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        client = Client(f"http://127.0.0.1:{port}", patience=0.5)
        with self.assertRaises(Unreachable):
            client.judge("model", files=files())


class TestUrls(unittest.TestCase):
    def test_what_is_no_server_is_refused(self) -> None:
        for url in ("", "ftp://x", "x", "http://"):
            with self.assertRaises(ValueError):
                Client(url)

    def test_no_token_goes_over_the_network_unencrypted(self) -> None:
        with self.assertRaises(ValueError):
            Client("http://example.com", token="t")
        Client("https://example.com", token="t")
        Client("http://127.0.0.1:1", token="t")

    def test_a_problem_is_said(self) -> None:
        problem = json.loads('{"type": "urn:warpwright:problem:busy", "detail": "no", "hint": "h"}')
        self.assertEqual((Refused(problem).kind, str(Refused(problem))), ("busy", "no (h)"))


if __name__ == "__main__":
    unittest.main()
