"""``UserError`` under the name that every room above ``records`` imports it by."""

from platform_sdk.errors import UserError

__all__ = ["UserError"]
