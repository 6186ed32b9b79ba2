from django.apps import apps
from django.contrib import admin
from django.urls import include, path
from django.views.generic import ListView
from oscar.core.loading import get_model

# Oscar lists products from a search engine, which this example has not.
home = ListView.as_view(
    queryset=get_model("catalogue", "Product").objects.order_by("title"),
    template_name="home.html",
    context_object_name="products",
)

urlpatterns = [
    path("", home, name="home"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("stockade/", include("stockade_django.urls")),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
