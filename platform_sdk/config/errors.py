"""``UserError``, re-exported for the packages above ``records``."""

from platform_sdk.errors import Code, UserError, with_code

__all__ = ["Code", "UserError", "with_code"]
