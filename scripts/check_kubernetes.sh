#!/usr/bin/env bash
# Checks the manifests in deploy/kubernetes: kustomize can build them, they fit the schemas of
# Kubernetes, and each belongs to a step of deploy/kubernetes/roll.sh. A fake kubectl shows in which
# order the script replaces the roles.
#
# `kubectl` builds them, and `kubernetes-validate` (from PyPI) knows the schemas. What is not
# installed is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/target/tools/bin:$PATH
have() { command -v "$1" >/dev/null 2>&1; }

built=$(mktemp "${TMPDIR:-/tmp}/stockade-kubernetes.XXXXXX")
trap 'rm -f "$built"' EXIT

order=$(KUBECTL='echo' deploy/kubernetes/roll.sh | grep -oE 'component=[a-z]+|job/[a-z-]+|deployment/[a-z-]+' | tr '\n' ' ')
expected='component=settings component=migrate job/stockade-migrate component=reconciler deployment/stockade-reconciler component=recorder deployment/stockade-recorder component=publisher deployment/stockade-publisher component=order deployment/stockade-order '
if [ "$order" != "$expected" ]; then
  echo "deploy/kubernetes/roll.sh does: $order" >&2
  exit 1
fi

if have kubectl; then
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
else
  echo 'SKIPPED: building deploy/kubernetes: kubectl is not installed'
  # The files themselves, each of which is whole without the shared patch.
  for file in deploy/kubernetes/base/*.yaml; do
    case ${file##*/} in kustomization.yaml | pod.yaml) continue ;; esac
    echo '---'
    cat "$file"
  done >"$built"
fi

# `monitoring` has everything, but the schema of its monitor belongs to the Prometheus operator.
if ! have kubernetes-validate; then
  echo 'SKIPPED: the schemas of Kubernetes: scripts/setup.sh lint installs kubernetes-validate'
  exit
fi
[ -s "$built" ] || { echo 'deploy/kubernetes/base has no objects' >&2; exit 1; }
kubernetes-validate --strict --quiet "$built"
