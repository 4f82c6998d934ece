"""Shows a whole checkpoint on one page: findings, sizes, values and changes; nothing in it comes from outside.

Whatever is in a file reaches the page through ``markup.text`` or ``assets.embedded`` only.
"""
