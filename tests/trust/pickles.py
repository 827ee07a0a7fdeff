"""Twenty-eight files that run code when they are read carelessly: each makes a file, the canary.

Beside each stands the careless reader that falls for it, for a canary that never sings would show nothing.
"""

from __future__ import annotations

import base64
import bz2
import copyreg
import functools
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save

EXTENSION = 201  # a number of copyreg's registry: pickles may name a function by it


class Canary:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def written_by_hand(canary: Path) -> dict[str, bytes]:
    """One for each opcode that can call something."""
    path = str(canary)
    text = f"S'{path}'\n".encode()
    both = text + b"S'w'\n"
    partial = b"cfunctools\npartial\ncio\nopen\n"
    command = f"open({path!r}, 'w')"
    return {
        "GLOBAL and REDUCE, to a shell": b"cos\nsystem\n(" + f"S'touch {path}'\n".encode() + b"tR.",
        "GLOBAL and REDUCE, to exec": b"cbuiltins\nexec\n(" + f"S{command!r}\n".encode() + b"tR.",
        "INST": b"(" + both + b"iio\nopen\n.",
        "OBJ": b"(cio\nopen\n" + both + b"o.",
        # An object is made without a call, and is then itself what is called.
        "NEWOBJ": b"\x80\x02" + partial + both + b"\x87\x81)R.",
        "NEWOBJ_EX": b"\x80\x04" + partial + text + b"\x86}S'mode'\nS'w'\ns\x92)R.",
        # The first BUILD gives the object a __setstate__ of our choice, the second one calls it.
        "BUILD": b"\x80\x02ctypes\nSimpleNamespace\n)\x81}S'__setstate__'\ncos\nmkdir\nsb" + text + b"b.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x05mkdir\x93" + text + b"\x85R.",
        "EXT1": b"\x80\x02\x82" + bytes([EXTENSION]) + text + b"\x85R.",
    }


def in_containers(canary: Path) -> dict[str, tuple[bytes, Callable[[bytes], Any]]]:
    plain = pickle.dumps(Canary(canary))
    array = io.BytesIO()
    np.save(array, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    arrays = io.BytesIO()
    np.savez(arrays, z=np.array([Canary(canary)], dtype=object), allow_pickle=True)
    zipped, old = io.BytesIO(), io.BytesIO()
    torch.save(Canary(canary), zipped)
    torch.save(Canary(canary), old, _use_new_zipfile_serialization=False)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("data.pkl")
        member.size = len(plain)
        archive.addfile(member, io.BytesIO(plain))
    weights = {"w": torch.frombuffer(bytearray(plain), dtype=torch.uint8)}
    header = f"{{'descr': open({str(canary)!r}, 'w'), 'fortran_order': False, 'shape': (1,), }}".ljust(117) + "\n"
    numpy_header = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    careless_torch = functools.partial(torch.load, weights_only=False)
    return {
        "npy": (array.getvalue(), lambda data: np.load(io.BytesIO(data), allow_pickle=True)),
        "npz": (arrays.getvalue(), lambda data: np.load(io.BytesIO(data), allow_pickle=True)["z"]),
        "npy with code in its header": (numpy_header + bytes(8), lambda data: eval(data[10:-8])),
        "torch.save": (zipped.getvalue(), lambda data: careless_torch(io.BytesIO(data))),
        "torch.save, old form": (old.getvalue(), lambda data: careless_torch(io.BytesIO(data))),
        "safetensors, in the header": (
            save(weights, {"config": base64.b64encode(plain).decode()}),
            lambda data: pickle.loads(base64.b64decode(_metadata(data, canary)["config"])),
        ),
        "safetensors, as a tensor": (save(weights), lambda data: pickle.loads(data[-len(plain) :])),
        "json": (
            json.dumps({"pickle": base64.b64encode(plain).decode()}).encode(),
            lambda data: pickle.loads(base64.b64decode(json.loads(data)["pickle"])),
        ),
        "gzip": (gzip.compress(plain), lambda data: pickle.loads(gzip.decompress(data))),
        "bzip2": (bz2.compress(plain), lambda data: pickle.loads(bz2.decompress(data))),
        "xz": (lzma.compress(plain), lambda data: pickle.loads(lzma.decompress(data))),
        "zip": (_zip(plain), lambda data: pickle.loads(zipfile.ZipFile(io.BytesIO(data)).read("data.pkl"))),
        "tar": (tar.getvalue(), lambda data: pickle.loads(data[512:])),
    }


def payloads(canary: Path) -> dict[str, tuple[bytes, Callable[[bytes], Any]]]:
    """name -> (content of the file, the reader that falls for it)."""
    found: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found[f"protocol {protocol}"] = (pickle.dumps(Canary(canary), protocol), pickle.loads)
    for name, content in written_by_hand(canary).items():
        found[name] = (content, pickle.loads)
    return found | in_containers(canary)


def register_extension() -> None:
    """As a program might have done that uses concurl as a library."""
    if EXTENSION not in copyreg._inverted_registry:  # type: ignore[attr-defined]
        copyreg.add_extension("os", "mkdir", EXTENSION)


def _zip(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", content)
    return stream.getvalue()


def _metadata(data: bytes, canary: Path) -> dict[str, str]:
    path = canary.with_name("careless.safetensors")
    path.write_bytes(data)
    with safe_open(path, "pt") as file:
        found: dict[str, str] = file.metadata()
    path.unlink()
    return found
