from oscar.apps.partner import apps


class PartnerConfig(apps.PartnerConfig):
    name = "oscarshop.partner"
