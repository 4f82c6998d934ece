"""Proposes renames towards a target: one kind of difference per module, each with ``propose``.

A proposal is a guess made from names and shapes alone. Which of them are taken decides ``match.search``, by what fits
afterwards.
"""
