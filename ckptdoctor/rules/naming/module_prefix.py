"""Keys begin with ``module.``: saved from a model wrapped in DataParallel or DistributedDataParallel.

What it means
    ``nn.DataParallel`` and ``nn.parallel.DistributedDataParallel`` hold the real model in an attribute called
    ``module``, so the keys of their ``state_dict()`` are ``module.conv1.weight`` instead of ``conv1.weight``.

Why it matters
    The bare model does not know these names: ``load_state_dict`` fails, or with ``strict=False`` loads nothing at
    all without a word.

What you see
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "module.conv1.weight", "module.bn1.weight", …

How it is found
    Every key of a state dict begins with the token ``module`` (an error), or more than half of them do (a warning,
    and nothing is proposed). ``module.`` further inside a key is reported as a warning and left alone.

Repair
    ``ckptdoctor fix FILE --strip-module`` removes the leading token, in the keys, in ``_metadata`` and in an
    optimizer's ``param_names``. Safe: no value changes, and ``--add-prefix module.`` takes it back.
"""
