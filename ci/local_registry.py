#!/usr/bin/env python3
"""Makes a local registry for cargo out of the .crate files in a cargo home.

usage: ci/local_registry.py OUT CARGO_HOME Cargo.lock...

OUT gets every registry package that the locks name, and an index that describes them; cargo reads it with
`[source.<name>] local-registry = "OUT"`. A package that the cargo home does not have is an error.
"""

import hashlib
import json
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path


def dependencies(manifest: dict) -> list[dict]:
    """The dependencies of a published manifest, as an index lists them."""
    found = []
    tables = [(None, manifest)] + list(manifest.get("target", {}).items())
    for target, table in tables:
        for key, kind in [
            ("dependencies", "normal"),
            ("build-dependencies", "build"),
            # Features may name them.
            ("dev-dependencies", "dev"),
        ]:
            for name, spec in table.get(key, {}).items():
                if isinstance(spec, str):
                    spec = {"version": spec}
                found.append(
                    {
                        "name": name,
                        "req": spec.get("version", "*"),
                        "features": spec.get("features", []),
                        "optional": spec.get("optional", False),
                        "default_features": spec.get("default-features", True),
                        "target": target,
                        "kind": kind,
                        "package": spec.get("package"),
                    }
                )
    return found


def index_file(root: Path, name: str) -> Path:
    name = name.lower()
    folder = {1: "1", 2: "2", 3: f"3/{name[0]}"}.get(len(name), f"{name[:2]}/{name[2:4]}")
    return root / "index" / folder / name


def add(root: Path, crate: Path, package: dict) -> None:
    name, version = package["name"], package["version"]
    data = crate.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != package["checksum"]:
        sys.exit(f"{crate} has another sum than the lock")
    with tarfile.open(crate) as archive:
        manifest = tomllib.load(archive.extractfile(f"{name}-{version}/Cargo.toml"))
    entry = {
        "name": name,
        "vers": version,
        "deps": dependencies(manifest),
        "cksum": checksum,
        "features": {},
        "features2": manifest.get("features", {}),
        "yanked": False,
        "links": manifest["package"].get("links"),
        "v": 2,
    }
    shutil.copy(crate, root / crate.name)
    file = index_file(root, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(entry) + "\n")


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    root, home = Path(sys.argv[1]), Path(sys.argv[2])
    root.mkdir(parents=True)
    wanted = {}
    for lock in sys.argv[3:]:
        for package in tomllib.loads(Path(lock).read_text())["package"]:
            if "checksum" in package:
                wanted[package["name"], package["version"]] = package
    missing = []
    for (name, version), package in sorted(wanted.items()):
        crate = next(home.glob(f"registry/cache/*/{name}-{version}.crate"), None)
        if crate is None:
            missing.append(f"{name} {version}")
        else:
            add(root, crate, package)
    if missing:
        sys.exit("the cargo home lacks " + ", ".join(missing) + "; run `cargo fetch`")
    print(f"{len(wanted)} packages in {root}")


main()
