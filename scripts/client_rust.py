"""The models of the client for Rust, from the schemas of docs/openapi.json.

`STRUCTS` and `ENUMS` are all of them, with what the description does not say: derives, types such
as `Uuid`, and what each word of an enum means. Their methods are written by hand, in the modules of
the crate. A test there, in `requests.rs`, compares the bodies that are sent and no models.
"""

import re
from dataclasses import dataclass, replace

from client_languages import camel, fill
from client_models import ABOUT, NAMES, OF_EVENT, Model, fields_of, is_enum

OF_LATER = "Fields that a later service adds are ignored."
IMPORTS = """
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{IdempotencyKey, ProblemCode};
"""
SHOWN = """
impl %(name)s {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
%(arms)s        }
    }
}

impl fmt::Display for %(name)s {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
"""
#: All derives, in their order, and those that every model has.
DERIVES = "Clone Copy Debug Default PartialEq Eq PartialOrd Ord Hash Serialize Deserialize".split()
OF_ALL = {"Clone", "Debug", "PartialEq", "Eq"}
READ, WRITTEN, BOTH = "Deserialize", "Serialize", "Serialize Deserialize"
TYPES = {"string": "String", "time": "Timestamp", "boolean": "bool", "object": "Value"}
#: Types that the description does not know: of the fields of this name, or of one model's.
OWN_TYPES = {
    "Cart.id": "Uuid",
    "ListedOrder.id": "Uuid",
    "NewItem.segments": "u16",
    "Order.id": "Uuid",
    "Problem.status": "u16",
    "cart": "Uuid",
    "key": "IdempotencyKey",
    "order": "Uuid",
    "segment": "u16",
    "segment_count": "u16",
}
#: Names that Rust reserves, or that read better.
OWN_NAMES = {"final": "is_final", "type": "kind"}


@dataclass(frozen=True)
class Struct(Model):
    """A model, and what Rust must know of it besides."""

    #: What it derives besides what every model does.
    derives: str = READ
    #: Another schema that is the same model.
    also: str = ""
    #: Methods set its fields, which are none of the API of the crate.
    is_built: bool = False


@dataclass(frozen=True)
class Enum:
    """An enum of the description, and what the description does not say of it."""

    #: What each word means.
    words: dict
    derives: str = "Copy Deserialize"
    #: What replaces the words of the schema.
    doc: str = ""
    #: It has `as_str` and `Display`.
    is_shown: bool = False


#: The client reads it from the status or a header, not from the body.
OF_HEAD = {"type": "integer", "format": "int64", "minimum": 0, "absent": True, "of_head": True}
STRUCTS = [
    Struct(
        "Order",
        "OrderBody",
        derives=BOTH,
        changes={
            "amount": {
                "type": ["integer", "null"],
                "description": "What it costs, in the currency's smallest unit: the price of all"
                " units, or the shop's total. Null: the response does not say.",
            },
            **dict.fromkeys(
                ["buyer", "cart", "created_at", "currency", "payment", "price", "version"]
            ),
        },
    ),
    Struct(
        "ListedOrder",
        "OrderRow",
        changes={
            "created_at": {
                "description": "When its units were taken first. Null: an earlier release has"
                " recorded it, and a late payment took units again.",
            },
        },
    ),
    Struct("BuyerOrder", "NewLine", derives=WRITTEN),
    Struct(
        "HoldChange",
        "NewHold",
        also="NewCartHold",
        derives="Default Serialize",
        is_built=True,
        doc="How long a hold shall be, and in which checkout session the buyer pays: one of them,"
        " or both. A number is that of seconds.",
    ),
    Struct("Cart", "CartBody", derives=BOTH, changes=dict.fromkeys(["code", "item", "payment"])),
    Struct("CartLine", "LineBody", derives=BOTH),
    Struct("NewItem", "NewItem", derives="Default Serialize", changes={"waves": {"filled": []}}),
    Struct(
        "ItemPatch",
        "ItemPatch",
        derives="Default Serialize",
        takes_null=True,
        is_built=True,
        # An empty list does what null does.
        changes={"waves": {"type": "array"}},
    ),
    Struct(
        "Item",
        "ItemBody",
        changes={
            "version": {
                "description": "The version for conditional changes, from the header `ETag`. Only"
                " admins see it.",
                **OF_HEAD,
            },
        },
    ),
    Struct("Items", "ItemsBody"),
    Struct("ListedItem", "ItemRow"),
    Struct("Wave", "NewWave", also="NextWave", derives=f"Copy {BOTH}"),
    Struct("ItemWave", "WaveBody", derives=f"Copy {READ}"),
    Struct("Segment", "SegmentBody", changes=dict.fromkeys(["spillovers"])),
    Struct(
        "Audit",
        "AuditReport",
        derives=f"Default {BOTH}",
        doc="The comparison of an item's stock counters in Redis with the ledger. Every number is"
        " required: a missing one must not read as no drift.",
        changes={
            "orders_checked": {
                "absent": True,
                "description": "What is known of the orders themselves: when a full audit has read"
                " all of them, and what it found. Releases that lack it compared them in every"
                " audit.",
            },
            **dict.fromkeys(["refund_due_orders"]),
        },
    ),
    Struct("SegmentAudit", "SegmentReport", derives=f"Default {BOTH}"),
    Struct("OrdersChecked", "OrdersChecked", derives=f"Default {BOTH}"),
    Struct("OrdersFault", "OrdersFault", derives=BOTH),
    Struct("RefundDue", "RefundRow"),
    Struct("JournalEntry", "JournalRow"),
    Struct("ServiceJournalEntry", "ActRow"),
    Struct("Event", "CloudEvent", changes=OF_EVENT),
    Struct(
        "Problem",
        "Problem",
        doc="The body of a response that is no success.",
        changes={
            "status": {"of_head": True},
            "detail": {"filled": ""},
            "retry_after": {
                "description": "Seconds that the service asks to wait before a repeat.",
                **OF_HEAD,
            },
            **dict.fromkeys(["type", "title", "instance", "errors", "cart"]),
        },
    ),
]
#: Models of other clients that are none here, by the reason.
NO_STRUCTS = {
    "the client has no call of it": {"ErasedBody", "EventPage", "WebhookBody", "WebhookTest"},
    "it is generic, and a test compares it": {"NewCartPayment", "NewPayment"},
    "a path and a header have parts of it, and a test compares its body": {"NewOrder"},
}
OF_STATES = "Copy PartialOrd Ord Hash Serialize Deserialize"
ENUMS = {
    "AmountCheck": Enum(
        derives=f"Copy {BOTH}",
        words={
            "unchecked": "A payment of any amount pays the cart, and its amount is what was paid"
            " once it is."
        },
    ),
    "CartState": Enum(
        derives=OF_STATES,
        is_shown=True,
        doc="Where a cart is in its life. All of its lines are in the same state, except while it"
        " is `Placing` or `Failed`.",
        words={
            "placing": "Its lines are taking their units.",
            "held": "All units are reserved until it expires.",
            "confirmed": "It is paid, and its units are sold.",
            "cancelled": "It was cancelled before it was paid.",
            "expired": "It was not paid in time.",
            "refund_due": "It was paid after it had expired. The money must be returned.",
            "refunded": "The money was returned.",
            "failed": "A line was refused, or placing it took too long. No line has units.",
        },
    ),
    "Durability": Enum(
        derives=f"Copy {BOTH}",
        doc="When an order is acknowledged, and therefore what can lose it.",
        words={
            "recorded": "When the ledger has committed it (201).",
            "accepted": "When the Redis script has run (202). A crash of Redis can lose it.",
            "replicated": "When the configured number of Redis replicas have confirmed it (202).",
        },
    ),
    "ItemState": Enum(
        derives=f"Copy {BOTH}",
        doc="Whether an item sells.",
        words={
            "open": "It sells, within its times.",
            "paused": "It does not sell for now.",
            "closed": "Its sale has ended.",
            "archived": "Its sale has ended for good, and it cannot be changed any more.",
        },
    ),
    "OrderState": Enum(
        derives=OF_STATES,
        is_shown=True,
        doc="Where an order is in its life.",
        words={
            "held": "Its units are reserved until it expires.",
            "confirmed": "It is paid, and its units are sold.",
            "cancelled": "It was cancelled before it was paid.",
            "expired": "It was not paid in time.",
            "refund_due": "It was paid after it had expired, and no units were left. The money must"
            " be returned.",
            "refunded": "The money was returned.",
            "rejected": "The ledger could not cover it, for example after Redis had lost orders. It"
            " never had units.",
        },
    ),
    "RefundReason": Enum(
        words={
            "refund_due": "The payment came after the hold had expired, and no units were left.",
            "unmatched_payment": "No order could take the payment.",
            "refund_failed": "The money was returned, and the refund has failed.",
        },
    ),
}
#: Enums of the description that are none here, by the reason.
NO_ENUMS = {
    "client_codes.py writes it": {"ProblemCode"},
    "it is a part of ItemState": {"SettableState"},
}
TYPE_NAMES = {
    **{name: name for name in [*ENUMS, "ProblemCode"]},
    **{schema: struct.name for struct in STRUCTS for schema in (struct.schema, struct.also)},
}


def models(schemas):
    """A module with the enums and the structs."""
    _account_for_all(schemas)
    about = fill(f"{ABOUT} {OF_LATER}", "//! ")
    text = f"//! What the API takes and answers.\n//!\n{about}\n{IMPORTS}"
    for name, enum in ENUMS.items():
        text += _enum(name, enum, schemas[name])
    for struct in STRUCTS:
        text += _struct(struct, schemas)
    return text


def _account_for_all(schemas):
    """What is new in the description becomes a model, or is named as none."""
    structs = set(TYPE_NAMES) - set(ENUMS) - {"ProblemCode", ""}
    enums = {name for name, schema in schemas.items() if is_enum(schema)}
    none = set().union(*NO_STRUCTS.values())
    no_enums = set().union(*NO_ENUMS.values())
    wrong = ((set(NAMES) - structs) ^ none) | ((enums - set(ENUMS)) ^ no_enums)
    if wrong:
        raise SystemExit(f"scripts/client_rust.py: {', '.join(sorted(wrong))}: a model, or none?")


def _enum(name, enum, schema):
    if set(enum.words) != set(schema["enum"]):
        raise SystemExit(f"scripts/client_rust.py: {name} has other words in the description")
    # Of these, serde makes the word of a variant as `camel` makes the variant of a word.
    if not all(re.fullmatch("[a-z]+(_[a-z]+)*", word) for word in schema["enum"]):
        raise SystemExit(f"scripts/client_rust.py: {name} has words that are not in snake case")
    text = _head(enum.doc or schema["description"], enum.derives)
    text += f'#[serde(rename_all = "snake_case")]\npub enum {name} {{\n'
    for word in schema["enum"]:
        text += f"{_comment(enum.words[word], 4)}    {camel(word)},\n"
    arms = (f'            Self::{camel(word)} => "{word}",\n' for word in schema["enum"])
    return f"{text}}}\n" + (SHOWN % {"name": name, "arms": "".join(arms)} if enum.is_shown else "")


def _struct(struct, schemas):
    lines = _fields(struct, struct.schema, schemas)
    if struct.also and _without_docs(_fields(struct, struct.also, schemas)) != _without_docs(lines):
        raise SystemExit(f"scripts/client_rust.py: {struct.also} differs from {struct.schema}")
    text = _head(struct.doc or schemas[struct.schema]["description"], struct.derives)
    return f"{text}pub struct {struct.name} {{\n{''.join(map(''.join, lines))}}}\n"


def _fields(struct, schema, schemas):
    """Of each field: its comment, and its lines."""
    pub = "pub(crate)" if struct.is_built else "pub"
    fields = []
    for field in fields_of(replace(struct, schema=schema), schemas):
        doc = field.doc if struct.takes_null else re.sub(r"\b[Nn]ull\b", "`None`", field.doc)
        words = ", ".join(_attributes(struct, field))
        attribute = f"    #[serde({words})]\n" if words else ""
        line = f"    {pub} {OWN_NAMES.get(field.name, field.name)}: {_type(struct, field)},\n"
        fields.append((_comment(doc, 4), attribute + line))
    return fields


def _without_docs(fields):
    return [lines for _, lines in fields]


def _attributes(struct, field):
    """What serde is told. It reads an absent `Option` as `None` by itself, too."""
    if field.schema.get("of_head"):
        yield "skip"
        return
    if field.name in OWN_NAMES:
        yield f'rename = "{field.name}"'
    if field.is_required and field.filled is None:
        return
    if READ in struct.derives:
        yield "default"
    if WRITTEN in struct.derives:
        is_nothing = "Option::is_none" if field.filled is None else "Vec::is_empty"
        yield f'skip_serializing_if = "{is_nothing}"'


def _type(struct, field):
    own = OWN_TYPES.get(f"{struct.name}.{field.name}", OWN_TYPES.get(field.name))
    name = own or _type_of_values(field)
    name = f"Vec<{name}>" if field.is_array else name
    if field.filled is not None:
        return name
    if field.is_null and struct.takes_null:
        name = f"Option<{name}>"
    return f"Option<{name}>" if field.is_null or not field.is_required else name


def _type_of_values(field):
    if "$ref" in field.schema:
        return TYPE_NAMES[field.schema["$ref"].rsplit("/", 1)[1]]
    if field.type == "integer":
        sign = "u" if field.schema.get("minimum", -1) >= 0 else "i"
        return field.schema["format"].replace("int", sign)
    return TYPES[field.type]


def _head(doc, derives):
    known = [derive for derive in DERIVES if derive in OF_ALL or derive in derives.split()]
    return f"\n{_comment(doc)}#[derive({', '.join(known)})]\n"


def _comment(text, indent=0):
    return fill(text, f"{' ' * indent}/// ") + "\n" if text else ""
