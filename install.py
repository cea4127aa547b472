"""Install hopforge and what it needs into a virtual environment; the Makefile calls this.

    python3 install.py VENV [UV_OPTION…] REQUIREMENT…

uv installs the packages in a third of pip's time (one wheel of 18 MB). If uv is not on PATH, it is installed into the
environment. uv ignores pip's settings, so the output of `pip config list` is passed on to uv. This file runs on Python
3.6 or newer, to report which Python is required.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

UV = "uv>=0.9,<1"
# Only wheels are installed, so that no compiler is needed, except these: source distributions of pure Python.
BUILT = ["kfp-server-api"]
# Like pip, take the best version of all indexes: uv's default is the first index that has the package.
POLICY = ["--index-strategy", "unsafe-best-match", "--only-binary", ":all:"]
# Like pip, trust the machine's certificates; older versions of uv use the second name.
CERTIFICATES = {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}
# Byte code for environments in which Python may not write it (common in containers and CI). uv installs none, so each
# process would compile these modules again: 23 CPU seconds on top of 15 for importing. Importing them once during the
# installation takes 38 CPU seconds, as much as the second process saves; compiling all 25,000 files would take 50, and
# most are never imported. In other environments the first run writes the byte code, and importing them during the
# installation would only delay make demo. The command line's packages import their modules late, so all their modules
# are compiled. Two processes share the work: sentence_transformers imports sklearn last, when the other process has
# written its byte code.
IMPORTED = (
    "import peft, sentence_transformers, transformers.models.llama.modeling_llama",
    "import sklearn.metrics\n"
    "import kfp.compiler, milvus_lite, mlflow.store.tracking.sqlalchemy_store, pymilvus\n"
    "import compileall, rich, ruamel.yaml, typer\n"
    "for package in (rich, ruamel.yaml, typer):\n"
    "    compileall.compile_dir(package.__path__[0], quiet=1)",
)
NO_BYTE_CODE = "PYTHONDONTWRITEBYTECODE"
# pip's settings by name, with uv's repeatable option or its environment variable, which an option overrides.
OPTIONS = {
    "extra-index-url": ("--extra-index-url", "UV_EXTRA_INDEX_URL"),
    "find-links": ("--find-links", "UV_FIND_LINKS"),
    "trusted-host": ("--allow-insecure-host", "UV_INSECURE_HOST"),
}
VARIABLES = {
    "index-url": "UV_INDEX_URL",
    "constraint": "UV_CONSTRAINT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        return "usage: python3 install.py FOLDER [OPTIONS AND REQUIREMENTS OF PIP]; make install calls it"
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    unsupported = unsupported_python(Path("pyproject.toml").read_text(encoding="utf-8"), sys.version_info[:2])
    if unsupported:
        return unsupported
    python = folder / "bin/python"
    # Without uv, pip is needed; a creation that was interrupted, or lacked ensurepip, leaves Python without it.
    if not python.exists() or not (shutil.which("uv") or (folder / "bin/pip").exists()):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    options, variables = for_uv(pip_settings(python), os.environ)
    own = folder / "bin/uv"
    uv = shutil.which("uv") or str(own)
    if uv == str(own) and not own.exists():
        subprocess.run([str(python), "-m", "pip", "install", "-qq", UV])
    built = [option for package in BUILT for option in ("--no-binary", package)]
    command = [uv, "pip", "install", "--python", str(python), *POLICY, *built, *options, *wanted]
    environment = {**CERTIFICATES, **os.environ, **variables}
    if Path(uv).exists() and subprocess.run(command, env=environment).returncode == 0:
        run_at_once(byte_code_commands(python, wanted, os.environ), without(NO_BYTE_CODE, os.environ))
        return 0
    # A mirror or a proxy may be reached by pip alone; what is wrong with a requirement, pip says again.
    print("uv could not install this, see above; pip tries it now, which takes longer", file=sys.stderr)
    return subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted]).returncode


def byte_code_commands(python, wanted, environment):
    """Return the commands that write byte code after hopforge's installation; none where Python writes its own.

    The tests' packages (.[dev]) are added to an installation that has byte code.
    """
    if "." not in wanted or not environment.get(NO_BYTE_CODE):
        return []
    importing = [[str(python), "-c", modules] for modules in IMPORTED]
    return [[str(python), "-m", "compileall", "-q", "platform_sdk"], *importing]


def run_at_once(commands, environment):
    """Run commands at the same time, and wait for all of them.

    Raises:
        CalledProcessError: a command failed. Standard error names each one that did.
    """
    running = [(command, subprocess.Popen(command, env=environment)) for command in commands]
    failed = [(command, process.returncode) for command, process in running if process.wait() != 0]
    for command, status in failed:
        what = command[-1].splitlines()[0]
        print(f"{what}: failed with status {status}, see above; repeat the installation", file=sys.stderr)
    if failed:
        command, status = failed[0]
        raise subprocess.CalledProcessError(status, command)


def without(name, environment):
    """Return the environment without a variable."""
    return {key: value for key, value in environment.items() if key != name}


def unsupported_python(pyproject, version):
    """Return why this Python will not do, or None."""
    lowest, above = (int(minor) for minor in re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', pyproject).groups())
    if (3, lowest) <= version < (3, above):
        return None
    return (
        f"hopforge needs Python 3.{lowest} to 3.{above - 1}; {sys.executable} is {version[0]}.{version[1]}. "
        f"Name another one, e.g.: make demo PYTHON=python3.{lowest}"
    )


def pip_settings(python):
    """Return pip's settings by name, from its files and its variables; none if the environment has no pip."""
    done = subprocess.run(
        [str(python), "-m", "pip", "config", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    found = dict(re.findall(r"^(\S+?)=('.*'|\".*\")$", done.stdout, re.MULTILINE))
    # The same precedence as in pip: variables over [install] over [global].
    sections = ["global.", "install.", ":env:."]
    return {
        key[len(section) :]: ast.literal_eval(value)
        for section in sections
        for key, value in found.items()
        if key.startswith(section)
    }


def for_uv(settings, environment):
    """Return the options and variables by which uv does the same; a variable of uv's own takes precedence."""
    options = [
        part
        for name, (option, variable) in OPTIONS.items()
        if variable not in environment
        for value in settings.get(name, "").split()
        for part in (option, value)
    ]
    if settings.get("no-index", "").lower() in ("1", "on", "t", "true", "y", "yes"):  # uv has no variable for it
        options.append("--no-index")
    variables = {
        variable: settings[name]
        for name, variable in VARIABLES.items()
        if name in settings and variable not in environment
    }
    return options, variables


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:  # the command has said why
        sys.exit(error.returncode)
