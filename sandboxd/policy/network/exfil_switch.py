"""Switch the rules against exfiltration off, which takes both a config key and a flag.

A config file can be planted, and a flag can be copied; one alone changes nothing.
"""

from __future__ import annotations

import logging

import msgspec

from sandboxd.config.config import Config

log = logging.getLogger(__name__)


def exfil_switch(config: Config, *, accepted: bool) -> Config:
    """The config as it holds: with the rules on, unless both keys say otherwise."""
    switched_off = not config.egress.exfil_rules
    if switched_off and accepted:
        log.warning("the egress gate's rules against data leaving are switched off")
        return config
    if switched_off:
        log.warning(
            "[egress] exfil_rules = false is refused: it needs the flag --i-accept-exfil-risk too"
        )
    elif accepted:
        log.warning("--i-accept-exfil-risk is refused: it needs [egress] exfil_rules = false too")
    egress = msgspec.structs.replace(config.egress, exfil_rules=True)
    return msgspec.structs.replace(config, egress=egress)
