def _warpwright_draw(rule, shape, dtype):
    """Values for an input of type `random`: magnitudes at which references stay finite."""
    dtype = getattr(_warpwright_torch, dtype)
    if rule == "mask":
        return _warpwright_torch.randint(0, 2, shape).to(dtype)
    if rule == "bytes":
        return _warpwright_torch.randint(-128, 128, shape, dtype=dtype)
    x = _warpwright_torch.randn(shape, dtype=_warpwright_torch.float32)
    if rule == "narrow":
        x = x.clamp(-2, 2)
    elif rule == "scale":
        x = 1 + 0.1 * x
    elif rule == "shift":
        x = 0.1 * x
    elif rule == "causal":
        lowest = _warpwright_torch.finfo(dtype).min
        return _warpwright_torch.full(shape, lowest, dtype=dtype).triu(1)
    elif rule == "cos":
        x = x.cos()
    elif rule == "sin":
        x = x.sin()
    elif rule == "positive":
        x = x.abs() + 0.1
    elif rule == "decay":
        x = -1e-3 - _warpwright_torch.rand(shape, dtype=_warpwright_torch.float32)
    elif rule == "decay_sums":
        x = -0.1 * _warpwright_torch.rand(shape, dtype=_warpwright_torch.float32).cumsum(-1)
    elif rule == "softmax":
        x = x.softmax(-1)
    elif rule == "weight":
        x = x / shape[-1] ** 0.5
    return x.to(dtype)
