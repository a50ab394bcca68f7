#!/usr/bin/env bash
# In a guest: what fabric.h promises, over verbs, from one node to another.
set -euo pipefail
export LOCH_TEST_VERBS_HOST=10.0.0.1 LOCH_TEST_VERBS_HOST_TOO=10.0.0.3 LOCH_TEST_VERBS_CLIENT=10.0.0.2
exec "$(dirname "${BASH_SOURCE[0]}")/three_nodes.sh" "$@"
