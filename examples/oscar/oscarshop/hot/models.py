from __future__ import annotations

from typing import Any

from django.db import models


class HotItem(models.Model):
    """A stock record whose units Stockade sells. The next sale of it is another item there."""

    stockrecord = models.OneToOneField("partner.StockRecord", models.CASCADE, related_name="hot")
    item = models.CharField(max_length=64, unique=True)
    limit_per_buyer = models.PositiveIntegerField(null=True, blank=True)
    hold_seconds = models.PositiveIntegerField(default=900)

    def __str__(self) -> str:
        return self.item

    @classmethod
    def of(cls, stockrecord: Any) -> HotItem | None:
        return cls.objects.filter(stockrecord=stockrecord).first() if stockrecord else None
