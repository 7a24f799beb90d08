"""Verified kernels behind torch operators, exported by warpwright. README.md says how to use it."""

from __future__ import annotations

from . import _modules, _package

package = _modules.open_package(_package.read(__file__))
stats = package.stats
invalidate = package.invalidate
layers = package.layers()
