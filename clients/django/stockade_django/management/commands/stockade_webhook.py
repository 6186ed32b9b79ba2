from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from stockade_django import conf
from stockade_django.events import KINDS
from stockade_django.models import WebhookSecret


class Command(BaseCommand):
    help = "Creates the webhook at Stockade, unless there is one whose secret is known"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", help="the public address of the webhook view")

    def handle(self, *args: Any, url: str, **options: Any) -> None:
        admin = conf.admin()
        there = [webhook["id"] for webhook in admin.webhooks() if webhook["url"] == url]
        known = WebhookSecret.objects.filter(url=url, webhook__in=there).first()
        # The answer to an earlier creation was lost, and with it the secret of the webhook.
        for webhook in there:
            if known is None or webhook != known.webhook:
                admin.remove_webhook(webhook)
        if known is None:
            created = admin.create_webhook(url, KINDS)
            values = {"webhook": created["id"], "secret": created["secret"]}
            WebhookSecret.objects.update_or_create(url=url, defaults=values)
        self.stdout.write("kept" if known else "created")
