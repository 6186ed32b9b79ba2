#!/usr/bin/env bash
# Checks the manifests in deploy/kubernetes: kustomize can build them, they fit the schemas of Kubernetes, and each belongs to
# a step of deploy/kubernetes/roll.sh. A fake kubectl shows in which order the script replaces the roles.
#
# `kubectl` builds them, and `kubernetes-validate` (from PyPI) knows the schemas. What is not installed is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v kubectl >/dev/null 2>&1; then
  echo 'SKIPPED: deploy/kubernetes: kubectl is not installed'
  exit
fi
built=$(mktemp "${TMPDIR:-/tmp}/stockade-kubernetes.XXXXXX")
trap 'rm -f "$built"' EXIT

for folder in base monitoring; do
  echo "kubectl kustomize deploy/kubernetes/$folder"
  kubectl kustomize "deploy/kubernetes/$folder" >"$built"
done

# Every object but the shared patch has a label by which roll.sh finds it.
kubectl kustomize deploy/kubernetes/base >"$built"
awk '
  function end() { if (kind != "" && !found) { print "no component: " kind " " name; bad = 1 } kind = name = ""; found = 0 }
  /^---$/ { end() }
  /^kind: / { kind = $2 }
  /^  name: / { name = $2 }
  /^    app.kubernetes.io\/component: (settings|migrate|order|recorder|reconciler|publisher)$/ { found = 1 }
  END { end(); exit bad }
' "$built"

order=$(KUBECTL=echo deploy/kubernetes/roll.sh | grep -oE 'component=[a-z]+|job/[a-z-]+|deployment/[a-z-]+' | tr '\n' ' ')
expected='component=settings component=migrate job/stockade-migrate component=reconciler deployment/stockade-reconciler component=recorder deployment/stockade-recorder component=publisher deployment/stockade-publisher component=order deployment/stockade-order '
if [ "$order" != "$expected" ]; then
  echo "deploy/kubernetes/roll.sh does: $order" >&2
  exit 1
fi

# The last one has everything, but the schema of its monitor belongs to the Prometheus operator.
if ! command -v kubernetes-validate >/dev/null 2>&1; then
  echo 'SKIPPED: the schemas of Kubernetes: pip install kubernetes-validate'
  exit
fi
kubectl kustomize deploy/kubernetes/base >"$built"
kubernetes-validate --strict --quiet "$built"
