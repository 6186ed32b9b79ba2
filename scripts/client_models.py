"""The models of the clients, from the schemas of docs/openapi.json."""

from dataclasses import dataclass, field, replace

from client_languages import screaming

ABOUT = "`make clients` writes this file from `docs/openapi.json`."
OF_LATER = """Fields that a later service adds are ignored. A state, a reason or another word may be
    one that a later service has."""


@dataclass(frozen=True)
class Model:
    """How the clients name a schema, and what they know better than it."""

    name: str
    schema: str
    #: The hand-written part of the model, in the languages that have one.
    parts: str = ""
    #: Its fields in front of all others. A constructor of Python takes these by place too, and
    #: those that the description gets later by name alone, so that no argument moves.
    leading: tuple = ()
    #: It stays the object of the answer, and its times stay texts.
    is_plain: bool = False
    #: It is sent: times are texts.
    is_sent: bool = False
    #: A caller makes it, and the client checks the types of its fields then. Their bounds are the
    #: service's, which may move them.
    is_made: bool = False
    #: The client for JavaScript freezes it.
    is_frozen: bool = False
    #: A null means something else than a field that is absent.
    takes_null: bool = False
    #: The client for JavaScript checks that each answer has the fields.
    is_checked: bool = False
    #: The only language that has it: arguments replace it in the other one.
    only: str = ""
    #: What replaces the words of the schema, by field. None: the client leaves the field out. A
    #: field that the schema lacks is no part of a body.
    changes: dict = field(default_factory=dict)
    #: What replaces the description of the schema.
    doc: str = ""


@dataclass(frozen=True)
class Field:
    """A field of a model."""

    name: str
    doc: str
    #: A type of JSON, `time`, `enum` or `model`; of an array, that of its items.
    type: str
    #: Which enum or model it is.
    name_of_type: str
    is_array: bool
    is_required: bool
    is_null: bool
    #: What the client fills in if the field is absent.
    filled: object
    #: The schema of its values that are not null; of an array, that of its items.
    schema: dict
    is_in_body: bool
    #: A constructor takes it by name alone.
    is_keyword: bool

    @property
    def is_optional(self):
        """Whether a model can be without it."""
        return self.is_null or not self.is_required


OF_ITEM = {
    "version": {
        "type": "integer",
        "description": "The version for conditional changes, from the header `ETag`.",
        "absent": True,
    },
    "pending": {
        "type": "boolean",
        "description": "Whether a change is recorded and not complete yet (202): a reconciler will"
        " complete it.",
        "filled": False,
    },
}
#: The item is in the path of an order, and the key is a header.
OF_NEW_ORDER = {
    "item": {"type": "string", "description": "The item."},
    "quantity": {"filled": 1},
    "key": {
        "type": "string",
        "description": "Store it before you send the request, if the order must survive a crash of"
        " your process.",
        "filled": "a new key",
    },
}
#: Arguments have the others.
OF_NEW_ORDER_OPTIONS = {
    "quantity": None,
    "key": {"type": "string", "description": "Default: a new one.", "absent": True},
}
OF_BUYER_ORDER_OPTIONS = {"buyer": None, "quantity": None, "key": None}
#: A webhook may come from an older service, or be a test.
OF_EVENT = {
    "subject": {"absent": True},
    "data": {"filled": "an empty object"},
    "specversion": None,
    "source": None,
    "datacontenttype": None,
}
MODELS = [
    Model("Order", "OrderBody", parts="HasUnits", is_checked=True),
    Model("ListedOrder", "OrderRow"),
    Model(
        "NewOrder",
        "NewOrder",
        leading=("item", "quantity", "key", "amount"),
        is_sent=True,
        is_made=True,
        is_frozen=True,
        changes=OF_NEW_ORDER,
        doc="An order to be placed. The same value is always the same order: create it once.",
    ),
    Model(
        "NewOrderOptions",
        "NewOrder",
        is_sent=True,
        only="JavaScript",
        changes=OF_NEW_ORDER_OPTIONS,
        doc="What `newOrder` takes instead of a key.",
    ),
    Model(
        "BuyerOrder",
        "NewLine",
        leading=("buyer", "quantity", "key", "amount"),
        is_sent=True,
        is_made=True,
    ),
    Model(
        "BuyerOrderOptions",
        "NewLine",
        is_plain=True,
        is_sent=True,
        changes=OF_BUYER_ORDER_OPTIONS,
        doc="What an `OrderBatcher` takes besides the buyer, the quantity and the key.",
    ),
    Model("Payment", "NewPayment", parts="PaymentChecks", is_sent=True),
    Model("Cart", "CartBody", parts="HasUnits", is_checked=True),
    Model("CartLine", "LineBody", is_checked=True),
    Model("CartPayment", "NewCartPayment", parts="PaymentChecks", is_sent=True),
    Model("NewItem", "NewItem", is_sent=True, only="JavaScript"),
    Model("ItemPatch", "ItemPatch", is_sent=True, takes_null=True, only="JavaScript"),
    Model("Item", "ItemBody", changes=OF_ITEM),
    Model("Items", "ItemsBody", is_checked=True),
    Model("ListedItem", "ItemRow"),
    Model("NewWave", "NewWave", is_plain=True, only="JavaScript"),
    Model("NextWave", "NextWave", is_plain=True),
    Model("Wave", "WaveBody", is_plain=True),
    Model("Segment", "SegmentBody", is_plain=True),
    Model("Audit", "AuditReport", is_plain=True),
    Model("AuditedSegment", "SegmentReport", is_plain=True),
    Model("OrdersChecked", "OrdersChecked", is_plain=True),
    Model("OrdersFault", "OrdersFault", is_plain=True),
    Model("Erased", "ErasedBody"),
    Model("RefundDue", "RefundRow", is_checked=True),
    Model("JournalEntry", "JournalRow"),
    Model("ServiceJournalEntry", "ActRow"),
    Model("Event", "CloudEvent", parts="EventParts", changes=OF_EVENT),
    Model("EventPage", "EventPage", changes={"next": {"type": ["string", "null"]}}),
    Model("RegisteredWebhook", "WebhookBody", is_plain=True),
    Model("WebhookTest", "WebhookTest", is_plain=True),
]
NAMES = {model.schema: model.name for model in MODELS}
#: Schemas that are no model, by the reason.
NO_MODELS = {
    "methods write it from their arguments": {
        "CartAmount",
        "NewCart",
        "NewCartHold",
        "NewCartLine",
        "NewHold",
        "NewOrders",
        "NewState",
        "NewStock",
        "StockMove",
        "WebhookRequest",
    },
    "iterators read it": {"CartRow", "WebhookList"},
    "it becomes an error": {"FieldError", "Problem", "ProblemCode"},
    "it becomes a result, or an error": {"LineResult", "PlacedLine", "RefusedLine", "Results"},
    "Stripe sends it": {"StripeData", "StripeEvent", "StripeResult"},
}


def models(language, schemas):
    """A module with the enums and the models."""
    _account_for_all(schemas)
    text = language.head("What the API takes and answers.", f"{ABOUT} {OF_LATER}")
    text += language.imports()
    for name, schema in sorted(schemas.items()):
        if is_enum(schema) and name not in set().union(*NO_MODELS.values()):
            text += "\n" + language.comment(schema["description"])
            text += language.enum(name, schema["enum"])
    for model in MODELS:
        if model.only in ("", type(language).__name__):
            doc = model.doc or schemas[model.schema]["description"]
            text += language.model(replace(model, doc=doc), list(fields_of(model, schemas)))
    return text


def requests(language, schemas):
    """A module with what the client for JavaScript sends, and checks before."""
    text = language.head("What callers make, checked, and what of it a body has.", ABOUT)
    names = ", ".join(sorted(set(language.checks.values())))
    text += f"\nimport {{ {names} }} from './checks.js';\n"
    for model in MODELS:
        if model.is_made:
            text += language.request(model, list(fields_of(model, schemas)))
    return text


def fields(language, schemas):
    """A module with what the client for JavaScript checks and converts."""
    text = language.head("What answers always have, and which of their fields are times.", ABOUT)
    for model in MODELS:
        if model.is_checked:
            rows = "".join(
                f"  {field.name}: '{_checked_type(language, field)}',\n"
                for field in fields_of(model, schemas)
                if field.is_required and not field.is_null
            )
            text += "\n" + language.comment(f"What every {model.name} has.")
            text += f"export const {screaming(model.name)} = {{\n{rows}}};\n"
    times = {
        field.name
        for model in MODELS
        for field in fields_of(model, schemas)
        if field.type == "time"
    }
    row = ", ".join(language.quoted(sorted(times)))
    return f"{text}\n{language.comment('Times of any answer.')}export const TIMES = [{row}];\n"


def _checked_type(language, field):
    if field.is_array or field.type == "time":
        return "array" if field.is_array else "time"
    return language.types.get(field.type, "string")


def _account_for_all(schemas):
    """A schema that is new becomes a model, or is named as none."""
    known = set(NAMES).union(*NO_MODELS.values())
    of_lists = {name for name in schemas if name.startswith("PageBody_")}
    enums = {name for name, schema in schemas.items() if is_enum(schema)}
    for wrong in sorted(set(schemas) - of_lists - enums - known | known - set(schemas)):
        raise SystemExit(f"scripts/client_models.py: {wrong} is a schema or a model, not both")


def is_enum(schema):
    return schema.get("type") == "string" and "enum" in schema


def fields_of(model, schemas):
    """The fields: what leads, what is required, as it is declared, and the rest by name."""
    schema = schemas[model.schema]
    required = schema.get("required", [])
    described = [*required, *sorted(schema["properties"])]
    for name in dict.fromkeys([*model.leading, *described, *model.changes]):
        change = model.changes.get(name, {})
        if change is None and name not in schema["properties"]:
            raise SystemExit(f"scripts/client_models.py: {model.schema} has no {name} to leave out")
        if change is not None:
            found = {**schema["properties"].get(name, {}), **change}
            yield _field(model, schemas, name, found)


def _field(model, schemas, name, schema):
    of_model = schemas[model.schema]
    is_in_body = name in of_model["properties"]
    is_required = not is_in_body or name in of_model.get("required", [])
    plain, is_null = _without_null(schema)
    is_array = plain.get("type") == "array"
    values = plain["items"] if is_array else plain
    kind, name_of_type = _type(values, schemas)
    if kind == "time" and (model.is_plain or model.is_sent):
        kind = "string"
    return Field(
        name=name,
        doc=" ".join(plain.get("description", "").split()),
        type=kind,
        name_of_type=name_of_type,
        is_array=is_array,
        is_required=is_required and "absent" not in schema,
        is_null=is_null,
        filled=schema.get("filled"),
        schema=values,
        is_in_body=is_in_body,
        is_keyword=bool(model.leading) and name not in model.leading,
    )


def _without_null(schema):
    """The schema of the values that are not null, and whether null is one."""
    options = [option for option in schema.get("oneOf", []) if option != {"type": "null"}]
    if options:
        return options[0], True
    kind = schema.get("type")
    if isinstance(kind, list):
        return {**schema, "type": kind[0]}, "null" in kind
    return schema, False


def _type(schema, schemas):
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return ("enum", name) if is_enum(schemas[name]) else ("model", NAMES[name])
    return ("time" if schema.get("format") == "date-time" else schema["type"]), ""
