#!/usr/bin/env bash
# Checks the manifests in deploy/kubernetes: kustomize can build them, and they fit the schemas of Kubernetes.
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

# The last one has everything, but the schema of its monitor belongs to the Prometheus operator.
if ! command -v kubernetes-validate >/dev/null 2>&1; then
  echo 'SKIPPED: the schemas of Kubernetes: pip install kubernetes-validate'
  exit
fi
kubectl kustomize deploy/kubernetes/base >"$built"
kubernetes-validate --strict --quiet "$built"
