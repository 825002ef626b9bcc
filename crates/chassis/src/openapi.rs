//! Builds the OpenAPI 3.1 document from the route tables, so that it has exactly the routes of the tables.

mod exact;
mod schema_ref;

use std::collections::{BTreeMap, BTreeSet};

use ensemble_types::problem::{Code, PROBLEM_JSON, Problem};
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{AdditionalProperties, SchemaType};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, ObjectBuilder, OneOfBuilder, OpenApi, OpenApiBuilder, PathItem, Paths,
    Ref, RefOr, Required, ResponseBuilder, Schema, Type,
};

use crate::auth::Access;
use crate::routes::{Routes, Row};

pub use schema_ref::SchemaRef;

/// One document for several tables.
pub fn document(title: &str, description: &str, version: &str, tables: &[Routes]) -> OpenApi {
    let mut schemas: BTreeMap<String, RefOr<Schema>> = BTreeMap::new();
    let mut paths = Paths::new();
    add(&mut schemas, &SchemaRef::of::<Problem>());
    for row in tables.iter().flat_map(Routes::rows) {
        for schema in row.doc.answers.iter().filter_map(|(_, _, schema)| schema.as_ref()) {
            add(&mut schemas, schema);
        }
    }
    for body in tables.iter().flat_map(Routes::rows).filter_map(|row| row.doc.body.as_ref()) {
        for (name, schema) in &body.schemas {
            exact::bound(schemas.entry(name.clone()).or_insert_with(|| schema.clone()));
        }
    }
    close(&mut schemas, tables);
    for row in tables.iter().flat_map(Routes::rows) {
        if let Some(method) = method(row) {
            let item = PathItem::new(method, operation(row));
            match paths.paths.entry(row.path.to_owned()) {
                std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().merge_operations(item),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(item);
                }
            }
        }
    }
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(
            "bearer",
            SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build()),
        )
        .security_scheme("voiceKey", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-Voice-Key"))))
        .build();
    let info = InfoBuilder::new().title(title).description(Some(description)).version(version).build();
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).build()
}

/// Closes the schemas that only the bodies of closed routes have. Those of answers stay open, because answers get new members.
fn close(schemas: &mut BTreeMap<String, RefOr<Schema>>, tables: &[Routes]) {
    let rows = || tables.iter().flat_map(Routes::rows);
    let open_bodies = rows().filter(|row| !row.closed).filter_map(|row| row.doc.body.as_ref());
    let answers = rows().flat_map(|row| row.doc.answers.iter().filter_map(|(_, _, schema)| schema.as_ref()));
    let stay_open: BTreeSet<&str> =
        open_bodies.chain(answers).flat_map(|of| of.schemas.iter().map(|(name, _)| name.as_str())).collect();
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

fn add(schemas: &mut BTreeMap<String, RefOr<Schema>>, found: &SchemaRef) {
    for (name, schema) in &found.schemas {
        schemas.entry(name.clone()).or_insert_with(|| schema.clone());
    }
}

fn method(row: &Row) -> Option<HttpMethod> {
    Some(match row.method.as_str() {
        "GET" => HttpMethod::Get,
        "POST" => HttpMethod::Post,
        "PATCH" => HttpMethod::Patch,
        "DELETE" => HttpMethod::Delete,
        _ => return None,
    })
}

fn operation(row: &Row) -> utoipa::openapi::path::Operation {
    let mut operation =
        OperationBuilder::new().summary(Some(row.doc.summary)).tag(row.doc.tag).operation_id(Some(operation_id(row)));
    for name in path_parameters(row.path) {
        operation = operation.parameter(
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .schema(Some(exact::segment(name))),
        );
    }
    for parameter in &row.doc.parameters {
        operation = operation.parameter(exact::parameter(parameter.clone()));
    }
    if row.doc.idempotent {
        operation = operation.parameter(
            ParameterBuilder::new()
                .name("Idempotency-Key")
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some("A repeat with the same key and body within 24 h gives the first result again."))
                .schema(Some(
                    ObjectBuilder::new()
                        .schema_type(SchemaType::Type(Type::String))
                        .min_length(Some(16))
                        .max_length(Some(128))
                        .pattern(Some("^[!-~]+$")),
                )),
        );
    }
    if let Some(body) = &row.doc.body {
        operation = operation.request_body(Some(
            RequestBodyBuilder::new()
                .content("application/json", Content::new(Some(Ref::from_schema_name(&body.name))))
                .required(Some(if row.doc.body_optional { Required::False } else { Required::True }))
                .description(Some(format!("At most {} bytes.", row.max_body)))
                .extensions(Some(ExtensionsBuilder::new().add("x-max-bytes", row.max_body).build()))
                .build(),
        ));
    }
    for (status, contents) in answers(row) {
        let mut response = ResponseBuilder::new().description("Success");
        for (media_type, names) in contents.into_iter().filter(|(media_type, _)| !media_type.is_empty()) {
            response = response.content(media_type, Content::new(one_of(&names)));
        }
        operation = operation.response(status.to_string(), response.build());
    }
    for (status, codes) in problems(row) {
        let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
        let response = ResponseBuilder::new()
            .description(names.join(", "))
            .content(PROBLEM_JSON, Content::new(Some(Ref::from_schema_name("Problem"))))
            .build();
        operation = operation.response(status.to_string(), response);
    }
    match row.access {
        Access::Public | Access::SignedRequest => {}
        Access::VoiceKey => {
            operation = operation.security(SecurityRequirement::new("voiceKey", Vec::<String>::new()));
            operation = operation.security(SecurityRequirement::new("bearer", Vec::<String>::new()));
        }
        Access::User | Access::UserOrMachine | Access::Machine | Access::UserOrRecovery | Access::AnyToken => {
            operation = operation.security(SecurityRequirement::new("bearer", Vec::<String>::new()));
        }
    }
    operation.build()
}

/// The successful responses of a row, by status and media type.
fn answers(row: &Row) -> BTreeMap<u16, BTreeMap<&'static str, Vec<&str>>> {
    let mut by_status: BTreeMap<u16, BTreeMap<&'static str, Vec<&str>>> = BTreeMap::new();
    for (status, media_type, schema) in &row.doc.answers {
        let names = by_status.entry(*status).or_default().entry(media_type).or_default();
        names.extend(schema.as_ref().map(|schema| schema.name.as_str()));
    }
    by_status
}

fn one_of(names: &[&str]) -> Option<RefOr<Schema>> {
    match names {
        [] => None,
        [name] => Some(Ref::from_schema_name(*name).into()),
        several => {
            let all = several.iter().fold(OneOfBuilder::new(), |all, name| all.item(Ref::from_schema_name(*name)));
            Some(all.into())
        }
    }
}

/// The problems of a row by status: its own ones, and those of all routes.
fn problems(row: &Row) -> BTreeMap<u16, Vec<Code>> {
    let mut codes = row.doc.errors.clone();
    codes.extend([Code::InvalidArgument, Code::RateLimited, Code::Internal]);
    codes.extend([Code::UpstreamError, Code::Unavailable, Code::UpstreamTimeout]);
    codes.extend([Code::UriTooLong, Code::HeadersTooLarge, Code::RequestTimeout]);
    if !matches!(row.access, Access::Public) {
        codes.push(Code::Unauthenticated);
    }
    if !matches!(row.access, Access::Public | Access::SignedRequest | Access::VoiceKey) {
        codes.push(Code::DeviceRemoved);
    }
    if matches!(row.access, Access::User | Access::Machine | Access::UserOrRecovery) {
        codes.push(Code::Forbidden);
    }
    if row.path.contains('{') {
        codes.push(Code::NotFound);
    }
    if row.doc.body.is_some() {
        codes.extend([Code::InvalidJson, Code::PayloadTooLarge, Code::UnsupportedMediaType]);
    }
    if row.doc.idempotent {
        codes.extend([Code::IdempotencyMismatch, Code::Conflict]);
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        let known = by_status.entry(code.status()).or_default();
        if !known.contains(&code) {
            known.push(code);
        }
    }
    by_status
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
