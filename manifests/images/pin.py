"""Write the digest of every image, from its registry (with skopeo), into the kustomization.yaml of this folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

if shutil.which("skopeo") is None:
    sys.exit("skopeo is not installed; install it, then run make pin-images again")
path = Path(__file__).with_name("kustomization.yaml")
yaml = YAML()
yaml.indent(mapping=2, sequence=4, offset=2)
yaml.width = 120
document = yaml.load(path)
for image in document["images"]:
    name = f"docker://{image.get('newName', image['name'])}:{image['newTag']}"
    done = subprocess.run(["skopeo", "inspect", "--format", "{{.Digest}}", name], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()}; set its registry in newName, or log in (skopeo login)")
    image["digest"] = done.stdout.strip()
    print(f"{name} is {image['digest']}")
yaml.dump(document, path)
