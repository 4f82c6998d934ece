"""Notes are what a reader noticed on the way: facts about the bytes, which rules turn into findings."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.noun import noun


class NoteKind(str, Enum):
    """What sort of thing was noticed. The text after the colon is what the note's message adds."""

    # everyday damage and mistaken files
    EMPTY = "empty"  # zero bytes
    LFS_POINTER = "lfs-pointer"  # oid and size of the real file
    HTML_PAGE = "html-page"  # its title
    TEXT_BODY = "text-body"  # the first line, or the error field of the JSON
    ZERO_FILLED = "zero-filled"  # the file, or this much of it, is zero bytes
    TRUNCATED = "truncated"  # where it ends and where it should
    TRAILING_BYTES = "trailing-bytes"  # how many bytes follow the end
    INTERRUPTED = "interrupted"  # a change in place was not completed; the guidance is the command that undoes it
    WRONG_SUFFIX = "wrong-suffix"  # the suffix that fits the contents
    ARCHIVE_WRAPPED = "archive-wrapped"  # what it is packed in; the member is its name in there
    # zip directory
    ZIP_AMBIGUOUS = "zip-ambiguous"  # readers disagree: duplicate or case-variant names, local ≠ central, …
    ZIP_DAMAGED = "zip-damaged"  # a record outside the file, overlapping records, a broken header
    ZIP_UNUSUAL = "zip-unusual"  # torch refuses or misreads it: compressed records, flag bits, version, mixed prefixes
    CRC_NOT_COMPUTED = "crc-not-computed"  # every CRC is 0: written with set_crc32_options(False)
    CRC_MISMATCH = "crc-mismatch"  # found by a deep examination
    BIG_ENDIAN = "big-endian"  # the byteorder record says so
    # pickle
    PICKLE_AMBIGUOUS = "pickle-ambiguous"  # unpicklers disagree about this stream
    PICKLE_DAMAGED = "pickle-damaged"  # the pickle breaks off or makes no sense at this offset
    PICKLE_HIDDEN_CALL = "pickle-hidden-call"  # a call whose result is thrown away, or a pickle after STOP
    # storages and tensors
    STORAGE_MISSING = "storage-missing"  # no bytes for this storage key
    STORAGE_SIZE = "storage-size"  # the record is not as long as the storage says
    TENSOR_OUT_OF_BOUNDS = "tensor-out-of-bounds"  # the view reaches past its storage
    TENSOR_STATE = "tensor-state"  # what it is given after it was made replaces its values
    TENSOR_ODD = "tensor-odd"  # negative or overflowing shape, too many dimensions, conflicting dtypes
    DUPLICATE_KEY = "duplicate-key"  # the same key twice in one dict
    # safetensors
    HEADER_INVALID = "header-invalid"  # safetensors would refuse this header
    OFFSETS_INVALID = "offsets-invalid"  # holes, overlaps, or a length that does not match dtype × shape
    # checkpoints in several files
    FILE_MISSING = "file-missing"  # a file that belongs to the checkpoint is not in its folder
    FILE_DAMAGED = "file-damaged"  # one that is there cannot be read: why
    FILE_OUTSIDE = "file-outside"  # a name that leads out of the folder, so that it is not opened
    INDEX_STALE = "index-stale"  # the index names files of another save than the one that lies beside it
    INDEX_WRONG = "index-wrong"  # the index looks for a tensor in a file that has no such tensor
    INDEX_LACKS = "index-lacks"  # the index names a tensor that none of the files has
    INDEX_OMITS = "index-omits"  # tensors in the files that the index does not name
    INDEX_UNUSABLE = "index-unusable"  # loaders of this folder need an index, or more in it than there is
    INDEX_SIZE = "index-size"  # the bytes that the index counts, and those there are
    KEY_IN_TWO_FILES = "key-in-two-files"  # two files have a tensor of the same name
    # anything that a budget or an unknown kind kept from being looked at
    NOT_EXAMINED = "not-examined"


# the guidance of TRUNCATED where tensors lie whole in front of the cut
IN_FRONT = "If there is no other copy, recover every tensor before the cut: ckptdoctor salvage FILE"
# what STORAGE_MISSING says of a record that is there, and encrypted or compressed in an unknown way
UNREADABLE = "cannot be read"


@noun
class Note:
    """One thing a reader noticed: what, in which record, and at which byte.

    ``keys`` are the tensors that are lost with it, ``branch`` is where in the tree its file is or would be, and
    ``guidance`` says what to do, each as far as a reader knows.
    """

    kind: NoteKind
    message: str
    member: str | None = None
    offset: int | None = None
    keys: tuple[KeyPath, ...] = ()
    branch: KeyPath = ()
    guidance: str = ""
