"""``hopforge serve``: services for training runs."""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.application import Application
from platform_sdk.cli.run import SetOption
from platform_sdk.cli.search import prepared_run, retrieval_method
from platform_sdk.cli.serve_log import serve_log
from platform_sdk.config.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.config.service import ServiceSpec


serve = Application(help="Serve retrieval and the log to runs.", no_args_is_help=True)
serve.command("log")(serve_log)


@serve.command("retriever")
def retriever(
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="RECIPE", help="Serve the corpus of this recipe.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve the collections of this file (YAML) instead.")
    ] = None,
    overrides: SetOption = None,
    workdir: Annotated[
        Path | None, typer.Option(help="Directory of the recipe's data and index, created if missing.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory with a file per team that contains its bearer token, e.g. a mounted Secret."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8080,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS: the certificate with its chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM, without a passphrase).")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of the Prometheus metrics, which include names of collections and teams."
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Listen address of the metrics.")] = "127.0.0.1",
    drain: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Time after SIGTERM in which searches are still accepted.",
        ),
    ] = 0.0,
) -> None:
    """Serve searches over HTTP until terminated; recipes set its address in retrieval.url.

    A terminated service answers waiting requests first. A renewed certificate is loaded without a restart.
    """
    if (recipe is None) == (config is None):
        raise UserError("add either --recipe RECIPE or --config FILE")
    if config is not None and (overrides or workdir):
        raise UserError("--set and --workdir change a recipe, but --config names a file; remove them, or use --recipe")
    if tokens is None and not _loopback(host):
        raise UserError(
            f"listening on {host} without --tokens would let anyone search: add --tokens DIR, or --host 127.0.0.1",
            code="serve.no-tokens",
        )
    if (tls_cert is None) != (tls_key is None):
        raise UserError("--tls-cert and --tls-key belong together: add both")
    _require_free(host, port)
    if metrics_port is not None:
        _require_free(metrics_host, metrics_port)
        if metrics_port == port != 0:
            raise UserError(f"--port and --metrics-port are both {port}; choose two ports", code="serve.port-in-use")
    from platform_sdk.config.document import read_as
    from platform_sdk.config.service import ServiceSpec
    from platform_sdk.retrieval.service.tls import Certificate

    certificate = Certificate(tls_cert, tls_key) if tls_cert and tls_key else None
    if certificate is not None:
        certificate.check()
    spec = of_recipe(recipe, overrides or [], workdir) if config is None else read_as(ServiceSpec, config)
    closed = [collection.name for collection in spec.collections if collection.teams]
    if tokens is None and closed:
        raise UserError(
            f"without --tokens, nobody can search {', '.join(closed)}, whose teams are set: add --tokens DIR, "
            f"or remove teams from {config}",
            code="serve.teams-need-tokens",
        )

    from platform_sdk.retrieval.service.app import create_app
    from platform_sdk.retrieval.service.metrics import Metrics
    from platform_sdk.retrieval.service.server import Server
    from platform_sdk.retrieval.service.tokens import Tokens

    metrics = Metrics()
    app = create_app(spec, Tokens(tokens) if tokens else None, metrics)
    if metrics_port is not None:
        metrics.listen(metrics_host, metrics_port)
    Server(app, bind=host, port=port, connections=spec.connections, drain=drain, certificate=certificate).run()


def of_recipe(path: Path | None, overrides: list[str], workdir: Path | None) -> ServiceSpec:
    """Return the service for a recipe's corpus, with its data prepared; the recipe's ``retrieval.url`` is ignored."""
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.config.retrieval import RetrievalSpec
    from platform_sdk.config.service import CollectionSpec, ServiceSpec

    assert path is not None
    loaded = load_recipe(path, overrides)
    retrieval_method(loaded)
    run_dir = prepared_run(loaded, workdir)
    collection = CollectionSpec(
        name=loaded.name,
        run_dir=run_dir,
        environment=loaded.parameters["environment"],
        retrieval=RetrievalSpec.model_validate(loaded.parameters["retrieval"] | {"url": None, "collection": None}),
    )
    return ServiceSpec(collections=(collection,))


def _require_free(host: str, port: int) -> None:
    """Raise a UserError if the port is not free, before the slow encoding of the corpus."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            tried.bind(address)
    except (socket.gaierror, UnicodeError) as error:
        raise UserError(f"cannot listen on {host}: no such host ({error}); give an address of this machine") from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserError(
                f"cannot listen on {host}: it is not an address of this machine; give one that is"
            ) from error
        raise UserError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another port", code="serve.port-in-use"
        ) from error


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
