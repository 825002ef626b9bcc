//! The same document for tools that stop at OpenAPI 3.0. It says a little less.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// What 3.0 has no word for, and can do without.
const DROPPED: [&str; 6] =
    ["contentMediaType", "contentSchema", "contentEncoding", "propertyNames", "identifier", "not"];

/// The members whose own members have names that callers chose.
const MAPS: [&str; 3] = ["properties", "schemas", "headers"];

/// An OpenAPI 3.1 document as OpenAPI 3.0.
pub fn as_3_0(mut document: Value) -> Value {
    let license = document.pointer("/info/license/identifier").and_then(Value::as_str).map(spdx);
    older(&mut document);
    simplify_responses(&mut document);
    let types = types(&document);
    name_types(&mut document, &types);
    if let Value::Object(document) = &mut document {
        document.insert("openapi".to_owned(), "3.0.3".into());
    }
    if let Some((license, url)) = document.pointer_mut("/info/license").and_then(Value::as_object_mut).zip(license) {
        license.insert("url".to_owned(), url.into());
    }
    document
}

/// Generators of 3.0 such as progenitor (Rust) know one type of success and one of failure for an operation, count `default` as a
/// success, and need a schema of each content.
fn simplify_responses(document: &mut Value) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    for responses in operations.filter_map(|operation| operation.get_mut("responses")?.as_object_mut()) {
        if let Some(other) = responses.remove("default") {
            responses.insert("4XX".to_owned(), other.clone());
            responses.insert("5XX".to_owned(), other);
        }
        if responses.contains_key("200") {
            responses.remove("204");
        }
        let contents = responses.values_mut().filter_map(|response| response.get_mut("content")?.as_object_mut());
        for (media_type, content) in contents.flatten() {
            let schema = if media_type.starts_with("text/") { json!({ "type": "string" }) } else { json!({}) };
            if let Some(content) = content.as_object_mut() {
                content.entry("schema").or_insert(schema);
            }
        }
    }
}

/// Where a licence of the SPDX list can be read.
fn spdx(identifier: &str) -> String {
    format!("https://spdx.org/licenses/{identifier}.html")
}

/// The type of each schema that has one, by the reference to it.
fn types(document: &Value) -> HashMap<String, Value> {
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
    let typed = schemas.into_iter().flatten().filter_map(|(name, schema)| Some((name, schema.get("type")?)));
    typed.map(|(name, of)| (format!("#/components/schemas/{name}"), of.clone())).collect()
}

/// `nullable` counts only next to a `type` (OpenAPI 3.0.3, schema object).
fn name_types(value: &mut Value, types: &HashMap<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| name_types(item, types)),
        Value::Object(object) => {
            if object.contains_key("nullable") && !object.contains_key("type") {
                let reference = object.get("allOf").and_then(|all| all.get(0)?.get("$ref")?.as_str());
                match reference.and_then(|reference| types.get(reference)).cloned() {
                    Some(of) => drop(object.insert("type".to_owned(), of)),
                    // It is one of several types, and need not be there.
                    None => drop(object.remove("nullable")),
                }
            }
            object.values_mut().for_each(|value| name_types(value, types));
        }
        _ => {}
    }
}

fn older(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(older),
        Value::Object(object) => {
            for (name, value) in object.iter_mut() {
                match value {
                    Value::Object(map) if MAPS.contains(&name.as_str()) => map.values_mut().for_each(older),
                    value => older(value),
                }
            }
            older_object(object);
        }
        _ => {}
    }
}

fn older_object(object: &mut Map<String, Value>) {
    for name in DROPPED {
        object.remove(name);
    }
    if let Some(value) = object.remove("const") {
        object.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Array(examples)) = object.get("examples") {
        let first = examples.first().cloned().unwrap_or_default();
        object.remove("examples");
        object.insert("example".to_owned(), first);
    }
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(limit) = object.get(exclusive).filter(|limit| limit.is_number()).cloned() {
            object.insert(exclusive.to_owned(), true.into());
            object.insert(bound.to_owned(), limit);
        }
    }
    let mut is_nullable = false;
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|one| one != "null");
        is_nullable = true;
        let only = types.first().cloned().unwrap_or_default();
        object.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(items)) = object.get_mut("oneOf") {
        let all = items.len();
        items.retain(|item| item != &json!({ "type": "null" }));
        is_nullable = items.len() < all;
        if is_nullable && items.len() == 1 {
            let only = items.remove(0);
            object.remove("oneOf");
            object.insert("allOf".to_owned(), json!([only]));
        }
    }
    if is_nullable {
        object.insert("nullable".to_owned(), true.into());
    }
    // Generators name the alternatives by what they refer to.
    for name in ["oneOf", "anyOf"] {
        let alternatives = object.get_mut(name).and_then(Value::as_array_mut);
        for alternative in alternatives.into_iter().flatten() {
            let reference = alternative.pointer("/allOf/0").filter(|only| only.get("$ref").is_some()).cloned();
            if let Some(reference) = reference {
                *alternative = reference;
            }
        }
    }
    // In 3.0 the siblings of a reference are ignored.
    if object.len() > 1
        && let Some(reference) = object.remove("$ref")
    {
        object.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_3_1_can_say_is_said_in_3_0() {
        for (new, old) in [
            (json!({ "type": ["string", "null"] }), json!({ "type": "string", "nullable": true })),
            (json!({ "const": 1 }), json!({ "enum": [1] })),
            (json!({ "examples": [1, 2] }), json!({ "example": 1 })),
            (json!({ "exclusiveMinimum": 0 }), json!({ "exclusiveMinimum": true, "minimum": 0 })),
            (json!({ "$ref": "#/a", "description": "b" }), json!({ "allOf": [{ "$ref": "#/a" }], "description": "b" })),
            (
                json!({ "oneOf": [{ "$ref": "#/a" }, { "type": "null" }] }),
                json!({ "allOf": [{ "$ref": "#/a" }], "nullable": true }),
            ),
            (json!({ "contentSchema": { "$ref": "#/a" }, "type": "string" }), json!({ "type": "string" })),
            (
                json!({ "oneOf": [{ "$ref": "#/a", "description": "b" }, { "$ref": "#/c" }] }),
                json!({ "oneOf": [{ "$ref": "#/a" }, { "$ref": "#/c" }] }),
            ),
            // A member with the name of a keyword.
            (
                json!({ "properties": { "const": { "const": 1 } } }),
                json!({ "properties": { "const": { "enum": [1] } } }),
            ),
        ] {
            let mut value = new.clone();
            older(&mut value);
            assert_eq!(value, old, "{new}");
        }
        let whole = |name: &str, of: Value| json!({ "openapi": name, "info": of });
        let (new, old) = (json!({ "identifier": "MIT" }), json!({ "url": "https://spdx.org/licenses/MIT.html" }));
        let license = |license: Value| json!({ "license": license });
        assert_eq!(as_3_0(whole("3.1.0", license(new))), whole("3.0.3", license(old)));
        let responses = |of: Value| json!({ "openapi": "3.0.3", "paths": { "/a": { "get": { "responses": of } } } });
        let content = |of: Value| json!({ "content": of });
        assert_eq!(
            as_3_0(responses(json!({
                "200": content(json!({ "text/plain": {}, "application/json": {} })), "204": {}, "default": { "$ref": "#/r" },
            }))),
            responses(json!({
                "200": content(json!({ "text/plain": { "schema": { "type": "string" } }, "application/json": { "schema": {} } })),
                "4XX": { "$ref": "#/r" }, "5XX": { "$ref": "#/r" },
            })),
        );
        assert_eq!(as_3_0(responses(json!({ "204": {} }))), responses(json!({ "204": {} })));
        let schemas = |b: Value| json!({ "components": { "schemas": { "A": { "type": "string" }, "B": b } } });
        let new = json!({ "oneOf": [{ "$ref": "#/components/schemas/A" }, { "type": "null" }] });
        let old = json!({ "allOf": [{ "$ref": "#/components/schemas/A" }], "nullable": true, "type": "string" });
        let mut expected = schemas(old);
        expected["openapi"] = "3.0.3".into();
        assert_eq!(as_3_0(schemas(new)), expected);
    }
}
