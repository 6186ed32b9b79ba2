"""The codes of problems in the clients, from the rows of clients/answers.json."""

from client_languages import camel, fill

ABOUT = """`make clients` writes this file from `clients/answers.json`, which has the reason for
    each code."""
DECISIONS = """The service has looked at the key, the order, the cart or the item. If an earlier
    attempt had taken effect, the answer would be another one."""
NOTHING_RAN = """This attempt has changed nothing. An earlier one may have: these are decided
    without a look at it. A code that is in neither set, or none, leaves open what a status 408 or
    5xx leaves open."""
RETURNS_MONEY = "The decisions on a report of a payment after which its money must be returned."
#: The sets that clients go by: name, what it means, and whether a row of the table belongs.
SETS = [
    ("DECISIONS", DECISIONS, lambda row: row["lost"] == "decision"),
    ("NOTHING_RAN", NOTHING_RAN, lambda row: row["lost"] == "nothing"),
    ("RETURNS_MONEY", RETURNS_MONEY, lambda row: row["returns_money"]),
]


def sets(language, codes):
    """A module with the sets."""
    text = language.head("The codes of problems, by what they say about earlier attempts.", ABOUT)
    for name, about, belongs in SETS:
        members = sorted(code for code, row in codes.items() if belongs(row))
        text += "\n" + language.comment(about) + language.code_set(name, members)
    return text


def rust(codes):
    """The table of the enum, and the codes after which money is due."""
    text = f"//! The codes of problems.\n//!\n{fill(ABOUT, '//! ')}\n\n"
    text += "use super::Meaning;\n\ncodes! {\n"
    for code, row in codes.items():
        text += fill(row["meaning"], "    /// ") + "\n"
        text += f'    {camel(code)} = "{code}": {row["lost"].capitalize()},\n'
    members = sorted(code for code, row in codes.items() if row["returns_money"])
    rows = "".join(f"    ProblemCode::{camel(code)},\n" for code in members)
    constant = f"RETURNS_MONEY: [ProblemCode; {len(members)}]"
    return f"{text}}}\n\n/// {RETURNS_MONEY}\npub(super) const {constant} = [\n{rows}];\n"
