"""The models, against the description of the API."""

import json
import unittest
from dataclasses import MISSING, fields
from pathlib import Path

from stockade import (
    Cart,
    CartLine,
    CartPayment,
    Erased,
    Event,
    Item,
    Items,
    JournalEntry,
    ListedItem,
    ListedOrder,
    Order,
    Payment,
    RefundDue,
    ServiceJournalEntry,
)

DESCRIPTION = Path(__file__).parents[3] / "docs" / "openapi.json"
#: The schema of each model.
MODELS = {
    Cart: "CartBody",
    CartLine: "LineBody",
    CartPayment: "NewCartPayment",
    Erased: "ErasedBody",
    Event: "CloudEvent",
    Item: "ItemBody",
    Items: "ItemsBody",
    JournalEntry: "JournalRow",
    ListedItem: "ItemRow",
    ListedOrder: "OrderRow",
    Order: "OrderBody",
    Payment: "NewPayment",
    RefundDue: "RefundRow",
    ServiceJournalEntry: "ActRow",
}


class Models(unittest.TestCase):
    def test_the_models_have_the_fields_of_the_description(self) -> None:
        schemas = json.loads(DESCRIPTION.read_text())["components"]["schemas"]
        for model, name in MODELS.items():
            schema, known = schemas[name], {field.name: field for field in fields(model)}
            if model is Item:
                # From the header `ETag`, and the status.
                del known["version"], known["pending"]
            needed = {
                name
                for name, field in known.items()
                if field.default is MISSING and field.default_factory is MISSING
            }
            with self.subTest(model.__name__):
                self.assertLessEqual(set(known), set(schema["properties"]))
                self.assertLessEqual(needed, set(schema["required"]))


if __name__ == "__main__":
    unittest.main()
