"""Images of disks for new instances, and their uploads."""

from http import HTTPStatus
from typing import Any

from ganeti.base.errors import InputError, PrereqError
from ganeti.base.identifiers import plain_name
from ganeti.clients import fields
from ganeti.images.uploads import Upload, new_id
from ganeti.model.fields import fields_of
from ganeti.model.image_source import SOURCE_FORMATS, UPLOAD, Digest
from ganeti.model.opcodes.image import OpImageImport
from ganeti.model.operation import Right
from ganeti.web.bodies import Incoming
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Call, Operation, read
from ganeti.web.refusals import Refusal, bad_request
from ganeti.web.submission import parsed, renamed, submit_opcodes
from ganeti.web.uploads import SIZE_LIMIT

IMAGES = Listed("QueryImages", fields.IMAGE, "/2/images", id_field="name")
_IMAGE = "/2/images/{image}"
_UPLOADS, _UPLOAD = "/2/image-uploads", "/2/image-uploads/{upload}"
_PERMISSION = "image_import"
_NAMES = OpImageImport.rest[0].renamed
_TEXT = {"type": "string"}
_FORMATS = tuple(one for one in SOURCE_FORMATS if one != "ovf")
"""An OVF file alone has no disks."""
_HELP = {name: field.help for name, (field, _type) in fields_of(OpImageImport).items()}
_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "size"],
    "properties": {
        "name": {**_TEXT, "description": "name of the new image"},
        "size": {"type": "integer", "minimum": 1, "maximum": SIZE_LIMIT, "description": "bytes of the file"},
        "digest": {**_TEXT, "description": "SHA-256 or SHA-512 that the file must have; default: any"},
        "source_format": {"enum": list(_FORMATS), "description": _HELP["source_format"]},
        "description": {**_TEXT, "description": _HELP["description"]},
        "disk_size": {"type": "integer", "minimum": 0, "description": f"{_HELP['disk_size']}; MiB"},
        "firmware": {**_TEXT, "description": _HELP["firmware"]},
        "cloud_init": {"type": "boolean", "description": _HELP["cloud_init"]},
    },
}  # fmt: skip


async def _uploads(call: Call) -> list[dict[str, Any]]:
    return await call.services.uploads.of_user(call.user.name)


async def _upload(call: Call) -> dict[str, Any]:
    return await call.services.uploads.one(call.user.name, call.items[0])


async def _begin(call: Call) -> dict[str, Any]:
    """Begin an upload, after all checks that need no content."""
    body = dict(call.object_body())
    if unknown := body.keys() - _BODY["properties"].keys():
        raise bad_request(f"unknown field {min(unknown)!r:.60}")
    size, digest = body.pop("size", None), body.pop("digest", "")
    if type(size) is not int or not 1 <= size <= SIZE_LIMIT:
        raise bad_request(f"size: must be the bytes of the file, from 1 to {SIZE_LIMIT}")
    if not isinstance(digest, str):
        raise bad_request("digest: must be a text")
    if body.get("source_format", _FORMATS[0]) not in _FORMATS:
        raise bad_request(f"source_format: must be one of {', '.join(_FORMATS)}")
    Digest.parse(digest)
    ident = new_id()
    info = await call.services.master.ask("QueryClusterInfo")
    # The job reads the file on this node, also if another node is the master by then.
    given = {**renamed(body, _NAMES), "source": UPLOAD + ident, "node": info["master"]}
    op = _opcode(call, given)
    plain_name(op.image_name, "name")
    await _check_new(call, op.image_name)
    request = {**given, "image_name": op.image_name, "source_format": op.source_format}
    return await call.services.uploads.begin(
        Upload(
            id=ident, user=call.user.name, begun=call.services.clock.time(), size=size,
            digest=digest.lower(), request=request,
        )
    )  # fmt: skip


def _opcode(call: Call, given: dict[str, Any]) -> OpImageImport:
    op = parsed(call, {**given, "OP_ID": OpImageImport.op_id()})
    if not isinstance(op, OpImageImport):
        raise InputError("is not an import of an image", "body")
    return op


async def _check_new(call: Call, name: str) -> None:
    """Refuse a name early; the job checks it again."""
    try:
        rows = await call.services.master.ask("QueryImages", [name], ["name"], False)
    except PrereqError:
        return
    if rows:
        raise Refusal(HTTPStatus.CONFLICT, f"image {name} exists already")


async def _append(call: Call) -> dict[str, Any]:
    """Append a piece; after the last one, submit the import, once for each upload."""
    ident, uploads = call.items[0], call.services.uploads
    if not isinstance(call.body, Incoming):
        raise bad_request("the request needs a body")
    complete = await uploads.append(call.user.name, ident, call.body)
    if complete is None:
        return await uploads.one(call.user.name, ident)
    op = _opcode(call, {**complete.request, "digest": complete.digest})
    job = await submit_opcodes(call, [op], f"rest-upload-{ident}")
    return await uploads.imported_by(ident, job)


async def _remove(call: Call) -> None:
    await call.services.uploads.remove(call.user.name, call.items[0])


OPERATIONS: tuple[Operation, ...] = (
    read("/2/images", "images", "List all images", IMAGES.collection(), BULK, LOCK, *PAGES,
         result="list", shows="image"),
    read(_IMAGE, "images_name", "Return one image", IMAGES.one(), LOCK, shows="image"),
    read(_UPLOADS, "image_uploads", "List the uploads of the user", _uploads, right=Right.WRITE, result="objects"),
    read(_UPLOAD, "image_uploads_id", "Return one upload with the offset of its next byte", _upload,
         right=Right.WRITE),
    Operation("POST", _UPLOADS, "image_uploads", "Begin the upload of an image", Right.WRITE, _begin,
              body_schema=_BODY, result="object", permission=_PERMISSION),
    Operation("PUT", _UPLOAD, "image_uploads_id", "Append a piece at the offset of the upload; the last one imports it",
              Right.WRITE, _append, body_schema={"type": "string", "format": "binary"}, result="object",
              permission=_PERMISSION, is_stream=True),
    Operation("DELETE", _UPLOAD, "image_uploads_id", "Remove an upload", Right.WRITE, _remove,
              permission=_PERMISSION),
)  # fmt: skip
