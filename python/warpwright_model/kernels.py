"""Loads candidates: the host code of kernels that were judged before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from warpwright_oracle import extension, harvest, hostdevice
from warpwright_oracle.reference import load_module, prepare

from .failure import Failed, told
from .trace import weights


def maker(
    region: dict[str, Any], kernels: dict[str, Any], device: str
) -> Callable[[torch.nn.Module], Callable[..., Any]]:
    """A function that makes the kernels' module for a module of the model, with its weights."""
    try:
        if kernels["artifact"] is not None:
            artifact = Path(kernels["artifact"])
            extension.install(artifact, device)
            if (artifact / "inline.json").exists():
                harvest.install(artifact)
        if device == "cpu":
            hostdevice.map_cuda_to_host(kernels["source"], pretend=True)
        module = load_module(kernels["source"], f"candidate_{region['task']}")
        make = module.ModelNew
    except Exception as error:
        raise Failed("candidate", f"loading {region['task']} raised {told(error)}") from error

    def made(owner: torch.nn.Module) -> Callable[..., Any]:
        tensors = dict(weights(owner))
        state = {item["name"]: tensors[item["path"]].detach() for item in region["weights"]}
        try:
            model = make().to(device)
            dtypes = {name: tensor.dtype for name, tensor in state.items()}
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                if name in dtypes and tensor.dtype != dtypes[name]:
                    tensor.data = tensor.data.to(dtypes[name])
            model.load_state_dict(state, strict=True)
            model = model.eval()
            prepare(model)
        except Exception as error:
            raise Failed("candidate", f"making {region['task']} raised {told(error)}") from error
        return model

    return made
