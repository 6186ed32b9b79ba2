"""Signatures and tokens, against values that others have computed."""

import base64
import hashlib
import hmac
import json
import unittest
from email.message import Message
from pathlib import Path

from stockade import InvalidSignature, Webhook, mint_buyer, sign_payment

VECTORS = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())


class Signatures(unittest.TestCase):
    def test_a_minted_token_is_what_others_compute(self) -> None:
        for name in ("token", "token_for_an_audience"):
            vector = VECTORS[name]
            whom = {claim: vector[claim] for claim in ("issuer", "audience") if claim in vector}
            now = vector["expires"] - 60
            token = mint_buyer(vector["secret"], vector["buyer"], lifetime=60, now=now, **whom)
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

    def test_the_names_of_headers_are_in_any_case_and_in_any_form(self) -> None:
        known = self.vector["headers"]
        bytes_of = [(name.encode(), value.encode()) for name, value in known.items()]
        message = Message()
        for name, value in known.items():
            message[name.title()] = value
        for headers in (
            {name.upper(): value for name, value in known.items()},
            {name.title(): value for name, value in known.items()},
            list(known.items()),
            iter(known.items()),
            bytes_of,
            message,
            [*known.items(), ("Accept", "é"), ("X-Number", 7)],
            [*known.items(), ("Webhook-Id", known["webhook-id"])],
        ):
            with self.subTest(headers):
                self.verify_raw(headers)

    def test_a_good_message_is_an_event_whatever_kind_of_bytes_it_is(self) -> None:
        key = base64.b64decode(self.vector["secret"].removeprefix("whsec_"))
        seconds = str(self.vector["now"])
        event = {"id": "7-0", "type": "stockade.order.held", "time": "2026-11-23T15:04:05Z"}
        body = json.dumps(event).encode()
        tag = hmac.digest(key, f"msg.{seconds}.".encode() + body, hashlib.sha256)
        headers = {
            "webhook-id": "msg",
            "webhook-timestamp": seconds,
            "webhook-signature": f"v1,{base64.b64encode(tag).decode()}",
        }
        for kind in (bytes, bytearray, memoryview):
            with self.subTest(kind):
                webhook = Webhook(self.vector["secret"])
                verified = webhook.verify(headers, kind(body), now=self.vector["now"])
                self.assertEqual((verified.id, verified.kind), ("7-0", "order.held"))

    def verify_raw(self, headers, body=None) -> None:
        body = self.vector["body"].encode() if body is None else body
        Webhook(self.vector["secret"]).check(headers, body, now=self.vector["now"])

    def test_nothing_hostile_raises_anything_else(self) -> None:
        known = self.vector["headers"]
        huge = "9" * 100_000
        values = [None, 7, 1.5, True, [], ["v1,AAAA"], {}, b"\xff", "é", "\ud800", "", " ", huge]
        values += ["٣", "-1", "+1", "1e9", "nan", "0x10", "\x00", "v1," * 10_000]
        hostile = [{**known, name: value} for name in known for value in values]
        hostile += [{n: v for n, v in known.items() if n != name} for name in known]
        hostile += [None, 7, "", "abc", b"abc", [], [None], [("a",)], [("a", "b", "c")], {1: 2}, object()]
        hostile += [[*known.items(), (name, "other")] for name in known]
        for headers in hostile:
            with self.subTest(str(headers)[:200]), self.assertRaises(InvalidSignature):
                self.verify_raw(headers)
        for body in (None, self.vector["body"], [], 7):
            with self.subTest(body), self.assertRaises(InvalidSignature):
                self.verify_raw(known, 0 if body is None else body)

    def test_a_signed_body_that_is_no_event_is_refused(self) -> None:
        key = base64.b64decode(self.vector["secret"].removeprefix("whsec_"))
        seconds = str(self.vector["now"])
        for body in (b"", b"{", b"\xff", b"[]", b"{}", b'{"id":1}', b"[" * 100_000):
            signed = b"msg." + seconds.encode() + b"." + body
            tag = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
            headers = {
                "webhook-id": "msg",
                "webhook-timestamp": seconds,
                "webhook-signature": f"v1,{tag}",
            }
            with self.subTest(body[:9]):
                self.verify_raw(headers, body)  # The signature is right.
                with self.assertRaises(InvalidSignature):
                    Webhook(self.vector["secret"]).verify(headers, body, now=self.vector["now"])

    def test_a_bad_secret_is_refused_at_once(self) -> None:
        for secrets in [(), ("",), ("whsec_!",)]:
            with self.subTest(secrets), self.assertRaises(ValueError):
                Webhook(*secrets)


if __name__ == "__main__":
    unittest.main()
