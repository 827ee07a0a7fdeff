"""What a worker does with one file: read, hash, decode; and how task and result travel as bytes."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concurl.data.checking.workers import Lost
from concurl.data.files.entry import Entry
from concurl.data.pictures.content import DecodeError, read_content
from concurl.data.pictures.decode import decode
from concurl.data.pictures.header import image_size
from concurl.data.pictures.reading import OWN, Reading

_UNKEPT = 32  # the side where nobody wants the pixels: small, as JPEGs are decoded faster then


def task_for(entry: Entry, root: str, size: int | None = None, reading: Reading = OWN) -> bytes:
    """size: the side of the pixels to send back, None for none."""
    length = entry.size if entry.shard else None
    return json.dumps(
        [entry.path(root), entry.start, length, entry.fault, size, reading.background, reading.depth]
    ).encode()


def examine(task: bytes) -> bytes:
    """The fields of the file's audit row as a line of json, and its pixels."""
    path, start, length, fault, size, background, depth = json.loads(task)
    fields: dict[str, Any] = {"status": "ok", "reason": ""}
    pixels = b""
    try:
        if fault:
            raise DecodeError("unreadable", fault)
        data = read_content(path, start, length)
        fields |= {"bytes": len(data), "sha": hashlib.sha256(data).hexdigest()}
        image = decode(data, size or _UNKEPT, reading=Reading(tuple(background), depth))
        fields |= {"width": image.width, "height": image.height, "mode": image.mode, "format": image.format}
        fields["reason"] = ", ".join(image.oddities)
        pixels = image.pixels.tobytes() if size else b""
    except DecodeError as error:
        fields |= {"status": error.status, "reason": error.reason}
    except MemoryError:
        fields |= {"status": "too large", "reason": "reading it takes more memory than allowed"}
    return json.dumps(fields).encode() + b"\n" + pixels


def examined(result: bytes | Lost, size: int | None) -> tuple[dict[str, Any], NDArray[np.uint8] | None]:
    """What `examine` found: the row's fields, and (3, size, size) where there are pixels."""
    if isinstance(result, Lost):
        return {"status": "unreadable", "reason": result.reason}, None
    head, _, pixels = result.partition(b"\n")
    fields = json.loads(head)
    if size is None or fields["status"] != "ok":
        return fields, None
    return fields, np.frombuffer(pixels, np.uint8).reshape(3, size, size)


def measure(task: bytes) -> bytes:
    """[width, height] by the file's header, or nothing."""
    path, start, length, fault, *_ = json.loads(task)
    try:
        if fault:
            return b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if length is not None:
                return json.dumps(image_size(io.BytesIO(read_content(path, start, length)))).encode()
            with open(path, "rb") as file:
                return json.dumps(image_size(file)).encode()
    except (DecodeError, OSError, MemoryError):
        return b""
