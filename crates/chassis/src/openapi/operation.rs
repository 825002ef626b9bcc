//! One row of a route table as an operation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{exact, headers, problems, security};
use crate::auth::Access;
use crate::routes::{Answer, Row};

pub(super) fn of(row: &Row, id: &str) -> serde_json::Result<Value> {
    let mut operation = Map::new();
    let mut set = |name: &str, value: Value| operation.insert(name.to_owned(), value);
    set("tags", json!([row.doc.tag.0]));
    set("summary", row.doc.summary.into());
    set("description", description(row).into());
    set("operationId", id.into());
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
    set("responses", responses(row)?.into());
    set("x-codes", problems::own_codes(row).into());
    set("security", security::requirements(row.access));
    Ok(operation.into())
}

/// The words of the row, and whose token it takes.
fn description(row: &Row) -> String {
    let callers = match row.access {
        Access::User => "Takes the token of a user.",
        Access::UserOrMachine => "Takes the token of a user or of a machine.",
        Access::UserOrRecovery => "Takes the token of a user, also one by recovery words.",
        Access::AnyToken => "Takes the token of a user, also one by recovery words, or of a machine.",
        Access::Machine => "Takes the token of a machine.",
        Access::VoicePerson => "Takes the voice key and the token of a user, together.",
        Access::Public | Access::VoiceKey | Access::VoiceAgent | Access::Webhook => "",
    };
    format!("{}\n\n{callers}", row.doc.about).trim().to_owned()
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

fn responses(row: &Row) -> serde_json::Result<Map<String, Value>> {
    let mut responses = problems::responses(row);
    let statuses: BTreeSet<u16> = row.doc.answers.iter().map(|answer| answer.status).collect();
    for status in &statuses {
        let answers: Vec<&Answer> = row.doc.answers.iter().filter(|answer| answer.status == *status).collect();
        let mut response = json!({ "headers": headers::of_success(row, *status) });
        if let Value::Object(response) = &mut response {
            let words =
                answers.iter().map(|answer| words(answer)).collect::<serde_json::Result<Vec<_>>>()?.join(" Or: ");
            let words = match status {
                201 => format!("Made. {words}"),
                200 if statuses.contains(&201) => format!("Not new. {words}"),
                _ => words,
            };
            response.insert("description".to_owned(), words.into());
            let content = contents(&answers);
            if !content.is_empty() {
                response.insert("content".to_owned(), content.into());
            }
        }
        responses.insert(status.to_string(), response);
    }
    if row.etag {
        let unchanged = json!({ "description": "What you have is current.", "headers": headers::of_success(row, 304) });
        responses.insert("304".to_owned(), unchanged);
    }
    Ok(responses)
}

/// What an answer is: its own words, or the first sentence of its schema.
fn words(answer: &Answer) -> serde_json::Result<String> {
    let Some(schema) = answer.schema.as_ref().filter(|_| answer.words.is_empty()) else {
        return Ok(answer.words.to_owned());
    };
    let named = schema.schemas.iter().find(|(name, _)| *name == schema.name);
    let schema = serde_json::to_value(named.map(|(_, schema)| schema))?;
    let words = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let words = words.replace('\n', " ");
    Ok(words.split_once(". ").map_or(words.clone(), |(first, _)| format!("{first}.")))
}

fn contents(answers: &[&Answer]) -> Map<String, Value> {
    let mut by_type: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for answer in answers {
        if let Some(media_type) = answer.media_type {
            by_type.entry(media_type).or_default().extend(answer.schema.as_ref().map(|schema| refer(&schema.name)));
        }
    }
    by_type.into_iter().map(|(media_type, schemas)| (media_type.to_owned(), content(schemas))).collect()
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
