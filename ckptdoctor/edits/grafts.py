"""Reports a graft: which tensors came from the other copy, how far both are alike, and which bits were flipped back."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.noun import noun


class Ground(str, Enum):
    """Why the other copy's values may stand for those that were lost, from the best reason to none."""

    CHECKSUM = "checksum"  # they fit the checksum that the damaged file keeps: bit for bit what was saved
    PUBLISHED = "published"  # the whole file with them has a hash that was published for it
    COPIES = "copies"  # every other tensor that both files have is byte-equal
    CONSENT = "consent"  # nothing shows that both come from one save: the result is a mixture


@noun
class Graft:
    """One tensor that is taken from the other copy. ``came_from`` is what it is called there, where that differs."""

    path: KeyPath
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    trouble: str
    ground: Ground
    came_from: KeyPath | None = None


@noun
class HealedTensor:
    """A tensor whose checksum is explained by one flipped bit, which was flipped back.

    It is bit ``bit`` (0: the lowest) of byte ``offset`` of the damaged file. ``chance`` is how often other damage looks
    the same (0 to 1), and ``vouched`` names the seal or published checksum that agrees ("": its own checksum alone).
    ``file`` is the shard that it is in, where there are several.
    """

    path: KeyPath
    offset: int
    bit: int
    chance: float
    vouched: str = ""
    file: str = ""


@noun
class Left:
    """A damaged tensor that stays as it is, and why."""

    path: KeyPath
    trouble: str
    why: str


@noun
class Likeness:
    """How far two copies agree apart from what is grafted.

    Of the tensors that both have and neither is known to have damaged, ``equal`` are byte-equal; ``unlike`` are not.
    ``others`` counts what differs next to tensors (an epoch). ``alone`` counts tensors that only the damaged file has.
    ``by_checksums``: none of them was read, and only those count of which both files have a checksum.
    """

    equal: int = 0
    unlike: tuple[KeyPath, ...] = ()
    others: int = 0
    alone: int = 0
    by_checksums: bool = False

    @property
    def compared(self) -> int:
        """Tensors that were compared."""
        return self.equal + len(self.unlike)

    @property
    def alike(self) -> bool:
        """Whether there is something to go by, and all of it agrees."""
        return self.equal > 0 and not self.unlike


@noun
class GraftReport:
    """Everything that is reported about one graft. ``output`` is None where there was nothing to do.

    ``donor`` is None where no other copy was named. ``healed`` are tensors that need none: one bit of them, located by
    their checksum, is flipped back. ``beside`` counts further damaged tensors that were not asked for. ``new_bytes``
    counts those of the output that are not the damaged file's. ``around`` says what is damaged of the file between its
    tensors, which stays as it is. ``unexamined`` says which files of the other copy are
    missing or damaged; ``unsummed``: some values have no checksum that verifies them. ``written`` is true once the
    output is there, and verified.

    Of a donor on another machine, ``fetched`` of its ``donor_size`` bytes were fetched. ``published`` names the hash
    that was published for the whole file and is that of the output ("": none is), and ``unlike_published`` those that
    are not.
    """

    path: str
    donor: str | None
    output: str | None
    format: str
    tensors: int
    grafted: tuple[Graft, ...] = ()
    healed: tuple[HealedTensor, ...] = ()
    left: tuple[Left, ...] = ()
    beside: int = 0
    around: tuple[str, ...] = ()
    likeness: Likeness = Likeness()
    new_bytes: int = 0
    unexamined: str = ""
    unsummed: bool = False
    replaces_original: bool = False
    fetched: int | None = None
    donor_size: int = 0
    published: str = ""
    unlike_published: tuple[str, ...] = ()
    written: bool = False
    seconds: float = 0.0

    @property
    def changes(self) -> bool:
        """Whether there is something to write."""
        return bool(self.grafted or self.healed)

    @property
    def stays_damaged(self) -> bool:
        """Whether something is known to be wrong with the output, too."""
        return bool(self.left or self.beside or self.around)

    @property
    def mixture(self) -> bool:
        """Whether something is taken for which nothing but consent speaks."""
        return any(each.ground is Ground.CONSENT for each in self.grafted)


# ---- of a folder, file by file


class ShardState(str, Enum):
    """What becomes of a file of a folder."""

    INTACT = "intact"  # nothing is known to be wrong with it, and it stays as it is
    HEALED = "healed"  # its damaged tensors are replaced, all of them
    REPLACED = "replaced"  # it is the other copy's file as a whole
    STAYS = "stays"  # it is damaged or missing, and stays so


@noun
class Shard:
    """A file with tensors: what becomes of it, and why. ``graft`` says what is replaced in one that is healed.

    ``why`` is what was wrong with a file that is replaced, or the reason why one stays as it is; ``ground`` is why the
    other copy may stand for it as a whole, and ``by`` names the seal whose SHA-256 it has.
    """

    name: str
    state: ShardState
    why: str = ""
    graft: GraftReport | None = None
    ground: Ground | None = None
    by: str = ""


@noun
class FolderGraftReport:
    """Everything that is reported about the graft of a folder. ``output`` is None where there was nothing to do.

    ``likeness`` is how far all files agree. ``folders`` are names of folders in it, which are not copied.
    ``replaces_original``: only damaged files of the folder itself are replaced.
    """

    path: str
    donor: str
    output: str | None
    shards: tuple[Shard, ...]
    likeness: Likeness
    folders: tuple[str, ...] = ()
    replaces_original: bool = False
    written: bool = False
    seconds: float = 0.0

    @property
    def changed(self) -> tuple[Shard, ...]:
        """The files that become others."""
        return tuple([each for each in self.shards if each.state in (ShardState.HEALED, ShardState.REPLACED)])

    @property
    def left(self) -> tuple[Shard, ...]:
        """The files that stay damaged, or missing."""
        return tuple([each for each in self.shards if each.state is ShardState.STAYS])

    @property
    def stays_damaged(self) -> bool:
        """Whether some file does."""
        return bool(self.left) or any(each.graft is not None and each.graft.around for each in self.shards)
