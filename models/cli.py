"""`acespec models pull|ls|rm|path`: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(name="models", help="Find, fetch, check and convert models.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="smollm2-135m, owner/name on the hub, a folder, or a .gguf file.")]
Names = Annotated[list[str], typer.Argument(help="Models by any of their names.")]
Offline = Annotated[bool, typer.Option("--offline", envvar="ACESPEC_OFFLINE", help="Use no network.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON value on stdout.")]
AnyArchitecture = Annotated[
    bool, typer.Option("--any-architecture", help="Accept what only a drafter's runtime can run, too.")
]


@app.command()
def pull(names: Names, offline: Offline = False, any_architecture: AnyArchitecture = False) -> None:
    """Fetch models, check them, convert them, and print their folders."""
    from acespec.models.progress import terminal_report
    from acespec.models.store import resolve

    for name in names:
        with terminal_report() as report:
            folder = resolve(name, offline=offline, any_architecture=any_architecture, refresh=True, report=report)
        typer.echo(folder)


@app.command()
def path(name: Name) -> None:
    """Print the folder of a model that is here already."""
    from acespec.models.store import resolve

    typer.echo(resolve(name, fetch=False, any_architecture=True))


@app.command()
def ls(as_json: Json = False) -> None:
    """List the models on this machine."""
    from acespec.models.inventory import list_models
    from acespec.models.progress import megabytes

    models = list_models()
    if as_json:
        rows = [
            {"name": m.name, "path": str(m.path), "bytes": m.size, "model_type": m.model_type, "source": m.source}
            for m in models
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    if not models:
        typer.echo("no models here yet; `acespec models pull smollm2-135m` fetches the default one", err=True)
        return
    width = max(len(model.name) for model in models)
    for model in models:
        typer.echo(f"{model.name:{width}}  {model.model_type:6}  {megabytes(model.size):>12}  {model.source}")


@app.command()
def rm(names: Names) -> None:
    """Remove models from this machine."""
    from acespec.models.inventory import remove
    from acespec.models.progress import megabytes

    for name in names:
        freed = remove(name)
        typer.echo(f"removed {name}, {megabytes(freed)} freed", err=True)
