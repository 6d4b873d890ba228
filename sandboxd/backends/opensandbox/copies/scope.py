"""Which paths of a plan are copied, and what may come back. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sandboxd.policy.paths.within import is_below, within, within_any
from sandboxd.policy.plan import Grant, Link, Protected, RunAs, SandboxSpec

# The image has its own; those of this machine would break its programs.
_OF_IMAGE = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys",
    "/usr",
)  # fmt: skip
# Toolchains are the image's. A cache only saves time.
_NOT_COPIED = {"toolchain", "cache", "pin"}
_GIT_SETTINGS = ("/.gitconfig", "/.config/git")


def copied_grants(spec: SandboxSpec) -> tuple[Grant, ...]:
    return tuple(
        grant for grant in spec.grants
        if grant.origin not in _NOT_COPIED and not _is_settings(grant)
    )  # fmt: skip


def _is_settings(grant: Grant) -> bool:
    """The user's git settings, that a preset adds. An image may have no room for them."""
    return grant.origin == "preset" and grant.path.endswith(_GIT_SETTINGS)


def is_of_image(path: str) -> bool:
    """A system folder, or a folder right below the root."""
    return within_any(path, _OF_IMAGE) or path.count("/") < 2


@dataclass(frozen=True)
class CopyScope:
    """`grants`: each is copied, but for the parts that are masked or granted by themselves."""

    grants: tuple[Grant, ...]
    masks: tuple[str, ...] = ()
    protected: tuple[Protected, ...] = ()
    links: tuple[Link, ...] = ()
    run_as: RunAs | None = None

    @classmethod
    def of(cls, spec: SandboxSpec) -> CopyScope:
        masks = tuple(mask.path for mask in spec.masks)
        return cls(copied_grants(spec), masks, spec.protected, spec.links, spec.run_as)

    @classmethod
    def of_settings(cls, spec: SandboxSpec) -> CopyScope:
        """What is sent once, and may be missing."""
        return cls(tuple(filter(_is_settings, spec.grants)), run_as=spec.run_as)

    @cached_property
    def _borders(self) -> dict[str, str]:
        """What begins at a path: a grant's access, or a mask."""
        return dict.fromkeys(self.masks, "masked") | {one.path: one.access for one in self.grants}

    def begins(self, path: str) -> bool:
        """Whether the path is a grant or a mask itself: a walk of another grant stops there."""
        return path in self._borders

    def access(self, path: str) -> str:
        """`read`, `write`, `masked`, or empty: by the deepest border above the path."""
        deepest = ""
        for border in self._borders:
            if within(path, border) and len(border) >= len(deepest):
                deepest = border
        return self._borders.get(deepest, "")

    @cached_property
    def sent_back(self) -> tuple[str, ...]:
        """The folders that are fetched after a command: the topmost ones that may be written."""
        paths = sorted(one.path for one in self.grants if one.access == "write")
        return tuple(path for path in paths if not any(is_below(path, one) for one in paths))

    def is_sent_back(self, path: str) -> bool:
        return within_any(path, self.sent_back)

    def writable_root(self, path: str) -> Grant | None:
        """The grant that a changed path is written in; None where it may not be written."""
        if self.access(path) != "write":
            return None
        return max(
            (one for one in self.grants if one.access == "write" and within(path, one.path)),
            key=lambda one: len(one.path),
        )

    def kept_from_change(self, path: str) -> Protected | None:
        """The protected path that this one is or lies in; what else is protected is judged after
        it was written, by the workspace's guard."""
        for one in self.protected:
            fixed = one.present or one.rule == "absent"
            if fixed and within(path, one.path):
                return one
        return None

    def holds_protected(self, path: str) -> bool:
        """Whether something that must stay lies below the folder."""
        return any(one.present and is_below(one.path, path) for one in self.protected)
