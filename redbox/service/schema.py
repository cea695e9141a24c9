"""The OpenAPI document: its head, and what Litestar leaves out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from litestar._openapi.schema_generation.plugins.struct import StructSchemaPlugin
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from redbox import __version__

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.openapi.spec import Schema
    from litestar.typing import FieldDefinition

NAME: Final = "bearer"
_SCHEME: Final = SecurityScheme(
    type="http",
    scheme="bearer",
    description="A token of the service. Its scopes: `ingest` puts events, `read` reads, `operate` reads and changes.",
)


def openapi_config(*, tokens: bool) -> OpenAPIConfig:
    """`tokens`: callers need a token."""
    return OpenAPIConfig(
        title="redbox",
        version=__version__,
        path="/schema",
        use_handler_docstrings=True,
        components=Components(security_schemes={NAME: _SCHEME}),
        security=[{NAME: []}] if tokens else None,
        render_plugins=[JsonRenderPlugin(path=["/", "/openapi.json"]), YamlRenderPlugin(path="/openapi.yaml")],
    )


class StrictStructs(StructSchemaPlugin):
    """Says of a struct that refuses unknown fields that it does."""

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: SchemaCreator) -> Schema:
        schema = super().to_openapi_schema(field_definition, schema_creator)
        if field_definition.annotation.__struct_config__.forbid_unknown_fields:
            schema.additional_properties = False
        return schema
