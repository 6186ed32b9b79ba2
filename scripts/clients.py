#!/usr/bin/env python3
"""Writes the codes of problems into the clients for Rust, Python and JavaScript, from clients/answers.json.

    scripts/clients.py [--check]

With --check it writes nothing, and exits 1 if a file is old.
"""

import json
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABOUT = "`make clients` writes this file from `clients/answers.json`, which has the reason for each code."
DECISIONS = """The service has looked at the key, the order, the cart or the item. If an earlier attempt had
taken effect, the answer would be another one."""
NOTHING_RAN = """This attempt has changed nothing. An earlier one may have: these are decided without a look at it.
A code that is in neither set, or none, leaves open what a status 408 or 5xx leaves open."""
RETURNS_MONEY = "The decisions on a report of a payment after which its money must be returned."


def sets(codes):
    """The sets that clients go by: name, what it means, its codes."""
    of = {
        "DECISIONS": (DECISIONS, lambda row: row["lost"] == "decision"),
        "NOTHING_RAN": (NOTHING_RAN, lambda row: row["lost"] == "nothing"),
        "RETURNS_MONEY": (RETURNS_MONEY, lambda row: row["returns_money"]),
    }
    for name, (text, belongs) in of.items():
        yield name, text, sorted(code for code, row in codes.items() if belongs(row))


def python(codes):
    """A module with the sets."""
    text = f'"""The codes of problems, by what they say about earlier attempts.\n\n{textwrap.fill(ABOUT, 99)}\n"""\n'
    for name, about, members in sets(codes):
        comment = textwrap.indent(about, "#: ")
        rows = "".join(f'        "{code}",\n' for code in members)
        text += f"\n{comment}\n{name} = frozenset(\n    {{\n{rows}    }}\n)\n"
    return text


def javascript(codes):
    """A module with the sets."""
    text = f"// The codes of problems, by what they say about earlier attempts.\n//\n{textwrap.fill(ABOUT, 97, initial_indent='// ', subsequent_indent='// ')}\n"
    for name, about, members in sets(codes):
        comment = textwrap.indent(about, " * ")
        rows = "".join(f"  '{code}',\n" for code in members)
        text += f"\n/**\n{comment}\n */\nexport const {name} = new Set([\n{rows}]);\n"
    return text


def camel(code):
    """The name of a code in Rust."""
    return "".join(word.capitalize() for word in code.split("_"))


def rust(codes):
    """The table of the enum, and the codes after which money is due."""
    lost = {"decision": "Decision", "nothing": "Nothing", "unknown": "Unknown"}
    text = f"//! The codes of problems.\n//!\n{textwrap.fill(ABOUT, 96, initial_indent='//! ', subsequent_indent='//! ')}\n\nuse super::Meaning;\n\ncodes! {{\n"
    for code, row in codes.items():
        doc = textwrap.fill(row["meaning"], 100, initial_indent="    /// ", subsequent_indent="    /// ", break_on_hyphens=False)
        text += f'{doc}\n    {camel(code)} = "{code}": {lost[row["lost"]]},\n'
    text += "}\n"
    *_, (_, about, members) = sets(codes)
    rows = "".join(f"    ProblemCode::{camel(code)},\n" for code in members)
    return text + f"\n/// {about}\npub(super) const RETURNS_MONEY: [ProblemCode; {len(members)}] = [\n{rows}];\n"


FILES = {
    "clients/python/stockade/_codes.py": python,
    "clients/js/src/codes.js": javascript,
    "crates/client/src/problem/codes.rs": rust,
}


def main():
    """Writes the files, or compares them."""
    codes = json.loads((ROOT / "clients/answers.json").read_text())["codes"]
    old = []
    for name, write in FILES.items():
        path, text = ROOT / name, write(codes)
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
