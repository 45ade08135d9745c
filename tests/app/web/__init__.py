"""Tests of the page, as a package: pages are called like what they show, and so are its tests elsewhere."""
