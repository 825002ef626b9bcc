//! Makes what the derived schemas cannot say themselves: limits stand in the member, and texts hold JSON of a known shape.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Marks a schema that is only a limit. It stands in each member that has it, and has no name in the document.
const INLINE: &str = "x-inline";
/// Names the schema of the JSON in a text.
const CONTENT_SCHEMA: &str = "x-content-schema";

/// Names another member: an object needs this one or that one, and not as `null`.
const OR: &str = "x-or";

const SCHEMAS: &str = "#/components/schemas/";

/// The schemas that are only limits, by their references.
pub(super) struct Limits(BTreeMap<String, Map<String, Value>>);

impl Limits {
    /// Takes the limits out of the schemas.
    pub(super) fn take(schemas: &mut Map<String, Value>) -> Self {
        let mut limits = BTreeMap::new();
        schemas.retain(|name, schema| {
            let Value::Object(limit) = schema else { return true };
            if limit.remove(INLINE).is_none() {
                return true;
            }
            limits.insert(format!("{SCHEMAS}{name}"), std::mem::take(limit));
            false
        });
        Self(limits)
    }

    /// Settles a value and everything in it.
    pub(super) fn settle(&self, value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.values_mut().for_each(|value| self.settle(value));
                self.put_in(object);
                need_one(object);
                make_nullable(object);
                // A key of a map has its limit in place already.
                object.remove(INLINE);
                if let Some(Value::String(words)) = object.get_mut("description") {
                    *words = plain(words);
                }
                if let Some(Value::String(name)) = object.remove(CONTENT_SCHEMA) {
                    object.insert("contentMediaType".to_owned(), "application/json".into());
                    object.insert("contentSchema".to_owned(), json!({ "$ref": format!("{SCHEMAS}{name}") }));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.settle(item)),
            _ => {}
        }
    }

    /// Puts a limit in the place of its reference. The words of the member come before those of the limit.
    fn put_in(&self, object: &mut Map<String, Value>) {
        let Some(limit) = object.get("$ref").and_then(Value::as_str).and_then(|name| self.0.get(name)) else { return };
        object.remove("$ref");
        let words = [&*object, limit].map(|of| of.get("description").and_then(Value::as_str).unwrap_or_default());
        let words = words.join(" ").trim().to_owned();
        object.extend(limit.clone());
        if !words.is_empty() {
            object.insert("description".to_owned(), words.into());
        }
    }
}

/// Forbids that both of two members are absent or null. With an `anyOf` of what is required, generators lose the type of the object.
fn need_one(object: &mut Map<String, Value>) {
    let Some(Value::Object(members)) = object.get_mut("properties") else { return };
    let either = members.iter_mut().find_map(|(name, member)| match member.as_object_mut()?.remove(OR)? {
        Value::String(other) => Some((name.clone(), other)),
        _ => None,
    });
    if let Some((one, other)) = either {
        let absent = json!({ "type": "null" });
        object.insert("not".to_owned(), json!({ "properties": { one: absent, other: absent } }));
    }
}

/// `oneOf` a plain type and null is the type that may be null.
fn make_nullable(object: &mut Map<String, Value>) {
    let Some(Value::Array(items)) = object.get("oneOf") else { return };
    let mut named: Vec<&Value> = items.iter().filter(|item| **item != json!({ "type": "null" })).collect();
    let (Some(Value::Object(only)), 1, 2) = (named.pop(), named.len() + 1, items.len()) else { return };
    let Some(Value::String(kind)) = only.get("type") else { return };
    let (only, kind) = (only.clone(), json!([kind, "null"]));
    object.remove("oneOf");
    object.extend(only);
    object.insert("type".to_owned(), kind);
}

/// Words of rustdoc as plain Markdown: one line for a paragraph, and no links to types.
fn plain(words: &str) -> String {
    let paragraphs = words.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n").replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(mut value: Value) -> Value {
        let mut schemas = Map::from_iter([
            (
                "Limit".to_owned(),
                json!({ "type": "string", "maxLength": 3, "description": "In bytes.", "x-inline": true }),
            ),
            ("Named".to_owned(), json!({ "type": "object" })),
        ]);
        let limits = Limits::take(&mut schemas);
        assert_eq!(schemas.keys().collect::<Vec<_>>(), ["Named"]);
        limits.settle(&mut value);
        value
    }

    #[test]
    fn a_limit_stands_in_the_member() {
        let limit = "#/components/schemas/Limit";
        for (value, expected) in [
            (json!({ "$ref": limit }), json!({ "type": "string", "maxLength": 3, "description": "In bytes." })),
            (
                json!({ "a": { "$ref": limit, "description": "A\nname,\n\nas a [`Text`]." } }),
                json!({ "a": { "type": "string", "maxLength": 3, "description": "A name,\n\nas a `Text`. In bytes." } }),
            ),
            (
                json!({ "oneOf": [{ "type": "null" }, { "$ref": limit }] }),
                json!({ "type": ["string", "null"], "maxLength": 3, "description": "In bytes." }),
            ),
            (
                json!({ "propertyNames": { "maxLength": 3, "x-inline": true } }),
                json!({ "propertyNames": { "maxLength": 3 } }),
            ),
            (
                json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/Named" }] }),
                json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/Named" }] }),
            ),
        ] {
            assert_eq!(settled(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn an_object_says_that_it_needs_one_of_two_members() {
        assert_eq!(
            settled(json!({ "properties": { "a": { "type": "string", "x-or": "b" }, "b": {} } })),
            json!({
                "properties": { "a": { "type": "string" }, "b": {} },
                "not": { "properties": { "a": { "type": "null" }, "b": { "type": "null" } } },
            })
        );
    }

    #[test]
    fn a_text_names_what_it_holds() {
        assert_eq!(
            settled(json!({ "type": "string", "x-content-schema": "Named" })),
            json!({
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": { "$ref": "#/components/schemas/Named" },
            })
        );
    }
}
