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
    #: It stays the object of the answer, and its times stay texts.
    is_plain: bool = False
    #: It is sent: times are texts.
    is_sent: bool = False
    #: A null means something else than a field that is absent.
    takes_null: bool = False
    #: The client for JavaScript checks that each answer has the fields.
    is_checked: bool = False
    #: The only language that has it: Python takes arguments instead.
    only: str = ""
    #: What replaces the words of the schema, by field. None: the client leaves the field out.
    changes: dict = field(default_factory=dict)
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
#: A webhook may come from an older service, or be a test.
OF_EVENT = {
    "subject": {"absent": True},
    "data": {"filled": {}},
    "specversion": None,
    "source": None,
    "datacontenttype": None,
}
MODELS = [
    Model("Order", "OrderBody", parts="HasUnits", is_checked=True),
    Model("ListedOrder", "OrderRow"),
    Model("BuyerOrder", "NewLine", parts="OrderChecks", is_sent=True),
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
        "NewOrder",
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
            described = replace(model, doc=schemas[model.schema]["description"])
            text += language.model(described, fields_of(model, schemas))
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
    """The fields: first what is required, as it is declared, and the rest by name."""
    schema = schemas[model.schema]
    required = schema.get("required", [])
    known = {name: {} for name in [*required, *sorted(schema["properties"]), *model.changes]}
    for name in known:
        change = model.changes.get(name, {})
        if change is None and name not in schema["properties"]:
            raise SystemExit(f"scripts/client_models.py: {model.schema} has no {name} to leave out")
        if change is not None:
            found = {**schema["properties"].get(name, {}), **change}
            yield _field(model, schemas, name, found, name in required)


def _field(model, schemas, name, schema, is_required):
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
