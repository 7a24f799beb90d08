#!/usr/bin/env bash
# Builds kernels/ and prints what the compilers said.
cd "$(dirname "$0")/.." || exit 3
exec python3 -m utils.compile
