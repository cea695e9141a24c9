"""The OpenAPI document: its head, and what Litestar leaves out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from litestar._openapi.schema_generation.plugins.struct import StructSchemaPlugin
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from redbox import __version__

if TYPE_CHECKING:
    from litestar import Request
    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.openapi.spec import Schema
    from litestar.typing import FieldDefinition

NAME: Final = "bearer"
_SCHEME: Final = SecurityScheme(
    type="http",
    scheme="bearer",
    description="A token of the service. Its scopes: `ingest` puts events, `read` reads, `operate` reads and changes.",
)


class _RenderedJson(JsonRenderPlugin):
    """The document as JSON, rendered once."""

    _rendered: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        if self._rendered is None:
            self._rendered = super().render(request, openapi_schema)
        return self._rendered


class _RenderedYaml(YamlRenderPlugin):
    """The document as YAML, rendered once: that takes a tenth of a second, in which nothing else is served."""

    _rendered: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        if self._rendered is None:
            self._rendered = super().render(request, openapi_schema)
        return self._rendered


def openapi_config(*, tokens: bool) -> OpenAPIConfig:
    """`tokens`: callers need a token."""
    return OpenAPIConfig(
        title="redbox",
        version=__version__,
        path="/schema",
        use_handler_docstrings=True,
        components=Components(security_schemes={NAME: _SCHEME}),
        security=[{NAME: []}] if tokens else None,
        render_plugins=[_RenderedJson(path=["/", "/openapi.json"]), _RenderedYaml(path="/openapi.yaml")],
    )


class StrictStructs(StructSchemaPlugin):
    """Says of a struct that refuses unknown fields that it does."""

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: SchemaCreator) -> Schema:
        schema = super().to_openapi_schema(field_definition, schema_creator)
        if field_definition.annotation.__struct_config__.forbid_unknown_fields:
            schema.additional_properties = False
        return schema
