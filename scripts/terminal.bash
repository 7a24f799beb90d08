# Sourced by the other scripts: strict mode, the repository's root, and functions for messages.
set -euo pipefail

# Scripts can be started from any folder, and the repository's path may have any name.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

# The interpreter of all scripts; scripts/setup.d/python installs it.
export WARPWRIGHT_PYTHON="${WARPWRIGHT_PYTHON:-$root/.venv/bin/python}"

step() {
    printf '\n== %s\n' "$*" >&2
}

say() {
    printf '   %s\n' "$*" >&2
}

# fail MESSAGE [HINT...]: prints the message and each hint on its own line, then exits with 1.
fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    local hint
    for hint in "$@"; do
        printf 'hint: %s\n' "$hint" >&2
    done
    exit 1
}
