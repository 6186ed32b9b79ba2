"""Orders of several buyers in one request, and the results of each."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .errors import Contract, Error
from .models import BuyerOrder, NewOrder
from .orders import Placed, read_placed
from .transport import PROBLEM, Response


def read_results(
    item: str, orders: Sequence[BuyerOrder], response: Response
) -> list[Placed | Error]:
    """Reads the response to a batch: a result for each order, in the same order."""
    body = response.json()
    results = body.get("results") if isinstance(body, dict) else None
    if not isinstance(results, list) or len(results) != len(orders):
        raise Contract(response.status, f"expected {len(orders)} results")
    # The lines have no type of their own: they are the service's if the whole response is.
    is_json = response.content_type == "application/json"
    content_type = PROBLEM if is_json else response.content_type
    pairs = zip(orders, results, strict=True)
    return [_read_line(item, order, result, content_type) for order, result in pairs]


def _read_line(
    item: str, order: BuyerOrder, result: object, content_type: str
) -> Placed | Error:
    """Reads a result as the response to a single order."""
    try:
        if not isinstance(result, dict) or not isinstance(result.get("status"), int):
            raise Contract(200, "a result has no status")
        one = NewOrder(item, order.quantity, order.key, order.amount)
        seconds = result.get("retry_after")
        response = Response(
            status=result["status"],
            replayed=result.get("replayed") is True,
            retry_after=seconds if isinstance(seconds, int) else None,
            version=None,
            content_type=content_type,
            body=json.dumps(result).encode(),
        )
        return read_placed(one, response.into_success())
    except Error as error:
        return error
