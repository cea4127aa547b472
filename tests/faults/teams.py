"""Deliberate faults of what keeps teams apart: rendered rights, quotas and policies, and the checks before a run."""

from __future__ import annotations

from tests.faults.catalogue import Fault

RENDERED = "teams/test_render.py"

TEAM_FAULTS = (
    # Rendered
    Fault(
        "a queue takes other namespaces' jobs", "teams/queues.py",
        '{"matchLabels": {"kubernetes.io/metadata.name": name}}', "{}", RENDERED,
    ),
    Fault("nobody gives back what was borrowed", "teams/queues.py", '"Any"', '"Never"', RENDERED),
    Fault("auditors may change", "teams/people.py", 'sorted(spec.auditors), "view")', 'sorted(spec.auditors), "edit")',
          RENDERED),
    Fault("any pod may name a user", "teams/people.py", '"principals": [GATEWAY, PIPELINES_UI]',
          '"principals": [GATEWAY, PIPELINES_UI, *(f"cluster.local/ns/{t}/sa/default-editor" for t in "abcdefn")]',
          RENDERED),
    Fault("all teams' jobs are everybody's to read", "teams/people.py", '["clusterqueues", "cohorts",',
          '["workloads", "clusterqueues", "cohorts",', RENDERED),
    Fault("members change records of runs", "teams/mlflow.py", '"mlflow-readers": ["get", "list"]',
          '"mlflow-readers": ["get", "list", "update"]', RENDERED),
    Fault("a collection without teams", "teams/render.py", "for name, teams in listed.items() if teams",
          "for name, teams in listed.items()", RENDERED),
    Fault("the internet is open", "teams/render.py", "    if team.internet:\n", "    if True:\n", RENDERED),
    Fault("no policy holds in a team's namespace", "teams/render.py", '{"hopforge.dev/runs": "true", **level}',
          "{**level}", RENDERED),
    Fault("another namespace's account launches", "teams/render.py",
          '{"op": "replace", "path": "/subjects/1/namespace", "value": name}',
          '{"op": "replace", "path": "/subjects/1/namespace", "value": "hopforge"}', RENDERED),
    Fault("GPUs of other makers are free", "teams/render.py",
          '{pool.resource for pool in spec.pools.values()} - {"cpu"} | {"nvidia.com/gpu"}', '{"nvidia.com/gpu"}',
          RENDERED),
    Fault("Profiles are pruned", "teams/render.py", '"metadata": {"name": name, "annotations": KEPT},',
          '"metadata": {"name": name},', RENDERED),
    Fault("the quota forbids borrowing", "teams/jobs.py", "team.gpus[pool].nominal + team.gpus[pool].borrow",
          "team.gpus[pool].nominal", RENDERED),
    Fault("runs log into the shared workspace", "teams/jobs.py", '{"MLFLOW_WORKSPACE": name}', "{}", RENDERED),
    Fault("order of the file matters", "teams/render.py", "    names = sorted(spec.teams)\n    files |= {",
          "    names = list(spec.teams)\n    files |= {", RENDERED),
    # MLflow's users
    Fault("auditors of MLflow may edit", "base/services/mlflow/teams.py", '("experiment", "*", "READ")',
          '("experiment", "*", "EDIT")', "kubeflow/test_mlflow_workspaces.py", folder="manifests"),
    # Before and after a run
    Fault("submit takes what can never fit", "cli/remote.py", "    if planned.problems:\n", "    if False:\n",
          "cli/test_remote_commands.py"),
    Fault("borrowing is no part of a queue's capacity", "planning/quota.py",
          "    capacity = guaranteed + quota\n", "    capacity = nominal\n", "planning/test_quota.py"),
    Fault("the process that lost its peer is the cause", "diagnosis/step_rules.py",
          "sorted(failed(facts), key=lambda source: _is_consequence(source))", "failed(facts)", "diagnosis"),
    Fault("who lends is known too well", "teams/status.py", "(min(most, max(0, borrowed - others)), most)",
          "(most, most)", "teams/test_cluster.py"),
)  # fmt: skip
