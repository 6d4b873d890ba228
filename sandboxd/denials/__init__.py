"""Evidence → classified denials: what was refused, by which layer, and what would allow it.

Pure: the input is a `Setting` (before the command runs), the bytes of its two streams, and a
`RunEvidence` (when it has ended). The machine is looked at only through `HostView`.
"""

from sandboxd.denials.context import HostView, RunEvidence, Setting
from sandboxd.denials.explain.manifest import ExplainRequest
from sandboxd.denials.text.scanner import StreamScanner
from sandboxd.denials.text.translations import Translations, languages_of, load_translations
from sandboxd.types import ConnectAttempt

__all__ = [
    "ConnectAttempt", "ExplainRequest", "HostView", "RunEvidence", "Setting", "StreamScanner",
    "Translations", "languages_of", "load_translations",
]  # fmt: skip
