"""Evidence → classified denials: what was refused, by which layer, and what would allow it.

Pure: everything that is known comes in as `Setting` (before the command runs), as bytes of its two
streams, and as `Facts` (when it has ended). Looking at the machine is behind `HostView`.
"""

from sandboxd.denials.explain import Asked
from sandboxd.denials.facts import Facts, GateEvent, HostView, Setting
from sandboxd.denials.scanner import StreamScanner
from sandboxd.denials.translations import Translations, load_translations
from sandboxd.sandbox import Connection

__all__ = [
    "Asked",
    "Connection",
    "Facts",
    "GateEvent",
    "HostView",
    "Setting",
    "StreamScanner",
    "Translations",
    "load_translations",
]
