"""One page that shows a whole checkpoint: findings, sizes, values and what changed; nothing in it comes from outside.

Whatever stands in a file reaches the page through ``markup.text`` or ``assets.embedded`` only.
"""
