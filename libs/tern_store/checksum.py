"""CRC-32 with zlib's values, for every byte that the store writes, verifies or scans.

Intel's ISA-L computes the checksum three to nine times faster than zlib. It is installed with the
broker; only the command line may read a store without it.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
