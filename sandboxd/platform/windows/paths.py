"""Paths of Windows as policy, plans and denials speak of them: `C:\\Users\\me` is `/C:/Users/me`.

Pure: the same on every system, so that it is tested everywhere. A drive is a folder below "/", so
walking up ends at "/" as on POSIX systems.
"""

from __future__ import annotations

import re

_DRIVE = re.compile(r"/[A-Z]:(?=/|$)")
_NATIVE_DRIVE = re.compile(r"([A-Za-z]):[\\/]")
# What Windows opens as a device wherever it stands in a path, with any extension.
_DEVICE = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3])(?:[ .].*)?", re.I
)
_SHORT_NAME = re.compile(r"[^.]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?", re.I)
# A path in a sentence. A folder's name may have blanks if each further word has a capital letter:
# where a path ends cannot be told otherwise.
_WORD = r"[^\s/:*?\"<>|',;()]+"
_IN_TEXT = re.compile(
    rf"(?<![\w:/\\])/[A-Z]:(?:/{_WORD}(?: (?:\([^\s/()]+\)|[A-Z]{_WORD[:-1]}*))*(?=/))*"
    rf"(?:/(?:{_WORD})?|(?=[\s',;)]|$))"
)
_FORBIDDEN = re.compile(r'[<>:"|?*]')


def native(path: str) -> str:
    """`/C:/Users/me` → `C:\\Users\\me`. FileNotFoundError for what lies on no drive."""
    if not _DRIVE.match(path):
        raise FileNotFoundError(2, "the path lies on no drive", path)
    rest = path[4:].replace("/", "\\")
    return f"{path[1]}:\\{rest}"


def native_text(text: str) -> str:
    """A sentence with the paths in it as people write them on Windows."""
    if "/" not in text or ":" not in text:
        return text
    return _IN_TEXT.sub(lambda found: native(found[0]), text)


def native_value(value: str) -> str:
    """A path as people write it, or a sentence with paths in it."""
    return native(value) if _DRIVE.match(value) and "\n" not in value else native_text(value)


def internal(path: str) -> str:
    """`C:\\Users\\me` → `/C:/Users/me`. What is internal already stays as it is.

    The prefix `\\\\?\\` that `realpath` keeps for long paths is dropped. Any other path without a
    drive keeps its form with slashes; no such path exists for `native`.
    """
    if path.startswith("\\\\?\\") and _NATIVE_DRIVE.match(path[4:]):
        path = path[4:]
    if re.match(r"[A-Za-z]:", path):
        drive, rest = path[0].upper(), path[2:].replace("\\", "/").lstrip("/")
        return f"/{drive}:/{rest}".rstrip("/") if rest else f"/{drive}:"
    return path.replace("\\", "/")


def spelling_problem(path: str) -> str | None:
    """Why a caller's path is refused without looking at the file system; None if it is not."""
    if path.startswith(("\\\\", "//")):
        return "is a network or device path: only paths on a drive can be allowed"
    if _DRIVE.match(path):
        path = f"{path[1]}:/{path[4:]}"
    if not _NATIVE_DRIVE.match(path):
        return "is not absolute: give the drive too, for example C:\\work"
    for part in re.split(r"[\\/]", path[3:]):
        problem = _part_problem(part)
        if problem is not None:
            return problem
    return None


def _part_problem(part: str) -> str | None:
    if part in ("", ".", ".."):
        return None
    if ":" in part:
        return "names an alternate data stream"
    if _FORBIDDEN.search(part):
        return "has a character that no file name can have"
    if part.endswith((".", " ")):
        return "has a part that ends in a dot or a blank, which Windows drops"
    if _DEVICE.fullmatch(part):
        return f"names the device {part}"
    if _SHORT_NAME.fullmatch(part):
        return f"has the short name {part}: give the long one"
    return None
