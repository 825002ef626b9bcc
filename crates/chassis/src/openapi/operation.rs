//! One row of a route table as an operation.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{exact, problems};
use crate::auth::Access;
use crate::routes::Row;

pub(super) fn of(row: &Row) -> serde_json::Result<Value> {
    let mut operation = Map::new();
    let mut set = |name: &str, value: Value| operation.insert(name.to_owned(), value);
    set("tags", json!([row.doc.tag]));
    set("summary", row.doc.summary.into());
    set("operationId", operation_id(row).into());
    let parameters = parameters(row)?;
    if !parameters.is_empty() {
        set("parameters", parameters.into());
    }
    if let Some(body) = &row.doc.body {
        let body = json!({
            "description": format!("At most {} bytes.", row.max_body),
            "required": !row.doc.body_optional,
            "content": { "application/json": { "schema": refer(&body.name) } },
            "x-max-bytes": row.max_body,
        });
        set("requestBody", body);
    }
    set("responses", responses(row).into());
    set("x-codes", problems::own_codes(row).into());
    match row.access {
        Access::Public | Access::SignedRequest => {}
        Access::VoiceKey => {
            set("security", json!([{ "voiceKey": [] }, { "bearer": [] }]));
        }
        Access::User | Access::UserOrMachine | Access::Machine | Access::UserOrRecovery | Access::AnyToken => {
            set("security", json!([{ "bearer": [] }]));
        }
    }
    Ok(operation.into())
}

fn parameters(row: &Row) -> serde_json::Result<Vec<Value>> {
    let mut parameters: Vec<Value> = path_parameters(row.path).map(exact::segment).collect();
    for parameter in &row.doc.parameters {
        parameters.push(serde_json::to_value(exact::parameter(parameter.clone()))?);
    }
    if row.doc.idempotent {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "A repeat with the same key and body within 24 h gives the first result again.",
            "schema": { "type": "string", "minLength": 16, "maxLength": 128, "pattern": "^[!-~]+$" },
        }));
    }
    Ok(parameters)
}

fn responses(row: &Row) -> Map<String, Value> {
    let mut by_status: BTreeMap<u16, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    for (status, media_type, schema) in &row.doc.answers {
        let contents = by_status.entry(*status).or_default();
        if !media_type.is_empty() {
            contents.entry(media_type).or_default().extend(schema.as_ref().map(|schema| refer(&schema.name)));
        }
    }
    let mut responses = problems::responses(row);
    for (status, contents) in by_status {
        let content: Map<_, _> =
            contents.into_iter().map(|(media_type, schemas)| (media_type.to_owned(), content(schemas))).collect();
        let mut response = Map::from_iter([("description".to_owned(), "Success".into())]);
        if !content.is_empty() {
            response.insert("content".to_owned(), content.into());
        }
        responses.insert(status.to_string(), response.into());
    }
    responses
}

fn content(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        0 => json!({}),
        1 => json!({ "schema": schemas.remove(0) }),
        _ => json!({ "schema": { "oneOf": schemas } }),
    }
}

fn refer(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// `get_v1_machines_id`: stable, unique, and usable as a function name in generated clients.
fn operation_id(row: &Row) -> String {
    let path: String = row.path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // `/docs/` is another path than `/docs`.
    let index = row.path.ends_with('/').then_some("index");
    let words: Vec<&str> = path.split('_').filter(|word| !word.is_empty()).chain(index).collect();
    format!("{}_{}", row.method.as_str().to_ascii_lowercase(), words.join("_"))
}
