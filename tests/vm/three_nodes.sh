#!/usr/bin/env bash
# In a guest: a test of three nodes.
set -euo pipefail
# shellcheck source=/dev/null
source "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
nodes_up 3
"$1" "${@:2}"
