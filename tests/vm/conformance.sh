#!/usr/bin/env bash
# In a guest: what fabric.h promises, over verbs, from one node to another.
set -euo pipefail
# shellcheck source=/dev/null
source "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
nodes_up 3
LOCH_TEST_VERBS_HOST=10.0.0.1 LOCH_TEST_VERBS_HOST_TOO=10.0.0.3 LOCH_TEST_VERBS_CLIENT=10.0.0.2 "$1" "${@:2}"
