"""A small shop with Stockade behind it. The README says how to run it."""
