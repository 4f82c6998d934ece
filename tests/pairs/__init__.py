"""Pairs of a broken checkpoint and a target, of which the true answer is known: what ``fix --auto`` must get right.

A pair is made from its number alone: ``python -m tests.pairs 17`` makes the files of pair 17, repairs them in both
modes, and says what came of it. Its parts:

- ``models``: the real definitions, tiny, nearly all sizes equal, so that shapes do not decide; every number distinct;
- ``pair``: what a pair is, and the words that renamings are made of;
- ``ways``: ways in which good checkpoints go wrong, each with the answer that a repair must give if it gives one;
- ``libraries``: the same network as two code bases save it, with the values rearranged as each of them wants it;
- ``attention``: projections in one tensor or in three, and where nobody knows their order;
- ``layouts``: parts of a tensor that change their places, such as the gates of recurrent layers;
- ``arithmetic``: tensors that have to be computed or put together, and what looks like them;
- ``traps``: pairs to which there is no answer, or one that is easily missed: one family for each way to guess;
- ``judge``: runs the command, loads what it wrote into the model, and compares every tensor with the truth.

Verdicts: *right* (what was written is the truth, and loads strictly; or a refusal where there is no answer), *refused
with a command* (a printed command, run as it stands, finishes the repair), *refused without*, *wrong* (anything written
that is not the truth, or before a person made their choice where it is theirs (``Pair.choice`` names the law), or
"nothing to repair" about a file that does not load as the truth), *crash*.

Where nothing but a person's word decides, the values are laid out by chance: a tool that goes by order is found out.
``benchmarks/accuracy.py`` runs a thousand and more of them; ``test_pairs`` some by default, and all when asked.
"""
