//! The JSON Schema of the document, made from its types and held fresh by a test.

use std::borrow::Cow;
use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::check::CAPABILITIES;
use super::{Bind, HostPort, Policy};
use crate::bytes::canon::{MAX_INTEGER, U53};
use crate::facts::control::Control;

impl JsonSchema for Control {
    fn schema_name() -> Cow<'static, str> {
        "Control".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each = Self::ALL.iter().map(
            |control| json_schema!({ "const": control.as_str(), "description": control.meaning() }),
        );
        json_schema!({ "oneOf": each.collect::<Vec<_>>() })
    }
}

// The only place where a policy has such a number is a limit, and a limit of 0 is an error.
impl JsonSchema for U53 {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MAX_INTEGER })
    }
}

impl JsonSchema for Bind {
    fn schema_name() -> Cow<'static, str> {
        "Bind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "SRC or SRC:DST, both absolute; without DST it is seen at the same place.",
            "pattern": "^/[^:]*(:/[^:]*)?$"
        })
    }
}

impl JsonSchema for HostPort {
    fn schema_name() -> Cow<'static, str> {
        "HostPort".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "HOST:PORT, an IPv6 address in brackets.",
            "pattern": "^(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9.-]+):[1-9][0-9]{0,4}$"
        })
    }
}

fn schema() -> String {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Policy>();
    // An editor shall accept the reference that points it here.
    schema.insert("title".into(), "Containment policy".into());
    let names = CAPABILITIES
        .iter()
        .map(|name| (*name).into())
        .collect::<Vec<serde_json::Value>>();
    let capabilities = schema.pointer_mut("/$defs/Process/properties/capabilities/items");
    let capabilities = capabilities
        .and_then(serde_json::Value::as_object_mut)
        .unwrap();
    capabilities.insert("enum".into(), names.into());
    let id = schema
        .pointer_mut("/properties/id")
        .and_then(serde_json::Value::as_object_mut);
    id.unwrap()
        .insert("pattern".into(), "^[a-z0-9][a-z0-9-]{0,63}$".into());
    format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())
}

/// `UPDATE_SCHEMA=1 cargo test -p ledger schema` writes the file anew.
#[test]
fn the_schema_file_is_fresh() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/policy.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&file, schema()).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap();
    assert!(
        stored == schema(),
        "stale: run UPDATE_SCHEMA=1 cargo test -p ledger schema"
    );
}
