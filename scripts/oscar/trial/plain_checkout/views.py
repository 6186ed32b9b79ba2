"""Oscar's own checkout. All that is added is the card."""

from oscar.apps.checkout import views

from oscarshop.card import CardPayment


class PaymentDetailsView(CardPayment, views.PaymentDetailsView):
    pass
