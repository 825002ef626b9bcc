//! The same document for tools that stop at OpenAPI 3.0. It says a little less.

use serde_json::{Map, Value, json};

/// What 3.0 has no word for, and can do without.
const DROPPED: [&str; 5] = ["contentMediaType", "contentSchema", "contentEncoding", "propertyNames", "identifier"];

/// The members whose own members have names that callers chose.
const MAPS: [&str; 3] = ["properties", "schemas", "headers"];

/// An OpenAPI 3.1 document as OpenAPI 3.0.
pub fn as_3_0(mut document: Value) -> Value {
    older(&mut document);
    if let Value::Object(document) = &mut document {
        document.insert("openapi".to_owned(), "3.0.3".into());
    }
    document
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
    // In 3.0 nothing counts beside a reference.
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
        assert_eq!(as_3_0(json!({ "openapi": "3.1.0" })), json!({ "openapi": "3.0.3" }));
    }
}
