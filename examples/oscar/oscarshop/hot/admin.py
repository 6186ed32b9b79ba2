from django.contrib import admin

from .models import HotItem

admin.site.register(HotItem)
