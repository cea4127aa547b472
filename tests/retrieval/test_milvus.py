"""Collections in a real Milvus Lite, with numpy over all vectors as the oracle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import IndexSpec, RetrievalSpec
from platform_sdk.retrieval import connection, encoding
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.milvus import Hit, Vectors, open_vectors, rank
from platform_sdk.sampling.rollout import RetrieverFault
from tests.process_watch import wait_for
from tests.refusals import refused

DIGEST = "c0ffee" * 10 + "c0ff"


class Dots(Encoder):
    """Unit vectors drawn from the text's hash: any number of them at no cost."""

    def __init__(self, digest: str = "d07" * 21 + "d", turned: bool = False) -> None:
        super().__init__("dots", "", "")
        self.digest, self.dimension, self.texts, self.turned = digest, 16, 0, turned

    def _embed(self, texts: list[str]) -> np.ndarray:
        self.texts += len(texts)
        drawn = [np.random.default_rng([*text.encode()]).normal(size=self.dimension) for text in texts]
        vectors = np.array(drawn, dtype=np.float32) * (-1 if self.turned else 1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def build(
    directory: Path, texts: list[str], encoder: Encoder, spec: RetrievalSpec | None = None, digest: str = DIGEST
) -> Vectors:
    return open_vectors(
        spec or RetrievalSpec(),
        directory,
        texts,
        collection="passages",
        digest=digest,
        encoder=encoder,
        show_progress=False,
    )


def test_lite_file_in_an_unknown_home_directory_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^retrieval\.uri: ~nosuchuser/x\.db: there is no such home directory; give a "
    ):
        build(tmp_path, ["a"], Dots(), RetrievalSpec(uri="~nosuchuser/x.db"))


def brute_force(query: np.ndarray, vectors: np.ndarray, k: int) -> list[Hit]:
    scores = [round(float(np.dot(vector.astype(np.float64), query.astype(np.float64))), 6) for vector in vectors]
    return sorted(enumerate(scores), key=lambda hit: (-hit[1], hit[0]))[:k]


@pytest.mark.parametrize("metric", ["COSINE", "IP", "L2"])
def test_an_exact_index_gives_what_brute_force_gives(
    tmp_path: Path, encoder: Encoder, sentences: list[str], metric: str
) -> None:
    spec = RetrievalSpec.model_validate({"metric": metric})
    vectors = build(tmp_path, sentences, encoder, spec)
    stored = encoder.encode(sentences, kind="passage")
    queries = encoder.encode(["Who was born in Lima?", "Is Cora Lund a pilot?", "painters of Kyoto"], kind="query")
    assert vectors.nearest(queries, 7) == [brute_force(query, stored, 7) for query in queries]
    assert np.array_equal(vectors.fetch([5, 99, 5, 0]), stored[[5, 99, 5, 0]])
    vectors.close()


@pytest.mark.parametrize(
    "index",
    [
        IndexSpec(type="HNSW", params={"M": 8, "efConstruction": 64}, search={"ef": 32}),
        IndexSpec(type="HNSW_SQ"),
        IndexSpec(type="IVF_FLAT", params={"nlist": 4}, search={"nprobe": 4}),
        IndexSpec(type="IVF_SQ8", params={"nlist": 4}, search={"nprobe": 4}),
    ],
    ids=lambda index: index.type,
)
def test_approximate_indexes_find_exact_results_on_small_data(tmp_path: Path, index: IndexSpec) -> None:
    texts, encoder = [f"text {number}" for number in range(300)], Dots()
    vectors = build(tmp_path, texts, encoder, RetrievalSpec(index=index))
    queries, stored = encoder.encode(["one", "two"], kind="query"), encoder.encode(texts, kind="passage")
    assert vectors.nearest(queries, 5) == [brute_force(query, stored, 5) for query in queries]
    described = vectors.client.describe_index(vectors.name, "vector")
    assert described["index_type"] == index.type
    assert described.get("params", {}) == index.params
    vectors.close()


def test_equal_texts_tie_and_the_first_rows_win_even_if_they_fill_the_spare_places(tmp_path: Path) -> None:
    texts, encoder = ["other"] + ["same"] * 200 + ["another"], Dots()
    vectors = build(tmp_path, texts, encoder)
    [hits] = vectors.nearest(encoder.encode(["same"], kind="query"), 5)
    assert [row for row, _ in hits] == [1, 2, 3, 4, 5]
    assert {score for _, score in hits} == {1.0}
    [everything] = vectors.nearest(encoder.encode(["same"], kind="query"), 500)
    assert len(everything) == 202
    vectors.close()


def test_search_results_do_not_depend_on_the_batch(tmp_path: Path, encoder: Encoder, sentences: list[str]) -> None:
    vectors = build(tmp_path, sentences, encoder)
    queries = encoder.encode([f"Where was {text.split(' is ')[0]} born, no {at}?" for at, text in enumerate(sentences)],
                             kind="query")  # fmt: skip
    alone = [vectors.nearest(query[None], 5)[0] for query in queries]
    order = np.random.default_rng(1).permutation(len(queries))
    assert vectors.nearest(queries[order], 5) == [alone[at] for at in order]
    vectors.close()


def test_scores_do_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(200, 384)).astype(np.float32)
    query = rng.normal(size=384).astype(np.float32)
    together = dict(rank(query, list(range(200)), vectors))
    assert all(rank(query, [row], vectors[row : row + 1]) == [(row, together[row])] for row in range(200))
    assert rank(query, [], vectors[:0]) == []


def test_a_collection_is_built_once(tmp_path: Path) -> None:
    texts, encoder = [f"text {number}" for number in range(700)], Dots()
    first = build(tmp_path, texts, encoder)
    assert (first.rows, first.encoded) == (700, 700)
    assert first.name == f"passages_{DIGEST[:16]}_{encoder.digest[:16]}"
    first.close()
    again = Dots()
    second = build(tmp_path, texts, again)
    assert second.encoded == 0
    assert again.texts == 1
    second.close()
    other = build(tmp_path, texts, Dots(digest="0" * 64))
    assert other.encoded == 700
    assert sorted(other.client.list_collections()) == sorted([first.name, other.name])
    other.close()


def test_index_type_change_reuses_the_stored_vectors(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(50)]
    build(tmp_path, texts, Dots()).close()
    again = Dots()
    hnsw = build(tmp_path, texts, again, RetrievalSpec(index=IndexSpec(type="HNSW")))
    assert hnsw.client.describe_index(hnsw.name, "vector")["index_type"] == "HNSW"
    assert again.texts == 1
    hnsw.close()


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_milvus
from platform_sdk.retrieval import connection, encoding, milvus
encoding.CHUNK = 64
class Slow(test_milvus.Dots):
    def _embed(self, texts):
        print("encoding", flush=True)
        time.sleep(0.02)
        return super()._embed(texts)
test_milvus.build(Path(sys.argv[1]), [f"text {n}" for n in range(2000)], Slow())
print("done", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("chunks", [1, 4, 13, 33])
def test_a_killed_build_is_finished_with_what_an_undisturbed_one_has(tmp_path: Path, chunks: int) -> None:
    """Killed while the n-th chunk is encoded or written; with 33, after all rows and before or behind the mark."""
    texts = [f"text {n}" for n in range(2000)]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(Path(__file__).parent)],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(chunks):
        assert process.stdout.readline() in ("encoding\n", "done\n")
    time.sleep(0.03)
    process.send_signal(signal.SIGKILL)
    process.wait()
    encoder = Dots()
    finished = build(tmp_path / "killed", texts, encoder)
    whole = build(tmp_path / "whole", texts, Dots())
    assert finished.encoded <= 2000 - 64 * (chunks - 2)
    if chunks > 4:
        assert finished.encoded < 2000
    rows = list(range(2000))
    assert np.array_equal(finished.fetch(rows), whole.fetch(rows))
    queries = encoder.encode(["a", "b", "c"], kind="query")
    assert finished.nearest(queries, 9) == whole.nearest(queries, 9)
    finished.close()
    whole.close()


HOLDER = """
import sys
from pymilvus import MilvusClient
MilvusClient(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_file_in_use_by_another_process_is_waited_for_and_then_a_clear_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_PAUSE", 0.01)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "milvus.db")],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with ThreadPoolExecutor(1) as aside:
        try:
            with refused("retrieval.index-in-use"):
                build(tmp_path, ["text"], Dots(), RetrievalSpec(patience_seconds=0))
            assert "waiting up to" not in caplog.text
            waiting = aside.submit(build, tmp_path, ["text"], Dots())
            wait_for(lambda: "waiting up to 600 s for it to end" in caplog.text)
            assert f"milvus.db is in use by process {holder.pid} ({sys.executable} -c" in caplog.text
            assert not waiting.done()
        finally:
            holder.communicate("")
        waiting.result().close()


class UnavailableEncoder(Dots):
    """An encoder that fails at the passages."""

    def _embed(self, texts: list[str]) -> np.ndarray:
        raise RetrieverFault("the endpoint is unavailable")


def test_encoder_failure_during_a_build_leaves_the_file_to_others(tmp_path: Path) -> None:
    encoder = Dots()
    first, second = build(tmp_path, ["a", "b"], encoder), build(tmp_path, ["c"], Dots(digest="0" * 64))
    with pytest.raises(RetrieverFault, match="the endpoint is unavailable"):
        build(tmp_path, ["d"], UnavailableEncoder(digest="1" * 64))
    second.close()
    assert first.nearest(encoder.encode(["b"], kind="query"), 1) == [[(1, 1.0)]]
    first.close()
    subprocess.run([sys.executable, "-c", HOLDER, str(tmp_path / "milvus.db")], check=True, stdin=subprocess.DEVNULL)


def test_interrupted_build_ends_before_the_next_chunk_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 10)
    texts, watched = [f"text {n}" for n in range(35)], []

    def watch(done: int, rows: int) -> None:
        watched.append((done, rows))
        if done == 20:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        open_vectors(
            RetrievalSpec(), tmp_path, texts, collection="passages", digest=DIGEST, encoder=Dots(), show_progress=False,
            watch=watch,
        )  # fmt: skip
    assert watched == [(0, 35), (10, 35), (20, 35)]
    rest = build(tmp_path, texts, Dots())
    assert rest.encoded == 15
    rest.close()


def test_a_collection_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(20)]
    first = build(tmp_path / "undisturbed", texts, Dots())
    first.close()
    half = tmp_path / "killed" / "milvus.db" / "collections" / first.name
    half.mkdir(parents=True)
    (half / "schema.json.tmp").write_text("{")
    again = build(tmp_path / "killed", texts, Dots())
    assert again.encoded == 20
    again.close()


def test_collection_of_another_corpus_is_refused(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(20)]
    build(tmp_path, texts, Dots()).close()
    with pytest.raises(UserError, match=r"was not made from this corpus.*hopforge.rows"):
        build(tmp_path, texts[:10], Dots())
    with pytest.raises(UserError, match=r"was not made from this corpus.*hopforge.corpus"):
        build(tmp_path, texts, Dots(), digest=DIGEST[:16] + "0" * 48)
    with pytest.raises(UserError, match="the encoder has changed"):
        build(tmp_path, texts, Dots(turned=True))


def test_missing_rows_are_a_fault_and_refused_at_the_next_build(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(20)]
    vectors = build(tmp_path, texts, Dots())
    vectors.client.delete(vectors.name, ids=[3])
    with pytest.raises(RetrieverFault, match="1 rows are missing"):
        vectors.fetch([2, 3])
    vectors.close()
    with pytest.raises(UserError, match="has gaps"):
        build(tmp_path, texts, Dots())


def test_milvus_error_becomes_a_retriever_fault(tmp_path: Path) -> None:
    encoder = Dots()
    vectors = build(tmp_path, ["text"], encoder)
    vectors.client.drop_collection(vectors.name)
    with pytest.raises(RetrieverFault, match="Milvus: "):
        vectors.nearest(encoder.encode(["a"], kind="query"), 1)
    vectors.close()


def test_unreachable_milvus_is_reported_without_its_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    with pytest.raises(UserError, match=r"Milvus at http://127.0.0.1:1 cannot be reached") as error:
        connection.connect(RetrievalSpec(uri="http://127.0.0.1:1"), None)
    assert "secret" not in str(error.value)
