from django.urls import include, path

urlpatterns = [path("stockade/", include("stockade_django.urls"))]
