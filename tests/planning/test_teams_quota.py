"""Verdicts on jobs in the rendered queues of random teams, compared with counting GPUs by the teams file."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from platform_sdk.config.cluster import bytes_of
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.planning.jobs import PlannedJob
from platform_sdk.planning.quota import Queues, fit
from platform_sdk.teams.queues import amounts_of, cluster_queue
from tests.teams.files import contents

Used = dict[str, dict[str, int]]  # GPUs that the jobs of a team hold, by pool


class Kueue:
    """Admission by the teams file: each pool is a stock of GPUs, of which a team keeps some and lends the others."""

    def __init__(self, content: dict[str, Any], used: Used) -> None:
        self.teams, self.pools, self.used = content["teams"], content["pools"], used

    def admits(self, team: str, requests: dict[str, float], *, ever: bool) -> bool:
        """Return whether a job is admitted now; or, with ``ever``, if no other job runs."""
        return any(self._in_pool(team, pool, requests, ever) for pool in self.teams[team]["gpus"])

    def _in_pool(self, team: str, pool: str, requests: dict[str, float], ever: bool) -> bool:
        own = self.pools[pool]
        one = {"cpu": own["per_gpu"]["cpu"], "memory": bytes_of(own["per_gpu"]["memory"]), own["resource"]: 1}
        if not {name for name, amount in requests.items() if amount} <= one.keys():
            return False
        wanted = max(amount / one[name] for name, amount in requests.items())
        holds = {name: 0 if ever else self.used[name].get(pool, 0) for name in self.teams}
        shares = {name: other["gpus"][pool] for name, other in self.teams.items() if pool in other["gpus"]}
        keeps = {name: share["nominal"] - share["lend"] for name, share in shares.items()}
        stock = sum(share["lend"] for share in shares.values()) - sum(max(0, holds[n] - keeps[n]) for n in shares)
        mine = shares[team]
        return wanted <= min(
            mine["nominal"] + mine["borrow"] - holds[team], max(0, keeps[team] - holds[team]) + stock
        )  # fmt: skip


@st.composite
def busy_teams(draw: st.DrawFn) -> tuple[dict[str, Any], Used]:
    """Return a teams file's content, and jobs that Kueue admitted one after the other."""
    content = draw(contents())
    used: Used = {name: {} for name in content["teams"]}
    for _ in range(draw(st.integers(0, 8))):
        team = draw(st.sampled_from(sorted(used)))
        pool = draw(st.sampled_from(sorted(content["teams"][team]["gpus"])))
        own, gpus = content["pools"][pool], draw(st.integers(1, 6))
        # Counted in one pool only: the job names its nodes.
        alone = {**content, "teams": {n: {**t, "gpus": {pool: t["gpus"][pool]}} for n, t in content["teams"].items()
                                      if pool in t["gpus"]}}  # fmt: skip
        if Kueue(alone, used).admits(team, {own["resource"]: float(gpus)}, ever=False):
            used[team][pool] = used[team].get(pool, 0) + gpus
    return content, used


@settings(max_examples=150, deadline=None)
@given(busy_teams(), st.integers(1, 10), st.integers(1, 2), st.data())
def test_never_is_never_admitted_and_now_is_admitted_at_once(
    busy: tuple[dict[str, Any], Used], gpus: int, pods: int, data: st.DataObject
) -> None:
    content, used = busy
    spec = TeamsSpec.model_validate(content)
    team = data.draw(st.sampled_from(sorted(spec.teams)))
    pool = spec.pools[spec.teams[team].job.pool]
    requests = {name: bytes_of(amount) for name, amount in amounts_of(pool, gpus).items()}
    job = PlannedJob(step="online", name="j", kind="TrainJob", pods=pods, requests=requests, gpus=gpus, queue="default",
                     priority=None)  # fmt: skip
    queues = tuple(_busy(cluster_queue(name, spec.teams[name], spec), used[name], spec) for name in sorted(spec.teams))
    own = next(queue for queue in queues if queue["metadata"]["name"] == team)
    verdict = fit(job, Queues(own, queues)).verdict
    kueue, whole = Kueue(content, used), {name: pods * amount for name, amount in requests.items()}
    now, ever = (kueue.admits(team, whole, ever=ever) for ever in (False, True))
    expected = "now" if now else "waits" if ever else "never"
    event(expected)
    assert verdict == expected


def _busy(queue: dict[str, Any], used: dict[str, int], spec: TeamsSpec) -> dict[str, Any]:
    """Return a rendered queue with the totals of its jobs, as Kueue writes them."""
    reserved = [
        {
            "name": pool,
            "resources": [
                {"name": name, "total": amount, "borrowed": "0"}
                for name, amount in amounts_of(spec.pools[pool], count).items()
            ],
        }
        for pool, count in used.items()
    ]
    return queue | {"status": {"flavorsReservation": reserved}}
