"""Lays out the fixed parts of a zip archive byte for byte (PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16)."""

from __future__ import annotations

from struct import Struct

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
END_SIGNATURE = b"PK\x05\x06"
END64_SIGNATURE = b"PK\x06\x06"
LOCATOR_SIGNATURE = b"PK\x06\x07"
DESCRIPTOR_SIGNATURE = b"PK\x07\x08"

# signature, version needed, flags, method, time, date, CRC, compressed size, size, name length, extra length
LOCAL = Struct("<4sHHHHHIIIHH")
# signature, made by, needed, flags, method, time, date, CRC, compressed size, size, name, extra and comment length,
# disk, internal attributes, external attributes, header offset
CENTRAL = Struct("<4sHHHHHHIIIHHHHHII")
# signature, this disk, directory's disk, entries on this disk, entries, directory size and offset, comment length
END = Struct("<4sHHHHIIH")
# signature, size of the rest, made by, needed, this disk, directory's disk, entries on it, entries, size, offset
END64 = Struct("<4sQHHIIQQQQ")
# signature, disk of the zip64 end record, its offset, number of disks
LOCATOR = Struct("<4sIQI")
# signature, CRC, compressed size, size; the second form is for records of 4 GiB and more, or beyond 4 GiB
DESCRIPTOR = Struct("<4sIII")
DESCRIPTOR64 = Struct("<4sIQQ")
# the id and length of one extra field
EXTRA = Struct("<HH")

MAX16 = 0xFFFF
MAX32 = 0xFFFFFFFF
ZIP64_FIELD = 0x0001

STORED = 0
DEFLATED = 8
METHODS = (STORED, DEFLATED)  # which torch reads

ENCRYPTED = 0x0001
HAS_DESCRIPTOR = 0x0008
PATCH = 0x0020
STRONG_ENCRYPTION = 0x0040
UNREADABLE = ENCRYPTED | PATCH | STRONG_ENCRYPTION
UTF8 = 0x0800
MASKED_HEADERS = 0x2000
