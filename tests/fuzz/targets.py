"""All targets by name."""

from __future__ import annotations

from fuzz import (
    target_client_hello,
    target_dns,
    target_file_server,
    target_first_line,
    target_frames,
    target_git_config,
    target_git_index,
    target_http_head,
    target_init_answers,
    target_init_messages,
    target_socks,
)
from fuzz.driver import Target

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        target_client_hello, target_dns, target_file_server, target_first_line, target_frames,
        target_git_config, target_git_index, target_http_head, target_init_answers,
        target_init_messages, target_socks,
    )
}  # fmt: skip
