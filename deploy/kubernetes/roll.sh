#!/usr/bin/env bash
# Deploys or upgrades Stockade role by role: the settings, the ledger's schema, then the
# reconcilers, the recorders and publishers, and the order services last. Each step waits until the
# one before has ended, and the first that fails ends the script: what has not been replaced goes on
# as it was. docs/operations.md says why this order.
#
#   deploy/kubernetes/roll.sh [FOLDER]         a kustomization over `base`;
#                                              default: deploy/kubernetes/base
#
# KUBECTL names another program or context: KUBECTL='kubectl --context shop'. TIMEOUT is that of
# each step.
set -euo pipefail

folder=${1:-$(dirname "$0")/base}
read -ra kubectl <<<"${KUBECTL:-kubectl}"
namespace=stockade
timeout=${TIMEOUT:-10m}

# Roles, in the order in which they are replaced.
ROLES='reconciler recorder publisher order'

apply() {
  echo "applying: $1"
  "${kubectl[@]}" apply -k "$folder" -l "app.kubernetes.io/component=$1"
}

apply settings
# A job cannot be changed.
"${kubectl[@]}" --namespace "$namespace" delete job stockade-migrate --ignore-not-found
apply migrate
"${kubectl[@]}" --namespace "$namespace" wait --for=condition=complete --timeout="$timeout" job/stockade-migrate

for role in $ROLES; do
  apply "$role"
  "${kubectl[@]}" --namespace "$namespace" rollout status --timeout="$timeout" "deployment/stockade-$role"
done
