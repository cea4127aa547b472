"""The run's context: the settings that all steps of a method's run share, written out once."""

from __future__ import annotations

from typing import Any

from platform_sdk.execution.step import StepInputs


class Context(StepInputs):
    """Settings that all steps of a run share, as the recipe gives them.

    The inputs of a method's pipeline steps and the arguments of their processes extend this record. ``RunContext`` is
    the same with the method's own settings validated (see ``Method.context``).

    Attributes:
        method: a shipped method's name, or the dotted name of a method's module.
        environment: the searched environment, or the agent's passages.
        agent: the agent's settings.
        sampling: engine and distribution.
        retrieval: encoder and index.
        searched_digest: digest of the searched corpus; a mismatch stops the run.
        seed: seed of all sampling.
    """

    method: str
    environment: str
    agent: dict[str, Any]
    sampling: dict[str, Any]
    retrieval: dict[str, Any]
    searched_digest: str
    seed: int

    @property
    def shared(self) -> dict[str, Any]:
        """Return the fields of this record, without the fields of a subclass."""
        return {name: getattr(self, name) for name in Context.model_fields}
