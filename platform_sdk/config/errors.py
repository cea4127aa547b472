"""``UserError`` under the name that every room above ``records`` imports it by."""

from platform_sdk.errors import Code, UserError, with_code

__all__ = ["Code", "UserError", "with_code"]
