"""``hopforge export``: a run's trained model, or its reasoning paths as chats for fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import say
from platform_sdk.errors import UserError
from platform_sdk.files import write_text
from platform_sdk.run_dir import RunDir

DESCRIPTIONS = {
    RunDir.manifest: "the run's manifest",
    "log-entries.jsonl": "the log's entries about the run",
    "checkpoint.json": "the log's checkpoint",
    "bom.cdx.json": "bill of materials (CycloneDX 1.7)",
    "provenance.json": "provenance (in-toto, SLSA)",
}


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run: its directory, its name in --folder, or its MLflow id; for chats also a folder "
            "with examples.jsonl.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The model directory to write; for chats, the JSONL file.")
    ],
    format: Annotated[
        Literal["model", "messages", "sharegpt"],
        typer.Option(help="model: the trained model; messages: chats for TRL, LLaMA-Factory; sharegpt: LLaMA-Factory."),
    ] = "model",
    style: Annotated[
        Literal["standard", "compact"] | None,
        typer.Option(
            help="Style of the chats' instructions (default: the run's agent.prompts; standard without a run)."
        ),
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="Export the model before training.")] = False,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help="Add manifest, log entries, checkpoint, bill of materials (CycloneDX), provenance (SLSA).",
        ),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="EC key (PEM) that signs the directory in the format of model-signing."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    altered: AlteredOption = False,
) -> None:
    """Write a run's model with its card, or its accepted reasoning paths as chats for supervised fine-tuning.

    The model directory can be loaded by transformers and vLLM; adapters are merged into their base model, and a policy
    of two models has a directory for each. Each line of the chats is one dialogue of a planner or executor.

    --audit and --key need the extra "audit". The command model_signing verifies the signature without hopforge.
    """
    from platform_sdk.outputs import check_output
    from platform_sdk.tracking.listing import find_run_dir
    from platform_sdk.tracking.opened import open_run, run_of

    if format != "model":
        if before:
            raise UserError("--before applies to the model only: remove it, or use --format model")
        if audit or key is not None:
            raise UserError("--audit and --key apply to the model only: remove them, or use --format model")
        from platform_sdk.methods.evipath.export import write_chats

        source = Path(run) if Path(run).exists() else find_run_dir(run, folder)
        run_dir = run_of(source)
        reports = () if run_dir is None else open_run(run_dir, altered=altered, full=True).altered
        warn(reports)
        say(f"{write_chats(source, output, format, style, altered=reports)} chats: {output}")
        return
    check_output(output, folders=True)
    if style is not None:
        raise UserError("--style applies to chats only: remove it, or use --format messages or sharegpt")
    trained = find_run_dir(run, folder)

    from platform_sdk.methods.finished import open_finished
    from platform_sdk.methods.model_export import export_model

    if altered and (audit or key is not None):
        raise UserError("--altered excludes --audit and --key: an altered run is neither audited nor signed")
    if key is not None:
        from platform_sdk.methods.model_signature import check_signing_key

        check_signing_key(key)
    finished = open_finished(trained, before=before, altered=altered, full=True)
    warn(finished.opened.altered)
    texts = {}
    if audit:
        from platform_sdk.lineage.extra import require_audit_packages
        from platform_sdk.methods.audit_export import log_files, run_files

        require_audit_packages()
        texts = log_files(finished)
    for written in export_model(finished, output):
        say(f"{written}: a model for transformers and vLLM")
    say(f"{output / 'README.md'}: its model card")
    if audit:
        texts |= run_files(finished, output)
    for name, text in texts.items():
        write_text(output / name, text)
        say(f"{output / name}: {DESCRIPTIONS[name]}")
    if key is not None:
        from platform_sdk.methods.model_signature import SIGNATURE, sign_directory

        sign_directory(output, key)
        say(f"{output / SIGNATURE}: signature of the directory; model_signing verify key checks it")
