"""The models, against the description of the API, and what is read as one."""

import json
import unittest
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import is_typeddict

from stockade import Contract, Item, models
from stockade.reading import read

SCHEMAS = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
SCHEMAS = SCHEMAS["components"]["schemas"]
#: The schema of each model.
OF_MODELS = {
    "Audit": "AuditReport",
    "AuditedSegment": "SegmentReport",
    "BuyerOrder": "NewLine",
    "BuyerOrderOptions": "NewLine",
    "Cart": "CartBody",
    "CartLine": "LineBody",
    "CartPayment": "NewCartPayment",
    "Erased": "ErasedBody",
    "Event": "CloudEvent",
    "EventPage": "EventPage",
    "Item": "ItemBody",
    "Items": "ItemsBody",
    "JournalEntry": "JournalRow",
    "ListedItem": "ItemRow",
    "ListedOrder": "OrderRow",
    "NewOrder": "NewOrder",
    "NextWave": "NextWave",
    "Order": "OrderBody",
    "OrdersChecked": "OrdersChecked",
    "OrdersFault": "OrdersFault",
    "Payment": "NewPayment",
    "RefundDue": "RefundRow",
    "RegisteredWebhook": "WebhookBody",
    "Segment": "SegmentBody",
    "ServiceJournalEntry": "ActRow",
    "Wave": "WaveBody",
    "WebhookTest": "WebhookTest",
}
#: The schema of the words of each constant.
OF_WORDS = {
    "AMOUNT_CHECKS": "AmountCheck",
    "CART_STATES": "CartState",
    "DURABILITIES": "Durability",
    "ITEM_STATES": "ItemState",
    "ORDER_STATES": "OrderState",
    "REFUND_REASONS": "RefundReason",
    "SETTABLE_STATES": "SettableState",
}
#: From the header `ETag`, and the status; for the path and the header `Idempotency-Key`.
OWN = {"Item": {"version", "pending"}, "NewOrder": {"item", "key"}}
#: The same in every event, and what are arguments of their own.
LEFT_OUT = {
    "Event": {"specversion", "source", "datacontenttype"},
    "BuyerOrderOptions": {"buyer", "quantity", "key"},
}
ITEM = {
    "id": "vase",
    "title": "Vase",
    "state": "a_state_of_later",
    "stock": 10,
    "available": 10,
    "held": 0,
    "confirmed": 0,
    "returning": 0,
    "sold_out": False,
    "price": 1999,
    "currency": "USD",
    "hold_seconds": 900,
    "max_hold_seconds": 900,
    "durability": "recorded",
    "opens_at": "2026-11-27T00:00:00Z",
    "next_wave": None,
    "waves": [{"at": "2026-11-28T00:00:00Z", "units": 5, "added": False}],
    "a_field_of_later": 1,
}


def names(model: type) -> set[str]:
    """The fields of a model."""
    found = {field.name for field in fields(model)} if is_dataclass(model) else set()
    return found or set(model.__annotations__)


class Models(unittest.TestCase):
    def test_the_models_and_the_description_have_the_same_fields(self) -> None:
        for name, schema in OF_MODELS.items():
            with self.subTest(name):
                described = set(SCHEMAS[schema]["properties"]) - LEFT_OUT.get(name, set())
                self.assertEqual(names(getattr(models, name)) - OWN.get(name, set()), described)

    def test_a_model_needs_no_field_that_may_be_absent(self) -> None:
        for name, schema in OF_MODELS.items():
            if not is_dataclass(model := getattr(models, name)):
                continue
            needed = {
                field.name
                for field in fields(model)
                if field.default is MISSING and field.default_factory is MISSING
            }
            with self.subTest(name):
                required = set(SCHEMAS[schema]["required"]) | OWN.get(name, set())
                self.assertLessEqual(needed, required)

    def test_orders_take_no_other_arguments_by_place(self) -> None:
        for model, first in [(models.NewOrder, "item"), (models.BuyerOrder, "buyer")]:
            by_place = [field.name for field in fields(model) if not field.kw_only]
            self.assertEqual(by_place, [first, "quantity", "key", "amount"])

    def test_the_words_are_those_of_the_description(self) -> None:
        for name, schema in OF_WORDS.items():
            self.assertEqual(getattr(models, name), tuple(SCHEMAS[schema]["enum"]))

    def test_no_model_and_no_words_are_forgotten(self) -> None:
        ours = {name: value for name, value in vars(models).items() if not name.startswith("_")}
        classes = {
            name
            for name, value in ours.items()
            if is_typeddict(value) or is_dataclass(value) and value.__module__ == models.__name__
        }
        self.assertEqual(classes, set(OF_MODELS))
        self.assertEqual({name for name in ours if name.isupper()}, set(OF_WORDS))


class Reading(unittest.TestCase):
    def test_what_a_later_service_adds_is_no_violation(self) -> None:
        item = read(Item, ITEM)
        self.assertEqual(item.state, "a_state_of_later")
        self.assertEqual(item.opens_at, datetime(2026, 11, 27, tzinfo=UTC))
        self.assertEqual((item.closes_at, item.next_wave, item.version), (None, None, None))
        self.assertEqual(item.waves, ITEM["waves"])

    def test_rows_are_models_too(self) -> None:
        items = read(models.Items, {"data": [ITEM], "unknown": ["jar"], "unavailable": []})
        self.assertEqual(items.data, [read(Item, ITEM)])
        event = {"id": "1-1", "type": "stockade.order.held", "time": "2026-11-27T00:00:00Z"}
        page = read(models.EventPage, {"data": [event], "next": "1-1"})
        self.assertEqual([event.kind for event in page.data], ["order.held"])

    def test_what_is_missing_or_of_another_type_violates_the_contract(self) -> None:
        cart = {"id": "c-1", "state": "held", "amount": 1, "currency": "USD"}
        cart |= {"expires_at": "2026-11-27T00:00:00Z"}
        line = {"item": "vase", "order": "o-1"}
        for wrong in [{}, {"lines": None}, {"lines": {}}, {"lines": [1]}, {"lines": [line]}]:
            with self.subTest(wrong), self.assertRaises(Contract):
                read(models.Cart, {**cart, **wrong})
        for wrong in [None, [], {**ITEM, "stock": "10"}, {**ITEM, "opens_at": "soon"}]:
            with self.subTest(wrong), self.assertRaises(Contract):
                read(Item, wrong)
        for wrong in [{"next_wave": []}, {"waves": {}}, {"stock": None}]:
            with self.subTest(wrong), self.assertRaises(Contract):
                read(Item, {**ITEM, **wrong})


if __name__ == "__main__":
    unittest.main()
