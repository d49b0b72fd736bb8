"""The six novels of Jane Austen, in the public domain, from Debian's package r-cran-janeaustenr.

    apt-get download r-cran-janeaustenr && dpkg -x r-cran-janeaustenr_*.deb FOLDER

The package has the texts of Project Gutenberg as an R database: zlib streams, each preceded by its length, of character
vectors with one element for each line of a book.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

DATABASE = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
BOOKS = 6
STRINGS, STRING = 0x10, 0x09  # STRSXP and CHARSXP of R's serialization, the low byte of an item's flags
CHAPTER = re.compile(r"^\s*(CHAPTER|Chapter|VOLUME|Volume)\b[^a-z]*$")
END = re.compile(r"^\s*(FINIS|THE END|End of (the )?Project Gutenberg.*)\s*$", re.IGNORECASE)


def vectors(database: bytes) -> Iterator[list[str]]:
    """Yield the character vectors of an R database of version 3, in its order."""
    while database:
        stream = zlib.decompressobj()
        data = stream.decompress(database[4:])
        database = stream.unused_data
        (encoding,) = struct.unpack_from(">i", data, 14)
        at = 18 + encoding
        flags, count = struct.unpack_from(">ii", data, at)
        if data[:2] != b"X\n" or flags & 0xFF != STRINGS:
            raise ValueError("expected a vector of strings in R's XDR serialization")
        at, lines = at + 8, []
        for _ in range(count):
            flags, length = struct.unpack_from(">ii", data, at)
            if flags & 0xFF != STRING:
                raise ValueError(f"expected a string at byte {at}")
            lines.append(data[at + 8 : at + 8 + max(length, 0)].decode())
            at += 8 + max(length, 0)
        yield lines


def chapters(lines: list[str]) -> Iterator[str]:
    """Yield a book's chapters without headings, one paragraph a line."""
    paragraphs: list[str] = []
    words: list[str] = []
    for line in [*lines, "CHAPTER I"]:
        heading = CHAPTER.match(line) or END.match(line)
        if line.strip() and not heading:
            words += line.split()
            continue
        if words:
            paragraphs.append(" ".join(words).replace("_", ""))
            words = []
        if heading:
            text, paragraphs = "\n".join(paragraphs) + "\n", []
            if len(text) > 1000:  # skips the text before the first chapter
                yield text


def read(folder: Path) -> list[str]:
    """Return the chapters of all books; `folder` has the unpacked Debian package."""
    books = list(vectors((folder / DATABASE).read_bytes()))
    if len(books) != BOOKS:
        raise ValueError(f"expected {BOOKS} books, got {len(books)}")
    return [chapter for book in books for chapter in chapters(book)]
