"""Checkouts of a Django shop behind Stockade: hold, charge, commit, report.

`checkouts` has the steps of one checkout, `settle` goes on with those that a crash has left open,
and `shop.Shop` is what the shop itself must know how to do. README.md shows them together.
"""
