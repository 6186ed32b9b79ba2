from typing import Any

from django.apps import apps
from django.contrib import admin
from django.urls import include, path
from django.views.generic import ListView
from oscar.core.loading import get_model

from oscarshop.hot.models import HotItem
from stockade_django import availability


class Home(ListView):
    """Oscar lists products from a search engine, which this example has not."""

    queryset = get_model("catalogue", "Product").objects.order_by("title")
    template_name = "home.html"
    context_object_name = "products"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        # One request reads the units of all hot goods, before each product asks for its own.
        availability.available_all(HotItem.objects.values_list("item", flat=True))
        return super().get_context_data(**kwargs)


urlpatterns = [
    path("", Home.as_view(), name="home"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("stockade/", include("stockade_django.urls")),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
