"""Asks a Warpwright server (`warpwright serve`) for verdicts on CUDA kernels.

What the candidate did wrong is a verdict with a reward; what the caller did wrong is `Refused`;
what the server did wrong is an answer with `infra_error` and without a reward. Only the first may
become part of a gradient.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = ["Client", "Judged", "Question", "Refused", "Unreachable"]

Stage = Literal["built", "verified", "measured"]
Scheme = Literal["bounded", "paper", "speedup"]

# Seconds beyond a question's deadline that the connection is kept.
GRACE = 30.0
# Statuses after which the same question may be asked again.
AGAIN = frozenset({429, 502, 503})
LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Question:
    """A candidate to judge."""

    task: str
    """Name of the task: of one that is served, or, with `reference`, any."""
    files: Mapping[str, str]
    """`model_new.py`, and `kernels/NAME.cu` and so on, as text."""
    reference: str | None = None
    """Python source in KernelBench form."""
    stage: Stage = "measured"
    """How far it is taken."""
    reward: Scheme = "bounded"
    """Which of the verdict's rewards is the reward."""
    fresh: bool = False
    """Whether it is run although the same files were judged before."""


@dataclass(frozen=True)
class Judged:
    """An answer."""

    reward: float | None
    """None where the server failed: no reward of 0."""
    verdict: dict[str, Any] | None
    """The verdict, by `schemas/verdict.schema.json`."""
    infra_error: str | None = None
    """What went wrong with the server."""
    hint: str | None = field(default=None, compare=False)
    """What whoever runs it can do."""

    @property
    def verified(self) -> bool:
        """Whether there is a verdict and it is good."""
        return self.verdict is not None and bool(self.verdict["verified"])


class Refused(Exception):
    """The caller's mistake, or a deadline that passed; `problem` is the document (RFC 9457)."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = dict(problem)
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        hint = problem.get("hint")
        super().__init__(f"{problem.get('detail', 'refused')}{f' ({hint})' if hint else ''}")


class Unreachable(Exception):
    """There was no answer in time."""


class Client:
    """Asks one server. May be shared by threads.

    Raises `ValueError` for a URL that is none, or where a token would go unencrypted over a
    network.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience: float = 900.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no URL such as http://127.0.0.1:8000")
        local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
        if token and parts.scheme == "http" and not local:
            raise ValueError("a token would go over the network unencrypted: use https")
        self.url = url.rstrip("/")
        self.patience = patience
        self._token = token
        self._sleep = sleep
        # A proxy has no business between a program and its own machine.
        proxies: dict[str, str] | None = {} if local else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))

    def judge(
        self,
        task: str,
        *,
        files: Mapping[str, str],
        reference: str | None = None,
        stage: Stage = "measured",
        reward: Scheme = "bounded",
        fresh: bool = False,
        deadline: float | None = None,
    ) -> Judged:
        """Judges a candidate, within `deadline` seconds (usually the client's `patience`).

        Raises `Refused` and `Unreachable`.
        """
        question = Question(task, files, reference, stage, reward, fresh)
        return self.ask(question, deadline)

    def ask(self, question: Question, deadline: float | None = None) -> Judged:
        """The same of a `Question`."""
        within = self.patience if deadline is None else deadline
        body: dict[str, Any] = {
            "task": question.task,
            "files": dict(question.files),
            "stage": question.stage,
            "reward": question.reward,
            "fresh": question.fresh,
            "deadline_seconds": within,
        }
        if question.reference is not None:
            body["reference"] = question.reference
        answer = self._ask("/judge", body, within)
        error = answer.get("infra_error") or {}
        return Judged(answer["reward"], answer["verdict"], error.get("message"), error.get("hint"))

    def score(
        self,
        response: str,
        task: str,
        *,
        reference: str | None = None,
        stage: Stage = "measured",
        reward: Scheme = "bounded",
        deadline: float | None = None,
    ) -> float:
        """The reward of what a language model said, whose code blocks are the candidate.

        Raises `Refused`, and `Unreachable` where the server failed or did not answer until the
        deadline: there is no number for that.
        """
        label = {"task": task} | ({} if reference is None else {"reference": reference})
        body = {"prompt": None, "response": response, "label": label}
        within = self.patience if deadline is None else deadline
        return float(self._ask(f"/reward/slime?reward={reward}&stage={stage}", body, within))

    def _ask(self, path: str, body: dict[str, Any], within: float) -> Any:
        until = time.monotonic() + within
        # The same each time: to the server a key stands for a body.
        key = uuid.uuid4().hex
        while True:
            left = max(until - time.monotonic(), 0.001)
            pause = 1.0
            try:
                return self._post(path, body, left, key)
            except urllib.error.HTTPError as refused:
                problem = self._problem(refused)
                if refused.code not in AGAIN:
                    raise Refused(problem) from None
                pause = min(float(problem.get("retry_after") or 1.0), LONGEST_PAUSE)
                why = str(problem.get("detail"))
            except (OSError, http.client.HTTPException) as broken:
                why = str(broken)
            if time.monotonic() + pause >= until:
                raise Unreachable(f"{self.url}: {why}")
            self._sleep(pause)

    def judge_many(
        self, questions: Iterable[Question], *, at_once: int = 64, deadline: float | None = None
    ) -> list[Judged | Refused | Unreachable]:
        """Answers in the order of the questions; what would have been raised is in its place."""

        def ask(question: Question) -> Judged | Refused | Unreachable:
            try:
                return self.ask(question, deadline)
            except (Refused, Unreachable) as error:
                return error

        with ThreadPoolExecutor(max_workers=at_once) as threads:
            return list(threads.map(ask, questions))

    def tasks(self) -> list[str]:
        """Names of the tasks that the server has."""
        request = urllib.request.Request(f"{self.url}/tasks", headers=self._headers())
        try:
            with self._opener.open(request, timeout=GRACE) as response:
                return list(json.load(response)["tasks"])
        except urllib.error.HTTPError as refused:
            raise Refused(self._problem(refused)) from None
        except OSError as broken:
            raise Unreachable(f"{self.url}: {broken}") from broken

    def _post(self, path: str, body: dict[str, Any], left: float, key: str) -> Any:
        headers = self._headers() | {"content-type": "application/json", "idempotency-key": key}
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        with self._opener.open(request, timeout=left + GRACE) as response:
            return json.load(response)

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    @staticmethod
    def _problem(refused: urllib.error.HTTPError) -> dict[str, Any]:
        try:
            return dict(json.load(refused))
        except (ValueError, OSError):
            return {"detail": f"the server answered {refused.code}", "status": refused.code}
