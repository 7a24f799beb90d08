"""Client of a Warpwright server (`warpwright serve`), which judges CUDA kernels.

An error of the candidate is a verdict with a reward. An error of the caller raises `Refused`. An
error of the server is a result with `infra_error` and without a reward. Train only on the first.
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

# Seconds beyond the deadline until the connection times out.
GRACE = 30.0
# Statuses that are retried.
AGAIN = frozenset({429, 502, 503})
LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Question:
    """A candidate to judge."""

    task: str
    """Name of the task: a served one or, with `reference`, any name."""
    files: Mapping[str, str]
    """The candidate's files by path: `model_new.py`, and for example `kernels/NAME.cu`."""
    reference: str | None = None
    """Python source in KernelBench form."""
    stage: Stage = "measured"
    """The last stage that the judge runs."""
    reward: Scheme = "bounded"
    """The verdict's reward scheme that becomes the reward."""
    fresh: bool = False
    """Judge again even if the same files already have a verdict."""


@dataclass(frozen=True)
class Judged:
    """The result of a request."""

    reward: float | None
    """None after an infrastructure error, which is not a reward of 0."""
    verdict: dict[str, Any] | None
    """The verdict, by `schemas/verdict.schema.json`."""
    infra_error: str | None = None
    """The infrastructure error: what failed in the server."""
    hint: str | None = field(default=None, compare=False)
    """Advice for the server's operator."""

    @property
    def verified(self) -> bool:
        """Whether the candidate has a verdict and is verified."""
        return self.verdict is not None and bool(self.verdict["verified"])


class Refused(Exception):
    """An error of the caller, or a missed deadline; `problem` is the document (RFC 9457)."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = dict(problem)
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        hint = problem.get("hint")
        super().__init__(f"{problem.get('detail', 'refused')}{f' ({hint})' if hint else ''}")


class Unreachable(Exception):
    """The server did not answer before the deadline."""


class Client:
    """Client of one server. Threads may share it.

    Raises `ValueError` for a malformed URL, or if a token would be sent unencrypted to another
    machine.
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
            raise ValueError(f"{url} is not a URL such as http://127.0.0.1:8000")
        local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
        if token and parts.scheme == "http" and not local:
            raise ValueError("the token would be sent unencrypted: use https")
        self.url = url.rstrip("/")
        self.patience = patience
        self._token = token
        self._sleep = sleep
        # Requests to this machine use no proxy.
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
        """Judges a candidate within `deadline` seconds (default: the client's `patience`).

        Raises `Refused` and `Unreachable`.
        """
        question = Question(task, files, reference, stage, reward, fresh)
        return self.ask(question, deadline)

    def ask(self, question: Question, deadline: float | None = None) -> Judged:
        """Judges the candidate of a `Question`."""
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
        """The reward of a model's response, whose code blocks are the candidate.

        Raises `Refused`, and `Unreachable` after an infrastructure error or a missed deadline.
        """
        label = {"task": task} | ({} if reference is None else {"reference": reference})
        body = {"prompt": None, "response": response, "label": label}
        within = self.patience if deadline is None else deadline
        return float(self._ask(f"/reward/slime?reward={reward}&stage={stage}", body, within))

    def _ask(self, path: str, body: dict[str, Any], within: float) -> Any:
        until = time.monotonic() + within
        # Every try has the same key, so that the server judges once.
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
        """Results in the order of the questions. A request that raises contributes its exception
        instead."""

        def ask(question: Question) -> Judged | Refused | Unreachable:
            try:
                return self.ask(question, deadline)
            except (Refused, Unreachable) as error:
                return error

        with ThreadPoolExecutor(max_workers=at_once) as threads:
            return list(threads.map(ask, questions))

    def tasks(self) -> list[str]:
        """Names of the served tasks."""
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
