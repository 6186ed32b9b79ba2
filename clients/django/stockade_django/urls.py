from django.urls import path

from . import views

app_name = "stockade"
urlpatterns = [
    path("wait/", views.wait, name="wait"),
    path("webhook/", views.webhook, name="webhook"),
]
