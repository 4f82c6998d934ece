"""Keeps parity of a sealed file, of which blocks that are lost later are rebuilt: Reed-Solomon, by zfec.

The file is cut into blocks, and every block belongs to a group: the first to the first group, the next to the next, and
after the last group to the first again. Each group has the same number of parity blocks, and as many of its blocks as
these are can be rebuilt of the others. Blocks next to each other are in different groups, so that a run of lost bytes
costs each group few of them. Every block has a checksum, so it is known which are lost.
"""
