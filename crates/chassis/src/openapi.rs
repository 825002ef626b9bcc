//! Builds the OpenAPI 3.1 document from the route tables, so that it has exactly the routes of the tables.

mod exact;
mod operation;
mod problems;
mod schema_ref;

use std::collections::{BTreeMap, BTreeSet};

use ensemble_types::problem::Problem;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{RefOr, Schema};

use crate::routes::{Routes, Row};

pub use schema_ref::SchemaRef;

/// An OpenAPI document, its parts in the order in which people read them.
#[derive(Debug, Serialize)]
pub struct Document {
    openapi: &'static str,
    info: Value,
    paths: Value,
    components: Value,
}

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// One document for several tables.
///
/// # Errors
/// A schema that cannot be written as JSON.
pub fn document(title: &str, description: &str, version: &str, tables: &[Routes]) -> serde_json::Result<Document> {
    let rows = || tables.iter().flat_map(Routes::rows);
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for row in rows() {
        let method = row.method.as_str().to_ascii_lowercase();
        paths.entry(row.path).or_default().insert(method, operation::of(row)?);
    }
    Ok(Document {
        openapi: "3.1.0",
        info: json!({ "title": title, "description": description, "version": version }),
        paths: serde_json::to_value(paths)?,
        components: json!({
            "schemas": serde_json::to_value(schemas(tables))?,
            "responses": problems::components(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" },
                "voiceKey": { "type": "apiKey", "in": "header", "name": "X-Voice-Key" },
            },
        }),
    })
}

/// The schemas that the rows name.
fn schemas(tables: &[Routes]) -> Schemas {
    let rows = || tables.iter().flat_map(Routes::rows);
    let mut schemas = Schemas::new();
    let problem = SchemaRef::of::<Problem>();
    for found in rows().flat_map(answers).chain([&problem]) {
        for (name, schema) in &found.schemas {
            schemas.entry(name.clone()).or_insert_with(|| schema.clone());
        }
    }
    for body in rows().filter_map(|row| row.doc.body.as_ref()) {
        for (name, schema) in &body.schemas {
            exact::bound(schemas.entry(name.clone()).or_insert_with(|| schema.clone()));
        }
    }
    close(&mut schemas, tables);
    schemas
}

fn answers(row: &Row) -> impl Iterator<Item = &SchemaRef> {
    row.doc.answers.iter().filter_map(|(_, _, schema)| schema.as_ref())
}

/// Closes the schemas that only the bodies of closed routes have. Those of answers stay open, because answers get new members.
fn close(schemas: &mut Schemas, tables: &[Routes]) {
    let rows = || tables.iter().flat_map(Routes::rows);
    let open_bodies = rows().filter(|row| !row.closed).filter_map(|row| row.doc.body.as_ref());
    let stay_open: BTreeSet<&str> = open_bodies
        .chain(rows().flat_map(answers))
        .flat_map(|of| of.schemas.iter().map(|(name, _)| name.as_str()))
        .collect();
    let closed_bodies = rows().filter(|row| row.closed).filter_map(|row| row.doc.body.as_ref());
    for (name, _) in closed_bodies.flat_map(|body| &body.schemas) {
        if !stay_open.contains(name.as_str())
            && let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(name)
            && !object.properties.is_empty()
        {
            object.additional_properties.get_or_insert_with(|| Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
}
