"""Two models as one policy: a planner and a worker (Mujica's switch; usually one model plays both roles).

A *pair* is a directory with the models ``planner`` and ``worker``, or links to them. It is accepted in place of a
model's path: an engine of a pair passes each request to the model of its role, and each model is trained on the
dialogues of its role.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.files import check_handed_on
from platform_sdk.sampling.engine import Completion, Probe, Request, SamplingEngine, SamplingParams
from platform_sdk.sampling.models import load_tokenizer, resolve, weights_digest
from platform_sdk.tracking.outcomes import digest_of

ROLES = ("planner", "worker")
MODEL_SUFFIXES = frozenset({".json", ".safetensors", ".txt", ".model", ".jinja"})


def models_of(policy: str | Path) -> dict[str, Path]:
    """Return the models of a pair by role; empty for a policy of one model."""
    paths = {role: Path(policy) / role for role in ROLES}
    return paths if all(path.is_dir() for path in paths.values()) else {}


def policy_digest(policy: str | Path) -> str:
    """Return the digest of a policy's weights: one model, or both models of a pair."""
    models = models_of(policy)
    return (
        digest_of({role: weights_digest(path) for role, path in models.items()}) if models else weights_digest(policy)
    )


def check_policy(policy: str | Path, digest: str) -> None:
    """Compare a policy's weights with the digest from the previous step.

    Raises:
        UserError: the weights differ or cannot be read.
    """
    check_handed_on(Path(policy), "weights' digest", policy_digest(policy), digest)


def model_files(policy: str | Path) -> list[Path]:
    """Return the files that affect a policy's output: weights, configuration, tokenizer; for a pair, of both models."""
    folders = models_of(policy).values() or [resolve(policy)]
    return sorted(
        path for folder in folders for path in folder.iterdir() if path.is_file() and path.suffix in MODEL_SUFFIXES
    )


def make_pair(folder: Path, planner: str | Path, worker: str | Path) -> Path:
    """Create a pair in ``folder`` with links to two models; return ``folder``.

    Raises:
        UserError: a model does not exist, or the two differ in tokenizer or chat template: a dialogue is tokenized
            before its model is known.
    """
    models = dict(zip(ROLES, (resolve(planner).resolve(), resolve(worker).resolve()), strict=True))
    one, other = (load_tokenizer(path) for path in models.values())
    if (one.get_vocab(), one.chat_template) != (other.get_vocab(), other.chat_template):
        raise UserError(
            f"planner {planner} and worker {worker} have different tokenizers or chat templates; "
            "take two models of one family"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for role, path in models.items():
        temporary = folder / f".{role}.{os.getpid()}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path)
        temporary.replace(folder / role)
    return folder


class PairEngine(SamplingEngine):
    """The engines of a pair as one: a request goes to the engine of its ``role``.

    Args:
        load: starts the engine of a model.
    """

    def __init__(self, policy: str | Path, load: Callable[[Path], SamplingEngine]) -> None:
        self._engines: dict[str, SamplingEngine] = {role: load(path) for role, path in models_of(policy).items()}
        self.tokenizer = self._engines["planner"].tokenizer
        self.max_model_len = min(engine.max_model_len for engine in self._engines.values())
        self._name_weights()

    def submit(self, request: Request) -> None:
        self._engine(f"request {request.id}", request.role).submit(request)

    def step(self) -> list[Completion]:
        return [completion for engine in self._engines.values() for completion in engine.step()]

    def cancel(self, request_id: str) -> None:
        for engine in self._engines.values():
            engine.cancel(request_id)

    def release(self, dialogue: str) -> None:
        for engine in self._engines.values():
            engine.release(dialogue)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Completion]:
        """Sample from the planner's model, since plain prompts have no role."""
        return self._engines["planner"].generate(prompts, params)

    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], role: str = ""
    ) -> list[tuple[float, ...]]:
        return self._engine("score", role).score(prompts, continuations)

    def load_weights(self, path: Path | str, probe: Probe | None = None) -> None:
        if probe is not None:
            raise ValueError("a probe is of one model, and this engine has two")
        for role, model in models_of(path).items():
            self._engines[role].load_weights(model)
        self._name_weights()

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()

    def _engine(self, what: str, role: str) -> SamplingEngine:
        if role not in self._engines:
            raise ValueError(f"{what}: a pair's models are {' and '.join(ROLES)}, not {role!r}")
        return self._engines[role]

    def _name_weights(self) -> None:
        self.weight_version = digest_of({role: engine.weight_version for role, engine in self._engines.items()})
