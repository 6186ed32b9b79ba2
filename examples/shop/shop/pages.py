"""The pages. They work without JavaScript; a page that waits reloads itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from html import escape

from stockade import Item

from .catalogue import PRODUCTS, money

REASONS = {
    "sold_out": "Sold out. Nothing was reserved, and you pay nothing.",
    "buyer_limit_reached": "You have reached the limit for one buyer. Nothing was reserved.",
    "cart_timed_out": "That took too long. Nothing was reserved; please order again.",
    "not_open": "This item is not on sale now. Nothing was reserved.",
}
STATES = {
    "placing": ("", "Your order is being placed. This page reloads itself."),
    "held": ("", "Reserved for you. Pay before the reservation ends."),
    "paid": ("good", "Paid. We ship it tomorrow."),
    "released": ("bad", "The reservation has ended. Nothing was charged."),
    "refund_due": ("bad", "Your payment came too late. You get your money back."),
    "refunded": ("bad", "We could not keep the units for you. Your money is on its way back."),
}


def layout(title: str, body: str, buyer: str | None, *, reload: bool = False) -> str:
    refresh = '<meta http-equiv="refresh" content="1">' if reload else ""
    who = (
        f'<span class="muted">{escape(buyer)}</span> <a href="/cart">Cart</a> '
        '<a href="/checkouts">Orders</a>'
        if buyer
        else '<a href="/login">Log in</a>'
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)} · Example shop</title><link rel="stylesheet" href="/style.css">'
        f'</head><body><header><a href="/"><strong>Example shop</strong></a> {who}</header>'
        f"<main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


def catalogue(items: dict[str, Item | None], buyer: str | None) -> str:
    cards = "".join(_card(item, shown, buyer) for item, shown in items.items())
    return layout("Three things", cards, buyer)


def _card(item: str, shown: Item | None, buyer: str | None) -> str:
    product = PRODUCTS[item]
    left = "…" if shown is None else "sold out" if shown.sold_out else f"{shown.available} left"
    button = (
        f'<form method="post" action="/cart"><input type="hidden" name="item" value="{item}">'
        f'<button id="add-{item}">Add to cart</button></form>'
        if buyer
        else '<p><a href="/login">Log in</a> to buy.</p>'
    )
    return (
        f'<article class="card"><h2>{escape(product.title)}</h2><p>{escape(product.text)}</p>'
        f'<p class="price">{money(product.price)}</p>'
        f'<p class="muted" id="left-{item}">{left}</p>{button}</article>'
    )


def login() -> str:
    return layout(
        "Log in",
        '<form class="card" method="post" action="/login"><label>Your name '
        '<input name="buyer" required maxlength="64" pattern="[A-Za-z0-9._\\-]+" autofocus></label>'
        '<p class="muted">This shop asks for no password. Yours does.</p>'
        '<button id="log-in">Log in</button></form>',
        None,
    )


def cart(lines: list[sqlite3.Row], checkout: str, buyer: str) -> str:
    if not lines:
        return layout("Cart", "<p>Your cart is empty.</p>", buyer)
    rows = [(line["item"], line["quantity"], _amount(line)) for line in lines]
    # The id of the checkout is in the page, so that a second click is not a second checkout.
    return layout(
        "Cart",
        f'<div class="card">{_table(rows)}<form method="post" action="/checkouts">'
        f'<input type="hidden" name="checkout" value="{checkout}">'
        '<button class="big" id="order">Order</button></form></div>',
        buyer,
    )


def _amount(line: sqlite3.Row) -> int:
    return PRODUCTS[line["item"]].price * int(line["quantity"])


def _table(rows: Iterable[tuple[str, int, int]]) -> str:
    rows = list(rows)
    body = "".join(
        f'<tr><td>{escape(PRODUCTS[item].title)}</td><td class="number">{quantity}</td>'
        f'<td class="number">{money(amount)}</td></tr>'
        for item, quantity, amount in rows
    )
    total = money(sum(amount for _, _, amount in rows))
    return f'<table>{body}<tr><th>Total</th><td></td><th class="number">{total}</th></tr></table>'


def checkout(row: sqlite3.Row, lines: list[sqlite3.Row], number: int | None, waits: bool) -> str:
    tone, text = STATES.get(row["state"], ("bad", REASONS.get(row["reason"], "Refused.")))
    if row["state"] == "held" and waits:
        text = "Your payment is being confirmed. This page reloads itself."
    notice = f'<p class="card notice {tone}" id="state" role="status">{escape(text)}</p>'
    table = _table((line["item"], line["quantity"], line["amount"]) for line in lines)
    shipped = f'<p>Order number <strong id="number">{number}</strong></p>' if number else ""
    pay = (
        f'<form method="post" action="/checkouts/{row["id"]}/pay">'
        '<button class="big" id="pay">Pay</button></form>'
        if row["state"] == "held" and not waits
        else ""
    )
    title = {"paid": "Thank you", "refused": "Not ordered"}.get(row["state"], "Your order")
    body = f'{notice}<div class="card">{table}{shipped}{pay}</div>'
    reload = row["state"] == "placing" or waits and row["state"] == "held"
    return layout(title, body, row["buyer"], reload=reload)


def checkouts(rows: list[sqlite3.Row], buyer: str) -> str:
    body = "".join(
        f'<tr><td><a href="/checkouts/{row["id"]}">{row["created_at"]}</a></td>'
        f'<td><span class="state">{row["state"]}</span></td></tr>'
        for row in rows
    )
    return layout("Your orders", f'<div class="card"><table>{body}</table></div>', buyer)


def stripe(session: sqlite3.Row, lines: list[sqlite3.Row]) -> str:
    table = _table((line["item"], line["quantity"], line["amount"]) for line in lines)
    body = (
        f'<div class="card"><p class="muted">A fake Stripe. No money moves.</p>{table}'
        f'<form method="post" action="/stripe/{session["id"]}">'
        '<button class="big" id="confirm">Pay now</button></form></div>'
    )
    return layout("Payment", body, None)


def message(title: str, text: str, buyer: str | None) -> str:
    return layout(title, f'<p class="card">{escape(text)}</p>', buyer)
