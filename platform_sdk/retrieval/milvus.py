"""Vectors in a Milvus collection: built once, finished after a kill, searched in batches.

A collection holds one vector per row of a corpus, under the row's number, and nothing else: its name
carries the digests of corpus and encoder, so the row number says which text it is. Rows are written in
order, so the number of rows tells where a killed build has to go on; they are written by key, so
writing one twice does no harm. When all is written and flushed the collection is marked as complete.

Milvus finds candidates. Their scores are computed here, since in a matrix product the last bits of a
score depend on what else is in the batch: ranked by exact score, then by row, the result does not.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.patience import Patience
from platform_sdk.sampling.rollout import RetrieverFault

if TYPE_CHECKING:
    from pymilvus import MilvusClient

log = logging.getLogger(__name__)

CHUNK = 512  # rows encoded and written at once
QUERIES = 256  # per search call: with their candidates some 8 MB, under gRPC's limit
FETCH = 4096  # rows per fetch
SPARE = 16  # candidates beyond k, so that exact scores decide who is in
CLOSE = 1e-5  # scores nearer than this may be in the wrong order as Milvus gives them
DIGITS = 6  # of a score; texts that are the same but for float noise tie, and the lower row wins
COMPLETE = "hopforge.complete"
MOST = 16_384  # candidates a Milvus server gives for one query
CALL_SECONDS = 60.0  # a server that has not answered by then is away
NOT_LOADED = 101  # Milvus's code of the error
# gRPC tries a lost server again after up to two minutes unless told otherwise.
RECONNECT = {"grpc.initial_reconnect_backoff_ms": 200, "grpc.min_reconnect_backoff_ms": 200,
             "grpc.max_reconnect_backoff_ms": 2000}  # fmt: skip

Hit = tuple[int, float]


@dataclass(frozen=True)
class Vectors:
    """A complete collection, open for searching. ``encoded`` rows were added by this opening.

    A Milvus server that is away is waited for, up to the recipe's ``patience_seconds``.
    """

    client: MilvusClient
    name: str
    rows: int
    encoded: int
    spec: RetrievalSpec
    path: Path | None

    def nearest(self, queries: np.ndarray, k: int) -> list[list[Hit]]:
        """The ``k`` rows of highest cosine similarity for each query, as (row, score), best first.

        Args:
            queries: unit vectors of shape (n, dimension).

        Raises:
            RetrieverFault: Milvus failed.
            UserError: a server stayed away.
        """
        results: list[list[Hit]] = [[] for _ in queries]
        waiting = list(range(len(queries)))
        limit = k + SPARE
        while waiting and k > 0 and self.rows:
            limit = min(limit, self.rows, MOST)
            again = []
            for start in range(0, len(waiting), QUERIES):
                places = waiting[start : start + QUERIES]
                for place, found in zip(places, self._candidates(queries[places], limit), strict=True):
                    rows, vectors = found
                    ranked = rank(queries[place], rows, vectors)
                    results[place] = ranked[:k]
                    # A full house whose last is level with the k-th: as good ones may stand outside.
                    if len(ranked) == limit < min(self.rows, MOST) and ranked[k - 1][1] - ranked[-1][1] < CLOSE:
                        again.append(place)
            waiting, limit = again, 4 * limit
        return results

    def fetch(self, rows: Sequence[int]) -> np.ndarray:
        """The stored vectors of ``rows``, of shape (len(rows), dimension).

        Raises:
            RetrieverFault: Milvus failed, or a row is not there.
            UserError: a server stayed away.
        """
        found: dict[int, list[float]] = {}
        wanted = sorted(set(rows))
        for start in range(0, len(wanted), FETCH):
            part = wanted[start : start + FETCH]
            get = partial(self.client.get, self.name, ids=part, output_fields=["row", "vector"], timeout=CALL_SECONDS)
            found |= {hit["row"]: hit["vector"] for hit in self._asked(get)}
        if len(found) != len(wanted):
            raise RetrieverFault(f"collection {self.name}: {len(wanted) - len(found)} rows are missing")
        return np.array([found[row] for row in rows], dtype=np.float32)

    def close(self) -> None:
        """Close the connection; a Milvus Lite file is then free for another process."""
        close(self.client, self.path)

    def _candidates(self, queries: np.ndarray, limit: int) -> Iterator[tuple[list[int], np.ndarray]]:
        search = dict(self.spec.index.search)
        if "HNSW" in self.spec.index.type:  # a server refuses ef < limit, and Lite would give fewer
            search["ef"] = max(int(search.get("ef", 64)), limit)
        ask = partial(
            self.client.search,
            self.name,
            data=list(queries),
            anns_field="vector",
            limit=limit,
            search_params={"metric_type": self.spec.metric, "params": search},
            output_fields=["vector"],
            timeout=CALL_SECONDS,
        )
        for hits in self._asked(ask):
            yield [hit["row"] for hit in hits], np.array([hit["entity"]["vector"] for hit in hits], dtype=np.float32)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What Milvus answers, in the end."""
        from pymilvus.exceptions import MilvusException

        # Milvus Lite lives in this process: what it refuses once it refuses again.
        patience = Patience("Milvus", self.spec.patience_seconds if self.path is None else 0)
        while True:
            try:
                with milvus_faults():
                    try:
                        return ask()
                    except MilvusException as error:
                        if error.code != NOT_LOADED:
                            raise
                        self.client.load_collection(self.name, timeout=CALL_SECONDS)  # the server was started anew
                        return ask()
            except RetrieverFault as fault:
                patience.wait(str(fault).removeprefix("Milvus: "))


def rank(query: np.ndarray, rows: Sequence[int], vectors: np.ndarray) -> list[Hit]:
    """``rows`` by cosine similarity of their unit ``vectors`` to ``query``, ties by row: (row, score)."""
    if not len(rows):
        return []
    # Not a matrix product: this sums each row by itself, so the others cannot change its last bits.
    scores = np.round(np.sum(vectors.astype(np.float64) * query.astype(np.float64), axis=1), DIGITS)
    order = np.lexsort((np.asarray(rows), -scores))
    return [(int(rows[place]), float(scores[place])) for place in order]


def open_vectors(
    spec: RetrievalSpec,
    directory: Path,
    texts: Sequence[str],
    *,
    kind: str,
    digest: str,
    encoder: Encoder,
    show_progress: bool = True,
) -> Vectors:
    """The collection of ``texts``, built or finished first where needed.

    Args:
        directory: where the Milvus Lite file lies if the recipe gives no uri.
        kind: what the texts are, as part of the collection's name.
        digest: the digest of ``texts``' source.

    Raises:
        UserError: the Lite file is in use by another process, the server cannot be reached, or the
            collection does not hold what its name says.
    """
    path = None
    if spec.backend == "lite":
        path = (Path(spec.uri).expanduser() if spec.uri else directory / "milvus.db").resolve()
    client = connect(spec, path)
    name = f"{kind}_{digest[:16]}_{encoder.digest[:16]}"
    try:
        with milvus_faults():
            encoded = _complete(client, name, spec, texts, digest, encoder, show_progress)
        vectors = Vectors(client, name, len(texts), encoded, spec, path)
        _compare(vectors, texts, encoder)
    except BaseException:
        close(client, path)
        raise
    return vectors


def connect(spec: RetrievalSpec, path: Path | None) -> MilvusClient:
    """A client of the recipe's server, or of the Milvus Lite file at ``path``."""
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    # It logs a traceback for all that it raises, and for every try to reach a server that is away.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    if path is None:
        try:
            token = os.environ.get(spec.token_env, "")
            return MilvusClient(uri=str(spec.uri), token=token, grpc_options=RECONNECT)
        except MilvusException as error:
            raise UserError(
                f"Milvus at {spec.uri} cannot be reached or refuses the token in {spec.token_env}: {error.message}"
            ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    # Lite's server, a thread of this process, logs a traceback for each call of pymilvus that it does not have.
    logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
    server_log = logging.getLogger("milvus_lite.server_manager")
    was = server_log.disabled
    server_log.disabled = True  # it logs a traceback; the error below says what is wrong
    try:
        # The client's pings, every ten seconds even at rest, are more than Lite's server bears: it hangs up.
        return MilvusClient(uri=str(path), grpc_options={"grpc.keepalive_time_ms": 2**31 - 1})
    except MilvusException as error:
        if _is_locked(path):
            raise UserError(
                f"{path} is in use by another process, and Milvus Lite serves one at a time: wait until that process "
                "has ended, or give retrieval.uri (another .db path, or a Milvus server, which serves many)"
            ) from error
        raise UserError(
            f"{path} cannot be opened as a Milvus Lite file: {error.message}; delete it to rebuild it"
        ) from error
    finally:
        server_log.disabled = was


def close(client: MilvusClient, path: Path | None) -> None:
    client.close()
    if path is not None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(str(path))


@contextmanager
def milvus_faults() -> Iterator[None]:
    """Turn what Milvus raises into a ``RetrieverFault``."""
    from grpc import RpcError  # pymilvus lets some through
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise RetrieverFault(f"Milvus: {error.message}") from error
    except RpcError as error:
        raise RetrieverFault(f"Milvus: {error.code().name}: {error.details()}") from error


def _is_locked(path: Path) -> bool:
    try:
        with (path / "LOCK").open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _complete(
    client: MilvusClient,
    name: str,
    spec: RetrievalSpec,
    texts: Sequence[str],
    digest: str,
    encoder: Encoder,
    show_progress: bool,
) -> int:
    """Make the collection if there is none and bring it to its end; return how many rows were added."""
    facts = {"hopforge.corpus": digest, "hopforge.encoder": encoder.digest, "hopforge.rows": str(len(texts))}
    if not client.has_collection(name):
        _create(client, name, encoder.dimension, facts)
    _ensure_index(client, name, spec)
    client.load_collection(name)  # a server counts the rows of a loaded collection only
    found = client.describe_collection(name).get("properties", {})
    differing = [key for key, value in facts.items() if found.get(key, value) != value]
    present = _count(client, name, "row >= 0")
    if differing or present > len(texts):
        raise UserError(
            f"collection {name} was not made from this corpus by this encoder (it differs in "
            f"{', '.join(differing) or f'rows: {present} against {len(texts)}'}); drop the collection to rebuild it"
        )
    if present and _count(client, name, f"row < {present}") != present:  # not the first rows: nobody's build
        raise UserError(f"collection {name} has gaps; drop the collection to rebuild it")
    if COMPLETE not in found:
        _fill(client, name, texts, present, encoder, show_progress)
        client.flush(name)  # Lite searches what is not flushed slowly
        client.alter_collection_properties(name, {COMPLETE: "true"})
    elif present < len(texts):
        raise UserError(
            f"collection {name} is marked as complete but has {present} of {len(texts)} rows; drop it to rebuild it"
        )
    return len(texts) - present


def _create(client: MilvusClient, name: str, dimension: int, facts: dict[str, str]) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
    client.create_collection(name, schema=schema, properties=facts, consistency_level="Strong")


def _count(client: MilvusClient, name: str, which: str) -> int:
    return int(client.query(name, filter=which, output_fields=["count(*)"])[0]["count(*)"])


def _fill(
    client: MilvusClient, name: str, texts: Sequence[str], present: int, encoder: Encoder, show_progress: bool
) -> None:
    from tqdm import tqdm

    if too_long := encoder.too_long(texts):
        log.warning(
            "%d of %d texts are longer than %s reads; their ends are not searched", too_long, len(texts), encoder.name
        )
    # tqdm, since it also tells a log file and the line under a running step how far it is.
    with tqdm(total=len(texts), initial=present, desc="index", unit="text", disable=not show_progress) as progress:
        for start in range(present, len(texts), CHUNK):
            part = texts[start : start + CHUNK]
            vectors = encoder.encode(part, kind="passage")
            client.upsert(name, [{"row": start + at, "vector": vector} for at, vector in enumerate(vectors)])
            progress.update(len(part))


def _ensure_index(client: MilvusClient, name: str, spec: RetrievalSpec) -> None:
    """Make the index, or make it again where the recipe asks for another than there is."""
    wanted = {"index_type": spec.index.type, "metric_type": spec.metric, **spec.index.params}
    if "vector" in client.list_indexes(name):
        found: dict[str, Any] = client.describe_index(name, "vector")
        found |= found.get("params") or {}
        if all(str(found.get(key)) == str(value) for key, value in wanted.items()):
            return
        if spec.backend == "server":  # others may be searching it
            raise UserError(
                f"collection {name} has another index than retrieval.index asks for ({found.get('index_type')}, "
                f"{found.get('params') or 'default parameters'}); ask for that one, or drop the index on the server"
            )
        client.release_collection(name)
        client.drop_index(name, "vector")
    params = client.prepare_index_params()
    # The parameters stand in a dictionary of their own: MilvusClient spreads the outer one, and Milvus
    # Lite passes over parameters that are spread; a server takes either.
    inner = {"params": dict(spec.index.params)} if spec.index.params else {}
    params.add_index("vector", index_name="vector", index_type=spec.index.type, metric_type=spec.metric, params=inner)
    client.create_index(name, params)


def _compare(vectors: Vectors, texts: Sequence[str], encoder: Encoder) -> None:
    """Raise UserError unless the encoder still gives the collection's first vector."""
    if not texts:
        return
    now, stored = encoder.encode(texts[:1], kind="passage")[0], vectors.fetch([0])[0]
    similarity = float(np.dot(now, stored))
    if not similarity > 0.999:
        raise UserError(
            f"collection {vectors.name} does not hold what {encoder.name} makes of the corpus (similarity "
            f"{similarity:.3f} in the first row): the encoder has changed; drop the collection to rebuild it"
        )
