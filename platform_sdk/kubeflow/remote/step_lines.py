"""A step's own lines in the log of its container.

Kubeflow's launcher, Argo and kfp's executor write before and after them: the step's inputs, uploads, exit codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

EXECUTOR = re.compile(r"\[KFP Executor [^\]]*\]: (?P<text>.*)")
INPUT = "Got executor_input:"
INPUT_END = "}"  # the only line of the input that is not indented
OUTPUT = re.compile(r"Wrote executor output file to |Did not write output file\.")
FRAME = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.go:\d+\] "  # Kubeflow's launcher
    r"|time=\S+ level=\S+ msg=.* argo=true|Error: exit status \d+$"  # Argo
)


def own_lines(lines: Iterator[str], *, complete: bool = True) -> Iterator[str]:
    """Return the lines between the step's inputs and its outputs.

    If a ``complete`` log has no inputs, the step failed before it began: all lines are returned except the launcher's
    and Argo's. The same applies to a log that begins with other lines, e.g. because it was rotated.
    """
    before: list[str] | None = None  # lines until the inputs begin
    in_input = False
    for number, line in enumerate(lines):
        executor = EXECUTOR.match(line)
        text = executor["text"] if executor else ""
        if number == 0 and (executor or FRAME.match(line)):
            before = []
        if in_input:
            in_input = line != INPUT_END
        elif text == INPUT:
            before, in_input = None, True
        elif OUTPUT.match(text):
            return
        elif FRAME.match(line):
            continue
        elif before is not None:
            before.append(line)
        else:
            yield line
    if complete:
        yield from before or ()
