"""Tests of inventories of whole stores."""
