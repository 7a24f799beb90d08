"""A language model that says what a script says, behind OpenAI's chat completions: first a kernel,
by tool calls or as JSON, then that it is done. What is tested with it is everything else.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KERNEL = """\
#include <cuda_runtime.h>

__global__ void relu_add_kernel(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + 1.0f, 0.0f) * 0.5f;
}

extern "C" int relu_add(const float* x, float* y, long long n, cudaStream_t stream) {
    relu_add_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""
MODEL_NEW = """\
import torch
from torch import nn

import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        cuda_extension.relu_add(x, y, x.numel())
        return y
"""
MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + 1.0) * 0.5


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 256)]
"""


# What a model says that answers once.
ANSWER = f"""\
Here it is.

```cuda kernels/relu_add.cu
{{kernel}}```

```python model_new.py
{MODEL_NEW}```
"""


def calls(kernel: str) -> list[tuple[str, dict]]:
    """What is to be done, tool by tool."""
    return [
        ("Bash", {"command": "ls"}),
        ("Write", {"file_path": "kernels/relu_add.cu", "content": kernel}),
        ("Write", {"file_path": "model_new.py", "content": MODEL_NEW}),
        ("Bash", {"command": "python3 -m utils.verification"}),
    ]


def wrong(text: str) -> bool:
    """Whether a task is one that the script gets wrong."""
    return "the wrong one" in text


def answer(body: dict) -> tuple[dict, str]:
    """The message that comes next, and why it ends."""
    said = json.dumps(body["messages"])
    kernel = KERNEL.replace("0.5f", "0.25f") if wrong(said) else KERNEL
    script = calls(kernel)
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    if tools:
        done = sum(message["role"] == "tool" for message in body["messages"])
        if done >= len(script):
            return {"role": "assistant", "content": "It is done."}, "stop"
        name, arguments = script[done]
        name = next(tool for tool in tools if tool.endswith(name))
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{done}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    done = sum(message["role"] == "assistant" for message in body["messages"])
    action = {"tool": "submit"}
    if done < len(script):
        action = dict(zip(("tool", "arguments"), script[done], strict=True))
    return {"role": "assistant", "content": json.dumps(action)}, "stop"


class Handler(BaseHTTPRequestHandler):
    """Chat completions, whole or as a stream."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        """Answers."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message, reason = answer(body)
        base = {
            "id": uuid.uuid4().hex,
            "created": int(time.time()),
            "model": body["model"],
        }
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if body.get("stream"):
            choices = [
                [{"index": 0, "delta": message, "finish_reason": None}],
                [{"index": 0, "delta": {}, "finish_reason": reason}],
                [],
            ]
            kind, chunk = "text/event-stream", base | {"object": "chat.completion.chunk"}
            chunks = [chunk | {"choices": choice} for choice in choices]
            chunks[-1]["usage"] = usage
            text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
            text += "data: [DONE]\n\n"
        else:
            kind = "application/json"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
            text = json.dumps(base | whole)
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    sys.exit(server.serve_forever())
