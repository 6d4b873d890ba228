// The schemas of proto/openrpc.json as one JSON schema of draft 07, for code generators.
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const document = fileURLToPath(new URL("../../../proto/openrpc.json", import.meta.url))

export function schema() {
  const { components } = JSON.parse(readFileSync(document, "utf8"))
  const text = JSON.stringify(components.schemas).replaceAll("#/components/schemas/", "#/definitions/")
  const definitions = JSON.parse(text)
  return {
    $schema: "http://json-schema.org/draft-07/schema#", title: "Schemas", type: "object",
    additionalProperties: false, definitions,
    properties: Object.fromEntries(
      Object.keys(definitions).map((name) => [name, { $ref: `#/definitions/${name}` }])),
  }
}
