#!/usr/bin/env python3
"""Writes what docs/openapi.json and clients/answers.json say into the clients.

    scripts/clients.py [--check]

Each client gets the models and the codes of problems. With --check it writes nothing, and exits 1
if a file is old.
"""

import json
import sys
from functools import partial
from pathlib import Path

import client_codes
import client_models
import client_rust
from client_languages import JavaScript, Python

ROOT = Path(__file__).resolve().parent.parent
PYTHON, JAVASCRIPT = Python(), JavaScript()


def files(codes, schemas):
    """What writes each file."""
    return {
        "clients/python/stockade/_codes.py": partial(client_codes.sets, PYTHON, codes),
        "clients/python/stockade/models.py": partial(client_models.models, PYTHON, schemas),
        "clients/js/src/codes.js": partial(client_codes.sets, JAVASCRIPT, codes),
        "clients/js/src/types.d.ts": partial(client_models.models, JAVASCRIPT, schemas),
        "clients/js/src/fields.js": partial(client_models.fields, JAVASCRIPT, schemas),
        "clients/js/src/requests.js": partial(client_models.requests, JAVASCRIPT, schemas),
        "crates/client/src/models.rs": partial(client_rust.models, schemas),
        "crates/client/src/problem/codes.rs": partial(client_codes.rust, codes),
    }


def main():
    """Writes the files, or compares them."""
    codes = json.loads((ROOT / "clients/answers.json").read_text())["codes"]
    description = json.loads((ROOT / "docs/openapi.json").read_text())
    old = []
    for name, write in files(codes, description["components"]["schemas"]).items():
        path, text = ROOT / name, write()
        if path.exists() and path.read_text() == text:
            continue
        old.append(name)
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    if old and "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(old)}: old, run `make clients`")


if __name__ == "__main__":
    main()
