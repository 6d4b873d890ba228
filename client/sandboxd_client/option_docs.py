"""Methods with `**options: Unpack[…]` whose `help()` shows each option by its name and type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def document_options(options: Any, *extended: Any) -> Callable[[F], F]:
    """Show the keys of the TypedDict `options` as keyword parameters of the method.

    `extended`: those that it extends, for their documentation.
    """

    def decorate(method: F) -> F:
        signature = inspect.signature(method)
        fixed = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in options.__annotations__.items()
        ]
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*fixed, *named]
        )
        # Not getdoc: without a text of its own a TypedDict would have that of dict.
        texts = (inspect.cleandoc(item.__doc__ or "") for item in (*extended, options))
        method.__doc__ = "\n\n".join(filter(None, (inspect.getdoc(method), *texts)))
        return method

    return decorate
