//! Builds the OpenAPI 3.1 document from the route tables, so that it has exactly the routes of the tables.

mod exact;
mod headers;
mod older;
mod operation;
mod problems;
mod schema_ref;
mod security;
mod settle;

use std::collections::{BTreeMap, BTreeSet};

use ensemble_types::problem::Problem;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{RefOr, Schema};

use crate::routes::{Routes, Row, Tag};

pub use older::as_3_0;
pub use schema_ref::SchemaRef;
use settle::Limits;

/// An OpenAPI document, its parts in the order in which people read them.
#[derive(Debug, Serialize)]
pub struct Document {
    openapi: &'static str,
    info: Value,
    servers: Value,
    tags: Value,
    paths: Value,
    components: Value,
}

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// One document for several tables. `info` is the Info Object.
///
/// # Errors
/// A schema that cannot be written as JSON.
pub fn document(info: Value, tables: &[Routes]) -> serde_json::Result<Document> {
    let rows = || tables.iter().flat_map(Routes::rows);
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (row, id) in rows().filter_map(|row| Some((row, row.doc.id?))) {
        let method = row.method.as_str().to_ascii_lowercase();
        paths.entry(row.path).or_default().insert(method, operation::of(row, id)?);
    }
    let mut schemas = named_schemas(tables)?;
    let limits = Limits::take(&mut schemas);
    let (mut paths, mut schemas) = (serde_json::to_value(paths)?, schemas.into());
    limits.settle(&mut paths);
    limits.settle(&mut schemas);
    Ok(Document {
        openapi: "3.1.0",
        info,
        servers: json!([{ "url": "/", "description": "The server from which you have this document." }]),
        tags: tags(tables),
        paths,
        components: json!({
            "schemas": schemas,
            "responses": problems::components(),
            "headers": headers::components(),
            "securitySchemes": security::schemes(),
        }),
    })
}

/// The groups of the operations, in the order of the tables.
fn tags(tables: &[Routes]) -> Value {
    let mut tags: Vec<Value> = Vec::new();
    for Tag(name, words) in
        tables.iter().flat_map(Routes::rows).filter(|row| row.doc.id.is_some()).map(|row| row.doc.tag)
    {
        let tag = json!({ "name": name, "description": words });
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags.into()
}

/// The schemas that the rows name.
fn named_schemas(tables: &[Routes]) -> serde_json::Result<Map<String, Value>> {
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
    schemas.into_iter().map(|(name, schema)| Ok((name, serde_json::to_value(schema)?))).collect()
}

fn answers(row: &Row) -> impl Iterator<Item = &SchemaRef> {
    row.doc.answers.iter().filter_map(|answer| answer.schema.as_ref())
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
