"""Vectors in a Milvus collection: built once, resumed after a kill, searched in batches.

A collection holds one vector per row of a corpus under the row's number; its name has the digests of corpus and
encoder, so the row number identifies the text. Rows are written in order, so a killed build resumes at the number of
stored rows; they are written by key, so writing a row twice is harmless. After all rows are flushed the collection is
marked as complete.

Milvus returns candidates, except for Milvus Lite with a FLAT index: searching its vectors in memory here is much
faster. Scores are computed here row by row, since in a matrix product their last bits depend on the batch. Results are
ranked by this exact score, then by row.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval.connection import close, connect, lite_path, milvus_faults
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.encoding import encode_chunks
from platform_sdk.retrieval.patience import Patience
from platform_sdk.retrieval.vector_cache import DIGITS, VectorCache
from platform_sdk.sampling.rollout import RetrieverFault

if TYPE_CHECKING:
    from pymilvus import MilvusClient

log = logging.getLogger(__name__)

QUERIES = 256  # per search call: with candidates about 8 MB, below gRPC's limit
FETCH = 4096  # rows per fetch
SPARE = 16  # candidates beyond k, so that exact scores decide the last places
CLOSE = 1e-5  # Milvus may order scores closer than this wrongly
COMPLETE = "hopforge.complete"
MAX_CANDIDATES = 16_384  # limit of a Milvus server for one query
CALL_SECONDS = 60.0  # timeout after which a server counts as unavailable
NOT_LOADED = 101  # Milvus's error code

Hit = tuple[int, float]
# Called before each chunk of a build with the number of stored rows and of all rows. An exception stops the build; the
# next opening resumes it.
Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Vectors:
    """A complete collection, open for searching. ``encoded`` rows were added by this opening.

    Calls to a Milvus server are retried for up to the recipe's ``patience_seconds``; each call times out after
    ``call_seconds``.
    """

    client: MilvusClient
    name: str
    rows: int
    encoded: int
    spec: RetrievalSpec
    path: Path | None
    call_seconds: float = CALL_SECONDS

    @cached_property
    def cache(self) -> VectorCache:
        """Cache of vectors read by row."""
        return VectorCache(self.rows, self.fetch)

    def nearest(self, queries: np.ndarray, k: int, places: np.ndarray | None = None) -> list[list[Hit]]:
        """Return the ``k`` rows of highest cosine similarity for each query, as (row, score), best first.

        Args:
            queries: unit vectors of shape (n, dimension).
            places: the place of each row in the order that breaks ties; by default the row.

        Raises:
            RetrieverFault: Milvus failed.
            UserError: a server stayed unavailable.
        """
        results: list[list[Hit]] = [[] for _ in queries]
        waiting = list(range(len(queries)))
        limit = k + SPARE
        while waiting and k > 0 and self.rows:
            limit = min(limit, self.rows, MAX_CANDIDATES)
            again = []
            for start in range(0, len(waiting), QUERIES):
                batch = waiting[start : start + QUERIES]
                for at, found in zip(batch, self._candidates(queries[batch], limit), strict=True):
                    rows, vectors = found
                    ranked = rank(queries[at], rows, vectors, places)
                    results[at] = ranked[:k]
                    # The last candidate ties with the k-th, so equally good hits may have been cut off.
                    if (
                        len(ranked) == limit < min(self.rows, MAX_CANDIDATES)
                        and ranked[k - 1][1] - ranked[-1][1] < CLOSE
                    ):
                        again.append(at)
            waiting, limit = again, 4 * limit
        return results

    def nearest_among(self, queries: np.ndarray, rows: Sequence[Sequence[int]], k: int) -> list[list[Hit]]:
        """Return the ``k`` nearest of each query's ``rows``; see ``nearest``. Their vectors are fetched once."""
        return [
            rank(query, own, self.cache.vectors(own))[:k] if len(own) else []
            for query, own in zip(queries, rows, strict=True)
        ]

    def fetch(self, rows: Sequence[int]) -> np.ndarray:
        """Return the stored vectors of ``rows``, of shape (len(rows), dimension).

        Raises:
            RetrieverFault: Milvus failed, or a row is missing.
            UserError: a server stayed unavailable.
        """
        found: dict[int, list[float]] = {}
        wanted = sorted(set(rows))
        for start in range(0, len(wanted), FETCH):
            part = wanted[start : start + FETCH]
            fields = ["row", "vector"]
            get = partial(self.client.get, self.name, ids=part, output_fields=fields, timeout=self.call_seconds)
            found |= {hit["row"]: hit["vector"] for hit in self._asked(get)}
        if len(found) != len(wanted):
            raise RetrieverFault(f"collection {self.name}: {len(wanted) - len(found)} rows are missing")
        return np.array([found[row] for row in rows], dtype=np.float32)

    def warm(self) -> None:
        """Fetch the data that the first search needs.

        Raises:
            RetrieverFault: Milvus failed.
        """
        self.fetch([0])
        if self._is_in_memory:
            self.cache.fetch_all()

    @property
    def _is_in_memory(self) -> bool:
        """True if vectors are compared here, since Milvus Lite would also compare all of them."""
        return self.path is not None and self.spec.index.type == "FLAT"

    def close(self) -> None:
        """Close the connection; a Milvus Lite file is then free for another process."""
        close(self.client, self.path)

    def _candidates(self, queries: np.ndarray, limit: int) -> Iterator[tuple[Sequence[int], np.ndarray]]:
        if self._is_in_memory:
            for rows in self.cache.nearest(queries, limit):
                yield rows.tolist(), self.cache.vectors(rows)
            return
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
            timeout=self.call_seconds,
        )
        for hits in self._asked(ask):
            yield [hit["row"] for hit in hits], np.array([hit["entity"]["vector"] for hit in hits], dtype=np.float32)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return Milvus' response, after retries."""
        from pymilvus.exceptions import MilvusException

        # Milvus Lite runs in this process: a retry would fail again.
        patience = Patience("Milvus", self.spec.patience_seconds if self.path is None else 0)
        while True:
            try:
                with milvus_faults():
                    try:
                        return ask()
                    except MilvusException as error:
                        if error.code != NOT_LOADED:
                            raise
                        # The server has restarted.
                        self.client.load_collection(self.name, timeout=self.call_seconds)
                        return ask()
            except RetrieverFault as fault:
                patience.wait(str(fault).removeprefix("Milvus: "))


def rank(query: np.ndarray, rows: Sequence[int], vectors: np.ndarray, places: np.ndarray | None = None) -> list[Hit]:
    """Return ``rows`` with their cosine similarity to ``query``, best first; ties by row, or by ``places[row]``."""
    if not len(rows):
        return []
    # No matrix product: this sums each row separately, so other rows cannot change its last bits.
    scores = np.round(np.sum(vectors.astype(np.float64) * query.astype(np.float64), axis=1), DIGITS)
    ties = np.asarray(rows) if places is None else places[rows]
    order = np.lexsort((ties, -scores))
    return [(int(rows[place]), float(scores[place])) for place in order]


def open_vectors(
    spec: RetrievalSpec,
    directory: Path,
    texts: Sequence[str],
    *,
    collection: str,
    digest: str,
    encoder: Encoder,
    show_progress: bool = True,
    watch: Watch = lambda done, rows: None,
    call_seconds: float = CALL_SECONDS,
) -> Vectors:
    """Open the collection of ``texts``; build or complete it first if needed.

    Args:
        directory: directory of the Milvus Lite file if the recipe gives no uri.
        collection: kind of the texts; the first part of the name of the Milvus collection.
        digest: the digest of ``texts``' source.
        watch: called with the progress of a build.
        call_seconds: timeout of a search call to a server.

    Raises:
        UserError: the Lite file is in use by another process, the server cannot be reached, or the collection's content
            does not match its name.
    """
    path = lite_path(spec, directory)
    client = connect(spec, path)
    name = f"{collection}_{digest[:16]}_{encoder.digest[:16]}"
    try:
        if path is not None:
            _remove_half_created(path / "collections" / name)
        with milvus_faults():
            encoded = _complete(client, name, spec, texts, digest, encoder, show_progress, watch)
        vectors = Vectors(client, name, len(texts), encoded, spec, path, call_seconds)
        _compare(vectors, texts, encoder)
    except BaseException as error:
        close(client, path)
        if path is not None and str(error).startswith(("Milvus: ", "collection ")):  # not the encoder's
            raise UserError(f"{path}: {error}. If the file was damaged, delete it and repeat the command") from error
        raise
    return vectors


def _remove_half_created(folder: Path) -> None:
    """Remove a Milvus Lite collection that lacks a schema since its creation was killed: Lite cannot open it."""
    if folder.is_dir() and not (folder / "schema.json").exists():
        shutil.rmtree(folder)


def _complete(
    client: MilvusClient,
    name: str,
    spec: RetrievalSpec,
    texts: Sequence[str],
    digest: str,
    encoder: Encoder,
    show_progress: bool,
    watch: Watch,
) -> int:
    """Create the collection if absent and complete it; return the number of added rows."""
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
    if present and _count(client, name, f"row < {present}") != present:  # not the first rows
        raise UserError(f"collection {name} has gaps; drop the collection to rebuild it")
    if COMPLETE not in found:
        _fill(client, name, spec, texts, present, encoder, show_progress, watch)
        client.flush(name)  # Lite searches unflushed rows slowly
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
    client: MilvusClient, name: str, spec: RetrievalSpec, texts: Sequence[str], present: int, encoder: Encoder,
    show_progress: bool, watch: Watch,
) -> None:  # fmt: skip
    from tqdm import tqdm

    too_long = 0
    # tqdm also reports progress to a log file and to the line below a running step.
    with tqdm(total=len(texts), initial=present, desc="index", unit="text", disable=not show_progress) as progress:
        watch(present, len(texts))
        for chunk in encode_chunks(spec, encoder, texts, present):  # by chunk, so that a build can be interrupted
            rows = [{"row": chunk.start + at, "vector": vector} for at, vector in enumerate(chunk.vectors)]
            client.upsert(name, rows)
            too_long += chunk.too_long
            watch(chunk.start + len(rows), len(texts))
            progress.update(len(rows))
    if too_long:
        log.warning(
            "%d of %d texts are longer than %s reads; their ends are not searched",
            too_long, len(texts) - present, encoder.name,
        )  # fmt: skip


def _ensure_index(client: MilvusClient, name: str, spec: RetrievalSpec) -> None:
    """Create the index, or replace it if the recipe requests a different index."""
    wanted = {"index_type": spec.index.type, "metric_type": spec.metric, **spec.index.params}
    if "vector" in client.list_indexes(name):
        found: dict[str, Any] = client.describe_index(name, "vector")
        found |= found.get("params") or {}
        # lower(): a server answers "true" for True.
        if all(str(found.get(key)).lower() == str(value).lower() for key, value in wanted.items()):
            return
        if spec.backend == "server":  # others may be searching it
            raise UserError(
                f"collection {name} has another index than retrieval.index ({found.get('index_type')}, "
                f"{found.get('params') or 'default parameters'}); set retrieval.index to that index, or drop it on the "
                "server"
            )
        client.release_collection(name)
        client.drop_index(name, "vector")
    params = client.prepare_index_params()
    # A nested dictionary: MilvusClient spreads the outer one, and Milvus Lite ignores spread parameters; a server
    # accepts both.
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
            f"collection {vectors.name} does not match the vectors of {encoder.name} for the corpus (similarity "
            f"{similarity:.3f} in the first row): the encoder has changed; drop the collection to rebuild it"
        )
