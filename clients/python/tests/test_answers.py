"""What an answer says about the attempts before it, against the table that all clients share."""

import json
import unittest
from pathlib import Path

from stockade import OutcomeUnknown, Problem, Refused
from stockade.answers import (
    DECISIONS,
    NOTHING_RAN,
    RETURNS_MONEY,
    is_decision,
    may_have_run,
)

CLIENTS = Path(__file__).parents[2]
DESCRIPTION = CLIENTS.parent / "docs" / "openapi.json"
CODES = json.loads((CLIENTS / "answers.json").read_text())["codes"]


class Answers(unittest.TestCase):
    def test_every_code_of_the_description_is_classified(self) -> None:
        schemas = json.loads(DESCRIPTION.read_text())["components"]["schemas"]
        self.assertEqual(set(CODES), set(schemas["ProblemCode"]["enum"]))

    def test_the_client_has_the_table(self) -> None:
        def codes(wanted: str) -> set[str]:
            return {code for code, row in CODES.items() if row["lost"] == wanted}

        self.assertEqual(DECISIONS, codes("decision"))
        self.assertEqual(NOTHING_RAN, codes("nothing"))
        self.assertEqual(codes("unknown"), set(CODES) - DECISIONS - NOTHING_RAN)

    def test_money_is_returned_for_the_codes_of_the_table(self) -> None:
        returns_money = {code for code, row in CODES.items() if row["returns_money"]}
        self.assertEqual(RETURNS_MONEY, returns_money)
        for code in CODES:
            error = Refused(Problem(409, code))
            self.assertEqual(error.returns_money, code in RETURNS_MONEY, code)
        self.assertFalse(OutcomeUnknown(Problem(503, "already_paid")).returns_money)

    def test_only_the_services_own_words_settle_a_key(self) -> None:
        self.assertTrue(is_decision(409, "sold_out"))
        for status, code in [(409, ""), (409, "later"), (404, "SOLD_OUT"), (503, "sold_out")]:
            self.assertFalse(is_decision(status, code), (status, code))
        self.assertTrue(Refused(Problem(409, "sold_out")).settles_key)
        self.assertFalse(Refused(Problem(409, "sold_out", final=False)).settles_key)
        self.assertFalse(OutcomeUnknown(Problem(503, "outcome_unknown")).settles_key)

    def test_an_answer_without_a_known_code_may_hide_an_effect(self) -> None:
        for status, code in [(500, "internal"), (502, ""), (503, "outcome_unknown"), (504, "new")]:
            self.assertTrue(may_have_run(status, code), (status, code))
        self.assertFalse(may_have_run(503, "unavailable"))
        self.assertFalse(may_have_run(408, "request_timeout"))


if __name__ == "__main__":
    unittest.main()
