"""Images in messages, in the shapes of the providers: bytes in base64, or an address.

Only formats that a browser decodes without running anything are images here. An address is shown as text, and is never
loaded: whoever wrote the message would learn who reads it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from backtrail.model import text_of

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NESTED = ("source", "image_url", "inline_data", "inlineData", "data", "image", "file")
_KINDS = ("image", "image_url", "input_image", "media", "file")


class Image(msgspec.Struct, frozen=True):
    """An image: its bytes, or its address."""

    media_type: str
    data: bytes = b""
    url: str = ""


def image_of(block: Any) -> Image | None:
    """The image that a block of a message holds; None if it holds none that can be shown."""
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    if kind not in _KINDS and not isinstance(block.get("inline_data") or block.get("inlineData"), dict):
        return None
    levels = [block, *(block[name] for name in _NESTED if isinstance(block.get(name), dict))]
    media = next(filter(None, map(_media_type, levels)), "")
    keys = ("data", "url", "image_url", "image", "base64")
    found = (_image(level.get(key), media) for level in levels for key in keys)
    return next((image for image in found if image is not None), None)


def _media_type(level: dict[Any, Any]) -> str:
    names = ("media_type", "mime_type", "mimeType", "mediaType", "mime")
    return next((text_of(level[name]).lower() for name in names if isinstance(level.get(name), str)), "")


def _image(value: Any, media: str) -> Image | None:
    if isinstance(value, bytes | bytearray):
        return Image(media, bytes(value)) if media in MEDIA_TYPES else None
    if not isinstance(value, str) or not value:
        return None
    if value.startswith("data:"):
        head, _, value = value.partition(",")
        media, _, encoding = head.removeprefix("data:").lower().partition(";")
        if encoding != "base64":
            return None
    elif value.startswith(("http://", "https://")):
        return Image(media or "image", url=value)
    if media not in MEDIA_TYPES:
        return None
    try:
        return Image(media, base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return None
