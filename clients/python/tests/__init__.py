"""Tests of the Python client: `python3 -m unittest` in the folder `clients/python`."""
