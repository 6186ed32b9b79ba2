"""Signatures and tokens, against values that others have computed."""

import json
import unittest
from pathlib import Path

from stockade import InvalidSignature, Webhook, mint_buyer, sign_payment

VECTORS = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())


class Signatures(unittest.TestCase):
    def test_a_minted_token_is_what_others_compute(self) -> None:
        vector = VECTORS["token"]
        now = vector["expires"] - 60
        token = mint_buyer(vector["secret"], vector["buyer"], lifetime=60, now=now)
        self.assertEqual(token, vector["token"])

    def test_the_signature_of_a_payment_is_what_others_compute(self) -> None:
        vector = VECTORS["payment"]
        signed = sign_payment(vector["secret"], vector["body"].encode(), now=vector["now"])
        self.assertEqual(signed, vector["signature"])


class Webhooks(unittest.TestCase):
    vector = VECTORS["webhook"]

    def check(self, *, secrets=None, headers=(), body=None, late=0) -> None:
        Webhook(*(secrets or [self.vector["secret"]])).check(
            {**self.vector["headers"], **dict(headers)},
            (body or self.vector["body"]).encode(),
            now=self.vector["now"] + late,
        )

    def test_the_published_vector_verifies(self) -> None:
        signature = self.vector["headers"]["webhook-signature"]
        upper = {name.upper(): value for name, value in self.vector["headers"].items()}
        self.check()
        self.check(late=300)
        self.check(secrets=[self.vector["other_secret"], self.vector["secret"]])
        self.check(headers={"webhook-signature": f"v1a,AAAA v1,AAAA {signature}"})
        Webhook(self.vector["secret"]).check(
            upper, self.vector["body"].encode(), now=self.vector["now"]
        )

    def test_whatever_differs_is_refused(self) -> None:
        signature = self.vector["headers"]["webhook-signature"]
        for what in (
            {"body": '{"test": 2432232315}'},
            {"secrets": [self.vector["other_secret"]]},
            {"late": 301},
            {"late": -301},
            {"headers": {"webhook-id": "msg_other"}},
            {"headers": {"webhook-timestamp": "1614265331"}},
            {"headers": {"webhook-timestamp": "soon"}},
            {"headers": {"webhook-signature": ""}},
            {"headers": {"webhook-signature": signature.replace("v1,", "v2,")}},
            {"headers": {"webhook-signature": "v1,é"}},
        ):
            with self.subTest(what), self.assertRaises(InvalidSignature):
                self.check(**what)
        with self.assertRaises(InvalidSignature):
            Webhook(self.vector["secret"]).check({}, b"")

    def test_a_bad_secret_is_refused_at_once(self) -> None:
        for secrets in [(), ("",), ("whsec_!",)]:
            with self.subTest(secrets), self.assertRaises(ValueError):
                Webhook(*secrets)


if __name__ == "__main__":
    unittest.main()
