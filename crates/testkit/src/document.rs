//! Holds every answer that a test sees against docs/openapi.json: its status, its media type, and its members, none of which may be
//! unknown to the document.

use std::collections::HashMap;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value};

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    Document::new(include_str!("../../../docs/openapi.json"))
        .unwrap_or_else(|error| panic!("docs/openapi.json cannot be used: {error}"))
});

const URL: &str = "https://ensemble.invalid/openapi.json";
const EVENTS: &str = "text/event-stream";

/// A request, as far as the document is concerned.
#[derive(Clone, Debug)]
pub struct Asked {
    method: String,
    path: String,
}

impl Asked {
    pub fn new(request: &reqwest::Request) -> Self {
        Self { method: request.method().as_str().to_lowercase(), path: request.url().path().to_owned() }
    }

    /// Panics when the document has this operation and not this answer. Operations that it does not have are not checked, nor
    /// bodies that are compressed.
    pub fn check(&self, status: u16, headers: &HeaderMap, text: &str) {
        let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default();
        let text = if headers.contains_key(CONTENT_ENCODING) { "" } else { text };
        // The document has that of the edge. Each service has one of its own, for probes.
        if self.path == "/readyz" {
            return;
        }
        if let Err(difference) = DOCUMENT.check(self, status, media_type, text) {
            panic!("{} {} answers {status}, {difference}\n{text}", self.method, self.path);
        }
    }

    /// Panics when this is not the data of an event of this stream.
    pub fn check_event(&self, data: &str) {
        if let Err(difference) = DOCUMENT.check(self, 200, EVENTS, data) {
            panic!("{} {} sends an event, {difference}\n{data}", self.method, self.path);
        }
    }
}

struct Document {
    whole: Value,
    schemas: Schemas,
    /// By the place of a body in the document.
    bodies: HashMap<String, SchemaIndex>,
}

impl Document {
    fn new(text: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let whole: Value = serde_json::from_str(text)?;
        let mut closed = whole.clone();
        close(&mut closed, &whole);
        let (mut compiler, mut schemas, mut bodies) = (Compiler::new(), Schemas::new(), HashMap::new());
        compiler.add_resource(URL, closed)?;
        let mut places = Vec::new();
        bodies_below(&whole, String::new(), &mut places);
        for place in places {
            let url = format!("{URL}#{}", place.replace('{', "%7B").replace('}', "%7D"));
            let index = compiler.compile(&url, &mut schemas).map_err(|error| format!("{place}: {error:#}"))?;
            bodies.insert(place, index);
        }
        Ok(Self { whole, schemas, bodies })
    }

    fn check(&self, asked: &Asked, status: u16, media_type: &str, text: &str) -> Result<(), String> {
        let Some((template, operation)) = self.operation(asked) else { return Ok(()) };
        let place = format!("/paths/{}/{}/responses", escaped(template), asked.method);
        let responses = operation.get("responses").ok_or("and has no answers in the document")?;
        let key = [status.to_string(), format!("{}XX", status / 100), "default".to_owned()]
            .into_iter()
            .find(|key| responses.get(key).is_some())
            .ok_or("a status that its operation does not have")?;
        let (place, answer) = self.followed(format!("{place}/{key}"));
        let contents = answer.and_then(|answer| answer.get("content")).and_then(Value::as_object);
        let Some(contents) = contents else {
            return if text.is_empty() { Ok(()) } else { Err("with a body, and the document has none".to_owned()) };
        };
        if text.is_empty() {
            return Ok(());
        }
        let Some(content) = contents.get(media_type) else {
            return Err(format!("as {media_type:?}, which the document does not have"));
        };
        if content.get("schema").is_none() {
            return Ok(());
        }
        if !media_type.ends_with("json") && media_type != EVENTS {
            return Ok(());
        }
        let value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        self.matches(&format!("{place}/content/{}/schema", escaped(media_type)), &value)
    }

    /// The path as the document has it, and the operation. Literal segments win over parameters.
    fn operation(&self, asked: &Asked) -> Option<(&str, &Value)> {
        let paths = self.whole.get("paths")?.as_object()?;
        let fits = |template: &str| {
            let (have, want) = (asked.path.split('/'), template.split('/'));
            have.clone().count() == want.clone().count()
                && have.zip(want).all(|(have, want)| have == want || want.starts_with('{'))
        };
        let (template, path) = paths
            .iter()
            .filter(|(template, _)| fits(template))
            .min_by_key(|(template, _)| template.matches('{').count())?;
        Some((template, path.get(&asked.method)?))
    }

    /// A place in the document, and what is there, behind its references.
    fn followed(&self, mut place: String) -> (String, Option<&Value>) {
        while let Some(reference) = self.whole.pointer(&place).and_then(|value| value.get("$ref")?.as_str()) {
            place = reference.trim_start_matches('#').to_owned();
        }
        let found = self.whole.pointer(&place);
        (place, found)
    }

    fn matches(&self, place: &str, value: &Value) -> Result<(), String> {
        let index = self.bodies.get(place).ok_or("without a schema")?;
        self.schemas.validate(value, *index).map_err(|error| format!("which is not what the document says: {error:#}"))
    }
}

/// The schemas of all contents.
fn bodies_below(value: &Value, place: String, found: &mut Vec<String>) {
    if let Some(contents) = value.get("content").and_then(Value::as_object) {
        let with_schema = contents.iter().filter(|(_, content)| content.get("schema").is_some());
        found.extend(with_schema.map(|(media_type, _)| format!("{place}/content/{}/schema", escaped(media_type))));
    }
    if let Value::Object(members) = value {
        let members = members.iter().filter(|(name, _)| !["content", "schemas"].contains(&name.as_str()));
        members.for_each(|(name, value)| bodies_below(value, format!("{place}/{}", escaped(name)), found));
    }
}

/// A part of a JSON pointer (RFC 6901).
fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// Forbids members that a schema does not name, unless it says something about them itself.
fn close(value: &mut Value, whole: &Value) {
    match value {
        Value::Object(object) => {
            if let Some(parts) = object.remove("allOf") {
                flatten(object, &parts, whole);
            }
            object.values_mut().for_each(|value| close(value, whole));
            if object.get("properties").is_some_and(Value::is_object) {
                object.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| close(value, whole)),
        _ => {}
    }
}

/// The parts of an `allOf` in one object: what is closed by itself would refuse the members of the others.
fn flatten(object: &mut Map<String, Value>, parts: &Value, whole: &Value) {
    for part in parts.as_array().into_iter().flatten() {
        let reference = part.get("$ref").and_then(Value::as_str);
        let part = reference.and_then(|reference| whole.pointer(reference.trim_start_matches('#'))).unwrap_or(part);
        if let Some(inner) = part.get("allOf") {
            flatten(object, inner, whole);
        }
        if let Some(Value::Object(more)) = part.get("properties") {
            let all = object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(all) = all {
                all.extend(more.clone());
            }
        }
        if let Some(Value::Array(more)) = part.get("required") {
            let all = object.entry("required").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(all) = all {
                all.extend(more.clone());
            }
        }
    }
}
