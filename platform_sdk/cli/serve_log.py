"""``hopforge serve log``: the service of the project's log."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.config.errors import UserError


def serve_log(
    path: Annotated[Path, typer.Option("--file", metavar="FILE", help="The log; created if missing.")],
    tokens: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory with a file per team that contains its bearer token, e.g. a mounted Secret."
        ),
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="EC key that signs checkpoints (PEM, without a passphrase).")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8080,
    rate: Annotated[float, typer.Option(min=0.001, help="Entries per second of each team, on average.")] = 10.0,
    burst: Annotated[int, typer.Option(min=1, help="Entries of a team at once.")] = 100,
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="S3-URL",
            help="Also put checkpoints into s3://BUCKET/PREFIX, a bucket with retention (needs the extra cluster).",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS: the certificate with its chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM, without a passphrase).")
    ] = None,
) -> None:
    """Serve the log of runs and approvals over HTTP; HOPFORGE_LOG names it for runs.

    Entries are only appended, and answered when they are on the disk. Keep one service for each log.
    """
    if (tls_cert is None) != (tls_key is None):
        raise UserError("--tls-cert and --tls-key belong together: add both")
    from platform_sdk.log_service.app import create_app
    from platform_sdk.log_service.bucket import Bucket, CheckpointCopies
    from platform_sdk.log_service.rate import Rate
    from platform_sdk.log_service.server import LogServer
    from platform_sdk.retrieval.service.tls import Certificate
    from platform_sdk.retrieval.service.tokens import Tokens
    from platform_sdk.tracking.log.chain import Log
    from platform_sdk.tracking.log.keys import SigningKey

    log, signing = Log(path), SigningKey(key)
    copies = CheckpointCopies(log, signing, Bucket(bucket)) if bucket else None
    app = create_app(log, Tokens(tokens), signing, Rate(rate, burst), copies.notify if copies else lambda: None)
    certificate = Certificate(tls_cert, tls_key) if tls_cert and tls_key else None
    server = LogServer(app, bind=host, port=port, certificate=certificate)
    with copies or nullcontext():
        server.run()
