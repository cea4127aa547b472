"""Python imports this where it starts with this folder on its path: a process of a run under attack."""

import sys

from tests.chaos import trace

trace.begin(sys.orig_argv)
