"""A resources server of NeMo-Gym that passes everything on to a Warpwright server.

NeMo-Gym starts its resources servers itself and knows none by URL: this is what it starts. Sessions
are Warpwright's, under its cookie, which is carried in the cookie of Gym's own sessions, so that
each answer sets it anew, as Gym's agents expect. WARPWRIGHT_TOKEN is what the server asks for,
where it was started with `--tokens`.
"""

from __future__ import annotations

import json
import os
from typing import ClassVar

from fastapi import FastAPI, HTTPException, Request, Response
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError
from nemo_gym.server_utils import request as ask
from pydantic import ConfigDict

COOKIE = "warpwright_session"


class WarpwrightConfig(BaseResourcesServerConfig):
    """Settings of the resources server."""

    # Like `http://127.0.0.1:8000`.
    url: str
    # Which of a verdict's rewards is the reward: `bounded`, `paper` or `speedup`.
    reward: str = "bounded"
    # Where the judge itself failed: a rollout that is marked (`mask_sample`), for trainers that
    # leave such out, or else an error. It has a reward of 0, which is none.
    mask_failures: bool = False


class WarpwrightVerifyRequest(BaseVerifyRequest):
    """A row with the model's response."""

    model_config = ConfigDict(extra="allow")


class WarpwrightVerifyResponse(BaseVerifyResponse):
    """The row with `reward`, `verified`, `speedup_eager`, `speedup_best`, `turns`, `session_id`."""

    model_config = ConfigDict(extra="allow")


class Warpwright(SimpleResourcesServer):
    """Forwards requests to the Warpwright server."""

    ray_enabled: ClassVar[bool] = False
    config: WarpwrightConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/{tool}")(self.tool)
        return app

    async def seed_session(self, request: Request) -> Response:
        """Begins an episode."""
        status, text = await self._pass_on(request, "seed_session", await request.body())
        if status == 200:
            request.session[COOKIE] = json.loads(text)["session_id"]
        return Response(text, status, media_type="application/json")

    async def tool(self, tool: str, request: Request) -> Response:
        """Calls a tool; returns its text for the model, also if the call failed."""
        status, text = await self._pass_on(request, tool, await request.body())
        return Response(text, status, media_type="text/plain")

    async def verify(
        self, request: Request, body: WarpwrightVerifyRequest
    ) -> WarpwrightVerifyResponse:
        """Ends the episode and returns its reward."""
        row = body.model_dump_json(exclude_unset=True).encode()
        status, text = await self._pass_on(request, f"verify?reward={self.config.reward}", row)
        if status >= 500 and self.config.mask_failures:
            raise JudgeError(f"{status}: {text.decode()}")
        if status != 200:
            raise HTTPException(status, text.decode())
        return WarpwrightVerifyResponse.model_validate_json(text)

    async def _pass_on(self, request: Request, path: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        # Gym shows its configuration; this is none of it.
        if token := os.environ.get("WARPWRIGHT_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        session = request.session.get(COOKIE)
        answer = await ask(
            "POST",
            f"{self.config.url.rstrip('/')}/{path}",
            data=body,
            headers=headers,
            cookies={COOKIE: session} if session else None,
        )
        return answer.status, await answer.read()


if __name__ == "__main__":
    Warpwright.run_webserver()
