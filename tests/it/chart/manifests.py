"""Reads manifests for the tests: manifests.py JOB, where JOB is a file with {"files": [...], "versions": [...]}.

Prints {file: [documents]} as JSON. With versions every document is held against the schemas of each of them, strictly,
and custom resources against monitoring.schema.json beside this file; what does not hold is told on the standard error,
and the exit code is 1.
"""

import functools
import json
import pathlib
import sys

import jsonschema
import yaml
from kubernetes_validate import utils


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """As strict as Kubernetes: no key twice in one mapping."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise yaml.constructor.ConstructorError(None, None, f"given twice: {twice}", node.start_mark)
    return yaml.constructor.SafeConstructor.construct_mapping(loader, node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def problems(document, versions):
    if document["apiVersion"] == "monitoring.coreos.com/v1":
        schema = json.loads(pathlib.Path(__file__).with_name("monitoring.schema.json").read_text())
        checker = jsonschema.Draft202012Validator(schema)
        return [f"{list(error.path)}: {error.message}" for error in checker.iter_errors(document)]
    found = []
    for version in versions:
        try:
            checked_by = utils.validate(document, version, strict=True)
            if checked_by != version:
                found.append(f"there are no schemas of {version}, only of {checked_by}")
        except (utils.ValidationError, utils.SchemaNotFoundError) as error:
            found.append(f"{version}: {list(getattr(error, 'path', []))}: {error.message}")
    return found


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    # Each document looks for the same large files of definitions.
    utils.schema_contents = functools.cache(utils.schema_contents)
    read, bad, seen = {}, 0, set()
    for file in job["files"]:
        text = pathlib.Path(file).read_text()
        read[file] = [document for document in yaml.load_all(text, Loader=Loader) if document is not None]
        for document in read[file]:
            key = json.dumps(document, sort_keys=True)
            if not job["versions"] or key in seen:
                continue
            seen.add(key)
            for problem in problems(document, job["versions"]):
                bad += 1
                name = f"{document['kind']} {document['metadata']['name']}"
                print(f"{pathlib.Path(file).name}: {name}: {problem}", file=sys.stderr)
    json.dump(read, sys.stdout)
    return 1 if bad else 0


sys.exit(main())
