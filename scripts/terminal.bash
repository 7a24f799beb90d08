# Sourced by the other scripts: strict mode, the repository's root, and how to speak.
set -euo pipefail

# Scripts start anywhere, in folders of any name.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

# The one interpreter that everything uses; what scripts/setup.d/python makes.
export WARPWRIGHT_PYTHON="${WARPWRIGHT_PYTHON:-$root/.venv/bin/python}"

step() {
    printf '\n== %s\n' "$*" >&2
}

say() {
    printf '   %s\n' "$*" >&2
}

# fail MESSAGE [HINT...]: the message, then each hint on its own line, then exit.
fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    local hint
    for hint in "$@"; do
        printf 'hint: %s\n' "$hint" >&2
    done
    exit 1
}
