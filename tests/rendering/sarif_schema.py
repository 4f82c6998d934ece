"""The part of SARIF 2.1.0 that reports use, as a JSON schema that admits nothing else.

Written down from the text of the standard (OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0",
section 3): which properties there are, which are required, and which values they take.
"""

from __future__ import annotations


def _object(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items, least=0, unique=False):
    return {"type": "array", "items": items, "minItems": least, "uniqueItems": unique}


_TEXT = {"type": "string"}
_INDEX = {"type": "integer", "minimum": -1}
_COUNT = {"type": "integer", "minimum": 0}
_BAG = {"type": "object"}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
# 2.3.1 of RFC 3986: what a reference is made of; everything else is percent-encoded
_URI = {"type": "string", "pattern": r"^(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+$"}
_MULTIFORMAT = _object(["text"], text=_TEXT, markdown=_TEXT)
_MESSAGE = _object(["text"], text=_TEXT, markdown=_TEXT)
_ARTIFACT_LOCATION = _object(["uri"], uri=_URI, index=_INDEX)
_REGION = _object(["byteOffset"], byteOffset=_COUNT, byteLength=_COUNT)
_LOGICAL = _object(
    name=_TEXT,
    fullyQualifiedName=_TEXT,
    kind={"enum": ["function", "member", "module", "namespace", "resource", "type", "object", "array", "property"]},
)
_LOCATION = _object(
    physicalLocation=_object(["artifactLocation"], artifactLocation=_ARTIFACT_LOCATION, region=_REGION),
    logicalLocations=_list(_LOGICAL, 1, unique=True),
)
_RULE = _object(
    ["id"],
    id=_TEXT,
    name={"type": "string", "pattern": "^[A-Z][A-Za-z0-9]*$"},
    shortDescription=_MULTIFORMAT,
    fullDescription=_MULTIFORMAT,
    helpUri=_URI,
    help=_MULTIFORMAT,
    defaultConfiguration=_object(level=_LEVEL),
    properties=_object(tags=_list(_TEXT, unique=True)),
)
_RESULT = _object(
    ["message"],
    ruleId=_TEXT,
    ruleIndex=_INDEX,
    level=_LEVEL,
    message=_MESSAGE,
    locations=_list(_LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
    properties=_BAG,
)
_NOTIFICATION = _object(["message"], level=_LEVEL, message=_MESSAGE, locations=_list(_LOCATION, unique=True))
_RUN = _object(
    ["tool"],
    tool=_object(
        ["driver"],
        driver=_object(["name"], name=_TEXT, version=_TEXT, informationUri=_URI, rules=_list(_RULE, unique=True)),
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations=_list(
        _object(
            ["executionSuccessful"],
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications=_list(_NOTIFICATION),
        )
    ),
    artifacts=_list(_object(location=_ARTIFACT_LOCATION, length=_COUNT, properties=_BAG), unique=True),
    results=_list(_RESULT),
    properties=_BAG,
)
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(["version", "runs"], **{"$schema": _URI, "version": {"const": "2.1.0"}, "runs": _list(_RUN)}),
}
